package bookings

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// FeedCreated answers calendar_feed.create.
type FeedCreated struct {
	URL string `json:"url,omitempty" jsonschema:"the secret address to subscribe to in a calendar app. It is shown now and stored nowhere; absent when a repetition finds that the address was replaced or revoked meanwhile"`
}

// CreateFeed declares calendar_feed.create.
func CreateFeed(d Deps) *op.Operation {
	type in struct{}
	type made struct {
		Event uuid.UUID `json:"event"`
	}
	return op.NewWrite(op.Spec{
		Name: "calendar_feed.create", Method: "POST", Path: "/v1/calendar-feed", Scope: "bookings:write", Status: 201,
		Summary:     "Make an address for calendar apps",
		Description: "Makes a secret address by which a calendar app can subscribe to the owner's bookings. An earlier address stops working. Whoever has the address can read who booked what.",
		Tool:        &op.Tool{Destructive: true},
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, _ in) (made, error) {
		if err := d.ready(); err != nil {
			return made{}, err
		}
		event := outbox.NewID()
		return made{event}, booking.SetFeed(ctx, tx, c.OwnerID, event, secret.Hash(d.Keys.Token(booking.FeedPurpose, event.String())))
	}, func(ctx context.Context, c auth.Caller, m made) (FeedCreated, error) {
		// not_found: revoked meanwhile
		hash, err := booking.FeedHash(ctx, d.DB, c.OwnerID)
		if token, ok := d.Keys.FindToken(booking.FeedPurpose, m.Event.String(), hash); ok {
			return FeedCreated{booking.FeedURL(d.PublicURL, c.Handle, token)}, nil
		}
		return FeedCreated{}, ignoreNotFound(err)
	})
}
