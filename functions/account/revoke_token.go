package account

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// RevokeToken declares tokens.revoke. Revoking again answers the same.
func RevokeToken(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the token's id"`
	}
	type out struct {
		Token auth.Token `json:"token"`
	}
	return op.NewWrite(op.Spec{
		Name: "tokens.revoke", Method: "DELETE", Path: "/v1/tokens/{id}", Scope: "account:write",
		Summary:     "Revoke an API token",
		Description: "Ends an API token for good. It is refused from the next request on, also when it is the token of this call.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o out, err error) {
		var changed bool
		if o.Token, changed, err = auth.RevokeToken(ctx, tx, c.OwnerID, in.ID); err != nil || !changed {
			return o, err
		}
		id := in.ID.String()
		return o, outbox.Record(ctx, tx, outbox.NewID(), outbox.TokenRevoked, c.OwnerID, id, map[string]any{"token_id": id})
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
