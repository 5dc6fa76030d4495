package microsites

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Publish declares microsites.publish. Fault "build_not_built" (409).
func Publish(d Deps) *op.Operation {
	type in struct {
		named
		BuildID uuid.UUID `json:"build_id" jsonschema:"a build of this site whose status is built"`
	}
	return op.NewWrite(op.Spec{
		Name: "microsites.publish", Method: "POST", Path: "/v1/microsites/{slug}/publish", Scope: "microsites:write",
		Summary:     "Publish a build",
		Description: "Has visitors served a build from now on, in one step: every page they load is of one build. Any build of the site that was built may be published, also an older one.",
		Tool:        &op.Tool{Idempotent: true, OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (o Switched, err error) {
		o.Site, o.Changed, err = microsite.Publish(ctx, tx, c.OwnerID, in.Slug, in.BuildID)
		return o, err
	}, d.switched)
}

// Rollback declares microsites.rollback. Fault "nothing_to_roll_back" (409).
func Rollback(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "microsites.rollback", Method: "POST", Path: "/v1/microsites/{slug}/rollback", Scope: "microsites:write",
		Summary:     "Go back to the build that was live before",
		Description: "Has visitors served the build that was live before the present one, in one step; after microsites.unpublish, the one that was live then. Each call goes back one more.",
		Tool:        &op.Tool{OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (o Switched, err error) {
		o.Site, o.Changed, err = microsite.Rollback(ctx, tx, c.OwnerID, in.Slug)
		return o, err
	}, d.switched)
}

// Unpublish declares microsites.unpublish.
func Unpublish(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "microsites.unpublish", Method: "POST", Path: "/v1/microsites/{slug}/unpublish", Scope: "microsites:write",
		Summary:     "Take a microsite offline",
		Description: "Has visitors served nothing of a microsite from now on. Files and builds stay; microsites.rollback brings back what was live.",
		Tool:        &op.Tool{Destructive: true, Idempotent: true, OpenWorld: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (o Switched, err error) {
		o.Site, o.Changed, err = microsite.Unpublish(ctx, tx, c.OwnerID, in.Slug)
		return o, err
	}, d.switched)
}
