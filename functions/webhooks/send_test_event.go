package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// SendTest declares webhooks.send_test. Fault: "webhook_disabled" (409).
func SendTest(d Deps) *op.Operation {
	type out struct {
		Queued webhook.Queued `json:"queued"`
	}
	return op.NewWrite(op.Spec{
		Name: "webhooks.send_test", Method: "POST", Path: "/v1/webhooks/{id}/send-test", Scope: "webhooks:write", Status: 202,
		Summary:     "Queue a test event",
		Description: "Queues an event of type webhook.test for one webhook, whatever it subscribes to. queued.job_id tells later what became of it, and webhooks.deliveries has every attempt.",
		Tool:        &op.Tool{OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (o out, err error) {
		o.Queued, err = webhook.SendTest(ctx, tx, c.OwnerID, in.ID)
		return o, err
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
