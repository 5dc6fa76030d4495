package task

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Command is what an event of type task.retry_requested or
// task.cancel_requested asks the relay to do with a task's job.
type Command struct {
	EventID    uuid.UUID `json:"event_id"`
	Subscriber string    `json:"subscriber"`
	// JobID is the job that a retry is to go on with (0: a new one).
	JobID int64 `json:"job_id,omitempty,string"`
}

// Bulk is what an event of type tasks.bulk_requested asks for.
type Bulk struct {
	Action  string `json:"action"` // "retry" or "cancel"
	Kind    string `json:"kind,omitempty"`
	State   State  `json:"state,omitempty"`
	Subject string `json:"subject,omitempty"`
	Since   string `json:"since,omitempty"` // RFC 3339
}

// lock holds the task's row to the end of tx and reads its state. A task that
// the relay has not made yet is made here, without a job, so that what the owner
// asks of it is kept: the relay leaves an existing row as it is.
func lock(ctx context.Context, tx *pg.Tx, owner uuid.UUID, id ID) (State, error) {
	var state State
	read := func() error {
		return tx.QueryRow(ctx, `
			SELECT `+stateSQL+` FROM tasks t LEFT JOIN river_job j ON j.id = t.job_id
			WHERE t.event_id = $1 AND t.subscriber = $2 AND t.owner_id = $3
			FOR UPDATE OF t`, id.Event, id.Subscriber, owner).Scan(&state)
	}
	err := read()
	if !pg.IsNoRows(err) {
		return state, err
	}
	if _, err := Get(ctx, tx, owner, id); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO tasks (event_id, subscriber, owner_id, subject, fanned_at)
		SELECT id, $2, owner_id, subject, NULL FROM events WHERE id = $1
		ON CONFLICT (event_id, subscriber) DO NOTHING`, id.Event, id.Subscriber); err != nil {
		return "", err
	}
	return state, read()
}

// Retry has a task tried again: one that ended without success starts over, one
// that waits for its next attempt gets it now. Faults: "not_found";
// "task_completed", "task_running", "task_pending" (409) when there is nothing
// to retry.
func Retry(ctx context.Context, tx *pg.Tx, owner uuid.UUID, id ID) error {
	state, err := lock(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	switch state {
	case Completed:
		return fault.New(fault.Conflict, "task_completed", "This task is done: there is nothing to retry.")
	case Running:
		return fault.New(fault.Conflict, "task_running", "This task is running now: there is nothing to retry.")
	case Pending:
		return fault.New(fault.Conflict, "task_pending", "This task is waiting to start: there is nothing to retry yet.")
	}
	// A task that has ended lets go of its job until the relay has revived it:
	// River may still be about to record how that job ended.
	c := Command{EventID: id.Event, Subscriber: id.Subscriber}
	if err := tx.QueryRow(ctx, `
		WITH before AS (SELECT job_id FROM tasks WHERE event_id = $1 AND subscriber = $2)
		UPDATE tasks t SET state = 'pending', finished_at = NULL, cancel_requested_at = NULL,
			job_id = CASE WHEN $3 THEN NULL ELSE t.job_id END
		FROM before WHERE t.event_id = $1 AND t.subscriber = $2
		RETURNING coalesce(before.job_id, 0)`, id.Event, id.Subscriber, state.Terminal()).Scan(&c.JobID); err != nil {
		return err
	}
	if kind, _ := LookupKind(id.Subscriber); kind.Apart && state.Terminal() {
		// its job may be at work for other tasks; a new one is no loss
		c.JobID = 0
	}
	return outbox.Record(ctx, tx, outbox.NewID(), outbox.TaskRetryRequested, owner, id.String(), c)
}

// Cancel ends a task that has not ended. A running one that touches the outside
// world is asked to stop, and ends as what it then is; requested reports that.
// One that waits for its next attempt ends at once: a worker that takes it up
// meanwhile must get past its row first.
// Faults: "not_found"; "task_ended" (409) for one that has ended.
func Cancel(ctx context.Context, tx *pg.Tx, owner uuid.UUID, id ID) (requested bool, err error) {
	state, err := lock(ctx, tx, owner, id)
	if err != nil {
		return false, err
	}
	if state.Terminal() {
		return false, fault.New(fault.Conflict, "task_ended", "This task has ended ("+string(state)+"): it can't be cancelled.")
	}
	kind, _ := LookupKind(id.Subscriber)
	err = tx.QueryRow(ctx, `
		UPDATE tasks t SET
			cancel_requested_at = clock_timestamp(),
			state = CASE WHEN $4 OR t.state = 'pending' AND NOT $5 OR t.subscriber = ANY ($3) THEN 'cancelled' ELSE t.state END,
			finished_at = CASE WHEN $4 OR t.state = 'pending' AND NOT $5 OR t.subscriber = ANY ($3) THEN clock_timestamp() END,
			-- what its job did so far, which is read from there until now
			started_at = `+startedSQL+`, attempts = `+attemptsSQL+`, errors = `+errorsSQL+`
		FROM tasks own LEFT JOIN river_job j ON j.id = own.job_id
		WHERE (t.event_id, t.subscriber) = ($1, $2) AND (own.event_id, own.subscriber) = ($1, $2)
		RETURNING t.state <> 'cancelled'`, id.Event, id.Subscriber, transactionalKinds(), state != Running, kind.Apart).Scan(&requested)
	if err != nil {
		return false, err
	}
	if !requested {
		tx.Notify(Final, id.String())
	}
	return requested, outbox.Record(ctx, tx, outbox.NewID(), outbox.TaskCancelRequested, owner, id.String(), Command{EventID: id.Event, Subscriber: id.Subscriber})
}
