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

// Restore declares corpus.restore.
func Restore(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the deleted note's id, as corpus.trash lists it"`
		Precondition
	}
	type out struct {
		Written
		Restored int64 `json:"restored,omitempty" jsonschema:"how many notes came back: this one and what its deletion took with it"`
	}
	return op.NewWrite(op.Spec{
		Name: "corpus.restore", Method: "POST", Path: "/v1/corpus/{id}/restore", Scope: "corpus:write",
		Summary: "Restore a deleted note",
		Description: `Takes a note and everything that its deletion took with it out of the trash again. It comes back at the root when the note that it stood under is gone. ` +
			`Example: {"id": "…"}. indexed: false means that search may not find it yet: follow index_job_id with tasks.get.`,
		Tool: &op.Tool{}, MaxWait: maxWait, Say: func(o any) string { return o.(out).Sentence },
		Headers: []op.Header{etag()},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (s saved, err error) {
		version, err := in.version()
		if err != nil {
			return s, err
		}
		s.Event = outbox.NewID()
		s.receipt = d.expect(ctx, s.Event)
		s.Note, s.Count, err = notes.Restore(ctx, tx, c.OwnerID, in.ID, s.Event, version)
		return s, err
	}, func(ctx context.Context, c auth.Caller, s saved) (out, error) {
		w, err := d.answer(ctx, c, s)
		w.Sentence = count(s.Count, "back") + " " + w.Sentence
		return out{w, s.Count}, err
	})
}
