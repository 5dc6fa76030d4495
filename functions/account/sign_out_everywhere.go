package account

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// SignedOut answers account.sign_out_everywhere.
type SignedOut struct {
	Ended int64 `json:"ended" jsonschema:"how many sessions ended"`
}

// SignOutEverywhere declares account.sign_out_everywhere.
func SignOutEverywhere(d Deps) *op.Operation {
	type in struct{}
	return op.NewWrite(op.Spec{
		Name: "account.sign_out_everywhere", Method: "DELETE", Path: "/v1/sessions", Scope: "account:write",
		Summary:     "Sign out everywhere",
		Description: "Ends every session of the owner, also the one of this call. API tokens go on.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true},
		Say:         func(o any) string { return fmt.Sprintf("Sessions that ended: %d.", o.(SignedOut).Ended) },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, _ in) (out SignedOut, err error) {
		out.Ended, err = endAll(ctx, tx, c.OwnerID)
		return out, err
	}, func(_ context.Context, _ auth.Caller, made SignedOut) (SignedOut, error) { return made, nil })
}

func endAll(ctx context.Context, tx *pg.Tx, owner uuid.UUID) (ended int64, err error) {
	if ended, err = auth.SignOutEverywhere(ctx, tx, owner); err != nil || ended == 0 {
		return ended, err
	}
	return ended, outbox.Record(ctx, tx, outbox.NewID(), outbox.SignedOut, owner, owner.String(), map[string]any{"sessions": ended})
}
