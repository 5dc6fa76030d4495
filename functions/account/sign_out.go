package account

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// SignOut declares account.sign_out, which ends the session of its call. A call
// with a token has none, and ends none.
func SignOut(d Deps) *op.Operation {
	type in struct{}
	return op.New(op.Spec{
		Name: "account.sign_out", Method: "DELETE", Path: "/v1/session", Scope: "account:write", Status: 204,
		Summary:     "Sign out",
		Description: "Ends the session whose cookie the request carries.",
		Headers: []op.Header{{Name: "Set-Cookie", Description: "Removes the session's cookie.", Value: func(any) string {
			return sessionCookie("", d.HTTPS).String()
		}}},
	}, func(ctx context.Context, c auth.Caller, _ in) (struct{}, error) {
		return struct{}{}, d.end(ctx, c.Session)
	})
}

// end ends a session, if there is one.
func (d Deps) end(ctx context.Context, session string) error {
	return d.DB.InTx(ctx, func(tx *pg.Tx) error {
		owner, ended, err := auth.SignOut(ctx, tx, session)
		if err != nil || !ended {
			return err
		}
		return record(ctx, tx, outbox.SignedOut, owner)
	})
}
