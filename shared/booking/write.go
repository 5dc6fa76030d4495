package booking

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

const noOverlap = "bookings_no_overlap"

// The faults of a time that can't be had.
var (
	errTaken      = fault.New(fault.Conflict, "slot_taken", "This time is taken. Choose another.")
	errCode       = fault.New(fault.Forbidden, "code_required", "Here a time can be booked with an access code alone. Redeem yours first, and book in the session that it gives.")
	errNotOffered = fault.New(fault.Unprocessable, "slot_not_offered", "This time is not offered. Choose one of the free slots.")
)

// New is what a visitor asks for.
type New struct {
	ID        uuid.UUID
	Owner     uuid.UUID
	TokenHash []byte
	Start     time.Time
	// DurationMin 0 is the owner's slot length.
	DurationMin        int
	Name, Email, Topic string
	// Zone is the visitor's time zone; "" is unknown.
	Zone string
	// Codes are the owner's access codes that the visitor redeemed; the first one
	// whose quota is not used up counts the booking.
	Codes []uuid.UUID
	// Own: it is the owner who books, and needs no code.
	Own bool
}

// Create makes a booking and records event. Faults: slot_not_offered (422), also
// when the owner takes no bookings; slot_taken (409); quota_used_up (409);
// code_required (403); duration_min too large (400).
func Create(ctx context.Context, tx *pg.Tx, n New, event uuid.UUID, now time.Time) error {
	a, err := LockAvailability(ctx, tx, n.Owner)
	if err != nil {
		return err
	}
	coded := !a.RequiresCode || n.Own
	if !coded && len(n.Codes) == 0 {
		return errCode
	}
	if err := a.Allows(n.DurationMin); err != nil {
		return err
	}
	length := a.Length(n.DurationMin)
	if err := a.admits(n.Start, length, now, ByVisitor); err != nil {
		return err
	}
	code, err := charge(ctx, tx, n.Owner, n.Codes)
	if err != nil {
		return err
	}
	if !coded && code == nil {
		return errCode
	}
	end := n.Start.Add(length)
	r, err := one(ctx, tx, `
		INSERT INTO bookings (id, owner_id, code_id, starts_at, ends_at, busy, time_zone, name, email, topic, token_hash, mail_event, visitor_zone)
		VALUES ($1, $2, $3, $4, $5, tstzrange($4, $6), $7, $8, $9, $10, $11, $12, nullif($13, '')) RETURNING `+columns,
		n.ID, n.Owner, code, n.Start, end, end.Add(a.buffer()), a.TimeZone, n.Name, n.Email, n.Topic, n.TokenHash, event, n.Zone)
	if err != nil {
		return taken(err)
	}
	return outbox.Record(ctx, tx, event, outbox.BookingCreated, n.Owner, n.ID.String(), r.change(ByVisitor))
}

// admits refuses a start that who may not choose. The lead time and the horizon
// bind visitors alone, but nothing is booked in the past.
func (a Availability) admits(start time.Time, length time.Duration, now time.Time, who By) error {
	ok, err := a.Offers(start, length)
	if err != nil {
		return err
	}
	earliest, latest := a.Bounds(now)
	if who == ByOwner {
		earliest, latest = now, start
	}
	if !ok || start.Before(earliest) || start.After(latest) {
		return errNotOffered
	}
	return nil
}

func taken(err error) error {
	if pg.Violates(err, noOverlap) {
		return errTaken
	}
	return err
}

// charge finds the code that a booking counts for, nil when there is none, and
// holds the codes until the end of tx, so that the last of a quota is given once.
func charge(ctx context.Context, tx *pg.Tx, owner uuid.UUID, codes []uuid.UUID) (*uuid.UUID, error) {
	if len(codes) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT id, booking_quota FROM codes
		WHERE id = ANY ($1) AND owner_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
		ORDER BY id FOR NO KEY UPDATE`, codes, owner)
	if err != nil {
		return nil, err
	}
	quotas := map[uuid.UUID]*int{}
	var id uuid.UUID
	var quota *int
	if _, err := pgx.ForEachRow(rows, []any{&id, &quota}, func() error { quotas[id] = quota; return nil }); err != nil {
		return nil, err
	}
	for _, code := range codes {
		quota, held := quotas[code]
		if !held {
			continue
		}
		if quota == nil {
			return &code, nil
		}
		// a statement of its own: it sees what was committed while we waited for the lock
		var used int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM bookings WHERE code_id = $1 AND state = 'confirmed'`, code).Scan(&used); err != nil {
			return nil, err
		}
		if used < *quota {
			return &code, nil
		}
	}
	if len(quotas) == 0 {
		return nil, nil // all have ended meanwhile
	}
	return nil, fault.New(fault.Conflict, "quota_used_up", "The access code has no bookings left. Cancel one that was made with it, or ask the owner.")
}

// begun refuses what a visitor may no longer do.
func (r Row) begun(by By, now time.Time) error {
	if by == ByVisitor && !r.Start.After(now) {
		return fault.New(fault.Conflict, "booking_begun", "The booking has begun or is over, so it can't be changed any more. Write to the owner instead.")
	}
	return nil
}

// Reschedule moves a booking that the transaction has read, and records event. It
// is one change of one row: the new time is free or nothing changes, and the old
// time is not in its own way. durationMin 0 keeps the length. changed is false
// when the booking was at that time already. Faults: booking_cancelled,
// booking_begun, slot_taken (409), slot_not_offered (422), and for a visitor
// duration_min too large (400).
//
// The owner's availability must be locked before the booking is.
func Reschedule(ctx context.Context, tx *pg.Tx, a Availability, r Row, start time.Time, durationMin int, by By, event uuid.UUID, now time.Time) (changed bool, err error) {
	if r.State == Cancelled {
		return false, fault.New(fault.Conflict, "booking_cancelled", "The booking was cancelled, so it can't be moved. Make a new one.")
	}
	if err := r.begun(by, now); err != nil {
		return false, err
	}
	length := r.End.Sub(r.Start)
	if durationMin != 0 {
		if err := a.Allows(durationMin); err != nil && by == ByVisitor {
			return false, err
		}
		length = a.Length(durationMin)
	}
	end := start.Add(length)
	if start.Equal(r.Start) && end.Equal(r.End) {
		return false, nil
	}
	if err := a.admits(start, length, now, by); err != nil {
		return false, err
	}
	moved, err := one(ctx, tx, `
		UPDATE bookings SET starts_at = $2, ends_at = $3, busy = tstzrange($2, $4), time_zone = $5,
			sequence = sequence + 1, updated_at = clock_timestamp(), mail_event = $6, mail_state = 'sending'
		WHERE id = $1 RETURNING `+columns, r.ID, start, end, end.Add(a.buffer()), a.TimeZone, event)
	if err != nil {
		return false, taken(err)
	}
	change := moved.change(by)
	change.WasStartsAt, change.WasEndsAt = &r.Start, &r.End
	return true, outbox.Record(ctx, tx, event, outbox.BookingRescheduled, r.Owner, r.ID.String(), change)
}

// Cancel cancels a booking that the transaction has locked, and records event.
// changed is false when it had been cancelled before, which is no error. Fault:
// booking_begun (409).
func Cancel(ctx context.Context, tx *pg.Tx, r Row, by By, event uuid.UUID, now time.Time) (changed bool, err error) {
	if r.State == Cancelled {
		return false, nil
	}
	if err := r.begun(by, now); err != nil {
		return false, err
	}
	cancelled, err := one(ctx, tx, `
		UPDATE bookings SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = $2,
			sequence = sequence + 1, updated_at = clock_timestamp(), mail_event = $3, mail_state = 'sending'
		WHERE id = $1 RETURNING `+columns, r.ID, by, event)
	if err != nil {
		return false, err
	}
	return true, outbox.Record(ctx, tx, event, outbox.BookingCancelled, r.Owner, r.ID.String(), cancelled.change(by))
}
