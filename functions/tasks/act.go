package tasks

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// acted is what a retry or cancel committed.
type acted struct {
	TaskID string     `json:"task_id"`
	State  task.State `json:"state"`
	// Requested: a running task was asked to stop and has not yet.
	Requested bool `json:"requested,omitempty"`
	// Bulk: the task is a bulk one that will go through the matching tasks.
	Bulk bool `json:"bulk,omitempty"`

	at time.Time
}

// Acted answers a retry or cancel.
type Acted struct {
	Task task.Task    `json:"task" jsonschema:"the task as it is now; for a filter, the task that goes through the matching ones: follow its id with tasks.get"`
	Bulk bool         `json:"bulk" jsonschema:"true when a filter was given"`
	Wait *waiter.Wait `json:"wait,omitempty"`
}

type one struct {
	ID string `json:"id" path:"id" maxLength:"200" jsonschema:"the task's id"`
}

type oneOrMany struct {
	ID string `json:"id,omitempty" maxLength:"200" jsonschema:"the task's id; leave it out to act on all tasks that match the filter"`
	Matching
}

// Retry declares tasks.retry, by id or by filter.
func Retry(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "tasks.retry", Method: "POST", Path: "/v1/tasks/retry", Scope: "tasks:write",
		Summary: "Retry a task, or all that match",
		Description: "Has a task that was discarded or cancelled start over, or one that waits for its next attempt go at once. Give id for one task. " +
			"Give a filter (kind, state, subject, since) instead to retry all that match: the answer is then the receipt of a task that goes through them.",
		Tool: &op.Tool{},
		Say:  say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in oneOrMany) (acted, error) {
		if in.ID != "" {
			return retry(ctx, d, tx, c, in.ID)
		}
		return d.bulk(ctx, tx, c, "retry", in.Matching)
	}, d.answer)
}

// RetryOne declares the route that names the task in its path.
func RetryOne(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "tasks.retry_one", Method: "POST", Path: "/v1/tasks/{id}/retry", Scope: "tasks:write",
		Summary: "Retry one task", Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in one) (acted, error) {
		return retry(ctx, d, tx, c, in.ID)
	}, d.answer)
}

// Cancel declares tasks.cancel, by id or by filter.
func Cancel(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "tasks.cancel", Method: "POST", Path: "/v1/tasks/cancel", Scope: "tasks:write",
		Summary: "Cancel a task, or all that match",
		Description: "Cancels a task that has not ended. One that is already talking to the outside world is asked to stop; the answer waits up to 2 s for its end and tells the state it then is in. Give id for one task. " +
			"Give a filter (kind, state, subject, since) instead to cancel all that match: the answer is then the receipt of a task that goes through them.",
		Tool:    &op.Tool{Destructive: true},
		MaxWait: 2 * time.Second,
		Say:     say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in oneOrMany) (acted, error) {
		if in.ID != "" {
			return cancel(ctx, d, tx, c, in.ID)
		}
		return d.bulk(ctx, tx, c, "cancel", in.Matching)
	}, d.answer)
}

// CancelOne declares the route that names the task in its path.
func CancelOne(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "tasks.cancel_one", Method: "POST", Path: "/v1/tasks/{id}/cancel", Scope: "tasks:write",
		Summary: "Cancel one task", MaxWait: 2 * time.Second, Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in one) (acted, error) {
		return cancel(ctx, d, tx, c, in.ID)
	}, d.answer)
}

func say(o any) string { return o.(Acted).Task.Sentence }

func retry(ctx context.Context, d Deps, tx *pg.Tx, c auth.Caller, name string) (acted, error) {
	id, err := find(ctx, d.DB, c.OwnerID, name)
	if err != nil {
		return acted{}, err
	}
	return acted{TaskID: id.String(), State: task.Pending, at: time.Now()}, task.Retry(ctx, tx, c.OwnerID, id)
}

func cancel(ctx context.Context, d Deps, tx *pg.Tx, c auth.Caller, name string) (acted, error) {
	id, err := find(ctx, d.DB, c.OwnerID, name)
	if err != nil {
		return acted{}, err
	}
	requested, err := task.Cancel(ctx, tx, c.OwnerID, id)
	state := task.Cancelled
	if requested {
		state = task.Running
	}
	return acted{TaskID: id.String(), State: state, Requested: requested, at: time.Now()}, err
}

func (d Deps) bulk(ctx context.Context, tx *pg.Tx, c auth.Caller, action string, m Matching) (acted, error) {
	if m == (Matching{}) {
		return acted{}, fault.InvalidField("id", "missing_field", "Give an id, or a filter of kind, state, subject or since.")
	}
	if _, err := m.filter(); err != nil {
		return acted{}, err
	}
	b := task.Bulk{Action: action, Kind: m.Kind, State: task.State(m.State), Subject: m.Subject}
	if m.Since != nil {
		b.Since = m.Since.UTC().Format(time.RFC3339)
	}
	event := outbox.NewID()
	err := outbox.Record(ctx, tx, event, outbox.TasksBulkRequested, c.OwnerID, action, b)
	return acted{TaskID: task.ID{Event: event, Subscriber: task.TasksBulk}.String(), State: task.Pending, Bulk: true, at: time.Now()}, err
}

func (d Deps) answer(ctx context.Context, c auth.Caller, a acted) (Acted, error) {
	out := Acted{Bulk: a.Bulk}
	id, err := task.ParseID(a.TaskID)
	if err != nil {
		return out, err
	}
	if a.Requested {
		if a.at.IsZero() {
			a.at = time.Now()
		}
		_, wait := d.Receipts.Resume(id).Await(ctx, a.at, op.CallFrom(ctx).Wait)
		out.Wait = &wait
	}
	detail, err := task.Get(ctx, d.DB, c.OwnerID, id)
	out.Task = detail.Task
	if err != nil {
		// it is committed, and its receipt is good
		out.Task = task.Committed(id, a.State, a.Requested)
	}
	return out, nil
}
