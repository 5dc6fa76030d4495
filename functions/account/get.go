package account

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// Account answers account.get.
type Account struct {
	Owner auth.Profile `json:"owner"`
	// TokenID is absent for a session.
	TokenID *uuid.UUID `json:"token_id,omitempty" jsonschema:"the token of this call; absent for a session"`
	Scopes  []string   `json:"scopes" jsonschema:"what the token or session of this call may do"`
}

// Get declares account.get.
func Get(d Deps) *op.Operation {
	type in struct{}
	return op.New(op.Spec{
		Name: "account.get", Method: "GET", Path: "/v1/account", Scope: "account:read",
		Summary:     "Read the account",
		Description: "Tells whose account this is, where their mail goes, and what the token of this call may do.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, _ in) (a Account, err error) {
		a.Scopes = c.Scopes
		if c.TokenID != (uuid.UUID{}) {
			a.TokenID = &c.TokenID
		}
		a.Owner, err = auth.GetOwner(ctx, d.DB, c.OwnerID)
		return a, err
	})
}
