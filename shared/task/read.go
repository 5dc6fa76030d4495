package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Task is what its owner reads of one.
type Task struct {
	ID       string `json:"id"`
	Kind     string `json:"kind" jsonschema:"what kind of work this is, e.g. corpus.index"`
	Title    string `json:"title" jsonschema:"the kind in plain words"`
	Subject  string `json:"subject" jsonschema:"id of what the work is about, e.g. a note's"`
	State    State  `json:"state" enum:"pending,running,retryable,completed,discarded,cancelled"`
	Sentence string `json:"sentence" jsonschema:"what can truthfully be said about this work now"`
	Attempts int    `json:"attempts" jsonschema:"attempts begun so far"`
	// MaxAttempts is after how many the task is discarded.
	MaxAttempts     int        `json:"max_attempts"`
	NextAttemptAt   *time.Time `json:"next_attempt_at,omitempty" jsonschema:"when a task that failed or was put off is tried"`
	CancelRequested bool       `json:"cancel_requested,omitempty" jsonschema:"true when a running task was asked to stop but has not ended yet"`
	SetAside        bool       `json:"set_aside,omitempty" jsonschema:"true when the relay failed to make this task of its event and set the event aside; events.requeue puts it back"`
	LastError       string     `json:"last_error,omitempty"`
	Progress        *Progress  `json:"progress,omitempty"`
	Timeline        Timeline   `json:"timeline"`
}

// Timeline is when a task passed each stage; what has not happened is absent.
type Timeline struct {
	Committed time.Time  `json:"committed_at" jsonschema:"when the event that asked for it was recorded"`
	FannedOut *time.Time `json:"fanned_out_at,omitempty" jsonschema:"when the relay turned the event into this task"`
	Started   *time.Time `json:"started_at,omitempty" jsonschema:"when its last attempt started"`
	Finished  *time.Time `json:"finished_at,omitempty" jsonschema:"when it ended"`
}

// Detail is a task with what its own page shows.
type Detail struct {
	Task
	Event  *Event          `json:"event,omitempty" jsonschema:"the event that asked for it; gone after 7 days"`
	JobID  string          `json:"job_id,omitempty" jsonschema:"number of the queue job that covers it; several tasks may share one"`
	Args   json.RawMessage `json:"args,omitempty" jsonschema:"what the worker was given"`
	Result json.RawMessage `json:"result,omitempty" jsonschema:"what the work left to read"`
	Errors []AttemptError  `json:"errors" jsonschema:"every failed attempt"`
}

// Event is the event behind a task, in short.
type Event struct {
	ID         string    `json:"id"`
	Type       string    `json:"type"`
	OccurredAt time.Time `json:"occurred_at"`
}

// AttemptError is one failed attempt.
type AttemptError struct {
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Error   string    `json:"error"`
}

// Filter narrows a list of tasks; zero fields don't.
type Filter struct {
	Kind    string
	State   State
	Subject string
	Since   time.Time
}

// Cursor is a place in a list of tasks: the last one seen.
type Cursor struct {
	Event      uuid.UUID `json:"e"`
	Subscriber string    `json:"s"`
}

// state is the state that a reader sees: ours when the task has ended, else
// what River is doing with the job. A task row that waits without a live job is
// pending: the relay will give it one.
const stateSQL = `CASE
	WHEN t.state NOT IN ('pending', 'running') THEN t.state
	WHEN ` + apartSQL + ` THEN CASE
		WHEN t.busy_until > clock_timestamp() THEN 'running'
		WHEN t.errors IS NOT NULL AND t.job_id IS NOT NULL THEN 'retryable'
		ELSE 'pending' END
	WHEN j.state = 'running' THEN 'running'
	WHEN j.state = 'retryable' OR (j.state IN ('available', 'scheduled') AND cardinality(j.errors) > 0) THEN 'retryable'
	ELSE 'pending' END`

// apartSQL: the task's own row counts its attempts, see Kind.Apart.
const apartSQL = `t.subscriber = '` + WebhookDeliver + `'`

// A task that ended without having started, because it was cancelled, has nothing
// of a job that went on without it.
const (
	attemptsSQL = `greatest(t.attempts, CASE WHEN t.state IN ('pending', 'running') AND NOT ` + apartSQL + ` THEN j.attempt END, 0)`
	startedSQL  = `coalesce(t.started_at, CASE WHEN t.state IN ('pending', 'running') AND NOT ` + apartSQL + ` THEN j.attempted_at END)`
)

const nextSQL = `CASE
	WHEN ` + apartSQL + ` AND t.state IN ('pending', 'running') THEN t.next_at
	WHEN t.state IN ('pending', 'running') AND (j.state = 'scheduled' OR j.state IN ('retryable', 'available') AND cardinality(j.errors) > 0) THEN j.scheduled_at END`

// River records the last failure of a job a little after the task row does.
const errorsSQL = `CASE WHEN (t.state NOT IN ('pending', 'running') OR ` + apartSQL + `) AND t.errors IS NOT NULL THEN t.errors ELSE coalesce(to_jsonb(j.errors), t.errors) END`

// rowsSQL lists an owner's tasks, newest first: those that exist, and those
// that events still in the queue will become. $1 owner, $2 kind, $3 state,
// $4 subject, $5 smallest and $6, $7 largest id, $8 limit, $9 and $10 the
// routes.
const rowsSQL = `
	(SELECT t.event_id, t.subscriber, t.subject, ` + stateSQL + ` AS state,
		` + attemptsSQL + ` AS attempts, e.occurred_at,
		` + nextSQL + ` AS next_at,
		t.cancel_requested_at IS NOT NULL AND t.state IN ('pending', 'running') AS cancel_requested,
		` + errorsSQL + ` AS errors, t.progress,
		t.fanned_at, ` + startedSQL + ` AS started_at, t.finished_at, false AS set_aside
	FROM tasks t LEFT JOIN river_job j ON j.id = t.job_id LEFT JOIN events e ON e.id = t.event_id
	WHERE t.owner_id = $1 AND ($2 = '' OR t.subscriber = $2) AND ($3 = '' OR ` + stateSQL + ` = $3)
		AND ($4 = '' OR t.subject = $4) AND t.event_id >= $5 AND (t.event_id, t.subscriber) < ($6, $7)
	ORDER BY t.event_id DESC, t.subscriber DESC LIMIT $8)
	UNION ALL
	(SELECT e.id, r.subscriber, e.subject, 'pending', 0, e.occurred_at, NULL, false, NULL, NULL, NULL, NULL, NULL, q.poisoned_at IS NOT NULL
	FROM event_queue q JOIN events e ON e.id = q.event_id
		JOIN unnest($9::text[], $10::text[]) AS r (type, subscriber) ON r.type = e.type
	WHERE e.owner_id = $1 AND ($2 = '' OR r.subscriber = $2) AND $3 IN ('', 'pending')
		AND ($4 = '' OR e.subject = $4) AND e.id >= $5 AND (e.id, r.subscriber) < ($6, $7)
		AND NOT EXISTS (SELECT FROM tasks t WHERE t.event_id = e.id AND t.subscriber = r.subscriber)
	ORDER BY e.id DESC, r.subscriber DESC LIMIT $8)
	ORDER BY 1 DESC, 2 DESC LIMIT $8`

// List reads an owner's tasks, newest first, after the cursor (nil: from the
// newest). next is nil on the last page. total counts all that match.
func List(ctx context.Context, db *pg.DB, owner uuid.UUID, f Filter, after *Cursor, limit int) (items []Task, next *Cursor, total int, err error) {
	from := uuid.UUID{}
	if !f.Since.IsZero() {
		from = outbox.Before(f.Since)
	}
	upto := Cursor{Event: uuid.Max}
	if after != nil {
		upto = *after
	}
	types, subscribers := outbox.Routes()
	rows, err := db.Query(ctx, rowsSQL, owner, f.Kind, f.State, f.Subject, from, upto.Event, upto.Subscriber, limit+1, types, subscribers)
	if err != nil {
		return nil, nil, 0, err
	}
	var ids []ID
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Task, error) {
		t, id, err := scan(row)
		ids = append(ids, id)
		return t.Task, err
	})
	if err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = &Cursor{Event: ids[limit-1].Event, Subscriber: ids[limit-1].Subscriber}
	}
	err = db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM tasks t LEFT JOIN river_job j ON j.id = t.job_id AND $3 <> ''
			WHERE t.owner_id = $1 AND ($2 = '' OR t.subscriber = $2) AND ($3 = '' OR `+stateSQL+` = $3)
				AND ($4 = '' OR t.subject = $4) AND t.event_id >= $5)
		     + (SELECT count(*) FROM event_queue q JOIN events e ON e.id = q.event_id
			JOIN unnest($6::text[], $7::text[]) AS r (type, subscriber) ON r.type = e.type
			WHERE e.owner_id = $1 AND ($2 = '' OR r.subscriber = $2) AND $3 IN ('', 'pending')
				AND ($4 = '' OR e.subject = $4) AND e.id >= $5
				AND NOT EXISTS (SELECT FROM tasks t WHERE t.event_id = e.id AND t.subscriber = r.subscriber))`,
		owner, f.Kind, f.State, f.Subject, from, types, subscribers).Scan(&total)
	return items, next, total, pg.Fault(err)
}

func scan(row pgx.CollectableRow) (Detail, ID, error) {
	var d Detail
	var id ID
	var failures, progress []byte
	var occurred *time.Time
	err := row.Scan(&id.Event, &id.Subscriber, &d.Subject, &d.State, &d.Attempts, &occurred, &d.NextAttemptAt, &d.CancelRequested,
		&failures, &progress, &d.Timeline.FannedOut, &d.Timeline.Started, &d.Timeline.Finished, &d.SetAside)
	if err != nil {
		return d, id, err
	}
	return d, id, fill(&d, id, occurred, failures, progress)
}

// fill completes a task from what was read. occurred is nil when the event has
// been removed: its id tells the time to the millisecond.
func fill(d *Detail, id ID, occurred *time.Time, failures, progress []byte) error {
	d.ID, d.Kind = id.String(), id.Subscriber
	d.Title = d.Kind
	if k, ok := LookupKind(d.Kind); ok {
		// River's own limit is higher: see SpareAttempts
		d.Title, d.MaxAttempts = k.Title, k.MaxAttempts
	}
	d.Sentence = d.say()
	d.Timeline.Committed = time.UnixMilli(madeMS(id.Event)).UTC()
	if occurred != nil {
		d.Timeline.Committed = *occurred
	}
	d.Errors = []AttemptError{}
	if len(failures) > 0 && string(failures) != "null" {
		if err := json.Unmarshal(failures, &d.Errors); err != nil {
			return fmt.Errorf("task: errors of %s: %w", d.ID, err)
		}
	}
	for i := range d.Errors {
		d.Errors[i].Error = strings.ToValidUTF8(d.Errors[i].Error, "\uFFFD")
		d.LastError = d.Errors[i].Error
	}
	if d.State == Completed {
		d.LastError = ""
	}
	if len(progress) > 0 {
		d.Progress = &Progress{}
		return json.Unmarshal(progress, d.Progress)
	}
	return nil
}

// madeMS is the moment in a UUIDv7, in Unix milliseconds.
func madeMS(id uuid.UUID) int64 {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}

// Get reads one task of an owner. It is there as soon as its event is; fault
// "not_found" for every other id.
func Get(ctx context.Context, q pg.Querier, owner uuid.UUID, id ID) (Detail, error) {
	var d Detail
	var failures, progress []byte
	var eventType *string
	var occurred *time.Time
	var eventOwner, taskOwner *uuid.UUID
	var subject, state *string
	err := q.QueryRow(ctx, `
		SELECT e.type, e.occurred_at, e.owner_id, t.owner_id, coalesce(t.subject, e.subject),
			CASE WHEN t.event_id IS NOT NULL THEN `+stateSQL+` END,
			`+attemptsSQL+`,
			`+nextSQL+`,
			coalesce(t.cancel_requested_at IS NOT NULL AND t.state IN ('pending', 'running'), false),
			`+errorsSQL+`, t.progress,
			t.fanned_at, `+startedSQL+`, t.finished_at,
			-- a job's number is not told before its row can no longer be lost in a crash
			CASE WHEN t.fanned_at < clock_timestamp() - interval '1 second' OR t.state NOT IN ('pending', 'running') THEN coalesce(t.job_id::text, '') ELSE '' END,
			j.args, t.result,
			t.event_id IS NULL AND EXISTS (SELECT FROM event_queue q WHERE q.event_id = k.event_id AND q.poisoned_at IS NOT NULL)
		FROM (SELECT $1::uuid AS event_id, $2::text AS subscriber) k
			LEFT JOIN events e ON e.id = k.event_id
			LEFT JOIN tasks t ON t.event_id = k.event_id AND t.subscriber = k.subscriber
			LEFT JOIN river_job j ON j.id = t.job_id`, id.Event, id.Subscriber).
		Scan(&eventType, &occurred, &eventOwner, &taskOwner, &subject, &state, &d.Attempts, &d.NextAttemptAt,
			&d.CancelRequested, &failures, &progress, &d.Timeline.FannedOut, &d.Timeline.Started, &d.Timeline.Finished,
			&d.JobID, &d.Args, &d.Result, &d.SetAside)
	if err != nil {
		return d, pg.Fault(err)
	}
	switch {
	case taskOwner != nil && *taskOwner == owner:
		d.State = State(*state)
	case taskOwner == nil && eventOwner != nil && *eventOwner == owner && asksFor(*eventType, id.Subscriber):
		d.State = Pending
	default:
		return d, fault.NotFound("task")
	}
	d.Subject = *subject
	if eventType != nil {
		d.Event = &Event{ID: id.Event.String(), Type: *eventType, OccurredAt: *occurred}
	}
	return d, fill(&d, id, occurred, failures, progress)
}

func asksFor(eventType, subscriber string) bool {
	t, ok := outbox.Lookup(eventType)
	if !ok {
		return false
	}
	for _, s := range t.Subscribers {
		if s == subscriber {
			return true
		}
	}
	return false
}

// ByJob finds an owner's tasks that a River job covers, by the job's number.
func ByJob(ctx context.Context, q pg.Querier, owner uuid.UUID, job int64) (ID, error) {
	var id ID
	err := q.QueryRow(ctx, `
		SELECT event_id, subscriber FROM tasks WHERE job_id = $1 AND owner_id = $2
		ORDER BY event_id DESC LIMIT 1`, job, owner).Scan(&id.Event, &id.Subscriber)
	if pg.IsNoRows(err) {
		return id, fault.NotFound("task")
	}
	return id, pg.Fault(err)
}

// Committed is a task as a transaction has left it, for an answer that can't read
// it again.
func Committed(id ID, s State, cancelRequested bool) Task {
	d := Detail{Task: Task{State: s, CancelRequested: cancelRequested}}
	_ = fill(&d, id, nil, nil, nil) // without errors and progress to read it can't fail
	return d.Task
}

// OfEvent reads an owner's tasks of one event, one for each subscriber of its
// type, whether the relay has made them yet or not.
func OfEvent(ctx context.Context, q pg.Querier, owner, event uuid.UUID, eventType string) ([]Task, error) {
	tasks := []Task{}
	declared, _ := outbox.Lookup(eventType)
	for _, s := range declared.Subscribers {
		d, err := Get(ctx, q, owner, ID{Event: event, Subscriber: s})
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, d.Task)
	}
	return tasks, nil
}
