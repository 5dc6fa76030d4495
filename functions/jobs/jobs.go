// Package jobs holds the operations on job listings: the sources that an owner
// has, fetching what is new, and the pool of all that was found.
package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/egress"
	"standmeet/shared/fault"
	"standmeet/shared/jobfeed"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
	// Egress says which addresses may be asked.
	Egress egress.Rules
}

const (
	// maxWait is how long an answer waits for all of the sources.
	maxWait = 20 * time.Second
	// maxListings is the most that one answer holds of what was found.
	maxListings = 500
)

// Read is what a source gave.
type Read struct {
	ID        uuid.UUID `json:"id" jsonschema:"the source's id"`
	Seen      int       `json:"seen" jsonschema:"how many listings it has"`
	New       int       `json:"new" jsonschema:"how many of them were not in the pool"`
	Duplicate int       `json:"duplicate" jsonschema:"how many of them the pool has from another source, or the source gave twice"`
	Unchanged bool      `json:"unchanged,omitempty" jsonschema:"true: the source said that nothing has changed since it was last read"`
}

// Failure is a source that could not be read.
type Failure struct {
	ID     uuid.UUID `json:"id" jsonschema:"the source's id"`
	Reason string    `json:"reason" jsonschema:"why, in plain words"`
}

// Fetched answers what fetches sources. While any of them is still under way
// there are only the receipts.
type Fetched struct {
	Pending bool     `json:"pending" jsonschema:"true: not every source has been read yet; follow job_ids with jobs.fetch_result"`
	JobIDs  []string `json:"job_ids" jsonschema:"the receipts, one for each source"`
	// Listings, Sources and FailedSources are nil while it is pending.
	Listings      []jobfeed.Listing `json:"listings,omitzero" jsonschema:"what is new, 500 at most; jobs.list has all"`
	ListingsTotal *int              `json:"listings_total,omitempty" jsonschema:"how many are new"`
	Sources       []Read            `json:"sources,omitzero" jsonschema:"the sources that were read"`
	FailedSources []Failure         `json:"failed_sources,omitzero" jsonschema:"the sources that could not be read. Their listings stay as they are"`
	Wait          *waiter.Wait      `json:"wait,omitempty" jsonschema:"present when a wait was asked for"`
	Sentence      string            `json:"sentence" jsonschema:"what can truthfully be said about it now"`
}

func say(out any) string { return out.(Fetched).Sentence }

// fetched reads what became of fetches. Fault "not_found" for an id that is none
// of the owner's.
func (d Deps) fetched(ctx context.Context, owner uuid.UUID, ids []task.ID) (f Fetched, err error) {
	f.JobIDs = []string{}
	var outcomes []jobfeed.Outcome
	var events []uuid.UUID
	for _, id := range ids {
		if id.Subscriber != task.JobsFetch {
			return f, fault.NotFound("fetch")
		}
		t, err := task.Get(ctx, d.DB, owner, id)
		if err != nil {
			return f, err
		}
		f.JobIDs = append(f.JobIDs, t.ID)
		if !t.State.Terminal() {
			f.Pending = true
			continue
		}
		var o jobfeed.Outcome
		if t.State == task.Completed && json.Unmarshal(t.Result, &o) == nil {
			outcomes = append(outcomes, o)
			events = append(events, id.Event)
			continue
		}
		if o.SourceID, err = uuid.Parse(t.Subject); err != nil {
			return f, err
		}
		if o.Reason = t.LastError; o.Reason == "" || t.State == task.Cancelled {
			o.Reason = t.Sentence
		}
		outcomes = append(outcomes, o)
	}
	if f.Pending {
		f.Sentence = "Not every source has been read yet; what they give can be read with the receipts."
		return f, nil
	}
	f.Listings, f.Sources, f.FailedSources = []jobfeed.Listing{}, []Read{}, []Failure{}
	jobfeed.Sort(outcomes)
	for _, o := range outcomes {
		if o.Reason != "" {
			f.FailedSources = append(f.FailedSources, Failure{o.SourceID, o.Reason})
		} else {
			f.Sources = append(f.Sources, Read{o.SourceID, o.Seen, o.New, o.Duplicate, o.Unchanged})
		}
	}
	found, total, err := jobfeed.FoundBy(ctx, d.DB, owner, events, maxListings)
	if err != nil {
		return f, err
	}
	f.Listings, f.ListingsTotal = append(f.Listings, found...), &total
	switch {
	case len(ids) == 0:
		f.Sentence = "There is no source to fetch yet: add one with job_sources.create."
	case len(f.FailedSources) > 0:
		f.Sentence = fmt.Sprintf("%d new; %d of %d sources could not be read.", total, len(f.FailedSources), len(ids))
	default:
		f.Sentence = fmt.Sprintf("%d new; every source was read.", total)
	}
	return f, nil
}

// await waits for fetches to end and reads what became of them.
func (d Deps) await(ctx context.Context, owner uuid.UUID, b *task.Batch, since time.Time) (Fetched, error) {
	call := op.CallFrom(ctx)
	var wait *waiter.Wait
	func() {
		if call.Listening && call.Wait > 0 {
			defer task.Watch(ctx, d.DB, b.IDs, call.Progress)()
		}
		w := b.Await(ctx, since, call.Wait)
		wait = &w
	}()
	f, err := d.fetched(ctx, owner, b.IDs)
	f.Wait = wait
	return f, err
}
