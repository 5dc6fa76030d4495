package access

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// RevokeCode declares codes.revoke. Revoking again answers the same.
func RevokeCode(d Deps) *op.Operation {
	type in struct {
		ID uuid.UUID `json:"id" path:"id" jsonschema:"the code's id, as codes.list gives it"`
	}
	type committed struct {
		Code uuid.UUID `json:"code"`
	}
	type out struct {
		Details access.Code `json:"details"`
	}
	return op.NewWrite(op.Spec{
		Name: "codes.revoke", Method: "POST", Path: "/v1/codes/{id}/revoke", Scope: "access:write",
		Summary:     "Revoke an access code",
		Description: "Ends an access code for good. Nobody can redeem it any more, and who had redeemed it no longer sees what is shared by code, from their next request on.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (committed, error) {
		return committed{in.ID}, access.Revoke(ctx, tx, c.OwnerID, in.ID)
	}, func(ctx context.Context, c auth.Caller, done committed) (o out, err error) {
		o.Details, err = access.GetCode(ctx, d.DB, c.OwnerID, done.Code)
		return o, err
	})
}
