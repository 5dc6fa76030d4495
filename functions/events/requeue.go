package events

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/waiter"
)

// Requeue declares events.requeue.
func Requeue(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the event's id"`
	}
	type requeued struct {
		ID uuid.UUID `json:"id"`
		at time.Time
	}
	type out struct {
		Detail
		Wait waiter.Wait `json:"wait"`
	}
	return op.NewWrite(op.Spec{
		Name: "events.requeue", Method: "POST", Path: "/v1/events/{id}/requeue", Scope: "tasks:write",
		Summary:     "Put an event back that was set aside",
		Description: "Puts a poisoned event back into the queue and waits up to 2 s for the relay to turn it into tasks. event.status says whether that has happened.",
		Tool:        &op.Tool{},
		MaxWait:     2 * time.Second,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (requeued, error) {
		return requeued{ID: in.ID, at: time.Now()}, outbox.Requeue(ctx, tx, c.OwnerID, in.ID)
	}, func(ctx context.Context, c auth.Caller, r requeued) (o out, err error) {
		if r.at.IsZero() {
			r.at = time.Now()
		}
		budget := op.CallFrom(ctx).Wait
		o.Wait = waiter.Wait{AskedMS: budget.Milliseconds(), Ended: waiter.NotAsked}
		if budget > 0 {
			o.Wait.Ended = outbox.AwaitFanout(ctx, d.Waiter, r.ID, r.at.Add(budget))
			o.Wait.WaitedMS = time.Since(r.at).Milliseconds()
		}
		o.Detail, err = read(ctx, d.DB, c.OwnerID, r.ID)
		return o, err
	})
}
