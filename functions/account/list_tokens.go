package account

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// ListTokens declares tokens.list.
func ListTokens(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "tokens.list", Method: "GET", Path: "/v1/tokens", Scope: "account:read",
		Summary:     "List API tokens",
		Description: "Lists the account's API tokens without their secrets, newest first, also those that expired or were revoked.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[auth.Token], err error) {
		var after *auth.TokenCursor
		if in.Cursor != "" {
			after = &auth.TokenCursor{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return page, err
			}
		}
		items, next, total, err := auth.ListTokens(ctx, d.DB, c.OwnerID, after, in.Limit)
		if next != nil {
			page.NextCursor = op.EncodeCursor(next)
		}
		page.Items, page.Total = items, total
		return page, err
	})
}
