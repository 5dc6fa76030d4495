package task

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

const failedOnceSQL = `coalesce(t.errors, '[]') || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', $3::int, 'error', $4::text))`

// End queues the end of one task of a kind that is Apart, in state s, and has its
// waiters woken after the commit. why is the error that is kept, "" is none. A
// task that has ended already stays as it is.
func End(tx *pg.Tx, b *pgx.Batch, id ID, s State, attempt int, why string) {
	tx.Notify(Final, id.String())
	b.Queue(`
		UPDATE tasks t SET state = $5, finished_at = clock_timestamp(), attempts = least($3::int, 32767), next_at = NULL, busy_until = NULL,
			errors = CASE WHEN $4 = '' THEN t.errors ELSE `+failedOnceSQL+` END
		WHERE event_id = $1 AND subscriber = $2 AND state IN ('pending', 'running')`, id.Event, id.Subscriber, attempt, why, s)
}

// Again queues that an attempt of one task of a kind that is Apart failed, and
// when the next is due; one that its owner cancelled meanwhile ends instead.
func Again(tx *pg.Tx, b *pgx.Batch, id ID, attempt int, why string, next time.Time) {
	b.Queue(`
		UPDATE tasks t SET attempts = least($3::int, 32767), next_at = $5, busy_until = NULL, errors = `+failedOnceSQL+`
		WHERE event_id = $1 AND subscriber = $2 AND state IN ('pending', 'running')`, id.Event, id.Subscriber, attempt, why, next)
	tx.Notify(Final, id.String()) // a hint, should it have ended
	b.Queue(`
		UPDATE tasks SET state = 'cancelled', finished_at = clock_timestamp(), next_at = NULL
		WHERE event_id = $1 AND subscriber = $2 AND state IN ('pending', 'running') AND cancel_requested_at IS NOT NULL`, id.Event, id.Subscriber)
}

// Heed ends, as cancelled, those tasks of a job of a kind that is Apart whose
// owner asked for it while an attempt was under way, once it no longer is.
func Heed(ctx context.Context, tx *pg.Tx, j Job) error {
	rows, err := tx.Query(ctx, `
		UPDATE tasks SET state = 'cancelled', finished_at = clock_timestamp(), next_at = NULL
		WHERE job_id = $1 AND subject = $2 AND state IN ('pending', 'running') AND cancel_requested_at IS NOT NULL
			AND (busy_until IS NULL OR busy_until < clock_timestamp())
		RETURNING event_id, subscriber`, j.ID, j.Subject)
	if err != nil {
		return err
	}
	var id ID
	_, err = pgx.ForEachRow(rows, []any{&id.Event, &id.Subscriber}, func() error {
		tx.Notify(Final, id.String())
		return nil
	})
	return err
}
