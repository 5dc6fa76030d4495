package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/limit"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/webhook"
)

const (
	keepEvents = 7 * 24 * time.Hour
	keepTasks  = 30 * 24 * time.Hour
	keepKeys   = 24 * time.Hour
	// rows that one statement of a retention job removes at most
	retentionBatch = 5000
	// builds that a run forgets at most; each has many blobs
	buildsAtOnce = 50
	// sweepAge is how long an event may wait before the relay is woken again
	sweepAge = 2 * time.Second
)

// schedules hands the declared periodic jobs to River, whose leader runs each
// once for all processes.
func schedules() []*river.PeriodicJob {
	var all []*river.PeriodicJob
	for _, p := range task.Periodics() {
		all = append(all, river.NewPeriodicJob(river.PeriodicInterval(p.Every),
			func() (river.JobArgs, *river.InsertOpts) {
				return task.PeriodicArgs{Name: p.Name}, &river.InsertOpts{Queue: task.QueueMaintenance, MaxAttempts: 1 + task.SpareAttempts}
			}, &river.PeriodicJobOpts{ID: p.Name, RunOnStart: true}))
	}
	return all
}

// periodic runs a periodic job by name and records the run.
func periodic(db *pg.DB) func(context.Context, *river.Job[task.PeriodicArgs]) error {
	return periodicWith(db, nil)
}

// periodicWith is periodic where there may be blobs to remove.
func periodicWith(db *pg.DB, blobs blob.Store) func(context.Context, *river.Job[task.PeriodicArgs]) error {
	return func(ctx context.Context, job *river.Job[task.PeriodicArgs]) error {
		began := time.Now()
		note, err := runPeriodic(ctx, db, blobs, job.Args.Name)
		if recording := task.RecordRun(ctx, db, job.Args.Name, began, note, err); err == nil {
			err = recording
		}
		if err != nil {
			return err
		}
		return complete(ctx, db, job, map[string]string{"note": note})
	}
}

func runPeriodic(ctx context.Context, db *pg.DB, blobs blob.Store, name string) (note string, err error) {
	switch name {
	case "events.retention":
		return retain("events", func() (int64, error) { return outbox.DeleteOld(ctx, db, keepEvents, retentionBatch) })
	case "tasks.retention":
		return retain("tasks", func() (int64, error) { return task.DeleteOld(ctx, db, keepTasks, retentionBatch) })
	case "guests.retention":
		return retain("sessions, limits and mail turns", func() (removed int64, err error) {
			for _, old := range []func(context.Context, *pg.DB, int) (int64, error){auth.DeleteOldVisitors, limit.DeleteOld, deleteOldTurns} {
				n, err := old(ctx, db, retentionBatch)
				if removed += n; err != nil {
					return removed, err
				}
			}
			return removed, nil
		})
	case "idempotency.retention":
		return retain("keys", func() (int64, error) { return op.DeleteOldKeys(ctx, db, keepKeys, retentionBatch) })
	case "microsites.retention":
		removed, err := forgetBuilds(ctx, db, blobs, buildsAtOnce)
		return fmt.Sprintf("%d builds removed", removed), err
	case "webhooks.retention":
		return retain("deliveries", func() (int64, error) { return webhook.DeleteOld(ctx, db, keepTasks, retentionBatch) })
	case "relay.sweep":
		waiting, err := outbox.Waiting(ctx, db, sweepAge)
		if err == nil && waiting > 0 {
			db.Notify(outbox.Recorded, "")
		}
		return fmt.Sprintf("%d events were waiting", waiting), err
	}
	return "", permanent(fmt.Errorf("periodic job %q is not declared", name))
}

// retain deletes batch after batch until one comes back short or the slice is
// used up; the next run goes on.
func retain(what string, batch func() (int64, error)) (string, error) {
	began := time.Now()
	var total int64
	for {
		n, err := batch()
		total += n
		if err != nil || n < retentionBatch || time.Since(began) > slice {
			return fmt.Sprintf("%d %s removed", total, what), err
		}
	}
}
