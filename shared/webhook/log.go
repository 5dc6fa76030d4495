package webhook

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// State is where a delivery stands.
type State string

// The states. A pending one has not ended, and a held one waits for its owner.
const (
	Pending   State = "pending"
	Done      State = "delivered"
	Discarded State = "discarded"
	Held      State = "held"
	Cancelled State = "cancelled"
)

// Entry is a delivery as its owner reads it.
type Entry struct {
	ID         uuid.UUID `json:"id"`
	EndpointID uuid.UUID `json:"endpoint_id"`
	EventID    uuid.UUID `json:"event_id" jsonschema:"the event, and the webhook-id that the receiver sees: the same on every attempt and redelivery"`
	EventType  string    `json:"event_type"`
	State      State     `json:"state" enum:"pending,delivered,discarded,held,cancelled" jsonschema:"held: it came while the webhook was disabled, and waits to be redelivered"`
	JobID      string    `json:"job_id,omitempty" jsonschema:"the receipt, for tasks.get; absent while held"`
	// Payload is parsed by nobody here: these are the bytes that are sent.
	Payload       json.RawMessage `json:"payload" jsonschema:"the body that is sent"`
	Repeats       *uuid.UUID      `json:"repeats,omitempty" jsonschema:"the delivery that this one was asked to repeat"`
	CreatedAt     time.Time       `json:"created_at"`
	FinishedAt    *time.Time      `json:"finished_at,omitempty"`
	NextAttemptAt *time.Time      `json:"next_attempt_at,omitempty" jsonschema:"no attempt before it, while pending"`
	Attempts      []Try           `json:"attempts" jsonschema:"every attempt made, the first one first"`
}

// Try is an attempt as the log keeps it.
type Try struct {
	Number     int       `json:"number"`
	At         time.Time `json:"at"`
	Outcome    string    `json:"outcome" enum:"delivered,failed,discard,gone,later,under_way,interrupted" jsonschema:"later: the endpoint named a time; interrupted: the worker ended before it knew the outcome"`
	Status     *int      `json:"status,omitempty" jsonschema:"the HTTP status; absent when there was no answer"`
	DurationMS *int      `json:"duration_ms,omitempty"`
	Response   string    `json:"response,omitempty" jsonschema:"the first 4 KiB of the answer"`
	Error      string    `json:"error,omitempty" jsonschema:"why it failed, in plain words"`
}

// The outcomes of an attempt that has none in its row.
const (
	underWay    = "under_way"
	interrupted = "interrupted"
)

// Filter narrows the log; zero fields don't.
type Filter struct {
	EventType string
	EventID   uuid.UUID
	State     State
	Since     time.Time
}

// pageBytes is how much of responses one page holds at most, less one delivery's.
const pageBytes = 2 << 20

const filterSQL = ` WHERE d.endpoint_id = $1 AND ($2 = '' OR d.event_type = $2) AND ($3 = '00000000-0000-0000-0000-000000000000'::uuid OR d.event_id = $3)
	AND ($4 = '' OR d.state = $4) AND d.id >= $5`

// Log reads the deliveries to an endpoint, newest first, those before the given id
// (zero: from the newest). next is zero on the last page, and total counts all that
// match. An endpoint that was deleted keeps its log. Fault "not_found".
func Log(ctx context.Context, q pg.Querier, owner, endpoint uuid.UUID, f Filter, before uuid.UUID, limit int) (items []Entry, next uuid.UUID, total int, err error) {
	var exists bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM webhook_endpoints WHERE id = $1 AND owner_id = $2)`, endpoint, owner).Scan(&exists); err != nil {
		return nil, next, 0, pg.Fault(err)
	}
	if !exists {
		return nil, next, 0, fault.NotFound("webhook")
	}
	if before == (uuid.UUID{}) {
		before = uuid.Max
	}
	var from uuid.UUID
	if !f.Since.IsZero() {
		from = outbox.Before(f.Since)
	}
	rows, err := q.Query(ctx, `SELECT `+entrySQL+` FROM webhook_deliveries d`+filterSQL+` AND d.id < $6 ORDER BY d.id DESC LIMIT $7`,
		endpoint, f.EventType, f.EventID, f.State, from, before, limit+1)
	if err != nil {
		return nil, next, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanEntry); err != nil {
		return nil, next, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items, next = items[:limit], items[limit-1].ID
	}
	if err := tries(ctx, q, items); err != nil {
		return nil, next, 0, err
	}
	size := 0
	for i := range items {
		for _, t := range items[i].Attempts {
			size += len(t.Response)
		}
		if size > pageBytes && i+1 < len(items) {
			items, next = items[:i+1], items[i].ID
			break
		}
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM webhook_deliveries d`+filterSQL, endpoint, f.EventType, f.EventID, f.State, from).Scan(&total)
	return items, next, total, pg.Fault(err)
}

const entrySQL = `d.id, d.endpoint_id, d.event_id, d.event_type, d.state, d.task_event, d.payload, d.repeats, d.created_at, d.finished_at,
	CASE WHEN d.state = 'pending' THEN d.due_at END`

func scanEntry(row pgx.CollectableRow) (e Entry, err error) {
	var event *uuid.UUID
	var payload string
	e.Attempts = []Try{}
	err = row.Scan(&e.ID, &e.EndpointID, &e.EventID, &e.EventType, &e.State, &event, &payload, &e.Repeats, &e.CreatedAt, &e.FinishedAt, &e.NextAttemptAt)
	e.Payload = json.RawMessage(payload)
	if event != nil {
		e.JobID = task.ID{Event: *event, Subscriber: task.WebhookDeliver}.String()
	}
	return e, err
}

// tries fills in the attempts.
func tries(ctx context.Context, q pg.Querier, items []Entry) error {
	at := make(map[uuid.UUID]int, len(items))
	ids := make([]uuid.UUID, len(items))
	for i, e := range items {
		at[e.ID], ids[i] = i, e.ID
	}
	rows, err := q.Query(ctx, `
		SELECT delivery_id, number, at, coalesce(outcome, CASE WHEN until > clock_timestamp() THEN '`+underWay+`' ELSE '`+interrupted+`' END),
			status, duration_ms, coalesce(response, ''),
			coalesce(error, CASE WHEN outcome IS NULL AND until <= clock_timestamp() THEN 'Interrupted: the outcome is not known.' END, '')
		FROM webhook_attempts WHERE delivery_id = ANY ($1) ORDER BY delivery_id, number, at`, ids)
	if err != nil {
		return pg.Fault(err)
	}
	var delivery uuid.UUID
	var t Try
	_, err = pgx.ForEachRow(rows, []any{&delivery, &t.Number, &t.At, &t.Outcome, &t.Status, &t.DurationMS, &t.Response, &t.Error}, func() error {
		e := &items[at[delivery]]
		e.Attempts = append(e.Attempts, t)
		t.Status, t.DurationMS = nil, nil
		return nil
	})
	return pg.Fault(err)
}

// DeleteOld removes deliveries that ended, or were held, more than keep ago, at
// most n, with their attempts, and deleted endpoints that have none left. It
// reports how many deliveries.
func DeleteOld(ctx context.Context, db *pg.DB, keep time.Duration, n int) (int64, error) {
	old := time.Now().Add(-keep)
	tag, err := db.Exec(ctx, `
		WITH old AS (
			SELECT id FROM webhook_deliveries
			WHERE id < $1 AND state <> 'pending' AND coalesce(finished_at, created_at) < $2 ORDER BY id LIMIT $3
		), attempts AS (
			DELETE FROM webhook_attempts a USING old WHERE a.delivery_id = old.id
		)
		DELETE FROM webhook_deliveries d USING old WHERE d.id = old.id`, outbox.Before(old), old, n)
	if err != nil || tag.RowsAffected() == int64(n) {
		return tag.RowsAffected(), err
	}
	_, err = db.Exec(ctx, `
		DELETE FROM webhook_endpoints e WHERE e.deleted_at < $1 AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.endpoint_id = e.id)`, old)
	return tag.RowsAffected(), err
}
