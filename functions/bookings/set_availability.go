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
		TimeZone       op.Opt[string] `json:"time_zone,omitzero" minLength:"1" maxLength:"64" jsonschema:"IANA name of the zone that the hours are in, e.g. Europe/Berlin; cleared, it is UTC"`
		Weekly         op.Opt[week]   `json:"weekly,omitzero" jsonschema:"the hours of weekdays, e.g. {\"monday\": [{\"from\": \"09:00\", \"to\": \"12:00\"}, {\"from\": \"13:00\", \"to\": \"17:00\"}]}. A day that is left out keeps its hours; one that is null or an empty list can't be booked. Cleared, no day can"`
		SlotMinutes    op.Opt[int]    `json:"slot_minutes,omitzero" minimum:"5" maximum:"480" jsonschema:"how far apart starts are, counted from the beginning of the hours, and how long a booking is that says nothing else; cleared, it is 30"`
		BufferMinutes  op.Opt[int]    `json:"buffer_minutes,omitzero" minimum:"0" maximum:"480" jsonschema:"what stays free after each booking; cleared, it is 0"`
		LeadMinutes    op.Opt[int]    `json:"lead_minutes,omitzero" minimum:"0" maximum:"86400" jsonschema:"how long before its start a visitor must book at the latest; cleared, it is 60"`
		HorizonDays    op.Opt[int]    `json:"horizon_days,omitzero" minimum:"1" maximum:"730" jsonschema:"how far ahead a visitor may book; cleared, it is 365"`
		MaxDurationMin op.Opt[int]    `json:"max_duration_min,omitzero" minimum:"5" maximum:"480" jsonschema:"the longest booking that a visitor may ask for; cleared, it is 480"`
		RequiresCode   op.Opt[bool]   `json:"requires_code,omitzero" jsonschema:"true: a visitor must have redeemed an access code to book, and everybody still sees the free times; cleared, it is false"`
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
		a.TimeZone = cmp.Or(in.TimeZone.Or(a.TimeZone), "UTC") // cleared
		if in.Weekly.Null {
			a.Weekly = booking.Week{}
		}
		in.Weekly.Value.change(&a.Weekly)
		a.SlotMinutes = or(in.SlotMinutes, a.SlotMinutes, booking.DefaultSlotMinutes)
		a.BufferMinutes = or(in.BufferMinutes, a.BufferMinutes, booking.DefaultBufferMinutes)
		a.LeadMinutes = or(in.LeadMinutes, a.LeadMinutes, booking.DefaultLeadMinutes)
		a.HorizonDays = or(in.HorizonDays, a.HorizonDays, booking.DefaultHorizonDays)
		a.MaxDurationMin = or(in.MaxDurationMin, a.MaxDurationMin, booking.MaxDuration)
		a.RequiresCode = in.RequiresCode.Or(a.RequiresCode)
		if a, err = booking.SetAvailability(ctx, tx, c.OwnerID, a); err != nil {
			return a, err
		}
		return a, outbox.Record(ctx, tx, outbox.NewID(), outbox.AvailabilityChanged, c.OwnerID, c.OwnerID.String(), a)
	}, func(_ context.Context, _ auth.Caller, a booking.Availability) (booking.Availability, error) {
		return a, nil
	})
}

// week is a change of some weekdays' hours.
type week struct {
	Monday    op.Opt[[]booking.Hours] `json:"monday,omitzero" maxItems:"12"`
	Tuesday   op.Opt[[]booking.Hours] `json:"tuesday,omitzero" maxItems:"12"`
	Wednesday op.Opt[[]booking.Hours] `json:"wednesday,omitzero" maxItems:"12"`
	Thursday  op.Opt[[]booking.Hours] `json:"thursday,omitzero" maxItems:"12"`
	Friday    op.Opt[[]booking.Hours] `json:"friday,omitzero" maxItems:"12"`
	Saturday  op.Opt[[]booking.Hours] `json:"saturday,omitzero" maxItems:"12"`
	Sunday    op.Opt[[]booking.Hours] `json:"sunday,omitzero" maxItems:"12"`
}

func (w week) change(to *booking.Week) {
	to.Monday, to.Tuesday, to.Wednesday = w.Monday.Or(to.Monday), w.Tuesday.Or(to.Tuesday), w.Wednesday.Or(to.Wednesday)
	to.Thursday, to.Friday = w.Thursday.Or(to.Thursday), w.Friday.Or(to.Friday)
	to.Saturday, to.Sunday = w.Saturday.Or(to.Saturday), w.Sunday.Or(to.Sunday)
}

// or is the field after an update: unset when it is cleared.
func or(in op.Opt[int], old, unset int) int {
	if in.Null {
		return unset
	}
	return in.Or(old)
}
