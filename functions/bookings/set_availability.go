package bookings

import (
	"cmp"
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// SetAvailability declares availability.set.
func SetAvailability(d Deps) *op.Operation {
	type in struct {
		TimeZone      op.Opt[string]       `json:"time_zone,omitzero" maxLength:"64" jsonschema:"IANA name of the zone that the hours are in, e.g. Europe/Berlin; cleared, it is UTC"`
		Weekly        op.Opt[booking.Week] `json:"weekly,omitzero" jsonschema:"replaces the hours of all weekdays, e.g. {\"monday\": [{\"from\": \"09:00\", \"to\": \"12:00\"}, {\"from\": \"13:00\", \"to\": \"17:00\"}]}. A day that is left out can't be booked"`
		SlotMinutes   op.Opt[int]          `json:"slot_minutes,omitzero" minimum:"5" maximum:"480" jsonschema:"how far apart starts are, counted from the beginning of the hours, and how long a booking is that says nothing else; cleared, it is 30"`
		BufferMinutes op.Opt[int]          `json:"buffer_minutes,omitzero" minimum:"0" maximum:"480" jsonschema:"what stays free after each booking; cleared, it is 0"`
		LeadMinutes   op.Opt[int]          `json:"lead_minutes,omitzero" minimum:"0" maximum:"86400" jsonschema:"how long before its start a visitor must book at the latest; cleared, it is 60"`
		HorizonDays   op.Opt[int]          `json:"horizon_days,omitzero" minimum:"1" maximum:"730" jsonschema:"how far ahead a visitor may book; cleared, it is 365"`
	}
	return op.NewWrite(op.Spec{
		Name: "availability.set", Method: "PUT", Path: "/v1/availability", Scope: "bookings:write",
		Summary:     "Set when visitors can book",
		Description: "Sets the given rules about when visitors can book and keeps all others. Bookings that exist stay as they are. The hours are what the clock shows in time_zone, also after a change between summer and winter time.",
		Tool:        &op.Tool{Idempotent: true}, MaxBody: 64 << 10,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (booking.Availability, error) {
		a, err := booking.LockAvailability(ctx, tx, c.OwnerID)
		if err != nil {
			return a, err
		}
		a.TimeZone = cmp.Or(in.TimeZone.Or(a.TimeZone), "UTC")
		a.Weekly = in.Weekly.Or(a.Weekly)
		a.SlotMinutes = or(in.SlotMinutes, a.SlotMinutes, booking.DefaultSlotMinutes)
		a.BufferMinutes = or(in.BufferMinutes, a.BufferMinutes, booking.DefaultBufferMinutes)
		a.LeadMinutes = or(in.LeadMinutes, a.LeadMinutes, booking.DefaultLeadMinutes)
		a.HorizonDays = or(in.HorizonDays, a.HorizonDays, booking.DefaultHorizonDays)
		if a, err = booking.SetAvailability(ctx, tx, c.OwnerID, a); err != nil {
			return a, err
		}
		return a, outbox.Record(ctx, tx, outbox.NewID(), outbox.AvailabilityChanged, c.OwnerID, c.OwnerID.String(), a)
	}, func(_ context.Context, _ auth.Caller, a booking.Availability) (booking.Availability, error) {
		return a, nil
	})
}

// or is the field after an update: unset when it is cleared.
func or(in op.Opt[int], old, unset int) int {
	if in.Null {
		return unset
	}
	return in.Or(old)
}
