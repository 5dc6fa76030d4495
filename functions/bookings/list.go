package bookings

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
)

// List declares bookings.list.
func List(d Deps) *op.Operation {
	type in struct {
		From  *time.Time    `json:"from,omitempty" jsonschema:"only bookings that end after it"`
		To    *time.Time    `json:"to,omitempty" jsonschema:"only bookings that start before it"`
		State booking.State `json:"state,omitempty" enum:"confirmed,cancelled"`
		op.Paging
	}
	return op.New(op.Spec{
		Name: "bookings.list", Method: "GET", Path: "/v1/bookings", Scope: "bookings:read",
		Summary:     "List bookings",
		Description: "Lists bookings by their start, the earliest first, each with where the mails about its latest change stand. For what is to come, set from to the present time.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[View], err error) {
		var after *booking.Position
		if in.Cursor != "" {
			after = &booking.Position{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return page, err
			}
		}
		f := booking.Filter{State: in.State}
		if in.From != nil {
			f.From = *in.From
		}
		if in.To != nil {
			f.To = *in.To
		}
		rows, next, total, err := booking.List(ctx, d.DB, c.OwnerID, f, after, in.Limit)
		if err != nil {
			return page, err
		}
		if next != nil {
			page.NextCursor = op.EncodeCursor(next)
		}
		page.Total = total
		page.Items, err = d.views(ctx, c.OwnerID, rows, booking.ByOwner)
		return page, err
	})
}
