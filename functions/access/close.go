package access

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Close declares access_requests.close. Closing again answers the same.
func Close(d Deps) *op.Operation {
	type committed struct {
		ID uuid.UUID `json:"id"`
	}
	return op.NewWrite(op.Spec{
		Name: "access_requests.close", Method: "POST", Path: "/v1/access-requests/{id}/close", Scope: "access:write",
		Summary:     "Close an access request",
		Description: "Decides an open access request without a code. The visitor gets no mail about it. One that was approved can't be closed: revoke its code instead, with codes.revoke.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (committed, error) {
		_, err := access.Close(ctx, tx, c.OwnerID, in.ID)
		return committed(in), err
	}, func(ctx context.Context, c auth.Caller, done committed) (o one, err error) {
		r, err := access.Get(ctx, d.DB, c.OwnerID, done.ID)
		if err != nil {
			return o, err
		}
		o.Request, err = d.item(ctx, c.OwnerID, r)
		return o, err
	})
}
