package booking

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

const (
	// feedPast is how far back a calendar feed goes; ahead it has everything.
	feedPast = 90 * 24 * time.Hour
	// feedMost bounds it all the same.
	feedMost = 5000
)

// SetFeed makes hash the one that a calendar feed is read by, in place of an
// earlier one.
func SetFeed(ctx context.Context, tx *pg.Tx, owner, event uuid.UUID, hash []byte) error {
	if _, err := tx.Exec(ctx, `
		INSERT INTO calendar_feeds (owner_id, token_hash) VALUES ($1, $2)
		ON CONFLICT (owner_id) DO UPDATE SET token_hash = $2, created_at = now()`, owner, hash); err != nil {
		return err
	}
	return outbox.Record(ctx, tx, event, outbox.FeedCreated, owner, owner.String(), struct{}{})
}

// RevokeFeed ends a calendar feed; fault "not_found" when there is none.
func RevokeFeed(ctx context.Context, tx *pg.Tx, owner uuid.UUID) error {
	tag, err := tx.Exec(ctx, `DELETE FROM calendar_feeds WHERE owner_id = $1`, owner)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return fault.NotFound("calendar feed")
	}
	return outbox.Record(ctx, tx, outbox.NewID(), outbox.FeedRevoked, owner, owner.String(), struct{}{})
}

// FeedHash reads what an owner's calendar feed is read by; fault "not_found" when
// there is none.
func FeedHash(ctx context.Context, q pg.Querier, owner uuid.UUID) (hash []byte, err error) {
	err = q.QueryRow(ctx, `SELECT token_hash FROM calendar_feeds WHERE owner_id = $1`, owner).Scan(&hash)
	if pg.IsNoRows(err) {
		return nil, fault.NotFound("calendar feed")
	}
	return hash, pg.Fault(err)
}

// FeedSince is when an owner's calendar feed was made; nil when there is none.
func FeedSince(ctx context.Context, q pg.Querier, owner uuid.UUID) (since *time.Time, err error) {
	err = q.QueryRow(ctx, `SELECT max(created_at) FROM calendar_feeds WHERE owner_id = $1`, owner).Scan(&since)
	return since, pg.Fault(err)
}

// Feed reads the confirmed bookings of an owner's calendar feed by their start.
// Cancelled ones are not in it: what leaves a feed leaves the calendars that
// subscribe to it.
func Feed(ctx context.Context, q pg.Querier, owner uuid.UUID, now time.Time) ([]Row, error) {
	rows, err := q.Query(ctx, `
		SELECT `+columns+` FROM bookings WHERE owner_id = $1 AND state = 'confirmed' AND starts_at > $2
		ORDER BY starts_at, id LIMIT $3`, owner, now.UTC().Truncate(24*time.Hour).Add(-feedPast), feedMost)
	if err != nil {
		return nil, pg.Fault(err)
	}
	items, err := pgx.CollectRows(rows, scan)
	return items, pg.Fault(err)
}
