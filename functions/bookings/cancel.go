package bookings

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Cancel declares bookings.cancel. Its fault is that of [booking.Cancel].
func Cancel(d Deps) *op.Operation {
	type in struct{ Naming }
	return op.NewWrite(op.Spec{
		Name: "bookings.cancel", Method: "POST", Path: "/v1/bookings/{id}/cancel", Access: op.Guest, Scope: "bookings:write",
		Summary: "Cancel a booking",
		Description: "Cancels a booking, so that its time is free again, and has a mail to the visitor queued. A visitor proves with manage_token that it is theirs, and can't cancel what has begun. " +
			"Cancelling again changes nothing and answers how it stands.",
		Tool: &op.Tool{Destructive: true, Idempotent: true, OpenWorld: true}, MaxBody: 16 << 10,
		Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (t touched, err error) {
		_, who, err := in.reach(ctx, c, tx)
		if err != nil {
			return t, err
		}
		r, err := booking.Lock(ctx, tx, in.ID)
		if err != nil {
			return t, err
		}
		_, err = booking.Cancel(ctx, tx, r, who, outbox.NewID(), time.Now())
		return touched{r.ID, who}, err
	}, d.answer)
}
