package access

import (
	"context"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// ListCodes declares codes.list.
func ListCodes(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "codes.list", Method: "GET", Path: "/v1/codes", Scope: "access:read",
		Summary:     "List access codes",
		Description: "Lists the access codes, newest first, also those that expired or were revoked, with their limits and how many visitors use them. Of the codes themselves it shows the last four characters.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[access.Code], err error) {
		var after access.Cursor
		if err := op.DecodeCursor(in.Cursor, &after); err != nil {
			return page, err
		}
		items, more, total, err := access.ListCodes(ctx, d.DB, c.OwnerID, after, in.Limit)
		if err != nil {
			return page, err
		}
		if more {
			last := items[len(items)-1]
			page.NextCursor = op.EncodeCursor(access.Cursor{CreatedAt: last.CreatedAt, ID: last.ID})
		}
		page.Items, page.Total = items, total
		return page, nil
	})
}
