package bookings

import (
	"context"
	"strings"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/secret"
)

// Feed declares calendar_feed.read.
func Feed(d Deps) *op.Operation {
	type in struct {
		Handle string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		File   string `json:"file" path:"file" jsonschema:"the feed's token and .ics"`
	}
	return op.New(op.Spec{
		Name: "calendar_feed.read", Method: "GET", Path: "/v1/public/{handle}/calendar/{file}", Access: op.Public,
		Summary:     "Subscribe to an owner's bookings",
		Description: "The owner's confirmed bookings as an iCalendar feed, from 90 days ago on, for whoever has its secret address.",
		Produces:    calendarType,
	}, func(ctx context.Context, _ auth.Caller, in in) (op.File, error) {
		// a wrong address tells nothing about who has a feed
		none := fault.NotFound("calendar feed")
		token, ics := strings.CutSuffix(in.File, ".ics")
		if !ics {
			return op.File{}, none
		}
		p, err := auth.OwnerOf(ctx, d.DB, in.Handle)
		if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind {
			return op.File{}, none
		}
		if err != nil {
			return op.File{}, err
		}
		hash, err := booking.FeedHash(ctx, d.DB, p.ID)
		if err != nil {
			return op.File{}, err
		}
		if !secret.Same(token, hash) {
			return op.File{}, none
		}
		rows, err := booking.Feed(ctx, d.DB, p.ID, time.Now())
		if err != nil {
			return op.File{}, err
		}
		events := make([]booking.Event, len(rows))
		for i, r := range rows {
			events[i] = booking.EventOf(r, owner(p), "")
		}
		return calendarFile(booking.Calendar("Bookings of "+owner(p).Name, events), ""), nil
	})
}
