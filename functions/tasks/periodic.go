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
)

// Periodic declares tasks.periodic.
func Periodic(d Deps) *op.Operation {
	type item struct {
		Name       string     `json:"name"`
		Title      string     `json:"title"`
		EverySec   float64    `json:"every_seconds"`
		StartedAt  *time.Time `json:"last_started_at,omitempty"`
		FinishedAt *time.Time `json:"last_finished_at,omitempty"`
		Note       string     `json:"last_note,omitempty" jsonschema:"what the last run did"`
		Error      string     `json:"last_error,omitempty"`
		NextAt     *time.Time `json:"next_at,omitempty" jsonschema:"when it is due again, if workers run"`
	}
	type out struct {
		Items []item `json:"items"`
	}
	return op.New(op.Spec{
		Name: "tasks.periodic", Method: "GET", Path: "/v1/periodic", Scope: "tasks:read",
		Summary:     "List periodic jobs",
		Description: "Lists the jobs that run by the clock, with how each one's last run went.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, _ auth.Caller, _ struct{}) (o out, err error) {
		runs, err := task.Runs(ctx, d.DB)
		for _, r := range runs {
			i := item{Name: r.Name, Title: r.Title, EverySec: r.Every.Seconds(), StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Note: r.Note, Error: r.Error}
			if r.StartedAt != nil {
				next := r.StartedAt.Add(r.Every)
				i.NextAt = &next
			}
			o.Items = append(o.Items, i)
		}
		return o, err
	})
}

// RunPeriodic declares tasks.run_periodic.
func RunPeriodic(d Deps) *op.Operation {
	type in struct {
		Name string `json:"name" path:"name" maxLength:"64" jsonschema:"the periodic job's name, from tasks.periodic"`
	}
	return op.NewWrite(op.Spec{
		Name: "tasks.run_periodic", Method: "POST", Path: "/v1/periodic/{name}/run", Status: 202, Scope: "tasks:write",
		Summary:     "Run a periodic job now",
		Description: "Queues one run of a periodic job. The answer is its receipt: follow task.id with tasks.get.",
		Tool:        &op.Tool{},
		Say:         say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (acted, error) {
		p, ok := task.LookupPeriodic(in.Name)
		if !ok {
			return acted{}, fault.NotFound("periodic job")
		}
		event := outbox.NewID()
		err := outbox.Record(ctx, tx, event, outbox.PeriodicRunRequested, c.OwnerID, p.Name, struct{}{})
		return acted{TaskID: task.ID{Event: event, Subscriber: task.PeriodicRun}.String(), State: task.Pending}, err
	}, d.answer)
}
