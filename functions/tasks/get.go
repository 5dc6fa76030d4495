package tasks

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// longWait is how long a caller may follow one receipt in one request; an API
// Gateway ends a request after 30 s.
const longWait = 20 * time.Second

// Get declares tasks.get.
func Get(d Deps) *op.Operation {
	type in struct {
		ID string `json:"id" path:"id" maxLength:"200" jsonschema:"a task's id: any index_job_id, job_id or task id that an answer gave"`
	}
	type out struct {
		Task task.Detail  `json:"task"`
		Wait *waiter.Wait `json:"wait,omitempty" jsonschema:"present when a wait was asked for"`
	}
	return op.New(op.Spec{
		Name: "tasks.get", Method: "GET", Path: "/v1/tasks/{id}", Scope: "tasks:read",
		Summary: "Read one task",
		Description: "Tells the state of one task: pending, running, retryable (failed, tried again by itself), completed, discarded (failed for good) or cancelled, with every attempt's error and a timeline. " +
			"Give wait_seconds to wait until it has ended. task.sentence says what can truthfully be said about the work now.",
		Tool:    &op.Tool{ReadOnly: true, Idempotent: true},
		MaxWait: longWait, WaitIfAsked: true, Timeout: 29 * time.Second,
		Say: func(o any) string { return o.(out).Task.Sentence },
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		id, err := find(ctx, d.DB, c.OwnerID, in.ID)
		if err != nil {
			return o, err
		}
		if o.Task, err = task.Get(ctx, d.DB, c.OwnerID, id); err != nil {
			return o, err
		}
		budget := op.CallFrom(ctx).Wait
		if !op.CallFrom(ctx).WaitAsked {
			return o, nil
		}
		if o.Task.State.Terminal() {
			o.Wait = &waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.Observed}
			return o, nil
		}
		if call := op.CallFrom(ctx); call.Listening {
			defer task.Watch(ctx, d.DB, []task.ID{id}, call.Progress)()
		}
		_, wait := d.Receipts.Resume(id).Await(ctx, time.Now(), budget)
		o.Wait = &wait
		o.Task, err = task.Get(ctx, d.DB, c.OwnerID, id)
		return o, err
	})
}
