package bookings

import (
	"context"
	"fmt"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

const (
	usualDays = 14
	mostDays  = 62
)

// Slots declares bookings.slots.
func Slots(d Deps) *op.Operation {
	type in struct {
		Handle      string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		From        string `json:"from,omitempty" maxLength:"40" jsonschema:"the earliest start: a time (RFC 3339), or a day like 2027-03-26 in the owner's time zone; now if left out"`
		To          string `json:"to,omitempty" maxLength:"40" jsonschema:"before when slots start: a time, or a day, which is included; 14 days after from if left out, 62 at most"`
		DurationMin int    `json:"duration_min,omitempty" minimum:"5" maximum:"480" jsonschema:"how long the booking would be; the owner's slot length if left out"`
	}
	type out struct {
		Bookable       bool           `json:"bookable" jsonschema:"false: the owner takes no bookings"`
		TimeZone       string         `json:"time_zone" jsonschema:"the owner's"`
		DurationMin    int            `json:"duration_min"`
		MaxDurationMin int            `json:"max_duration_min" jsonschema:"the longest that a visitor may ask for"`
		RequiresCode   bool           `json:"requires_code" jsonschema:"true: they can be booked with a redeemed access code alone"`
		From           time.Time      `json:"from"`
		To             time.Time      `json:"to"`
		Slots          []booking.Slot `json:"slots" jsonschema:"what could be booked when this was answered, by its start"`
	}
	return op.New(op.Spec{
		Name: "bookings.slots", Method: "GET", Path: "/v1/public/{handle}/bookings/slots", Access: op.Public,
		Summary:     "List the times that can be booked",
		Description: "Lists the free slots of an owner between from and to, in UTC. A slot that is listed can be booked with bookings.create, unless somebody else was faster.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, _ auth.Caller, in in) (o out, err error) {
		p, err := auth.OwnerOf(ctx, d.DB, in.Handle)
		if err != nil {
			return o, err
		}
		a, err := booking.ReadAvailability(ctx, d.DB, p.ID)
		if err != nil {
			return o, err
		}
		if err := a.Allows(in.DurationMin); err != nil {
			return o, err
		}
		now := time.Now()
		o = out{Bookable: a.Bookable, TimeZone: a.TimeZone, DurationMin: int(a.Length(in.DurationMin) / time.Minute), MaxDurationMin: a.MaxDurationMin, RequiresCode: a.RequiresCode}
		if o.From, err = moment("from", in.From, a.TimeZone, 0); err != nil {
			return o, err
		}
		if o.To, err = moment("to", in.To, a.TimeZone, 1); err != nil {
			return o, err
		}
		if o.From.IsZero() {
			o.From = now.UTC().Truncate(time.Second)
		}
		if o.To.IsZero() {
			o.To = o.From.AddDate(0, 0, usualDays)
		}
		switch length := o.To.Sub(o.From); {
		case length <= 0:
			return o, fault.InvalidField("to", "too_small", "to must be after from.")
		case length > mostDays*24*time.Hour+2*time.Hour: // a day may have 25 hours
			return o, fault.InvalidField("to", "too_large", fmt.Sprintf("to may be %d days after from at most.", mostDays))
		}
		o.Slots, err = booking.Slots(ctx, d.DB, p.ID, a, o.From, o.To, now, a.Length(in.DurationMin))
		return o, err
	})
}

// moment reads a time, or a day in zone as its beginning, days later; zero when
// there is none.
func moment(field, s, zone string, days int) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		loc, unknown := booking.Zone(zone)
		if unknown != nil {
			return t, unknown
		}
		var day time.Time
		if day, err = time.Parse(time.DateOnly, s); err == nil {
			t = time.Date(day.Year(), day.Month(), day.Day()+days, 0, 0, 0, 0, loc)
		}
	}
	if err != nil || t.Year() < 1970 || t.Year() > 9000 {
		return t, fault.InvalidField(field, "invalid_format", field+" must be a time like 2027-03-26T08:00:00Z or a day like 2027-03-26.")
	}
	return t.UTC(), nil
}
