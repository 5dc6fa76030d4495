package tasks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/task"
)

// Overview declares tasks.overview.
func Overview(d Deps) *op.Operation {
	type in struct {
		Kind string `json:"kind,omitempty" maxLength:"64" jsonschema:"count only this kind of task"`
	}
	return op.New(op.Spec{
		Name: "tasks.overview", Method: "GET", Path: "/v1/tasks/overview", Scope: "tasks:read",
		Summary:     "Work in flight at a glance",
		Description: "Counts tasks by kind and state, tells the age of the oldest one that has not started, the backlog of events, and what needs attention (alerts).",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (task.Overview, error) {
		if _, err := (Matching{Kind: in.Kind}).filter(); err != nil {
			return task.Overview{}, err
		}
		o, err := task.ReadOverview(ctx, d.DB, c.OwnerID)
		if in.Kind != "" {
			kept := o.Kinds[:0]
			for _, k := range o.Kinds {
				if k.Kind == in.Kind {
					kept = append(kept, k)
				}
			}
			o.Kinds = kept
		}
		return o, err
	})
}
