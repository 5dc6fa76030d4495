package webhooks

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// RotateSecret declares webhooks.rotate_secret. Fault: "keys_not_configured" (409).
func RotateSecret(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "webhooks.rotate_secret", Method: "POST", Path: "/v1/webhooks/{id}/rotate-secret", Scope: "webhooks:write",
		Summary:     "Replace a webhook's secret",
		Description: "Gives a webhook a new signing secret and shows it once. For 24 hours the one that it replaces signs too, so that a receiver that knows either finds a signature that fits.",
		Tool:        &op.Tool{Destructive: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (made sealed, err error) {
		if err := d.keyed(); err != nil {
			return made, err
		}
		made.Endpoint, made.Sealed, err = webhook.Rotate(ctx, tx, d.Keys, c.OwnerID, in.ID)
		return made, err
	}, d.reveal)
}
