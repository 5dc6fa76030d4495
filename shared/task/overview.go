package task

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Overview is the state of an owner's work, and of the machinery behind it.
type Overview struct {
	Kinds            []KindCount `json:"kinds" jsonschema:"every kind of task, also those that never ran"`
	OldestPendingSec float64     `json:"oldest_pending_seconds" jsonschema:"age of the oldest task that has not started, 0 when there is none"`
	Events           EventCount  `json:"events"`
	Tables           []TableSize `json:"tables"`
	Alerts           []Alert     `json:"alerts" jsonschema:"what needs attention now; empty when all is well"`
}

// KindCount counts an owner's tasks of one kind by state.
type KindCount struct {
	Kind      string `json:"kind"`
	Title     string `json:"title"`
	Pending   int    `json:"pending"`
	Running   int    `json:"running"`
	Retryable int    `json:"retryable"`
	Completed int    `json:"completed"`
	Discarded int    `json:"discarded"`
	Cancelled int    `json:"cancelled"`
}

// EventCount is the outbox's backlog.
type EventCount struct {
	Backlog   int     `json:"backlog" jsonschema:"events that no relay has fanned out yet"`
	OldestSec float64 `json:"oldest_seconds" jsonschema:"age of the oldest of them"`
	Poisoned  int     `json:"poisoned" jsonschema:"events set aside after repeated failure; events.requeue puts one back"`
}

// TableSize is the size of a table with its indexes, in bytes.
type TableSize struct {
	Table string `json:"table"`
	Bytes int64  `json:"bytes"`
}

// Alert is something that needs attention.
type Alert struct {
	Code   string `json:"code" enum:"events_backlog,events_poisoned,notify_queue,tasks_discarded,xmin_held"`
	Detail string `json:"detail"`
}

// When the alerts fire.
const (
	backlogLimit  = 1000
	backlogAge    = 5 * time.Minute
	notifyLimit   = 0.05 // of the 8 GB notification queue
	discardWindow = 24 * time.Hour
	xminAge       = 5 * time.Minute
)

// ReadOverview reads it for one owner. Backlog, table sizes and most alerts are
// about the whole database.
func ReadOverview(ctx context.Context, db *pg.DB, owner uuid.UUID) (Overview, error) {
	o := Overview{Alerts: []Alert{}}
	types, subscribers := outbox.Routes()
	count := map[string]map[State]int{}
	var kind string
	var state State
	var n, discarded int
	var table string
	var bytes int64
	var notifyUsage, xminSec float64
	var b pgx.Batch
	b.Queue(`
		SELECT t.subscriber, `+stateSQL+`, count(*)
		FROM tasks t LEFT JOIN river_job j ON j.id = t.job_id AND t.state IN ('pending', 'running')
		WHERE t.owner_id = $1 GROUP BY 1, 2
		UNION ALL
		SELECT r.subscriber, 'pending', count(*)
		FROM event_queue q JOIN events e ON e.id = q.event_id JOIN unnest($2::text[], $3::text[]) AS r (type, subscriber) ON r.type = e.type
		WHERE e.owner_id = $1 AND NOT EXISTS (SELECT FROM tasks t WHERE t.event_id = e.id AND t.subscriber = r.subscriber) GROUP BY 1`, owner, types, subscribers).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&kind, &state, &n}, func() error {
			if count[kind] == nil {
				count[kind] = map[State]int{}
			}
			count[kind][state] += n
			return nil
		})
		return err
	})
	b.Queue(`
		SELECT greatest(coalesce(extract(epoch FROM clock_timestamp() - least(
			(SELECT min(t.fanned_at) FROM tasks t LEFT JOIN river_job j ON j.id = t.job_id WHERE t.owner_id = $1 AND t.state = 'pending' AND `+stateSQL+` = 'pending'),
			(SELECT min(e.occurred_at) FROM event_queue q JOIN events e ON e.id = q.event_id WHERE e.owner_id = $1))), 0), 0)::float8`,
		owner).QueryRow(func(r pgx.Row) error { return r.Scan(&o.OldestPendingSec) })
	b.Queue(`
		SELECT count(*) FILTER (WHERE poisoned_at IS NULL), count(*) FILTER (WHERE poisoned_at IS NOT NULL),
			greatest(coalesce(extract(epoch FROM clock_timestamp() - (
				SELECT e.occurred_at FROM event_queue o JOIN events e ON e.id = o.event_id WHERE o.poisoned_at IS NULL ORDER BY o.event_id LIMIT 1)), 0), 0)::float8
		FROM event_queue`).QueryRow(func(r pgx.Row) error { return r.Scan(&o.Events.Backlog, &o.Events.Poisoned, &o.Events.OldestSec) })
	b.Queue(`
		SELECT c.relname::text, pg_total_relation_size(c.oid)
		FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
			AND c.relname IN ('notes', 'events', 'event_queue', 'tasks', 'note_search', 'search_terms', 'river_job', 'idempotency_keys', 'webhook_deliveries', 'webhook_attempts')
		ORDER BY 1`).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&table, &bytes}, func() error {
			o.Tables = append(o.Tables, TableSize{table, bytes})
			return nil
		})
		return err
	})
	b.Queue(`SELECT count(*) FROM tasks WHERE owner_id = $1 AND state = 'discarded' AND finished_at > $2`,
		owner, time.Now().Add(-discardWindow)).QueryRow(func(r pgx.Row) error { return r.Scan(&discarded) })
	b.Queue(`
		SELECT pg_notification_queue_usage(),
			coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
				WHERE backend_xmin IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()), 0)::float8`).
		QueryRow(func(r pgx.Row) error { return r.Scan(&notifyUsage, &xminSec) })
	if err := db.Pool().SendBatch(ctx, &b).Close(); err != nil {
		return o, pg.Fault(err)
	}
	for _, k := range Kinds() {
		c := count[k.Name]
		o.Kinds = append(o.Kinds, KindCount{Kind: k.Name, Title: k.Title, Pending: c[Pending], Running: c[Running], Retryable: c[Retryable],
			Completed: c[Completed], Discarded: c[Discarded], Cancelled: c[Cancelled]})
	}
	alert := func(fires bool, code, detail string, args ...any) {
		if fires {
			o.Alerts = append(o.Alerts, Alert{code, fmt.Sprintf(detail, args...)})
		}
	}
	alert(o.Events.Backlog > backlogLimit || o.Events.OldestSec > backlogAge.Seconds(), "events_backlog",
		"%d events wait to be fanned out, the oldest for %.0f s. Is a relay running?", o.Events.Backlog, o.Events.OldestSec)
	alert(o.Events.Poisoned > 0, "events_poisoned", "%d events were set aside after %d failed attempts. See their last errors, then requeue them.", o.Events.Poisoned, outbox.MaxAttempts)
	alert(notifyUsage > notifyLimit, "notify_queue", "PostgreSQL's notification queue is %.1f %% full: a listening process doesn't read.", 100*notifyUsage)
	alert(discarded > 0, "tasks_discarded", "%d tasks failed for good in the last 24 hours.", discarded)
	alert(xminSec > xminAge.Seconds(), "xmin_held", "A transaction has been open for %.0f s: dead rows can't be cleaned meanwhile and queues slow down.", xminSec)
	return o, nil
}
