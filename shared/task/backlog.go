package task

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/telemetry"
)

// backlogMax bounds what is read to count the backlog.
const backlogMax = 100_000

// ReadBacklog counts what is still to do, for all owners: 100,000 events and as
// many jobs at most. It names every kind in every state that is no end, since a
// gauge that falls silent is not one that fell to zero.
func ReadBacklog(ctx context.Context, db *pg.DB) (b telemetry.Backlog, err error) {
	type key struct {
		kind  string
		state State
	}
	count := map[key]int64{}
	for _, k := range Kinds() {
		for _, s := range States() {
			if !s.Terminal() {
				count[key{k.Name, s}] = 0
			}
		}
	}
	types, subscribers := outbox.Routes()
	var oldest float64
	var at key
	var n int64
	var batch pgx.Batch
	batch.Queue(`
		SELECT count(*) FILTER (WHERE poisoned_at IS NULL), count(*) FILTER (WHERE poisoned_at IS NOT NULL),
			coalesce(extract(epoch FROM clock_timestamp() - (
				SELECT e.occurred_at FROM event_queue q JOIN events e ON e.id = q.event_id
				WHERE q.poisoned_at IS NULL ORDER BY q.event_id LIMIT 1)), 0)::float8
		FROM (SELECT poisoned_at FROM event_queue LIMIT $1) q`, backlogMax).
		QueryRow(func(r pgx.Row) error { return r.Scan(&b.Queued, &b.Poisoned, &oldest) })
	// From the jobs that have not ended, which River has an index of; tasks has
	// none of its open rows, because it would cost every task two more writes.
	batch.Queue(`
		SELECT t.subscriber, `+stateSQL+`, count(*)
		FROM (SELECT id, state, errors FROM river_job
				WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled') LIMIT $3) j
			JOIN tasks t ON t.job_id = j.id
		WHERE t.state IN ('pending', 'running') GROUP BY 1, 2
		UNION ALL
		SELECT r.subscriber, 'pending', count(*)
		FROM (SELECT event_id FROM event_queue LIMIT $3) q JOIN events e ON e.id = q.event_id
			JOIN unnest($1::text[], $2::text[]) AS r (type, subscriber) ON r.type = e.type
		GROUP BY 1`, types, subscribers, backlogMax).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&at.kind, &at.state, &n}, func() error {
			count[at] += n
			return nil
		})
		return err
	})
	if err := db.Pool().SendBatch(ctx, &batch).Close(); err != nil {
		return b, pg.Fault(err)
	}
	b.Oldest = time.Duration(oldest * float64(time.Second))
	for k, n := range count {
		b.Tasks = append(b.Tasks, telemetry.OpenTasks{Kind: k.kind, State: string(k.state), Count: n})
	}
	return b, nil
}
