package corpus

import (
	"context"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
)

// Trash declares corpus.trash.
func Trash(d Deps) *op.Operation {
	type in struct{ op.Paging }
	return op.New(op.Spec{
		Name: "corpus.trash", Method: "GET", Path: "/v1/corpus/trash", Scope: "corpus:read",
		Summary:     "List deleted notes",
		Description: `Lists the notes that were deleted, last first, each with how many notes its deletion took. corpus.restore brings them back.`,
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (page op.Page[notes.Trashed], err error) {
		var at notes.TrashPosition
		if err := op.DecodeCursor(in.Cursor, &at); err != nil {
			return page, err
		}
		items, more, total, err := notes.Trash(ctx, d.DB, c.OwnerID, at, in.Limit)
		if err != nil {
			return page, err
		}
		page.Items, page.Total = items, total
		if more {
			last := items[len(items)-1].Note
			page.NextCursor = op.EncodeCursor(notes.TrashPosition{DeletedAt: *last.DeletedAt, ID: last.ID})
		}
		return page, nil
	})
}
