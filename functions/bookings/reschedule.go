package bookings

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/limit"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// moveLimit keeps a visitor from moving one booking to and fro: each move is mailed.
func moveLimit() limit.Rule {
	return limit.Rule{Name: "booking_moves", Most: 20, Per: time.Hour, Detail: "A booking can be moved 20 times within an hour; this time it was not."}
}

// Reschedule declares bookings.reschedule. Its faults are those of
// [booking.Reschedule] and, for a visitor, "rate_limited" (429).
func Reschedule(d Deps) *op.Operation {
	type in struct {
		Naming
		Start       time.Time `json:"start" jsonschema:"the start of a free slot, from bookings.slots"`
		DurationMin int       `json:"duration_min,omitempty" minimum:"5" maximum:"480" jsonschema:"how long it is from now on; as long as before if left out"`
	}
	return op.NewWrite(op.Spec{
		Name: "bookings.reschedule", Method: "POST", Path: "/v1/bookings/{id}/reschedule", Access: op.Guest, Scope: "bookings:write",
		Summary: "Move a booking",
		Description: "Moves a booking to another free slot and has a mail to the visitor queued. If the new time can't be had (slot_taken, slot_not_offered), the booking stays where it is. " +
			"A visitor proves with manage_token that it is theirs, and can't move what has begun. The lead time and the horizon don't bind the owner.",
		Tool: &op.Tool{OpenWorld: true}, MaxBody: 16 << 10,
		Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (t touched, err error) {
		r, who, err := in.reach(ctx, c, tx)
		if err != nil {
			return t, err
		}
		if err := minute(in.Start); err != nil {
			return t, err
		}
		a, err := booking.LockAvailability(ctx, tx, r.Owner)
		if err != nil {
			return t, err
		}
		if r, err = booking.Lock(ctx, tx, in.ID); err != nil {
			return t, err
		}
		changed, err := booking.Reschedule(ctx, tx, a, r, in.Start, in.DurationMin, who, outbox.NewID(), time.Now())
		if err == nil && changed && who == booking.ByVisitor {
			err = moveLimit().Take(ctx, tx, r.ID.String())
		}
		return touched{r.ID, who}, err
	}, d.answer)
}
