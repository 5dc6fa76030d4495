package corpus

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Delete declares corpus.delete.
func Delete(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the note's id"`
	}
	type out struct {
		Written
		Deleted int64 `json:"deleted,omitempty" jsonschema:"how many notes went into the trash: this one and all below it"`
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.delete", Method: "DELETE", Path: "/v1/corpus/{id}", Scope: "corpus:write",
		Summary: "Delete a note",
		Description: `Puts a note and all notes below it into the trash; corpus.restore brings them back. Nobody finds or reads them any more. ` +
			`Example: {"id": "…"}. indexed tells whether the search index has dropped the note too.`,
		Tool: &op.Tool{Destructive: true}, MaxWait: maxWait,
		Say: func(o any) string { return inTrash(o.(out).Deleted) + " " + o.(out).Sentence },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		s.Event = outbox.NewID()
		s.receipt = d.expect(ctx, s.Event)
		s.Note, s.Count, err = notes.Delete(ctx, tx, c.OwnerID, in.ID, s.Event)
		return s, err
	}, func(ctx context.Context, c auth.Caller, s saved) (out, error) {
		w, err := d.answer(ctx, c, s)
		return out{w, s.Count}, err
	})
}

func inTrash(n int64) string {
	if n == 1 {
		return "The note is in the trash."
	}
	return fmt.Sprintf("%d notes are in the trash.", n)
}
