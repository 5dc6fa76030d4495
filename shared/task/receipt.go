package task

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

// final is what a waiter reads of a task that has ended.
type final struct {
	State State
	At    time.Time
}

// FinalSource lets a waiter wait for tasks to end; keys are task ids.
func FinalSource(db *pg.DB) waiter.Source {
	return waiter.Source{Channel: Final, Read: func(ctx context.Context, keys []string) (map[string]any, error) {
		events, subscribers := make([]uuid.UUID, 0, len(keys)), make([]string, 0, len(keys))
		for _, key := range keys {
			if id, err := ParseID(key); err == nil {
				events, subscribers = append(events, id.Event), append(subscribers, id.Subscriber)
			}
		}
		rows, err := db.Query(ctx, `
			SELECT t.event_id, t.subscriber, t.state, t.finished_at
			FROM unnest($1::uuid[], $2::text[]) AS k (event_id, subscriber)
			JOIN tasks t USING (event_id, subscriber)
			WHERE t.event_id = ANY ($1) AND t.state NOT IN ('pending', 'running')`, events, subscribers)
		if err != nil {
			return nil, err
		}
		found := map[string]any{}
		var id ID
		var end final
		_, err = pgx.ForEachRow(rows, []any{&id.Event, &id.Subscriber, &end.State, &end.At}, func() error {
			found[id.String()] = end
			return nil
		})
		return found, err
	}}
}

// Receipts hands out receipts and waits on them.
type Receipts struct {
	db *pg.DB
	w  *waiter.Waiter
}

// NewReceipts needs a waiter that has [FinalSource] and [outbox.FanoutSource].
func NewReceipts(db *pg.DB, w *waiter.Waiter) *Receipts { return &Receipts{db, w} }

// Receipt is a caller's hold on a task: its id, and a place among the waiters.
type Receipt struct {
	ID     ID
	ticket *waiter.Ticket
	full   bool
	// the task may have ended long before the wait
	resumed bool
}

// Expect takes a place before the commit that makes the task. The three steps
// of the contract (find the event, wait for its fan-out, wait for the work) are
// then one wait: the id is known beforehand, and the end of the work ends all
// three. The receipt must be awaited or dropped.
func (r *Receipts) Expect(event uuid.UUID, subscriber string) *Receipt {
	id := ID{Event: event, Subscriber: subscriber}
	t := r.w.Register(Final, waiter.Key{Signal: id.String(), Read: id.String()})
	return &Receipt{ID: id, ticket: t, full: t == nil}
}

// Resume takes a place for a task that is committed already.
func (r *Receipts) Resume(id ID) *Receipt {
	rc := r.Expect(id.Event, id.Subscriber)
	rc.resumed = true
	if rc.ticket != nil {
		rc.ticket.Recheck()
	}
	return rc
}

// LatestFor is Resume for the newest event of a type about a subject.
func (r *Receipts) LatestFor(ctx context.Context, owner uuid.UUID, kind, subject, subscriber string) (*Receipt, error) {
	event, err := outbox.LatestFor(ctx, r.db, owner, kind, subject)
	if err != nil {
		return nil, err
	}
	return r.Resume(ID{Event: event, Subscriber: subscriber}), nil
}

// Await waits for the task to end, for at most budget counted from since (the
// commit). The state is zero unless the wait ended as [waiter.Observed]. The
// receipt's place is given back.
func (rc *Receipt) Await(ctx context.Context, since time.Time, budget time.Duration) (State, waiter.Wait) {
	defer rc.Drop()
	ctx, span := telemetry.Wait(ctx, rc.ID.Subscriber, rc.ID.Event)
	var end final
	var waited time.Duration
	ended := waiter.NotAsked
	switch {
	case budget <= 0:
	case rc.full:
		ended = waiter.Capacity
	default:
		var values map[string]any
		values, ended = rc.ticket.Wait(ctx, since.Add(budget))
		end, _ = values[rc.ID.String()].(final)
		waited = time.Since(since)
	}
	if rc.resumed {
		span.End(string(ended), waited, time.Time{})
	} else {
		span.End(string(ended), waited, end.At)
	}
	return end.State, waiter.Wait{AskedMS: budget.Milliseconds(), WaitedMS: waited.Milliseconds(), Ended: ended}
}

// Drop gives the place back without waiting. It may be called more than once.
func (rc *Receipt) Drop() {
	if rc != nil && rc.ticket != nil {
		rc.ticket.Close()
	}
}

// Batch is a caller's hold on several tasks, and one place among the waiters.
type Batch struct {
	IDs    []ID
	ticket *waiter.Ticket
}

// ExpectAll is Expect for the tasks of one subscriber on several events. Without
// any there is nothing to wait for.
func (r *Receipts) ExpectAll(events []uuid.UUID, subscriber string) *Batch {
	ids := make([]ID, len(events))
	for i, event := range events {
		ids[i] = ID{Event: event, Subscriber: subscriber}
	}
	return r.batch(ids)
}

// ResumeAll takes a place for tasks that are committed already.
func (r *Receipts) ResumeAll(ids []ID) *Batch {
	b := r.batch(ids)
	if b.ticket != nil {
		b.ticket.Recheck()
	}
	return b
}

func (r *Receipts) batch(ids []ID) *Batch {
	b := &Batch{IDs: ids}
	if len(ids) > 0 {
		keys := make([]waiter.Key, len(ids))
		for i, id := range ids {
			keys[i] = waiter.Key{Signal: id.String(), Read: id.String()}
		}
		b.ticket = r.w.Register(Final, keys...)
	}
	return b
}

// Await waits for all of the tasks to end, for at most budget counted from since.
// The place is given back.
func (b *Batch) Await(ctx context.Context, since time.Time, budget time.Duration) waiter.Wait {
	defer b.Drop()
	w := waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.NotAsked}
	switch {
	case budget <= 0:
	case len(b.IDs) == 0:
		w.Ended = waiter.Observed
	case b.ticket == nil:
		w.Ended = waiter.Capacity
	default:
		_, w.Ended = b.ticket.Wait(ctx, since.Add(budget))
		w.WaitedMS = time.Since(since).Milliseconds()
	}
	return w
}

// Drop gives the place back without waiting. It may be called more than once.
func (b *Batch) Drop() {
	if b != nil && b.ticket != nil {
		b.ticket.Close()
	}
}
