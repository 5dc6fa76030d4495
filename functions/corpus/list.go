package corpus

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

// List declares corpus.list.
func List(d Deps) *op.Operation {
	type in struct {
		Genre      notes.Genre      `json:"genre,omitempty" enum:"raw,wiki,output" jsonschema:"Only notes of this genre."`
		Tag        string           `json:"tag,omitempty" maxLength:"100" jsonschema:"Only notes with this tag or one nested in it."`
		ParentID   string           `json:"parent_id,omitempty" maxLength:"64" jsonschema:"Only notes right under this one; root for those that stand under none."`
		Visibility notes.Visibility `json:"visibility,omitempty" enum:"private,coded,public" jsonschema:"Only notes of this visibility."`
		op.Paging
	}
	return op.New(op.Spec{
		Name: "corpus.list", Method: "GET", Path: "/v1/corpus", Scope: "corpus:read",
		Summary: "List notes",
		Description: `Lists notes without their bodies, last changed first. Example: {"genre": "wiki", "parent_id": "root", "limit": 20}. ` +
			`To find notes by their words use corpus.search.`,
		Tool: &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (op.Page[notes.Note], error) {
		f := notes.Filter{Genre: in.Genre, Tag: in.Tag, Visibility: in.Visibility, Root: in.ParentID == "root"}
		if in.ParentID != "" && !f.Root {
			id, err := uuid.Parse(in.ParentID)
			if err != nil {
				return op.Page[notes.Note]{}, fault.InvalidField("parent_id", "invalid_format", "parent_id must be a note's id, or root.")
			}
			f.ParentID = &id
		}
		return list(ctx, d, c.OwnerID, f, in.Paging)
	})
}

func list(ctx context.Context, d Deps, owner uuid.UUID, f notes.Filter, p op.Paging) (page op.Page[notes.Note], err error) {
	var at notes.Position
	if err := op.DecodeCursor(p.Cursor, &at); err != nil {
		return page, err
	}
	items, more, total, err := notes.List(ctx, d.DB, owner, f, at, p.Limit)
	if err != nil {
		return page, err
	}
	page.Items, page.Total = items, total
	if more {
		last := items[len(items)-1]
		page.NextCursor = op.EncodeCursor(notes.Position{UpdatedAt: last.UpdatedAt, ID: last.ID})
	}
	return page, nil
}
