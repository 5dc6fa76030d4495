package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// bulkPage is how many tasks are looked at between progress reports.
const bulkPage = 200

// bulkResult is what a bulk task leaves to read, and where it goes on after a
// slice.
type bulkResult struct {
	Action  string       `json:"action"`
	Changed int          `json:"changed"` // tasks that were retried or cancelled
	Skipped int          `json:"skipped"` // tasks that had moved on meanwhile
	After   *task.Cursor `json:"after,omitempty"`
}

// bulk retries or cancels every task that matches a filter, newest first, each
// in a transaction of its own.
func bulk(db *pg.DB) func(context.Context, *river.Job[task.BulkArgs]) error {
	return func(ctx context.Context, job *river.Job[task.BulkArgs]) error {
		var b task.Bulk
		if err := json.Unmarshal(job.Args.Data, &b); err != nil {
			return permanent(fmt.Errorf("filter: %w", err))
		}
		filter := task.Filter{Kind: b.Kind, State: b.State, Subject: b.Subject}
		if b.Since != "" {
			since, err := time.Parse(time.RFC3339, b.Since)
			if err != nil {
				return permanent(fmt.Errorf("filter: %w", err))
			}
			filter.Since = since
		}
		// the task itself and everything younger is left out
		result := bulkResult{Action: b.Action, After: &task.Cursor{Event: job.Args.EventID}}
		if err := task.ReadResult(ctx, db, job.ID, &result); err != nil {
			return err
		}
		began := time.Now()
		for result.After != nil {
			if time.Since(began) > slice {
				return river.JobSnooze(0)
			}
			items, next, total, err := task.List(ctx, db, job.Args.OwnerID, filter, result.After, bulkPage)
			if err != nil {
				return err
			}
			for _, t := range items {
				done, err := act(ctx, db, job.Args.OwnerID, b.Action, t.ID)
				if err != nil {
					return err
				}
				if done {
					result.Changed++
				} else {
					result.Skipped++
				}
			}
			result.After = next
			handled := result.Changed + result.Skipped
			if err := task.Report(ctx, db, job.ID, task.Progress{Done: handled, Total: max(total, handled)}, result); err != nil {
				return err
			}
		}
		return complete(ctx, db, job, result)
	}
}

// act reports false for a task that has moved on since it was listed.
func act(ctx context.Context, db *pg.DB, owner uuid.UUID, action, name string) (done bool, err error) {
	id, err := task.ParseID(name)
	if err != nil {
		return false, err
	}
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		if action == "cancel" {
			_, err := task.Cancel(ctx, tx, owner, id)
			return err
		}
		return task.Retry(ctx, tx, owner, id)
	})
	var f *fault.Fault
	if errors.As(err, &f) && (f.Kind == fault.Conflict || f.Kind == fault.NotFoundKind) {
		return false, nil
	}
	return err == nil, err
}
