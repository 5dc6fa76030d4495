package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Status is where an event stands on its way to becoming tasks.
type Status string

// The statuses.
const (
	Queued   Status = "queued"     // no relay has fanned it out yet
	FannedTo Status = "fanned_out" // its tasks exist
	Poisoned Status = "poisoned"   // set aside after MaxAttempts failures
)

// Statuses lists every status.
func Statuses() []Status { return []Status{Queued, FannedTo, Poisoned} }

// Entry is what an event's owner reads of it.
type Entry struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Subject    string          `json:"subject" jsonschema:"id of what the event is about"`
	Status     Status          `json:"status" enum:"queued,fanned_out,poisoned"`
	OccurredAt time.Time       `json:"occurred_at"`
	Data       json.RawMessage `json:"data,omitempty" jsonschema:"the event's payload"`
	Attempts   int             `json:"attempts,omitempty" jsonschema:"failed attempts to fan it out"`
	LastError  string          `json:"last_error,omitempty" jsonschema:"why the last attempt to fan it out failed"`
	NextAt     *time.Time      `json:"next_attempt_at,omitempty" jsonschema:"when a queued event that failed is tried again"`
}

// Filter narrows a list of events; zero fields don't.
type Filter struct {
	Type    string
	Status  Status
	Subject string
	Since   time.Time
}

const entrySQL = `
	SELECT e.id::text, e.type, e.subject,
		CASE WHEN q.event_id IS NULL THEN 'fanned_out' WHEN q.poisoned_at IS NOT NULL THEN 'poisoned' ELSE 'queued' END,
		e.occurred_at, coalesce(q.attempts, 0), coalesce(q.last_error, ''),
		CASE WHEN q.poisoned_at IS NULL AND q.attempts > 0 THEN q.due_at END
	FROM events e LEFT JOIN event_queue q ON q.event_id = e.id
	WHERE e.owner_id = $1`

const filterSQL = `
	AND ($2 = '' OR e.type = $2) AND ($3 = '' OR e.subject = $3) AND e.id >= $4
	AND ($5 = '' OR CASE WHEN q.event_id IS NULL THEN 'fanned_out' WHEN q.poisoned_at IS NOT NULL THEN 'poisoned' ELSE 'queued' END = $5)`

func scan(row pgx.CollectableRow) (e Entry, err error) {
	err = row.Scan(&e.ID, &e.Type, &e.Subject, &e.Status, &e.OccurredAt, &e.Attempts, &e.LastError, &e.NextAt)
	return e, err
}

// List reads an owner's events, newest first and without their data, those
// before the given id (zero: from the newest). more reports a further page.
func List(ctx context.Context, db *pg.DB, owner uuid.UUID, f Filter, before uuid.UUID, limit int) (items []Entry, more bool, total int, err error) {
	if before == (uuid.UUID{}) {
		before = uuid.Max
	}
	var from uuid.UUID
	if !f.Since.IsZero() {
		from = Before(f.Since)
	}
	rows, err := db.Query(ctx, entrySQL+filterSQL+` AND e.id < $6 ORDER BY e.id DESC LIMIT $7`, owner, f.Type, f.Subject, from, f.Status, before, limit+1)
	if err != nil {
		return nil, false, 0, err
	}
	if items, err = pgx.CollectRows(rows, scan); err != nil {
		return nil, false, 0, pg.Fault(err)
	}
	if more = len(items) > limit; more {
		items = items[:limit]
	}
	err = db.QueryRow(ctx, `SELECT count(*) FROM events e LEFT JOIN event_queue q ON q.event_id = e.id WHERE e.owner_id = $1`+filterSQL,
		owner, f.Type, f.Subject, from, f.Status).Scan(&total)
	return items, more, total, pg.Fault(err)
}

// Read reads one event of an owner with its data; fault "not_found" for every
// other id.
func Read(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (Entry, error) {
	rows, err := q.Query(ctx, entrySQL+` AND e.id = $2`, owner, id)
	if err != nil {
		return Entry{}, pg.Fault(err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scan)
	if pg.IsNoRows(err) {
		return e, fault.NotFound("event")
	}
	if err != nil {
		return e, pg.Fault(err)
	}
	err = q.QueryRow(ctx, `SELECT data FROM events WHERE id = $1`, id).Scan(&e.Data)
	return e, pg.Fault(err)
}
