package bookings

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
)

// GetAvailability declares availability.get.
func GetAvailability(d Deps) *op.Operation {
	type in struct{}
	type out struct {
		booking.Availability
		CalendarFeedSince *time.Time `json:"calendar_feed_since,omitempty" jsonschema:"since when there is an address that calendar apps read the bookings by; absent: there is none"`
	}
	return op.New(op.Spec{
		Name: "availability.get", Method: "GET", Path: "/v1/availability", Scope: "bookings:read",
		Summary:     "Read when visitors can book",
		Description: "Reads the weekly hours in which visitors can book the owner, and the rules around them. An owner who never set them has the defaults and no hours: bookable is false. It also tells whether calendar apps can read the bookings, but not by which address: that is secret.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, _ in) (o out, err error) {
		if o.Availability, err = booking.ReadAvailability(ctx, d.DB, c.OwnerID); err != nil {
			return o, err
		}
		o.CalendarFeedSince, err = booking.FeedSince(ctx, d.DB, c.OwnerID)
		return o, err
	})
}
