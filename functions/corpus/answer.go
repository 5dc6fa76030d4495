package corpus

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Answer declares what answers, for a receipt of any write here, as that write
// would now. It belongs to the MCP endpoint and not to the catalog.
func Answer(d Deps) *op.Operation {
	type in struct {
		ID string `json:"id" maxLength:"200"`
	}
	return op.New(op.Spec{
		Name: "corpus.answer", Method: "GET", Path: "/v1/corpus", Scope: "corpus:read",
		Summary: "Answer for a write",
	}, func(ctx context.Context, c auth.Caller, in in) (w Written, err error) {
		id, err := task.ParseID(in.ID)
		if err != nil {
			return w, err
		}
		t, err := task.Get(ctx, d.DB, c.OwnerID, id)
		if err != nil {
			return w, err
		}
		note, err := uuid.Parse(t.Subject)
		if err != nil || id.Subscriber != task.CorpusIndex {
			return w, fault.NotFound("task")
		}
		w = Written{IndexJobID: in.ID, Wait: waiter.Wait{Ended: waiter.NotAsked}}
		if w.Note, err = notes.Find(ctx, d.DB, c.OwnerID, note); err != nil {
			return w, err
		}
		w.state(t.State)
		w.Sentence = t.Sentence
		d.rest(ctx, c, &w)
		d.truncated(ctx, &w)
		return w, nil
	})
}
