package op

import (
	"context"
	"time"

	"standmeet/shared/pg"
)

// DeleteOldKeys removes idempotency keys older than keep, at most n, and
// reports how many. A repetition after that is a request of its own.
func DeleteOldKeys(ctx context.Context, db *pg.DB, keep time.Duration, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM idempotency_keys WHERE (owner_id, scope, key) IN (
			SELECT owner_id, scope, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)`,
		time.Now().Add(-keep), n)
	return tag.RowsAffected(), err
}
