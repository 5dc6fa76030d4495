package microsites

import (
	"context"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Delete declares microsites.delete.
func Delete(d Deps) *op.Operation {
	type out struct {
		Slug    string `json:"slug"`
		Deleted bool   `json:"deleted"`
	}
	return op.NewWrite(op.Spec{
		Name: "microsites.delete", Method: "DELETE", Path: "/v1/microsites/{slug}", Scope: "microsites:write",
		Summary:     "Delete a microsite",
		Description: "Deletes a microsite with its files for good: from then on nothing of it is served. To only take it offline, use microsites.unpublish.",
		Tool:        &op.Tool{Destructive: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (out, error) {
		return out{in.Slug, true}, microsite.Delete(ctx, tx, c.OwnerID, in.Slug)
	}, func(_ context.Context, _ auth.Caller, o out) (out, error) { return o, nil })
}
