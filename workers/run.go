package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
)

// permanentError fails a task for good: trying again can't help.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// permanent marks err as one that trying again can't help.
func permanent(err error) error { return permanentError{err} }

// backoff is the pause before the next attempt, after n failed ones.
type backoff func(n int) time.Duration

// quick suits work on our own database: 1 s, 2 s, 4 s … 5 min.
func quick(n int) time.Duration { return min(time.Second<<min(n-1, 10), 5*time.Minute) }

// patient suits other people's servers: 20 s, then ×3.
func patient(n int) time.Duration {
	d := 20 * time.Second
	for range min(n-1, 10) {
		d *= 3
	}
	return d
}

type env struct {
	db        *pg.DB
	log       *slog.Logger
	telemetry *telemetry.Telemetry
}

type caused interface {
	river.JobArgs
	Traceparent() string
	About() string
	Origin() (owner, event uuid.UUID)
}

// worker runs one kind of job and classifies how it ended. The work itself
// completes its task, in the transaction of its effect.
type worker[A caused] struct {
	river.WorkerDefaults[A]
	*env
	kind  task.Kind
	pause backoff
	do    func(context.Context, *river.Job[A]) error
}

func newWorker[A caused](e *env, kind string, pause backoff, do func(context.Context, *river.Job[A]) error) *worker[A] {
	k, ok := task.LookupKind(kind)
	if !ok {
		panic("workers: kind " + kind + " is not declared")
	}
	return &worker[A]{env: e, kind: k, pause: pause, do: do}
}

// Timeout implements river.Worker.
func (w *worker[A]) Timeout(*river.Job[A]) time.Duration { return w.kind.Timeout }

// NextRetry implements river.Worker.
func (w *worker[A]) NextRetry(job *river.Job[A]) time.Time {
	return time.Now().Add(w.pause(failures(job.JobRow) + 1))
}

// Work implements river.Worker.
func (w *worker[A]) Work(ctx context.Context, job *river.Job[A]) error {
	owner, event := job.Args.Origin()
	ctx, span := w.telemetry.Job(ctx, telemetry.Attempt{
		Kind: w.kind.Name, Queue: w.kind.Queue, Job: job.ID, Number: job.Attempt, Due: job.ScheduledAt,
		Traceparent: job.Args.Traceparent(), Owner: owner, Event: event,
	})
	outcome, err := w.attempt(ctx, job)
	span.End(outcome, err)
	return err
}

func (w *worker[A]) attempt(ctx context.Context, job *river.Job[A]) (telemetry.Outcome, error) {
	if !w.kind.Transactional && !w.kind.Apart {
		open, err := task.Start(ctx, w.db, record(job, nil))
		if err != nil {
			return telemetry.Failed, err
		}
		if !open && !scheduled(job) {
			return telemetry.Skipped, nil
		}
	}
	err := w.do(ctx, job)
	if err == nil {
		return telemetry.Completed, nil
	}
	// put off, dropped with its task's end on record, cancelled by its owner, or the
	// process is stopping: no attempt was lost, River knows each of them
	var dropped *rivertype.JobCancelError
	if errors.As(err, &dropped) {
		return telemetry.Dropped, err
	}
	var snooze *rivertype.JobSnoozeError
	if errors.As(err, &snooze) {
		return telemetry.Snoozed, err
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return telemetry.Interrupted, err
	}
	var unrecorded unrecordedError
	var final permanentError
	last := !w.kind.Apart && !errors.As(err, &unrecorded) && (failures(job.JobRow)+1 >= w.kind.MaxAttempts || errors.As(err, &final))
	attrs := []slog.Attr{slog.String("kind", w.kind.Name), slog.Int64("job", job.ID), slog.Int("attempt", job.Attempt), slog.Bool("discarded", last)}
	owner, event := job.Args.Origin()
	if owner != (uuid.UUID{}) {
		attrs = append(attrs, slog.String("owner", owner.String()))
	}
	if event != (uuid.UUID{}) {
		attrs = append(attrs, slog.String("event", event.String()), slog.String("task", task.ID{Event: event, Subscriber: w.kind.Name}.String()))
	}
	w.log.LogAttrs(ctx, slog.LevelWarn, "workers: attempt failed", append(attrs, slog.Any("error", err))...)
	if !last {
		return telemetry.Failed, err
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.db.InTx(recording, func(tx *pg.Tx) error { return task.Discard(recording, tx, record(job, err)) }); err != nil {
		return telemetry.Failed, err
	}
	return telemetry.Discarded, river.JobCancel(err)
}

// scheduled reports whether River's own schedule made the job, not an event: it
// has no task.
func scheduled[A caused](job *river.Job[A]) bool {
	p, ok := any(job.Args).(task.PeriodicArgs)
	return ok && p.EventID == [16]byte{}
}

// failures counts attempts that failed by themselves. A rescue is none: the
// worker was killed before the attempt ended.
func failures(job *rivertype.JobRow) (n int) {
	for _, e := range job.Errors {
		if !strings.HasPrefix(e.Error, "Stuck job rescued") {
			n++
		}
	}
	return n
}

// record is what the task row keeps of a job that ends now, err being its last
// error if any.
func record[A caused](job *river.Job[A], err error) task.Job {
	j := task.Job{ID: job.ID, Subject: job.Args.About(), Attempt: job.Attempt, StartedAt: time.Now()}
	if job.AttemptedAt != nil {
		j.StartedAt = *job.AttemptedAt
	}
	all := job.Errors
	if err != nil {
		all = append(all[:len(all):len(all)], rivertype.AttemptError{At: time.Now().UTC(), Attempt: job.Attempt, Error: err.Error()})
	}
	if len(all) > 0 {
		j.Errors, _ = json.Marshal(all) // plain strings and numbers
	}
	return j
}

// unrecordedError says that the work was done and only its record failed. The
// task must not be called failed, and another attempt records it.
type unrecordedError struct{ error }

func (e unrecordedError) Unwrap() error { return e.error }

// complete ends a job's tasks as completed, with what they leave to read, after
// an effect that no transaction could hold. It goes on although the job's time
// is up or its owner cancels it: what has happened is to be said.
func complete[A caused](ctx context.Context, db *pg.DB, job *river.Job[A], result any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	for {
		err := db.InTx(ctx, func(tx *pg.Tx) error {
			if result != nil {
				if err := task.Result(ctx, tx, job.ID, result); err != nil {
					return err
				}
			}
			_, err := task.Complete(ctx, tx, []task.Job{record(job, nil)})
			return err
		})
		if err == nil {
			return nil
		}
		pause := time.NewTimer(200 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return unrecordedError{err}
		}
	}
}

// recordTimeout is how long a worker tries to record what it has done.
const recordTimeout = 10 * time.Second
