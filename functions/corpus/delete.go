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
		Precondition
	}
	type out struct {
		Written
		Deleted int64 `json:"deleted,omitempty" jsonschema:"how many notes went into the trash: this one and all below it"`
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.delete", Method: "DELETE", Path: "/v1/corpus/{id}", Scope: "corpus:write",
		Summary: "Delete a note",
		Description: `Puts a note and all notes below it into the trash; corpus.restore brings them back. Nobody finds or reads them any more. ` +
			`Example: {"id": "…", "version": 3}. deleted tells how many notes went, indexed whether the search index has dropped the note too.`,
		Tool: &op.Tool{Destructive: true}, MaxWait: maxWait,
		Say: func(o any) string { return o.(out).Sentence },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		version, err := in.version()
		if err != nil {
			return s, err
		}
		s.Event = outbox.NewID()
		s.receipt = d.expect(ctx, s.Event)
		s.Note, s.Count, err = notes.Delete(ctx, tx, c.OwnerID, in.ID, s.Event, version)
		return s, err
	}, func(ctx context.Context, c auth.Caller, s saved) (out, error) {
		w, err := d.answer(ctx, c, s)
		w.Sentence = count(s.Count, "in the trash") + " " + w.Sentence
		return out{w, s.Count}, err
	})
}

// count says where a note and those below it are now.
func count(n int64, where string) string {
	if n == 1 {
		return "The note is " + where + "."
	}
	return fmt.Sprintf("%d notes are %s: this one and all below it.", n, where)
}
