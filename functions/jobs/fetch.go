package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/jobfeed"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// asked is what a fetch has committed.
type asked struct {
	Events []uuid.UUID `json:"events"`
	batch  *task.Batch
}

// FetchNew declares jobs.fetch_new.
func FetchNew(d Deps) *op.Operation {
	type in struct {
		SourceID *uuid.UUID `json:"source_id,omitempty" jsonschema:"only this source; all of them if left out"`
	}
	return op.NewWrite(op.Spec{
		Name: "jobs.fetch_new", Method: "POST", Path: "/v1/jobs/fetch-new", Scope: "jobs:write",
		Summary: "Fetch new job listings",
		Description: "Reads every source, or one, and answers what is new, waiting up to 20 s for all of them at once. A source that can't be read stands in failed_sources with the reason, and changes nothing. " +
			"pending: true means that some are still being read: call jobs.fetch_result with the job_ids.",
		Tool: &op.Tool{OpenWorld: true}, MaxWait: maxWait, Timeout: 29 * time.Second, Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (a asked, err error) {
		var one uuid.UUID
		if in.SourceID != nil {
			one = *in.SourceID
		}
		if a.Events, err = jobfeed.Ask(ctx, tx, c.OwnerID, one, outbox.NewID); err != nil {
			return a, err
		}
		if op.CallFrom(ctx).Wait > 0 {
			a.batch = d.Receipts.ExpectAll(a.Events, task.JobsFetch)
		}
		return a, nil
	}, func(ctx context.Context, c auth.Caller, a asked) (Fetched, error) {
		since := time.Now()
		b := a.batch
		if b == nil {
			ids := make([]task.ID, len(a.Events))
			for i, e := range a.Events {
				ids[i] = task.ID{Event: e, Subscriber: task.JobsFetch}
			}
			if b = (&task.Batch{IDs: ids}); op.CallFrom(ctx).Wait > 0 {
				b = d.Receipts.ResumeAll(ids)
			}
		}
		return d.await(ctx, c.OwnerID, b, since)
	})
}

// FetchResult declares jobs.fetch_result.
func FetchResult(d Deps) *op.Operation {
	type in struct {
		JobIDs []string `json:"job_ids" maxItems:"200" maxLength:"200" jsonschema:"the receipts that jobs.fetch_new gave"`
	}
	return op.New(op.Spec{
		Name: "jobs.fetch_result", Method: "POST", Path: "/v1/jobs/fetch-result", Scope: "jobs:read",
		Summary:     "Read what a fetch of job listings gave",
		Description: "Answers for the receipts of jobs.fetch_new as that would now, however often and for 30 days. Give wait_seconds to wait until every source has been read.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
		MaxWait:     maxWait, WaitIfAsked: true, Timeout: 29 * time.Second, Say: say,
	}, func(ctx context.Context, c auth.Caller, in in) (f Fetched, err error) {
		if len(in.JobIDs) == 0 {
			return f, fault.InvalidField("job_ids", "missing_field", "Give the job_ids that jobs.fetch_new answered.")
		}
		var ids []task.ID
		for _, s := range in.JobIDs {
			id, err := task.ParseID(s)
			if err != nil {
				return f, err
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		if f, err = d.fetched(ctx, c.OwnerID, ids); err != nil || !f.Pending || op.CallFrom(ctx).Wait <= 0 {
			return f, err
		}
		return d.await(ctx, c.OwnerID, d.Receipts.ResumeAll(ids), time.Now())
	})
}
