package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/webhook"
)

// Get declares webhooks.get.
func Get(d Deps) *op.Operation {
	return op.New(op.Spec{
		Name: "webhooks.get", Method: "GET", Path: "/v1/webhooks/{id}", Scope: "webhooks:read",
		Summary:     "Read a webhook",
		Description: "Reads a webhook without its secret: where it leads, what it subscribes to, and how it stands.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in named) (o Answer, err error) {
		o.Endpoint, err = webhook.Get(ctx, d.DB, c.OwnerID, in.ID)
		return o, err
	})
}
