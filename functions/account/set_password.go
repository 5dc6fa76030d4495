package account

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Password answers account.set_password.
type Password struct {
	Set bool `json:"set" jsonschema:"the owner has a password"`
}

// SetPassword declares account.set_password, with the faults of
// [auth.Store.SetPassword]. A password opens a session, which may do everything:
// who sets it must be able to, else 403 "forbidden_scope".
//
// It is no tool, since what goes through one stays in a transcript, and it takes
// no idempotency key, since what a key keeps would tell of the password.
func SetPassword(d Deps) *op.Operation {
	type in struct {
		Password        op.Opt[string] `json:"password,omitzero" minLength:"12" maxLength:"256" jsonschema:"the new password; null removes it, and the owner signs in by link alone"`
		CurrentPassword string         `json:"current_password,omitempty" maxLength:"256" jsonschema:"the password that holds; not needed where there is none, and within half an hour of signing in by a link"`
	}
	return op.New(op.Spec{
		Name: "account.set_password", Method: "PUT", Path: "/v1/account/password", Scope: "account:write",
		Summary:     "Set the password",
		Description: "Sets, changes or removes the owner's password. All other sessions end, and so do sign-in links that were not used yet; API tokens go on.",
		MaxBody:     8 << 10,
	}, func(ctx context.Context, c auth.Caller, in in) (out Password, err error) {
		if !in.Password.Set {
			return out, fault.InvalidField("password", "missing_field", "password is missing; null removes it.")
		}
		if !c.Allows(auth.AllScopes) {
			return out, fault.New(fault.Forbidden, "forbidden_scope", "This needs a session, or a token with the scope *.")
		}
		out.Set = in.Password.Value != ""
		return out, d.Auth.SetPassword(ctx, c.OwnerID, auth.PasswordChange{
			Password: in.Password.Value, Current: in.CurrentPassword, Session: c.Session,
		}, func(tx *pg.Tx) error {
			return outbox.Record(ctx, tx, outbox.NewID(), outbox.PasswordChanged, c.OwnerID, c.OwnerID.String(), map[string]any{"set": out.Set})
		})
	})
}
