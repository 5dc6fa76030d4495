package microsites

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
)

// List declares microsites.list.
func List(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "microsites.list", Method: "GET", Path: "/v1/microsites", Scope: "microsites:read",
		Summary:     "List microsites",
		Description: "Lists the owner's microsites, newest first, with the build that is live and the last one that was asked for.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[microsite.Site], err error) {
		var after *microsite.Cursor
		if in.Cursor != "" {
			after = &microsite.Cursor{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return page, err
			}
		}
		items, next, total, err := microsite.List(ctx, d.DB, c.OwnerID, after, in.Limit)
		if next != nil {
			page.NextCursor = op.EncodeCursor(next)
		}
		for i := range items {
			items[i] = d.place(c, items[i])
		}
		page.Items, page.Total = items, total
		return page, err
	})
}
