package task

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Job is what a worker knows of the River job whose tasks it ends.
type Job struct {
	ID int64
	// Subject must be the task's. A number alone could, after a crash of
	// PostgreSQL, have been given to another job.
	Subject   string
	Attempt   int
	StartedAt time.Time
	// Errors of earlier attempts, as River keeps them; null when there are none.
	Errors json.RawMessage
}

// Complete marks every open task that the jobs cover as completed, in the
// transaction that holds their effect, and has their waiters woken after it. It
// reports which jobs still had an open task: the effect of the others must not
// be written, their tasks were cancelled or are done already.
func Complete(ctx context.Context, tx *pg.Tx, jobs []Job) (open map[int64]bool, err error) {
	n := len(jobs)
	ids, subjects, attempts, started, failures := make([]int64, n), make([]string, n), make([]int16, n), make([]time.Time, n), make([]*string, n)
	for i, j := range jobs {
		ids[i], subjects[i], attempts[i], started[i] = j.ID, j.Subject, int16(min(j.Attempt, 1<<15-1)), j.StartedAt
		if len(j.Errors) > 0 {
			text := string(j.Errors)
			failures[i] = &text
		}
	}
	rows, err := tx.Query(ctx, `
		UPDATE tasks t
		SET state = 'completed', finished_at = clock_timestamp(), started_at = j.started_at,
		    attempts = j.attempt, errors = coalesce(j.errors::jsonb, t.errors)
		FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::text[], $5::text[]) AS j (id, attempt, started_at, errors, subject)
		WHERE t.job_id = ANY ($1) AND t.job_id = j.id AND t.subject = j.subject AND t.state IN ('pending', 'running')
		RETURNING t.job_id, t.event_id, t.subscriber`, ids, attempts, started, failures, subjects)
	if err != nil {
		return nil, err
	}
	open = make(map[int64]bool, len(jobs))
	var job int64
	var id ID
	_, err = pgx.ForEachRow(rows, []any{&job, &id.Event, &id.Subscriber}, func() error {
		open[job] = true
		tx.Notify(Final, id.String())
		return nil
	})
	return open, err
}

// Start says that a job that touches the outside world is running: from here a
// cancel is only a request. It reports false when every task of the job was
// cancelled or is done, and the work must not begin. A cancel that was asked for
// during an earlier attempt is carried out now.
func Start(ctx context.Context, db *pg.DB, j Job) (open bool, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		rows, err := tx.Query(ctx, `
			UPDATE tasks SET
				state = CASE WHEN cancel_requested_at IS NULL THEN 'running' ELSE 'cancelled' END,
				finished_at = CASE WHEN cancel_requested_at IS NOT NULL THEN clock_timestamp() END,
				started_at = coalesce(started_at, clock_timestamp())
			WHERE job_id = $1 AND subject = $2 AND state IN ('pending', 'running')
			RETURNING event_id, subscriber, state`, j.ID, j.Subject)
		if err != nil {
			return err
		}
		open = false
		var id ID
		var state State
		_, err = pgx.ForEachRow(rows, []any{&id.Event, &id.Subscriber, &state}, func() error {
			if state == Running {
				open = true
			} else {
				tx.Notify(Final, id.String())
			}
			return nil
		})
		return err
	})
	return open, err
}

// Result is what a task leaves for its reader, kept with its row.
func Result(ctx context.Context, tx *pg.Tx, job int64, result any) error {
	body, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE tasks SET result = $2 WHERE job_id = $1`, job, body)
	return err
}

// Progress says how far a running job has come. done and total count the same
// things; total 0 is unknown.
type Progress struct {
	Done  int    `json:"done"`
	Total int    `json:"total"`
	Note  string `json:"note,omitempty"`
}

// Report stores how far a running job has come, and what it has to read so far
// (nil: nothing new).
func Report(ctx context.Context, db *pg.DB, job int64, p Progress, result any) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		body, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if result != nil {
			if err := Result(ctx, tx, job, result); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `UPDATE tasks SET progress = $2 WHERE job_id = $1 AND state IN ('pending', 'running')`, job, body)
		return err
	})
}

// ReadResult reads what an earlier attempt of a job left; nothing leaves result
// as it is.
func ReadResult(ctx context.Context, db *pg.DB, job int64, result any) error {
	var body []byte
	err := db.QueryRow(ctx, `SELECT result FROM tasks WHERE job_id = $1 AND result IS NOT NULL LIMIT 1`, job).Scan(&body)
	if pg.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return pg.Fault(err)
	}
	return json.Unmarshal(body, result)
}

// Made is a task about to be written by the relay.
type Made struct {
	ID      ID
	OwnerID uuid.UUID
	Subject string
	JobID   int64
}

// Make queues the writing of the tasks of fanned-out events. One that exists
// already, because the owner cancelled or retried it before, keeps its state.
func Make(b *pgx.Batch, made []Made) {
	n := len(made)
	events, subscribers, owners, subjects, jobs := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n), make([]string, n), make([]int64, n)
	for i, m := range made {
		events[i], subscribers[i], owners[i], subjects[i], jobs[i] = m.ID.Event, m.ID.Subscriber, m.OwnerID, m.Subject, m.JobID
	}
	b.Queue(`
		INSERT INTO tasks (event_id, subscriber, owner_id, subject, job_id)
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::bigint[])
		ON CONFLICT (event_id, subscriber) DO UPDATE SET job_id = excluded.job_id, fanned_at = excluded.fanned_at WHERE tasks.job_id IS NULL`, events, subscribers, owners, subjects, jobs)
}

// DeleteOld removes tasks that ended more than keep ago, at most n, and reports
// how many.
func DeleteOld(ctx context.Context, db *pg.DB, keep time.Duration, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM tasks WHERE (event_id, subscriber) IN (
			SELECT event_id, subscriber FROM tasks
			WHERE event_id < $1 AND state NOT IN ('pending', 'running') AND finished_at < $2
			ORDER BY event_id LIMIT $3)`, outbox.Before(time.Now().Add(-keep)), time.Now().Add(-keep), n)
	return tag.RowsAffected(), err
}

// SpareAttempts are River's beyond a kind's own limit. A worker that was killed
// spends one of River's attempts without having tried, and must not use up the
// kind's.
const SpareAttempts = 20

// Targeted is the job behind a task, for a command on it.
type Targeted struct {
	Found bool
	State State // as stored: pending, running or terminal
	JobID int64 // 0: none yet
	// CancelRequested: its owner cancelled it, or asked it to stop, and has not
	// retried it since.
	CancelRequested bool
	// OthersOpen: the job covers another task that has not ended.
	OthersOpen bool
}

// Target reads and locks the task that a command is about.
func Target(ctx context.Context, tx *pg.Tx, owner uuid.UUID, id ID) (t Targeted, err error) {
	err = tx.QueryRow(ctx, `
		SELECT state, coalesce(job_id, 0), cancel_requested_at IS NOT NULL, EXISTS (
			SELECT FROM tasks o WHERE o.job_id = t.job_id AND o.state IN ('pending', 'running')
				AND (o.event_id, o.subscriber) <> (t.event_id, t.subscriber))
		FROM tasks t WHERE event_id = $1 AND subscriber = $2 AND owner_id = $3
		FOR UPDATE OF t`, id.Event, id.Subscriber, owner).Scan(&t.State, &t.JobID, &t.CancelRequested, &t.OthersOpen)
	if pg.IsNoRows(err) {
		return t, nil
	}
	t.Found = err == nil
	return t, err
}

// Cover gives a pending task its job.
func Cover(ctx context.Context, tx *pg.Tx, id ID, job int64) error {
	_, err := tx.Exec(ctx, `UPDATE tasks SET job_id = $3 WHERE event_id = $1 AND subscriber = $2 AND state = 'pending'`, id.Event, id.Subscriber, job)
	return err
}

// Discard marks every open task that the job covers as failed for good, and has
// their waiters woken.
func Discard(ctx context.Context, tx *pg.Tx, j Job) error {
	rows, err := tx.Query(ctx, `
		UPDATE tasks SET state = 'discarded', finished_at = clock_timestamp(), started_at = $2, attempts = $3,
			errors = coalesce($4::text::jsonb, errors)
		WHERE job_id = $1 AND subject = $5 AND state IN ('pending', 'running')
		RETURNING event_id, subscriber`, j.ID, j.StartedAt, j.Attempt, string(j.Errors), j.Subject)
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

// Drop marks every open task that the job covers as cancelled, for a reason that
// its owner reads as its error: the work was not done, nothing went wrong, and
// no alert is due.
func Drop(ctx context.Context, tx *pg.Tx, j Job, why string) error {
	rows, err := tx.Query(ctx, `
		UPDATE tasks SET state = 'cancelled', finished_at = clock_timestamp(), started_at = $2, attempts = $3,
			errors = coalesce(nullif($6, '')::jsonb, errors, '[]') || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', $3::smallint, 'error', $4::text))
		WHERE job_id = $1 AND subject = $5 AND state IN ('pending', 'running')
		RETURNING event_id, subscriber`, j.ID, j.StartedAt, j.Attempt, why, j.Subject, string(j.Errors))
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

// Lost ends a task whose work can't be enqueued any more, because what asked
// for it is no longer kept.
func Lost(ctx context.Context, tx *pg.Tx, id ID, why string) error {
	_, err := tx.Exec(ctx, `
		UPDATE tasks SET state = 'discarded', finished_at = clock_timestamp(),
			errors = coalesce(errors, '[]') || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'attempt', attempts, 'error', $3::text))
		WHERE event_id = $1 AND subscriber = $2 AND state = 'pending'`, id.Event, id.Subscriber, why)
	tx.Notify(Final, id.String())
	return err
}
