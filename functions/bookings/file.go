package bookings

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

const calendarType = "text/calendar; charset=utf-8"

// calendarFile serves a calendar; the same bookings are the same bytes.
func calendarFile(body []byte, download string) op.File {
	return op.File{Body: body, ETag: fmt.Sprintf(`"%x"`, sha256.Sum256(body)), Download: download}
}

// File declares bookings.file.
func File(d Deps) *op.Operation {
	type in struct {
		Handle string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		File   string `json:"file" path:"file" jsonschema:"the booking's id and .ics"`
		Token  string `json:"token,omitempty" maxLength:"200" jsonschema:"the visitor's manage_token; the owner leaves it out"`
	}
	return op.New(op.Spec{
		Name: "bookings.file", Method: "GET", Path: "/v1/public/{handle}/bookings/{file}", Access: op.Guest, Scope: "bookings:read",
		Summary:     "Download a booking as a calendar file",
		Description: "A booking as an iCalendar file, for the owner or the visitor who has its token.",
		Produces:    calendarType,
	}, func(ctx context.Context, c auth.Caller, in in) (op.File, error) {
		if in.Token == "" {
			if err := asOwner(ctx, c); err != nil {
				return op.File{}, err
			}
		}
		p, err := auth.OwnerOf(ctx, d.DB, in.Handle)
		if err != nil {
			return op.File{}, err
		}
		name, ics := strings.CutSuffix(in.File, ".ics")
		id, err := uuid.Parse(name)
		if err != nil || !ics || len(name) != 36 {
			return op.File{}, fault.NotFound("booking")
		}
		r, _, err := reach(ctx, c, d.DB, id, in.Token)
		if err != nil {
			return op.File{}, err
		}
		if r.Owner != p.ID {
			return op.File{}, fault.NotFound("booking")
		}
		var manage string
		if in.Token != "" {
			manage = booking.ManageURL(d.PublicURL, p.Handle, r.ID, in.Token)
		}
		return calendarFile(booking.Message(booking.Publish, booking.EventOf(r, owner(p), manage)), "booking.ics"), nil
	})
}
