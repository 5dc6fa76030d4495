package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/riverqueue/river"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// bulkPage is how many tasks are looked at between progress reports.
const bulkPage = 200

// bulkResult is what a bulk task leaves to read.
type bulkResult struct {
	Action  string `json:"action"`
	Done    int    `json:"done"`    // tasks that were retried or cancelled
	Skipped int    `json:"skipped"` // tasks that had moved on meanwhile
}

// bulk retries or cancels every task that matches a filter, newest first, each
// in a transaction of its own: a run that was cut short goes on with those that
// still match.
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
		owner, result := job.Args.OwnerID, bulkResult{Action: b.Action}
		// itself and everything younger is left out
		after := &task.Cursor{Event: job.Args.EventID}
		for after != nil {
			items, next, total, err := task.List(ctx, db, owner, filter, after, bulkPage)
			if err != nil {
				return err
			}
			for _, t := range items {
				id, err := task.ParseID(t.ID)
				if err != nil {
					return err
				}
				err = db.InTx(ctx, func(tx *pg.Tx) error {
					if b.Action == "cancel" {
						_, err := task.Cancel(ctx, tx, owner, id)
						return err
					}
					return task.Retry(ctx, tx, owner, id)
				})
				var f *fault.Fault
				switch {
				case err == nil:
					result.Done++
				case errors.As(err, &f) && (f.Status() == http.StatusConflict || f.Status() == http.StatusNotFound):
					result.Skipped++
				default:
					return err
				}
			}
			handled := result.Done + result.Skipped
			if err := task.Report(ctx, db, job.ID, task.Progress{Done: handled, Total: max(total, handled)}); err != nil {
				return err
			}
			after = next
		}
		return complete(ctx, db, job.JobRow, result)
	}
}
