package bookings

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
)

// GetAvailability declares availability.get.
func GetAvailability(d Deps) *op.Operation {
	type in struct{}
	return op.New(op.Spec{
		Name: "availability.get", Method: "GET", Path: "/v1/availability", Scope: "bookings:read",
		Summary:     "Read when visitors can book",
		Description: "Reads the weekly hours in which visitors can book the owner, and the rules around them. An owner who never set them has the defaults and no hours: bookable is false.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, _ in) (booking.Availability, error) {
		return booking.ReadAvailability(ctx, d.DB, c.OwnerID)
	})
}
