package corpus

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Promote declares corpus.promote.
func Promote(d Deps) *op.Operation {
	type in struct {
		ID         uuid.UUID                `json:"id" path:"id" jsonschema:"the note to promote"`
		Genre      op.Opt[notes.Genre]      `json:"genre,omitzero" enum:"wiki,output" jsonschema:"What the new note will be; the next genre if left out."`
		Title      op.Opt[string]           `json:"title,omitzero" maxLength:"300" jsonschema:"Left out: the source's title, or its first heading or line."`
		ParentID   op.Opt[uuid.UUID]        `json:"parent_id,omitzero" jsonschema:"Id of the note of the new genre to stand under; left out: the root."`
		Visibility op.Opt[notes.Visibility] `json:"visibility,omitzero" enum:"private,coded,public" jsonschema:"private if left out, whatever the source's is."`
		Again      bool                     `json:"again,omitempty" jsonschema:"Make another note although this one was promoted already."`
		Precondition
	}
	type out struct {
		Written
		Made bool `json:"made,omitempty" jsonschema:"true: this call made the note; absent: it had been promoted before, and this is the note that was made then"`
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.promote", Method: "POST", Path: "/v1/corpus/{id}/promote", Scope: "corpus:write",
		Summary: "Promote a note",
		Description: `Makes a wiki note of a raw one, or an output note of a wiki one: a new note with the same body and tags, while the source stays and is marked as promoted. ` +
			`Promoting again answers the first promotion. Example: {"id": "…", "title": "Solar panels"}. Waits up to 2 s until search finds the new note; indexed: false means that it is saved but search may not find it yet: follow index_job_id with tasks.get.`,
		Tool: &op.Tool{Idempotent: true}, MaxWait: maxWait, Say: func(o any) string { return o.(out).Sentence },
		Headers: []op.Header{etag()},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		p := notes.Promotion{Genre: in.Genre.Value, Title: in.Title.Value, Visibility: in.Visibility.Value, Again: in.Again}
		if in.ParentID.Set && !in.ParentID.Null {
			p.ParentID = &in.ParentID.Value
		}
		if p.Version, err = in.version(); err != nil {
			return s, err
		}
		event := outbox.NewID()
		receipt := d.expect(ctx, event)
		if s.Note, s.Made, err = notes.Promote(ctx, tx, c.OwnerID, in.ID, event, p); err != nil || !s.Made {
			receipt.Drop()
			return s, err
		}
		s.Event, s.receipt = event, receipt
		return s, nil
	}, func(ctx context.Context, c auth.Caller, s saved) (out, error) {
		w, err := d.answer(ctx, c, s)
		return out{w, s.Made}, err
	})
}
