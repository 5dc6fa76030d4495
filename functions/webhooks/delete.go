package webhooks

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/webhook"
)

// Delete declares webhooks.delete. Deleting again answers the same.
func Delete(d Deps) *op.Operation {
	type out struct {
		ID      uuid.UUID `json:"id"`
		Deleted bool      `json:"deleted"`
	}
	return op.NewWrite(op.Spec{
		Name: "webhooks.delete", Method: "DELETE", Path: "/v1/webhooks/{id}", Scope: "webhooks:write",
		Summary:     "Delete a webhook",
		Description: "Deletes a webhook for good, with what is still to be delivered to it. Its log stays readable for 30 days. To pause it, use webhooks.update with enabled false.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (out, error) {
		return out{in.ID, true}, webhook.Delete(ctx, tx, c.OwnerID, in.ID)
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
