// Package corpus holds the operations on notes: the owner's, and what anybody
// may read.
package corpus

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
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
	// lastLook is what of the wait's budget is kept for the reads that follow it,
	// a quarter at most, and how long they may take when no wait was asked for.
	lastLook = 250 * time.Millisecond
	// settleEvery is how often the notes below are looked at.
	settleEvery = 100 * time.Millisecond
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
	Indexed    bool        `json:"indexed" jsonschema:"true: search knows this version of the note, or a later one, and the same of all notes that changed with it. false: it is saved, but search doesn't know all of it yet."`
	Index      *Index      `json:"index,omitempty"`
	Truncated  bool        `json:"index_truncated,omitempty" jsonschema:"true: the note is too long for search to know all of its words; those at its end may not find it"`
	IndexJobID string      `json:"index_job_id" jsonschema:"receipt of the indexing, for tasks.get"`
	Wait       waiter.Wait `json:"wait"`
	Sentence   string      `json:"sentence" jsonschema:"what can truthfully be said about the indexing now"`
}

func (w Written) note() notes.Note { return w.Note }

// etag is the header by which If-Match knows a note's version; one in the trash
// has none.
func etag() op.Header {
	return op.Header{Name: "ETag", Description: `The note's version in quotation marks, as If-Match takes it, e.g. "3".`, Value: func(out any) string {
		n := out.(interface{ note() notes.Note }).note()
		if n.DeletedAt != nil {
			return ""
		}
		return fmt.Sprintf(`"%d"`, n.Version)
	}}
}

// Index is how far the indexing of many notes is.
type Index struct {
	Pending int64 `json:"pending" jsonschema:"how many notes search doesn't know as they are now: of this one and all below it"`
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
	// Event is zero when nothing changed: then the index itself answers, or the
	// event of the note's version.
	Event uuid.UUID `json:"event"`
	// Count is how many notes changed, where others may have.
	Count int64 `json:"count,omitempty"`
	Made  bool  `json:"made,omitempty"`

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
// What can't be read in time is not said: the write stands anyway.
func (d Deps) answer(ctx context.Context, c auth.Caller, s saved) (Written, error) {
	since, budget := time.Now(), op.CallFrom(ctx).Wait
	out := Written{Note: s.Note, Wait: waiter.Wait{Ended: waiter.NotAsked}}
	ctx, cancel := context.WithDeadline(ctx, since.Add(cmp.Or(budget, lastLook)))
	defer cancel()
	id := task.ID{Event: s.Event, Subscriber: task.CorpusIndex}
	var state task.State
	if s.Event == uuid.Nil {
		id.Event, _ = outbox.OfVersion(ctx, d.DB, c.OwnerID, outbox.NoteChanged, s.Note.ID.String(), s.Note.Version)
		if indexed, _ := notes.Indexed(ctx, d.DB, s.Note); indexed {
			state = task.Completed
			if budget > 0 {
				out.Wait.Ended = waiter.Observed
			}
		}
	}
	if id.Event != uuid.Nil {
		out.IndexJobID = id.String()
		if state == "" && budget > 0 {
			if s.receipt == nil {
				s.receipt = d.Receipts.Resume(id)
			}
			state, out.Wait = s.receipt.Await(ctx, since, budget-min(budget/4, lastLook))
		}
		if state == "" {
			if t, err := task.Get(ctx, d.DB, c.OwnerID, id); err == nil {
				state = t.State
			}
		}
	}
	out.state(state)
	if s.Count > 1 {
		d.rest(ctx, c, &out)
	}
	d.truncated(ctx, &out)
	out.Wait.AskedMS = budget.Milliseconds()
	if budget > 0 {
		out.Wait.WaitedMS = time.Since(since).Milliseconds()
	}
	return out, nil
}

// state says how the note's own indexing stands; "" is not known.
func (w *Written) state(s task.State) {
	w.Indexed, w.Sentence = s == task.Completed, task.IndexedOrNot()
	if s != "" {
		w.Sentence = task.Say(task.CorpusIndex, s)
	}
}

// truncated tells of an indexed note when the index lacks some of its words.
func (d Deps) truncated(ctx context.Context, w *Written) {
	if !w.Indexed {
		return
	}
	if w.Truncated, _ = notes.Truncated(ctx, d.DB, w.Note); w.Truncated {
		w.Sentence = task.IndexedTruncated()
	}
}

// rest looks for what search doesn't know of the note and those below it. If
// the note itself is indexed and a wait was asked for, it waits for the others
// until ctx ends.
func (d Deps) rest(ctx context.Context, c auth.Caller, w *Written) {
	own := w.Indexed
	for w.Indexed = false; ; {
		began := time.Now()
		pending, err := notes.Behind(ctx, d.DB, c.OwnerID, w.Note.ID)
		if err == nil {
			w.Indexed, w.Index = own && pending == 0, &Index{pending}
		}
		if w.Indexed || !own || w.Wait.Ended == waiter.NotAsked {
			break
		}
		select {
		case <-time.After(max(settleEvery, 4*time.Since(began))):
			continue
		case <-ctx.Done():
			w.Wait.Ended = waiter.Timeout
		}
		break
	}
	switch {
	case w.Indexed:
		w.Index = nil
	case own:
		w.Sentence = task.IndexedInPart()
	}
}

func say(out any) string { return out.(Written).Sentence }
