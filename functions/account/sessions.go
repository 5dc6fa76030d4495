package account

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// Sessions declares account.sessions.
func Sessions(d Deps) *op.Operation {
	type in struct{}
	return op.New(op.Spec{
		Name: "account.sessions", Method: "GET", Path: "/v1/sessions", Scope: "account:read",
		Summary:     "List the sessions",
		Description: "Lists the owner's sessions that hold, newest first, all on one page. account.sign_out_everywhere ends them.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, _ in) (out op.Page[auth.Session], err error) {
		out.Items, err = auth.ListSessions(ctx, d.DB, c.OwnerID, c.Session)
		out.Total = len(out.Items)
		return out, err
	})
}
