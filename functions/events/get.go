package events

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Detail is an event with the task of each of its subscribers.
type Detail struct {
	Event outbox.Entry `json:"event"`
	Tasks []task.Task  `json:"tasks" jsonschema:"one for each subscriber, also before the relay has made them"`
}

// Get declares events.get.
func Get(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the event's id"`
	}
	return op.New(op.Spec{
		Name: "events.get", Method: "GET", Path: "/v1/events/{id}", Scope: "tasks:read",
		Summary:     "Read one event",
		Description: "Reads one event: its payload, the last error of the relay if there was one, and the task of each subscriber.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in in) (Detail, error) {
		return read(ctx, d.DB, c.OwnerID, in.ID)
	})
}

func read(ctx context.Context, db *pg.DB, owner, id uuid.UUID) (o Detail, err error) {
	if o.Event, err = outbox.Read(ctx, db, owner, id); err != nil {
		return o, err
	}
	o.Tasks, err = task.OfEvent(ctx, db, owner, id, o.Event.Type)
	return o, err
}
