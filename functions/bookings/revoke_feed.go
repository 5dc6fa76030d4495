package bookings

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// RevokeFeed declares calendar_feed.revoke.
func RevokeFeed(d Deps) *op.Operation {
	type in struct{}
	type out struct {
		Revoked bool `json:"revoked"`
	}
	return op.NewWrite(op.Spec{
		Name: "calendar_feed.revoke", Method: "DELETE", Path: "/v1/calendar-feed", Scope: "bookings:write",
		Summary:     "Revoke the address for calendar apps",
		Description: "Ends the secret address by which calendar apps read the owner's bookings. Without one it is not_found.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, _ in) (out, error) {
		return out{true}, booking.RevokeFeed(ctx, tx, c.OwnerID)
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}

func ignoreNotFound(err error) error {
	if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind {
		return nil
	}
	return err
}
