package account

import (
	"context"
	"slices"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// TokenCreated answers tokens.create.
type TokenCreated struct {
	Token auth.Token `json:"token"`
	// Secret is there in the first answer alone.
	Secret string `json:"secret,omitempty" jsonschema:"the token itself, for the Authorization header. It is shown this once and stored nowhere; a repetition under the same idempotency_key answers without it"`
}

// CreateToken declares tokens.create. Nobody can grant a scope that their own
// token lacks: 403 "forbidden_scope".
func CreateToken(d Deps) *op.Operation {
	type in struct {
		Name      string     `json:"name" minLength:"1" maxLength:"100" jsonschema:"what the token is for, e.g. the program that will use it"`
		Scopes    []string   `json:"scopes" maxItems:"40" enum:"*,access:read,access:write,bookings:read,bookings:write,corpus:read,corpus:write,jobs:read,jobs:write,microsites:read,microsites:write,obsidian:read,obsidian:write,tasks:read,tasks:write,account:read,account:write,webhooks:read,webhooks:write" jsonschema:"what the token may do; * is everything. Writing does not include reading"`
		ExpiresAt *time.Time `json:"expires_at,omitempty" jsonschema:"when it stops working (RFC 3339); leave it out for never"`
	}
	type committed struct {
		Token auth.Token `json:"token"`
		// not among what an idempotency key keeps
		secret string
	}
	return op.NewWrite(op.Spec{
		Name: "tokens.create", Method: "POST", Path: "/v1/tokens", Scope: "account:write", Status: 201,
		Summary:     "Create an API token",
		Description: "Creates an API token and shows it once. Give it only the scopes that it needs; you can give none that your own token lacks.",
		Tool:        &op.Tool{},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (out committed, err error) {
		if len(in.Scopes) == 0 {
			return out, fault.InvalidField("scopes", "missing_field", "Give at least one scope.")
		}
		if in.ExpiresAt != nil && !in.ExpiresAt.After(time.Now()) {
			return out, fault.InvalidField("expires_at", "too_small", "expires_at must be in the future.")
		}
		for _, s := range in.Scopes {
			if !c.Allows(s) {
				return out, fault.New(fault.Forbidden, "forbidden_scope", "You can't give a token the scope "+s+": yours lacks it.")
			}
		}
		slices.Sort(in.Scopes)
		out.Token, out.secret, err = auth.CreateToken(ctx, tx, c.OwnerID, auth.Token{
			Name: in.Name, Scopes: slices.Compact(in.Scopes), ExpiresAt: in.ExpiresAt,
		})
		if err != nil {
			return out, err
		}
		id := out.Token.ID.String()
		return out, outbox.Record(ctx, tx, outbox.NewID(), outbox.TokenCreated, c.OwnerID, id, map[string]any{"token_id": id, "scopes": out.Token.Scopes})
	}, func(_ context.Context, _ auth.Caller, made committed) (TokenCreated, error) {
		return TokenCreated{Token: made.Token, Secret: made.secret}, nil
	})
}
