package tasks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/task"
)

// List declares tasks.list.
func List(d Deps) *op.Operation {
	type in struct {
		Matching
		op.Paging
	}
	type out struct {
		op.Page[task.Task]
		Kinds []string `json:"kinds" jsonschema:"every kind that can be filtered by, also those that never ran"`
	}
	return op.New(op.Spec{
		Name: "tasks.list", Method: "GET", Path: "/v1/tasks", Scope: "tasks:read",
		Summary:     "List tasks",
		Description: "Lists tasks, newest first, also those that no worker has seen yet. Filter by kind, state, subject and since.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		filter, err := in.filter()
		if err != nil {
			return o, err
		}
		var after *task.Cursor
		if in.Cursor != "" {
			after = &task.Cursor{}
			if err := op.DecodeCursor(in.Cursor, after); err != nil {
				return o, err
			}
		}
		items, next, total, err := task.List(ctx, d.DB, c.OwnerID, filter, after, in.Limit)
		o.Items, o.Total = items, total
		if next != nil {
			o.NextCursor = op.EncodeCursor(next)
		}
		for _, k := range task.Kinds() {
			o.Kinds = append(o.Kinds, k.Name)
		}
		return o, err
	})
}
