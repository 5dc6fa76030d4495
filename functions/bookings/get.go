package bookings

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/op"
)

// Get declares bookings.get.
func Get(d Deps) *op.Operation {
	type in struct{ Naming }
	return op.New(op.Spec{
		Name: "bookings.get", Method: "GET", Path: "/v1/bookings/{id}", Access: op.Guest, Scope: "bookings:read",
		Summary:     "Read a booking",
		Description: "Reads a booking, and where the mails about its latest change stand. A visitor proves with manage_token that it is theirs.",
		Tool:        &op.Tool{ReadOnly: true, Idempotent: true},
		Say:         say,
	}, func(ctx context.Context, c auth.Caller, in in) (View, error) {
		r, who, err := in.reach(ctx, c, d.DB)
		if err != nil {
			return View{}, err
		}
		return d.view(ctx, r, who)
	})
}
