package corpus

import (
	"context"

	"github.com/google/uuid"

	"standmeet/functions/obsidian"
	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
)

// Read is a note with what it is connected to.
type Read struct {
	Note      notes.Note    `json:"note"`
	Links     []notes.Link  `json:"links" jsonschema:"where the note's links lead, each once, 1000 at most"`
	Truncated bool          `json:"index_truncated,omitempty" jsonschema:"true: the note is too long for search to know all of its words; those at its end may not find it"`
	Backlinks []notes.Named `json:"backlinks" jsonschema:"notes that link to this one, as far as they are indexed, 100 at most"`
}

func (r Read) note() notes.Note { return r.Note }

// Get declares corpus.get.
func Get(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the note's id"`
	}
	return op.New(op.Spec{
		Name: "corpus.get", Method: "GET", Path: "/v1/corpus/{id}", Scope: "corpus:read",
		Summary:     "Read a note",
		Description: `Reads a note with its body, where its links lead, and which notes link to it. Example: {"id": "…"}.`,
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
		Headers:     []op.Header{etag()},
	}, func(ctx context.Context, c auth.Caller, in in) (o Read, err error) {
		if o.Note, err = notes.Get(ctx, d.DB, c.OwnerID, in.ID); err != nil {
			return o, err
		}
		if o.Links, err = notes.LinksOf(ctx, d.DB, c.OwnerID, o.Note, nil); err != nil {
			return o, err
		}
		if err = obsidian.Attachments(ctx, d.DB, c.OwnerID, o.Note, o.Links, func(_ notes.Link, p string) string { return obsidian.AssetURL(p) }); err != nil {
			return o, err
		}
		if o.Truncated, err = notes.Truncated(ctx, d.DB, o.Note); err != nil {
			return o, err
		}
		o.Backlinks, err = notes.Backlinks(ctx, d.DB, c.OwnerID, o.Note, nil)
		return o, err
	})
}
