package task

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// Periodic declares a job that runs by the clock, once for all workers
// together.
type Periodic struct {
	Name  string
	Title string
	Every time.Duration
}

// Periodics lists every declared periodic job, ordered by name.
func Periodics() []Periodic {
	return []Periodic{
		{Name: "events.retention", Title: "Remove events that were fanned out more than 7 days ago", Every: time.Hour},
		{Name: "guests.retention", Title: "Remove visitors' sessions that have expired, and what limits nothing any more", Every: time.Hour},
		{Name: "idempotency.retention", Title: "Remove idempotency keys older than 24 hours", Every: time.Hour},
		{Name: "microsites.retention", Title: "Remove old builds of microsites that neither are live nor can be by a rollback", Every: time.Hour},
		{Name: "relay.sweep", Title: "Wake the relay when an event has been waiting", Every: 10 * time.Second},
		{Name: "tasks.retention", Title: "Remove tasks that ended more than 30 days ago", Every: time.Hour},
		{Name: "webhooks.retention", Title: "Remove webhook deliveries that ended more than 30 days ago", Every: time.Hour},
	}
}

// LookupPeriodic finds a declared periodic job.
func LookupPeriodic(name string) (Periodic, bool) {
	all := Periodics()
	i := slices.IndexFunc(all, func(p Periodic) bool { return p.Name == name })
	if i < 0 {
		return Periodic{}, false
	}
	return all[i], true
}

// Run is how a periodic job's last run went.
type Run struct {
	Periodic
	StartedAt  *time.Time
	FinishedAt *time.Time
	Note       string
	Error      string
}

// RecordRun keeps how a run of a periodic job went.
func RecordRun(ctx context.Context, db *pg.DB, name string, began time.Time, note string, failed error) error {
	message := ""
	if failed != nil {
		message = failed.Error()
	}
	return db.InTx(ctx, func(tx *pg.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO periodic_runs (name, started_at, finished_at, note, error) VALUES ($1, $2, clock_timestamp(), $3, $4)
			ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at, finished_at = excluded.finished_at,
				note = excluded.note, error = excluded.error`, name, began, note, message)
		return err
	})
}

// Runs lists every declared periodic job with its last run, if any.
func Runs(ctx context.Context, db *pg.DB) ([]Run, error) {
	rows, err := db.Query(ctx, `SELECT name, started_at, finished_at, coalesce(note, ''), coalesce(error, '') FROM periodic_runs`)
	if err != nil {
		return nil, err
	}
	last := map[string]Run{}
	var r Run
	if _, err := pgx.ForEachRow(rows, []any{&r.Name, &r.StartedAt, &r.FinishedAt, &r.Note, &r.Error}, func() error {
		last[r.Name] = r
		return nil
	}); err != nil {
		return nil, pg.Fault(err)
	}
	var runs []Run
	for _, p := range Periodics() {
		run := last[p.Name]
		run.Periodic = p
		runs = append(runs, run)
	}
	return runs, nil
}
