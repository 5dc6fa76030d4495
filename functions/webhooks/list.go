package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/webhook"
)

// List declares webhooks.list.
func List(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "webhooks.list", Method: "GET", Path: "/v1/webhooks", Scope: "webhooks:read",
		Summary:     "List webhooks",
		Description: "Lists the owner's webhooks, newest first, with how they stand: enabled, failing, cooling down.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[webhook.Endpoint], err error) {
		var after *webhook.Cursor
		if in.Cursor != "" {
			after = &webhook.Cursor{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return page, err
			}
		}
		items, next, total, err := webhook.List(ctx, d.DB, c.OwnerID, after, in.Limit)
		if next != nil {
			page.NextCursor = op.EncodeCursor(next)
		}
		page.Items, page.Total = items, total
		return page, err
	})
}
