package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
)

const (
	// Lease is for how long a claim keeps everybody else off the endpoint. Sending
	// must end before; it is how long an endpoint of a killed worker stands still.
	Lease = 20 * time.Second
	// coolAfter failures in a row, coolDown begins.
	coolAfter = 3
	coolDown  = 5 * time.Minute
	// failingLife is how long an endpoint may fail before it is disabled.
	failingLife = 5 * 24 * time.Hour
	// unspentMost is how many attempts of a delivery may not count towards giving
	// up, because the receiver named a time or a worker was killed.
	unspentMost = 50
)

// Attempt is one that this process alone may make now, once, within [Lease] of
// Claimed. Its row in the log exists.
type Attempt struct {
	ID       uuid.UUID
	Delivery uuid.UUID
	Endpoint uuid.UUID
	OwnerID  uuid.UUID
	Task     task.ID
	// EventID is the webhook-id: the same on each attempt and each redelivery.
	EventID   uuid.UUID
	EventType string
	Payload   string
	// Number counts from 1; Spent are those before it that count towards giving up.
	Number, Spent int
	URL           string
	Claimed       time.Time

	holder            uuid.UUID
	secret, oldSecret []byte
}

// Secrets are those that sign now, the newest first, as [Reveal] gives them. The
// error is of secret.Keys.Open.
func (a *Attempt) Secrets(keys secret.Keys) (secrets []string, err error) {
	for _, sealed := range [][]byte{a.secret, a.oldSecret} {
		if sealed == nil {
			continue
		}
		plain, err := Reveal(keys, a.Endpoint, sealed)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, plain)
	}
	return secrets, nil
}

// dueSQL: of a delivery d to the endpoint e. now() is a value that an index can
// be asked with.
const dueSQL = `d.due_at <= now() AND (d.asked OR e.cooldown_until IS NULL OR e.cooldown_until <= now())
	AND EXISTS (SELECT FROM tasks t WHERE t.event_id = d.task_event AND t.subscriber = '` + task.WebhookDeliver + `'
		AND t.state IN ('pending', 'running') AND t.cancel_requested_at IS NULL)`

// claimSQL takes the delivery that is due next, once the lease is held. Where
// order is kept only the oldest may go, and not before every event that is older
// still has been fanned out.
const claimSQL = `
	WITH e AS (
		SELECT * FROM webhook_endpoints WHERE id = $1 AND lease_holder = $2 AND disabled_at IS NULL AND deleted_at IS NULL
	), next AS (
		SELECT n.* FROM e CROSS JOIN LATERAL (
			(SELECT d.task_event, d.attempts FROM webhook_deliveries d
			WHERE NOT e.ordered AND d.endpoint_id = $1 AND d.state = 'pending' AND ` + dueSQL + `
			ORDER BY d.due_at, d.id LIMIT 1)
			UNION ALL
			(SELECT d.task_event, d.attempts FROM (
				SELECT * FROM webhook_deliveries o WHERE e.ordered AND o.endpoint_id = $1 AND o.state = 'pending' ORDER BY o.event_id, o.id LIMIT 1) d
			WHERE ` + dueSQL + ` AND NOT EXISTS (
				SELECT FROM event_queue q JOIN events v ON v.id = q.event_id
				WHERE q.event_id < d.event_id AND q.poisoned_at IS NULL AND v.owner_id = e.owner_id))
		) n
	), started AS (
		UPDATE tasks t SET busy_until = clock_timestamp() + $4, started_at = coalesce(t.started_at, clock_timestamp()), attempts = least(next.attempts + 1, 32767), next_at = NULL
		FROM next WHERE t.event_id = next.task_event AND t.subscriber = '` + task.WebhookDeliver + `'
			AND t.state IN ('pending', 'running') AND t.cancel_requested_at IS NULL
		RETURNING t.event_id
	), taken AS (
		UPDATE webhook_deliveries d SET attempts = d.attempts + 1, asked = false
		FROM started WHERE d.task_event = started.event_id AND d.state = 'pending'
		RETURNING d.*
	), made AS (
		INSERT INTO webhook_attempts (id, delivery_id, number, until) SELECT $3, id, attempts, clock_timestamp() + $4 FROM taken
	)
	SELECT t.id, t.owner_id, t.task_event, t.event_id, t.event_type, t.payload, t.attempts, t.spent, e.url, e.secret,
		CASE WHEN e.old_secret_until > now() THEN e.old_secret END
	FROM taken t, e`

// take queues taking the next attempt for the holder of the endpoint's lease, and
// giving the lease back when there is none. found is nil then.
func take(b *pgx.Batch, endpoint, holder, id uuid.UUID, found **Attempt) {
	*found = nil
	b.Queue(claimSQL, endpoint, holder, id, Lease).Query(func(rows pgx.Rows) error {
		a := Attempt{ID: id, Endpoint: endpoint, Task: task.ID{Subscriber: task.WebhookDeliver}, holder: holder}
		_, err := pgx.ForEachRow(rows, []any{&a.Delivery, &a.OwnerID, &a.Task.Event, &a.EventID, &a.EventType, &a.Payload, &a.Number, &a.Spent,
			&a.URL, &a.secret, &a.oldSecret}, func() error { *found = &a; return nil })
		return err
	})
	b.Queue(`
		UPDATE webhook_endpoints SET lease_holder = NULL, lease_until = NULL
		WHERE id = $1 AND lease_holder = $2 AND NOT EXISTS (SELECT FROM webhook_attempts WHERE id = $3)`, endpoint, holder, id)
}

// renew queues that the holder's lease begins anew, and locks the endpoint.
func renew(b *pgx.Batch, endpoint, holder uuid.UUID) {
	b.Queue(`
		UPDATE webhook_endpoints SET lease_until = clock_timestamp() + $3
		WHERE id = $1 AND lease_holder = $2 AND disabled_at IS NULL AND deleted_at IS NULL`, endpoint, holder, Lease)
}

// Claim takes the attempt that is due next at an endpoint. It is nil when there is
// none, or when another holder has the endpoint.
func Claim(ctx context.Context, db *pg.DB, endpoint, holder uuid.UUID) (a *Attempt, err error) {
	begun, id := time.Now(), outbox.NewID()
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		var b pgx.Batch
		b.Queue(`
			UPDATE webhook_endpoints SET lease_holder = $2, lease_until = clock_timestamp() + $3
			WHERE id = (
				SELECT id FROM webhook_endpoints
				WHERE id = $1 AND disabled_at IS NULL AND deleted_at IS NULL AND (lease_until IS NULL OR lease_until < clock_timestamp())
				FOR NO KEY UPDATE SKIP LOCKED)`, endpoint, holder, Lease)
		take(&b, endpoint, holder, id, &a)
		return tx.Last(ctx, &b)
	})
	if err != nil {
		undo(ctx, db, endpoint, holder, id)
		return nil, err
	}
	return a.since(begun), nil
}

// undo takes back a claim that may have been committed although nobody was told,
// as far as that can be done; else it ends with the lease.
func undo(ctx context.Context, db *pg.DB, endpoint, holder, id uuid.UUID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = db.InTx(ctx, func(tx *pg.Tx) error {
		a := Attempt{ID: id, Endpoint: endpoint, holder: holder}
		err := tx.QueryRow(ctx, `
			SELECT d.id, d.task_event FROM webhook_attempts a JOIN webhook_deliveries d ON d.id = a.delivery_id
			WHERE a.id = $1 AND d.task_event IS NOT NULL`, id).Scan(&a.Delivery, &a.Task.Event)
		if err != nil && !pg.IsNoRows(err) {
			return err
		}
		a.Task.Subscriber = task.WebhookDeliver
		return forget(ctx, tx, &a)
	})
}

// since: the lease counts from before the claim was sent.
func (a *Attempt) since(begun time.Time) *Attempt {
	if a != nil {
		a.Claimed = begun
	}
	return a
}

// Verdict is what becomes of a delivery after an attempt.
type Verdict string

// The verdicts.
const (
	Delivered Verdict = "delivered"
	Retry     Verdict = "retry"
	Discard   Verdict = "discard"
	// Disable discards the delivery and disables the endpoint.
	Disable Verdict = "disable"
)

// Result is how an attempt went.
type Result struct {
	Verdict Verdict
	// Outcome is the word for it in the log.
	Outcome string
	// Status is 0 when there was no answer.
	Status   int
	Duration time.Duration
	// Response is the beginning of the answer's body.
	Response string
	// Error says in plain words why it failed.
	Error string
	// Next is when a Retry is due.
	Next time.Time
	// Asked: the receiver named that time. Nothing goes to it before, and the
	// attempt doesn't count towards giving up.
	Asked bool
	// Most is how many attempts may count before a Retry becomes a Discard.
	Most int
}

// Record writes how an attempt went and, if more, takes the next one of the same
// endpoint; else it gives the endpoint back. final is what became of the delivery.
// It goes on until ctx ends, because what has happened is to be said.
func Record(ctx context.Context, db *pg.DB, a *Attempt, r Result, more bool) (next *Attempt, final Verdict, err error) {
	for {
		begun, id := time.Now(), outbox.NewID()
		next, final, err = recordOnce(ctx, db, a, r, more, id)
		if err == nil {
			return next.since(begun), final, nil
		}
		undo(ctx, db, uuid.UUID{}, a.holder, id) // the endpoint stays ours
		pause := time.NewTimer(200 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, "", err
		}
	}
}

func recordOnce(ctx context.Context, db *pg.DB, a *Attempt, r Result, more bool, id uuid.UUID) (next *Attempt, final Verdict, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) (err error) {
		var b pgx.Batch
		var enabled, fresh bool
		final = r.Verdict
		if final == Delivered && more {
			renew(&b, a.Endpoint, a.holder)
		} else {
			b.Queue(`SELECT disabled_at IS NULL FROM webhook_endpoints WHERE id = $1 FOR NO KEY UPDATE`, a.Endpoint).
				QueryRow(func(row pgx.Row) error { return row.Scan(&enabled) })
		}
		b.Queue(`
			UPDATE webhook_attempts SET finished_at = clock_timestamp(), duration_ms = $2, status = nullif($3::int, 0), outcome = $4,
				response = nullif($5, ''), error = nullif($6, '')
			WHERE id = $1 AND finished_at IS NULL`, a.ID, r.Duration.Milliseconds(), r.Status, r.Outcome, r.Response, r.Error).
			Exec(func(tag pgconn.CommandTag) error { fresh = tag.RowsAffected() == 1; return nil })
		if final == Delivered {
			delivered(tx, &b, a)
		} else {
			raw, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := raw.SendBatch(ctx, &b).Close(); err != nil {
				return err
			}
			b = pgx.Batch{}
			// else an earlier try of ours was committed although it was not answered
			if fresh {
				if final, err = failed(ctx, tx, a, r, enabled); err != nil {
					return err
				}
			}
			renew(&b, a.Endpoint, a.holder)
		}
		if more {
			take(&b, a.Endpoint, a.holder, id, &next)
		} else {
			release(&b, a.Endpoint, a.holder)
		}
		return tx.Last(ctx, &b)
	})
	return next, final, err
}

func release(b *pgx.Batch, endpoint, holder uuid.UUID) {
	b.Queue(`UPDATE webhook_endpoints SET lease_holder = NULL, lease_until = NULL WHERE id = $1 AND lease_holder = $2`, endpoint, holder)
}

func delivered(tx *pg.Tx, b *pgx.Batch, a *Attempt) {
	task.End(tx, b, a.Task, task.Completed, a.Number, "")
	// also one that was cancelled or held meanwhile: the receiver has it
	b.Queue(`UPDATE webhook_deliveries SET state = 'delivered', finished_at = clock_timestamp() WHERE id = $1 AND state <> 'delivered'
		AND (task_event IS NULL OR task_event = $2)`, a.Delivery, a.Task.Event)
	b.Queue(`
		UPDATE webhook_endpoints SET failing_since = NULL, consecutive_failures = 0, cooldown_until = NULL
		WHERE id = $1 AND (failing_since IS NOT NULL OR consecutive_failures > 0 OR cooldown_until IS NOT NULL)`, a.Endpoint)
}

// failed writes what a failure changes. enabled: the endpoint was, before.
func failed(ctx context.Context, tx *pg.Tx, a *Attempt, r Result, enabled bool) (Verdict, error) {
	var b pgx.Batch
	verdict, spent := r.Verdict, a.Spent
	if !r.Asked || a.Number-a.Spent > unspentMost {
		spent++
	}
	why := r.Error
	if verdict == Retry && r.Most > 0 && spent >= r.Most {
		verdict = Discard
	}
	var disabled bool
	var reason string
	b.Queue(`
		UPDATE webhook_endpoints e SET failing_since = coalesce(failing_since, clock_timestamp()),
			consecutive_failures = consecutive_failures + CASE WHEN $4 THEN 0 ELSE 1 END,
			cooldown_until = CASE
				WHEN $4 THEN greatest(cooldown_until, $5::timestamptz)
				WHEN consecutive_failures + 1 >= $6 THEN greatest(cooldown_until, clock_timestamp() + $7::interval)
				ELSE cooldown_until END,
			disabled_at = coalesce(disabled_at, CASE WHEN $2 OR failing_since < clock_timestamp() - $3::interval THEN clock_timestamp() END),
			disabled_reason = coalesce(disabled_reason, CASE
				WHEN $2 THEN $8
				WHEN failing_since < clock_timestamp() - $3::interval THEN 'Nothing could be delivered for 5 days. The last error: ' || $8 END)
		WHERE id = $1 AND deleted_at IS NULL RETURNING disabled_at IS NOT NULL, coalesce(disabled_reason, '')`,
		a.Endpoint, verdict == Disable, failingLife, r.Asked, r.Next, coolAfter, coolDown, why).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&disabled, &reason}, func() error { return nil })
			return err
		})
	if verdict == Retry {
		task.Again(tx, &b, a.Task, a.Number, why, r.Next)
		b.Queue(`UPDATE webhook_deliveries SET spent = $2, due_at = $3 WHERE id = $1 AND state = 'pending'`, a.Delivery, spent, r.Next)
	} else {
		task.End(tx, &b, a.Task, task.Discarded, a.Number, why)
		b.Queue(`UPDATE webhook_deliveries SET spent = $2 WHERE id = $1`, a.Delivery, spent)
	}
	raw, err := tx.Begin(ctx)
	if err != nil {
		return verdict, err
	}
	if err := raw.SendBatch(ctx, &b).Close(); err != nil {
		return verdict, err
	}
	if disabled && enabled {
		if err := record(ctx, tx, outbox.WebhookDisabled, a.OwnerID, a.Endpoint, reason); err != nil {
			return verdict, err
		}
		if err := hold(ctx, tx, a.Endpoint, reason); err != nil {
			return verdict, err
		}
	}
	return verdict, nil
}

// Unsent takes back an attempt that could not be made, and disables its endpoint
// for that reason.
func Unsent(ctx context.Context, db *pg.DB, a *Attempt, reason string) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE webhook_endpoints SET disabled_at = clock_timestamp(), disabled_reason = $3, lease_holder = NULL, lease_until = NULL
			WHERE id = $1 AND lease_holder = $2 AND disabled_at IS NULL AND deleted_at IS NULL`, a.Endpoint, a.holder, reason)
		if err != nil {
			return err
		}
		if err := forget(ctx, tx, a); err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if err := record(ctx, tx, outbox.WebhookDisabled, a.OwnerID, a.Endpoint, reason); err != nil {
			return err
		}
		return hold(ctx, tx, a.Endpoint, reason)
	})
}

// Forget takes back an attempt that was not made, and gives its endpoint back.
func Forget(ctx context.Context, db *pg.DB, a *Attempt) error {
	return db.InTx(ctx, func(tx *pg.Tx) error { return forget(ctx, tx, a) })
}

func forget(ctx context.Context, tx *pg.Tx, a *Attempt) error {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	var b pgx.Batch
	release(&b, a.Endpoint, a.holder)
	b.Queue(`UPDATE tasks SET attempts = greatest(attempts - 1, 0), busy_until = NULL WHERE event_id = $1 AND subscriber = $2`, a.Task.Event, a.Task.Subscriber)
	b.Queue(`UPDATE webhook_deliveries SET attempts = attempts - 1 WHERE id = $1`, a.Delivery)
	b.Queue(`DELETE FROM webhook_attempts WHERE id = $1`, a.ID)
	return raw.SendBatch(ctx, &b).Close()
}

// Standing is how an endpoint stands, and what of a job is still to do there.
type Standing struct {
	// Closed: disabled or deleted; Deleted: the latter.
	Closed, Deleted bool
	// Busy: another holder has it.
	Busy bool
	// Open counts the job's tasks that have not ended, Cancelling those whose owner
	// wants them ended, Lost those without a delivery that is pending.
	Open, Cancelling, Lost int
	// Next is when the first of them may be attempted, as far as is known; it is in
	// the past when that is now.
	Next time.Time
}

// Look reads how things stand for a job.
func Look(ctx context.Context, q pg.Querier, job task.Job, endpoint, holder uuid.UUID) (s Standing, err error) {
	var reason *string
	var due, cooldown, head *time.Time
	var asked, waiting bool
	err = q.QueryRow(ctx, `
		SELECT e.disabled_reason, coalesce(e.deleted_at IS NOT NULL, true), coalesce(e.lease_until > clock_timestamp() AND e.lease_holder <> $3, false), e.cooldown_until,
			j.open, j.cancelling, j.lost, j.due, coalesce(j.asked, false), h.due_at, coalesce(h.waiting, false)
		FROM (
			SELECT count(*) AS open, count(*) FILTER (WHERE t.cancel_requested_at IS NOT NULL) AS cancelling, count(*) FILTER (WHERE d.id IS NULL) AS lost,
				min(d.due_at) AS due, bool_or(d.asked) AS asked
			FROM tasks t LEFT JOIN webhook_deliveries d ON d.task_event = t.event_id AND d.state = 'pending'
			WHERE t.job_id = $2 AND t.subject = $4 AND t.state IN ('pending', 'running')
		) j LEFT JOIN webhook_endpoints e ON e.id = $1
		LEFT JOIN LATERAL (
			SELECT o.due_at, EXISTS (SELECT FROM event_queue q JOIN events v ON v.id = q.event_id
				WHERE q.event_id < o.event_id AND q.poisoned_at IS NULL AND v.owner_id = e.owner_id) AS waiting
			FROM webhook_deliveries o WHERE e.ordered AND o.endpoint_id = $1 AND o.state = 'pending' ORDER BY o.event_id, o.id LIMIT 1
		) h ON true`, endpoint, job.ID, holder, job.Subject).
		Scan(&reason, &s.Deleted, &s.Busy, &cooldown, &s.Open, &s.Cancelling, &s.Lost, &due, &asked, &head, &waiting)
	if err != nil {
		return s, pg.Fault(err)
	}
	s.Closed = s.Deleted || reason != nil
	for _, at := range []*time.Time{due, head} {
		if at != nil && at.After(s.Next) {
			s.Next = *at
		}
	}
	if cooldown != nil && !asked && cooldown.After(s.Next) {
		s.Next = *cooldown
	}
	if soon := time.Now().Add(orderPause); waiting && soon.After(s.Next) {
		s.Next = soon
	}
	return s, nil
}

// orderPause is how long an endpoint that keeps order waits for older events to
// be fanned out before it looks again.
const orderPause = 500 * time.Millisecond

// Tidy ends those tasks of a job that no attempt will end: their owner cancelled
// them, their delivery is gone, or their endpoint is closed.
func Tidy(ctx context.Context, db *pg.DB, job task.Job, endpoint uuid.UUID, s Standing) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		if s.Closed {
			// nobody opens it meanwhile
			var reason *string
			var deleted bool
			err := tx.QueryRow(ctx, `SELECT disabled_reason, deleted_at IS NOT NULL FROM webhook_endpoints WHERE id = $1 FOR NO KEY UPDATE`, endpoint).Scan(&reason, &deleted)
			switch {
			case pg.IsNoRows(err):
			case err != nil:
				return err
			case deleted:
				if err := endAll(ctx, tx, endpoint); err != nil {
					return err
				}
			case reason != nil:
				if err := hold(ctx, tx, endpoint, *reason); err != nil {
					return err
				}
			}
		}
		if err := task.Heed(ctx, tx, job); err != nil {
			return err
		}
		_, err := endTasks(ctx, tx, "The delivery is no longer to be made.", `t.job_id = $2 AND t.subject = $3
			AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.task_event = t.event_id AND d.state = 'pending')`, job.ID, job.Subject)
		return err
	})
}

// endTasks ends open tasks t as cancelled, for a reason that their owner reads.
func endTasks(ctx context.Context, tx *pg.Tx, why, where string, args ...any) (events []uuid.UUID, err error) {
	rows, err := tx.Query(ctx, `
		UPDATE tasks t SET state = 'cancelled', finished_at = clock_timestamp(), next_at = NULL,
			errors = coalesce(t.errors, '[]') || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', t.attempts, 'error', $1::text))
		WHERE t.subscriber = '`+task.WebhookDeliver+`' AND t.state IN ('pending', 'running') AND `+where+`
		RETURNING t.event_id`, append([]any{why}, args...)...)
	if err != nil {
		return nil, err
	}
	events, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	for _, id := range events {
		tx.Notify(task.Final, task.ID{Event: id, Subscriber: task.WebhookDeliver}.String())
	}
	return events, err
}

const pendingTasks = `t.event_id IN (SELECT task_event FROM webhook_deliveries WHERE endpoint_id = $2 AND state = 'pending')`

// hold keeps what is pending at an endpoint, which tx has locked and disabled,
// until it is redelivered. What the relay has not made a task of yet is held by
// the worker that gets it.
func hold(ctx context.Context, tx *pg.Tx, endpoint uuid.UUID, why string) error {
	events, err := endTasks(ctx, tx, "Held, because the webhook is disabled: "+why, pendingTasks, endpoint)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		UPDATE webhook_deliveries SET state = 'held', task_event = NULL, finished_at = NULL, spent = 0
		WHERE task_event = ANY ($1) AND state = 'cancelled'`, events)
	return err
}

// endAll ends what is pending or held at an endpoint that tx has locked and
// deleted.
func endAll(ctx context.Context, tx *pg.Tx, endpoint uuid.UUID) error {
	if _, err := endTasks(ctx, tx, "The webhook was deleted.", pendingTasks, endpoint); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		UPDATE webhook_deliveries SET state = 'cancelled', finished_at = clock_timestamp() WHERE endpoint_id = $1 AND state = 'held'`, endpoint)
	return err
}
