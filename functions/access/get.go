package access

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// named is the input of what is about one request.
type named struct {
	ID uuid.UUID `json:"id" path:"id" jsonschema:"the access request's id"`
}

// one answers with a request.
type one struct {
	Request Item `json:"request"`
}

// Get declares access_requests.get.
func Get(d Deps) *op.Operation {
	return op.New(op.Spec{
		Name: "access_requests.get", Method: "GET", Path: "/v1/access-requests/{id}", Scope: "access:read",
		Summary:     "Read an access request",
		Description: "Tells who asked for access and why, whether it was approved, and where the mail with the code stands.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in named) (o one, err error) {
		r, err := access.Get(ctx, d.DB, c.OwnerID, in.ID)
		if err != nil {
			return o, err
		}
		o.Request, err = d.item(ctx, c.OwnerID, r)
		return o, err
	})
}
