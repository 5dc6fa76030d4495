// Package corpus holds the operations on notes: the owner's, and what anybody
// may read.
package corpus

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
}

const (
	// maxWait is how long a write waits for its index job.
	maxWait = 2 * time.Second
	// lastLook bounds the one read that may follow the wait.
	lastLook = 250 * time.Millisecond
	// maxBody lets a note of the largest size in, also when its JSON is all
	// escapes, and stays below what a Lambda function is given.
	maxBody = 5 << 20
)

// Fields are what an author decides about a note. Where a note is created,
// absent and cleared are the same.
type Fields struct {
	Title        op.Opt[string]           `json:"title,omitzero" maxLength:"300" jsonschema:"One line. Wiki and output notes need one that no sibling has."`
	Body         op.Opt[string]           `json:"body,omitzero" maxLength:"1048576" jsonschema:"Markdown, 1 MiB at most. [[Title]] links to another note."`
	ParentID     op.Opt[uuid.UUID]        `json:"parent_id,omitzero" jsonschema:"Id of the note to stand under, of the same genre; empty for the root. Raw notes have no parent."`
	Tags         op.Opt[[]string]         `json:"tags,omitzero" maxItems:"50" maxLength:"100" jsonschema:"Replaces all tags, e.g. [\"reading\", \"work/plans\"]. A tag with a slash is nested."`
	Aliases      op.Opt[[]string]         `json:"aliases,omitzero" maxItems:"50" maxLength:"300" jsonschema:"Replaces all other names that links and searches may use."`
	Visibility   op.Opt[notes.Visibility] `json:"visibility,omitzero" enum:"private,coded,public" jsonschema:"Who may read it besides the owner: nobody (private, the default), visitors with an access code (coded), or anybody (public). A note's address holds the slugs of the notes above it, so publishing a note publishes these words too. Raw notes are always private."`
	ShowAsSource op.Opt[bool]             `json:"show_as_source,omitzero" jsonschema:"Whether visitors are shown the source."`
	Source       op.Opt[string]           `json:"source,omitzero" maxLength:"2000" jsonschema:"Where the text comes from, e.g. an address or a book."`
}

// Written is the answer of a write.
type Written struct {
	Note       notes.Note  `json:"note"`
	Indexed    bool        `json:"indexed" jsonschema:"true: search knows this version of the note, or a later one. false: it is saved, but search doesn't know it yet."`
	IndexJobID string      `json:"index_job_id" jsonschema:"receipt of the indexing, for tasks.get"`
	Wait       waiter.Wait `json:"wait"`
	Sentence   string      `json:"sentence" jsonschema:"what can truthfully be said about the indexing now"`
}

// PendingReceipt is the receipt of an indexing that is not done.
func (w Written) PendingReceipt() string {
	if w.Indexed {
		return ""
	}
	return w.IndexJobID
}

// saved is what a write committed.
type saved struct {
	Note notes.Note `json:"note"`
	// Event is zero when nothing changed: then the note's latest event answers.
	Event uuid.UUID `json:"event"`
	Count int64     `json:"count,omitempty"`
	Made  bool      `json:"made,omitempty"`

	receipt *task.Receipt
}

// expect takes a place among the waiters before the commit, unless the caller
// won't wait. It is given back when the call ends at the latest: the commit may
// fail after us.
func (d Deps) expect(ctx context.Context, event uuid.UUID) *task.Receipt {
	if op.CallFrom(ctx).Wait <= 0 {
		return nil
	}
	r := d.Receipts.Expect(event, task.CorpusIndex)
	context.AfterFunc(ctx, r.Drop)
	return r
}

// answer waits for the indexing of what was committed, and tells how it stands.
func (d Deps) answer(ctx context.Context, c auth.Caller, s saved) (Written, error) {
	since, budget := time.Now(), op.CallFrom(ctx).Wait
	out := Written{Note: s.Note, Wait: waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.NotAsked}}
	id := task.ID{Event: s.Event, Subscriber: task.CorpusIndex}
	if s.Event == uuid.Nil {
		var err error
		id.Event, err = outbox.LatestFor(ctx, d.DB, c.OwnerID, outbox.NoteChanged, s.Note.ID.String())
		if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind {
			// nothing happened for so long that the event is gone: the index itself tells
			out.Indexed, err = notes.Indexed(ctx, d.DB, s.Note)
			if out.Indexed {
				out.Sentence = task.Say(task.CorpusIndex, task.Completed)
			}
			return out, err
		}
		if err != nil {
			return out, err
		}
	}
	out.IndexJobID = id.String()
	var state task.State
	if budget > 0 {
		if s.receipt == nil {
			s.receipt = d.Receipts.Resume(id)
		}
		state, out.Wait = s.receipt.Await(ctx, since, budget)
	}
	if state == "" {
		// Not seen to end. When that can't be read either, the write still stands,
		// and nothing is said about the rest.
		asking, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		t, err := task.Get(asking, d.DB, c.OwnerID, id)
		if err == nil {
			state = t.State
		}
	}
	out.Indexed = state == task.Completed
	if state != "" {
		out.Sentence = task.Say(task.CorpusIndex, state)
	}
	return out, nil
}

func say(out any) string { return out.(Written).Sentence }
