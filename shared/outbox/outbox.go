// Package outbox records facts in the transaction of the change that they
// describe, and hands them to the relay.
//
// There is no cursor: an event waits in event_queue until the transaction that
// fans it out deletes it there, so commits may become visible in any order.
package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

const (
	// Recorded tells relays that there is something to fan out.
	Recorded = "standmeet_events"
	// Fanned tells waiters which events were fanned out; payload: event ids.
	Fanned = "standmeet_events_fanned"
)

// MaxAttempts is how often an event's fan-out is tried before it is set aside.
const MaxAttempts = 5

// Event is a row of the outbox.
type Event struct {
	ID         uuid.UUID
	Type       string
	OwnerID    uuid.UUID
	Subject    string
	Data       json.RawMessage
	Trace      string
	OccurredAt time.Time
	// Attempts counts earlier failures of its fan-out.
	Attempts int
}

// NewID makes an event id. It sorts by time and can't be guessed.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Record writes an event in tx and has the relay woken after the commit. An
// undeclared type is an error.
func Record(ctx context.Context, tx *pg.Tx, id uuid.UUID, kind string, owner uuid.UUID, subject string, data any) error {
	if _, ok := Lookup(kind); !ok {
		return fmt.Errorf("outbox: event type %q is not declared", kind)
	}
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("outbox: %s: %w", kind, err)
	}
	if err := Name(ctx, tx, id); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `SELECT record_event($1, $2, $3, $4)`, kind, owner, subject, body)
	return err
}

// Name gives the next event of tx its id, also one that a trigger records, and
// has the relay woken after the commit.
func Name(ctx context.Context, tx *pg.Tx, id uuid.UUID) error {
	Wake(tx)
	_, err := tx.Exec(ctx, nameSQL, id.String(), telemetry.Traceparent(ctx))
	return err
}

// NameIn is Name as the first statement of a batch.
func NameIn(ctx context.Context, tx *pg.Tx, b *pgx.Batch, id uuid.UUID) {
	Wake(tx)
	b.Queue(nameSQL, id.String(), telemetry.Traceparent(ctx))
}

const nameSQL = `SELECT set_config('standmeet.event_id', $1, true), set_config('standmeet.trace', $2, true)`

// Wake has the relay woken after the commit of tx.
func Wake(tx *pg.Tx) { tx.Notify(Recorded, "") }

// LatestFor finds the newest event of a type about a subject of an owner: the
// one whose receipt answers for the subject's present state.
func LatestFor(ctx context.Context, q pg.Querier, owner uuid.UUID, kind, subject string) (uuid.UUID, error) {
	var id uuid.UUID
	err := q.QueryRow(ctx, `
		SELECT id FROM events WHERE subject = $1 AND type = $2 AND owner_id = $3
		ORDER BY id DESC LIMIT 1`, subject, kind, owner).Scan(&id)
	if pg.IsNoRows(err) {
		return id, fault.NotFound("event")
	}
	return id, pg.Fault(err)
}

// OfVersion finds the event that made a version of its subject, as its data has
// it. Ids don't tell: they are made before the locks that decide the order.
func OfVersion(ctx context.Context, q pg.Querier, owner uuid.UUID, kind, subject string, version int64) (uuid.UUID, error) {
	var id uuid.UUID
	err := q.QueryRow(ctx, `
		SELECT id FROM events WHERE subject = $1 AND type = $2 AND owner_id = $3 AND (data->>'version')::bigint = $4
		LIMIT 1`, subject, kind, owner, version).Scan(&id)
	if pg.IsNoRows(err) {
		return id, fault.NotFound("event")
	}
	return id, pg.Fault(err)
}

// FanoutSource lets a waiter wait for the fan-out of events; keys are event
// ids. A poisoned event's wait is not over: it can still be requeued.
func FanoutSource(db *pg.DB) waiter.Source {
	return waiter.Source{Channel: Fanned, Read: func(ctx context.Context, keys []string) (map[string]any, error) {
		rows, err := db.Query(ctx, `
			SELECT e.id::text FROM events e
			WHERE e.id = ANY ($1::text[]::uuid[]) AND NOT EXISTS (SELECT FROM event_queue q WHERE q.event_id = e.id)`, keys)
		if err != nil {
			return nil, err
		}
		found := map[string]any{}
		var id string
		_, err = pgx.ForEachRow(rows, []any{&id}, func() error { found[id] = true; return nil })
		return found, err
	}}
}

// AwaitFanout waits until the relay has fanned out an event, at most until the
// deadline.
func AwaitFanout(ctx context.Context, w *waiter.Waiter, id uuid.UUID, deadline time.Time) waiter.Ended {
	began, ended := time.Now(), waiter.Capacity
	ctx, span := telemetry.Wait(ctx, "fan_out", id)
	if t := w.Register(Fanned, waiter.Key{Signal: id.String(), Read: id.String()}); t != nil {
		defer t.Close()
		t.Recheck()
		_, ended = t.Wait(ctx, deadline)
	}
	span.End(string(ended), time.Since(began), time.Time{})
	return ended
}

// Claim takes up to n due events, from the given id on, off the queue; nobody
// else gets them unless tx rolls back. Events of transactions that are not
// committed yet, and those that another relay holds, are passed over.
func Claim(ctx context.Context, tx *pg.Tx, from uuid.UUID, n int) (events []Event, err error) {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	var b pgx.Batch
	// A plain index scan marks the dead entries that it meets, and the next one
	// passes over them; a bitmap scan reads all of them again.
	b.Queue(`SELECT set_config('enable_bitmapscan', 'off', true)`)
	b.Queue(`
		WITH due AS (
			SELECT event_id FROM event_queue
			WHERE event_id >= $1 AND poisoned_at IS NULL AND due_at <= clock_timestamp()
			ORDER BY event_id LIMIT $2
			FOR UPDATE SKIP LOCKED
		), claimed AS (
			DELETE FROM event_queue q USING due WHERE q.event_id = due.event_id
			RETURNING q.event_id, q.attempts
		)
		SELECT e.id, e.type, e.owner_id, e.subject, e.data, coalesce(e.trace, ''), e.occurred_at, c.attempts
		FROM claimed c JOIN events e ON e.id = c.event_id
		ORDER BY e.id`, from, n,
	).Query(func(rows pgx.Rows) error {
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
			err = row.Scan(&e.ID, &e.Type, &e.OwnerID, &e.Subject, &e.Data, &e.Trace, &e.OccurredAt, &e.Attempts)
			return e, err
		})
		return err
	})
	return events, raw.SendBatch(ctx, &b).Close()
}

// Get reads one event; fault "not_found" when it is gone.
func Get(ctx context.Context, q pg.Querier, id uuid.UUID) (e Event, err error) {
	err = q.QueryRow(ctx, `
		SELECT id, type, owner_id, subject, data, coalesce(trace, ''), occurred_at FROM events WHERE id = $1`, id).
		Scan(&e.ID, &e.Type, &e.OwnerID, &e.Subject, &e.Data, &e.Trace, &e.OccurredAt)
	if pg.IsNoRows(err) {
		return e, fault.NotFound("event")
	}
	return e, pg.Fault(err)
}

// Failed puts off an event whose fan-out failed: 1 s, 5 s, 25 s, 125 s; after
// [MaxAttempts] it is set aside. It reports whether it was set aside now.
func Failed(ctx context.Context, tx *pg.Tx, id uuid.UUID, cause error) (poisoned bool, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE event_queue
		SET attempts = attempts + 1,
		    last_error = left($2, 2000),
		    due_at = clock_timestamp() + interval '1 second' * power(5, least(attempts, 3)),
		    poisoned_at = CASE WHEN attempts + 1 >= $3 THEN clock_timestamp() END
		WHERE event_id = $1 AND poisoned_at IS NULL
		RETURNING poisoned_at IS NOT NULL`, id, cause.Error(), MaxAttempts).Scan(&poisoned)
	if pg.IsNoRows(err) {
		return false, nil
	}
	return poisoned, err
}

// Delay puts an event off for a second without counting a failure.
func Delay(ctx context.Context, tx *pg.Tx, id uuid.UUID) error {
	_, err := tx.Exec(ctx, `UPDATE event_queue SET due_at = clock_timestamp() + interval '1 second' WHERE event_id = $1`, id)
	return err
}

// Requeue puts a poisoned event of the owner back. Fault "not_found" for
// another owner's, "event_not_poisoned" (409) for one that is not set aside.
func Requeue(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) error {
	tag, err := tx.Exec(ctx, `
		UPDATE event_queue q SET attempts = 0, poisoned_at = NULL, due_at = clock_timestamp()
		FROM events e
		WHERE q.event_id = $1 AND e.id = q.event_id AND e.owner_id = $2 AND q.poisoned_at IS NOT NULL`, id, owner)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 1 {
		Wake(tx)
		return nil
	}
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM events WHERE id = $1 AND owner_id = $2)`, id, owner).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		return fault.NotFound("event")
	}
	return fault.New(fault.Conflict, "event_not_poisoned", "This event was not set aside: there is nothing to put back.")
}

// DeleteOld removes events older than keep that were fanned out, at most n, and
// reports how many. Those still queued or set aside stay, and those with a task
// that is not completed: its owner may yet have it tried again.
func DeleteOld(ctx context.Context, db *pg.DB, keep time.Duration, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM events WHERE id IN (
			SELECT e.id FROM events e
			WHERE e.id < $1 AND NOT EXISTS (SELECT FROM event_queue q WHERE q.event_id = e.id)
				AND NOT EXISTS (SELECT FROM tasks t WHERE t.event_id = e.id AND t.state <> 'completed')
			ORDER BY e.id LIMIT $2)`, Before(time.Now().Add(-keep)), n)
	return tag.RowsAffected(), err
}

// Before is the smallest event id of the given moment (RFC 9562, section 5.7).
func Before(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := uint64(max(t.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// Waiting counts the events that are due and have been waiting for longer than
// age; at most 100,000 are counted.
func Waiting(ctx context.Context, db *pg.DB, age time.Duration) (n int, err error) {
	err = db.QueryRow(ctx, `
		SELECT count(*) FROM (SELECT FROM event_queue
			WHERE event_id < $1 AND poisoned_at IS NULL AND due_at <= clock_timestamp() LIMIT 100000) w`, Before(time.Now().Add(-age))).Scan(&n)
	return n, pg.Fault(err)
}

// RecordFanned queues the writing of events that the relay itself makes while it
// fans out others. Their tasks are made in the same transaction, so none of them
// waits in the queue.
func RecordFanned(b *pgx.Batch, events []Event) {
	n := len(events)
	ids, types, owners, subjects, data, traces := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]string, n)
	for i, e := range events {
		ids[i], types[i], owners[i], subjects[i], data[i], traces[i] = e.ID, e.Type, e.OwnerID, e.Subject, string(e.Data), e.Trace
	}
	b.Queue(`
		INSERT INTO events (id, type, owner_id, subject, data, trace)
		SELECT id, type, owner_id, subject, data::jsonb, nullif(trace, '')
		FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[]) AS e (id, type, owner_id, subject, data, trace)`,
		ids, types, owners, subjects, data, traces)
}

// RecordAll writes events in tx, as many to a statement, and has the relay woken
// after the commit. Each needs ID, Type, OwnerID, Subject and Data, an object.
func RecordAll(ctx context.Context, tx *pg.Tx, events []Event) error {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	Wake(tx)
	trace := telemetry.Traceparent(ctx)
	ids := make([]uuid.UUID, len(events))
	for i, e := range events {
		if _, ok := Lookup(e.Type); !ok {
			return fmt.Errorf("outbox: event type %q is not declared", e.Type)
		}
		ids[i], events[i].Trace = e.ID, trace
	}
	var b pgx.Batch
	RecordFanned(&b, events)
	b.Queue(`INSERT INTO event_queue (event_id) SELECT unnest($1::uuid[])`, ids)
	return raw.SendBatch(ctx, &b).Close()
}
