package bookings

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/email"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// Created answers bookings.create.
type Created struct {
	View
	ManageToken string `json:"manage_token,omitempty" jsonschema:"the visitor's proof: whoever has it reads, moves and cancels the booking. Absent only when a repetition meets an installation that has lost the key that made it"`
	ManageURL   string `json:"manage_url,omitempty" jsonschema:"the page on which the visitor moves or cancels"`
	ICSURL      string `json:"ics_url,omitempty" jsonschema:"the booking as a calendar file"`
}

func createLimit() limit.Rule {
	return limit.Rule{Name: "bookings", Most: 120, Per: time.Hour, Detail: "120 bookings within an hour are taken from one address; this one was not saved."}
}

// Create declares bookings.create. Its faults are those of [booking.Create],
// "website_filled" (422) for what fills in the field that people don't see, and
// "rate_limited" (429).
func Create(d Deps) *op.Operation {
	type in struct {
		Handle      string    `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Start       time.Time `json:"start" jsonschema:"the start of a slot, from bookings.slots"`
		DurationMin int       `json:"duration_min,omitempty" minimum:"5" maximum:"480" jsonschema:"how long it is, all of it within the owner's hours; the owner's slot length if left out"`
		Name        string    `json:"name" minLength:"1" maxLength:"200" jsonschema:"the visitor's"`
		Email       string    `json:"email" minLength:"1" maxLength:"320" jsonschema:"one plain address, where the calendar invitation goes"`
		TimeZone    string    `json:"time_zone,omitempty" maxLength:"64" jsonschema:"the visitor's, as an IANA name such as Asia/Tokyo: the mail and the page of the booking then say the time in it too"`
		Topic       string    `json:"topic,omitempty" maxLength:"2000" jsonschema:"what it is about: plain text"`
		Website     string    `json:"website,omitempty" maxLength:"2000" jsonschema:"Leave it out or empty: forms hide this field from people, and what fills it in is refused."`
	}
	return op.NewWrite(op.Spec{
		Name: "bookings.create", Method: "POST", Path: "/v1/public/{handle}/bookings", Status: http.StatusCreated, Access: op.Public,
		Summary: "Book a time",
		Description: "Books a free slot of an owner. A visitor's access code counts it, if the code has a limit; where bookings.slots says requires_code, nobody books without one (code_required). The booking is saved when this is answered; notification says where the mail with the calendar invitation stands, and bookings.get with manage_token says it later. " +
			"A time that somebody else was faster to book is slot_taken; one that bookings.slots would not list is slot_not_offered. 120 within an hour are taken from one address.",
		MaxBody: 64 << 10,
		Say:     func(o any) string { return o.(Created).Sentence },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (t touched, err error) {
		if strings.TrimSpace(in.Website) != "" {
			return t, fault.New(fault.Unprocessable, "website_filled", "Leave the field website empty: it is there for programs that fill in every field. Nothing was saved.")
		}
		if err := d.ready(); err != nil {
			return t, err
		}
		if err := minute(in.Start); err != nil {
			return t, err
		}
		n := booking.New{ID: uuid.New(), Start: in.Start, DurationMin: in.DurationMin, Zone: in.TimeZone, Name: booking.OneLine(in.Name), Topic: booking.Lines(in.Topic)}
		if n.Name == "" {
			return t, fault.InvalidField("name", "too_short", "name must not be empty.")
		}
		if n.Email, err = email.Parse(in.Email); err != nil {
			return t, fault.InvalidField("email", "invalid_format", "email must be one plain e-mail address, like name@example.com.")
		}
		if n.Zone != "" {
			if _, err := booking.Zone(n.Zone); err != nil {
				return t, err
			}
		}
		p, err := auth.OwnerOf(ctx, tx, in.Handle)
		if err != nil {
			return t, err
		}
		n.Own = c.Kind == auth.Owner && c.OwnerID == p.ID
		n.Owner, n.TokenHash = p.ID, secret.Hash(d.Keys.Token(booking.TokenPurpose, n.ID.String()))
		for _, g := range c.Grants {
			if g.OwnerID == p.ID {
				n.Codes = append(n.Codes, g.CodeID)
			}
		}
		if err := booking.Create(ctx, tx, n, outbox.NewID(), time.Now()); err != nil {
			return t, err
		}
		// last, because its row stays locked until the commit
		return touched{n.ID, booking.ByVisitor}, createLimit().Take(ctx, tx, limit.Address(c.RemoteAddr))
	}, func(ctx context.Context, _ auth.Caller, t touched) (o Created, err error) {
		r, err := booking.Get(ctx, d.DB, t.ID)
		if err != nil {
			return o, err
		}
		if o.View, err = d.view(ctx, r, t.Who); err != nil {
			return o, err
		}
		p, err := auth.GetOwner(ctx, d.DB, r.Owner)
		if err != nil {
			return o, err
		}
		if token, ok := d.Keys.FindToken(booking.TokenPurpose, r.ID.String(), r.TokenHash); ok {
			o.ManageToken = token
			o.ManageURL = booking.ManageURL(d.PublicURL, p.Handle, r.ID, token)
			o.ICSURL = booking.FileURL(d.PublicURL, p.Handle, r.ID, token)
		}
		return o, nil
	})
}
