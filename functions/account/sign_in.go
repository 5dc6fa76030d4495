package account

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// SignedIn answers account.sign_in.
type SignedIn struct {
	Owner     auth.Profile `json:"owner"`
	ExpiresAt time.Time    `json:"expires_at" jsonschema:"when the session ends, unless it is ended before"`

	session string
}

// SignIn declares account.sign_in, with the faults of
// [auth.Store.SignInByPassword]. It takes no idempotency key: what a key keeps
// would tell of the password.
func SignIn(d Deps) *op.Operation {
	type in struct {
		Login    string `json:"login" minLength:"1" maxLength:"254" jsonschema:"the owner's handle or e-mail address"`
		Password string `json:"password" maxLength:"256"`
	}
	return op.New(op.Spec{
		Name: "account.sign_in", Method: "POST", Path: "/v1/session", Access: op.Public,
		Summary:     "Sign in with a password",
		Description: "Begins a session of the owner and sets its cookie. Whatever is wrong with login or password, the refusal is the same. After 10 refusals for a login, or 30 from one address, within 15 minutes, none is looked at for a while. Programs use API tokens instead.",
		MaxBody:     8 << 10,
		Headers: []op.Header{{Name: "Set-Cookie", Description: "The session.", Value: func(out any) string {
			return sessionCookie(out.(SignedIn).session, d.HTTPS).String()
		}}},
	}, func(ctx context.Context, c auth.Caller, in in) (out SignedIn, err error) {
		out.ExpiresAt = time.Now().Add(auth.SessionLife).Truncate(time.Second)
		out.session, err = d.signInByPassword(ctx, in.Login, in.Password, c.RemoteAddr, func(tx *pg.Tx, owner uuid.UUID) (err error) {
			out.Owner, err = auth.GetOwner(ctx, tx, owner)
			return err
		})
		return out, err
	})
}

func (d Deps) byPassword(ctx context.Context, login, password, from string) (session string, err error) {
	return d.signInByPassword(ctx, login, password, from, func(*pg.Tx, uuid.UUID) error { return nil })
}

func (d Deps) signInByPassword(ctx context.Context, login, password, from string, also func(tx *pg.Tx, owner uuid.UUID) error) (session string, err error) {
	return d.Auth.SignInByPassword(ctx, login, password, from, func(tx *pg.Tx, owner uuid.UUID) error {
		if err := also(tx, owner); err != nil {
			return err
		}
		return record(ctx, tx, outbox.SignedIn, owner)
	})
}
