// Package relay turns events into work. It alone does so: functions commit
// events and wait, workers carry out what it enqueued.
//
// Claiming an event, writing its tasks and enqueuing their jobs share one
// transaction, so a relay may be killed at any point and any number may run.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

const (
	// BatchSize is how many events one transaction fans out at most.
	BatchSize = 1000
	// pollEvery is what a lost signal costs.
	pollEvery = 250 * time.Millisecond
	// A signalled pass looks only at events younger than this. When an old
	// transaction keeps VACUUM from cleaning the queue, the rest of it is
	// thousands of dead entries; whatever commits late is found by the next
	// full pass.
	recent = 5 * time.Second
	// full passes take at most one part in fullShare of the time
	fullShare = 10
	// insertNotice keeps River from sending NOTIFY inside our transaction.
	insertNotice = math.MaxInt64
)

// Relay fans out events.
type Relay struct {
	// Telemetry records each batch; nil doesn't. It is set before Run.
	Telemetry *telemetry.Telemetry

	db     *pg.DB
	client *river.Client[pgx.Tx]
	routes map[string]route
	types  map[string]outbox.Type
	log    *slog.Logger
	wake   chan struct{}
	// batch is BatchSize, smaller in tests
	batch int
}

// New makes a relay on a pool that should commit asynchronously: what a crash
// of PostgreSQL takes back is claimed again. The work that depends on it commits
// after it, synchronously, and so carries it to disk.
func New(db *pg.DB, log *slog.Logger) (*Relay, error) {
	client, err := river.NewClient(riverpgxv5.New(db.Pool()), &river.Config{
		FetchCooldown: insertNotice, FetchPollInterval: insertNotice, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	types := map[string]outbox.Type{}
	for _, t := range outbox.Types() {
		types[t.Name] = t
	}
	return &Relay{db: db, client: client, routes: routes(), types: types, log: log, wake: make(chan struct{}, 1), batch: BatchSize}, nil
}

// Source has a waiter wake the relay. The waiter must keep LISTEN.
func (r *Relay) Source() waiter.Source {
	return waiter.Source{Channel: outbox.Recorded, Woken: r.Wake}
}

// Wake has a pass begin soon.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run fans out events until ctx ends; the pass under way is finished first.
func (r *Relay) Run(ctx context.Context) error {
	for _, t := range outbox.Types() {
		for _, s := range t.Subscribers {
			if _, ok := r.routes[s]; !ok {
				return fmt.Errorf("relay: no route for subscriber %s of %s", s, t.Name)
			}
		}
	}
	var nextFull time.Time
	for {
		from := outbox.Before(time.Now().Add(-recent))
		full := !time.Now().Before(nextFull)
		if full {
			from = uuid.UUID{}
		}
		began := time.Now()
		// a pass that has begun is finished: its transaction is short
		_, err := r.drain(context.WithoutCancel(ctx), ctx.Done(), from)
		if full {
			nextFull = time.Now().Add(max(pollEvery, fullShare*time.Since(began)))
		}
		pause := pollEvery
		if err != nil {
			r.log.LogAttrs(ctx, slog.LevelError, "relay: fan-out failed", slog.Any("error", err))
			pause = time.Second
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.wake:
			timer.Stop()
			if err != nil {
				// the database may be down; don't let signals make it a busy loop
				nextFull = time.Time{}
			}
		case <-timer.C:
		}
	}
}

// drain fans out everything that is due from the given id on, and reports how
// many events.
func (r *Relay) drain(ctx context.Context, stop <-chan struct{}, from uuid.UUID) (total int, err error) {
	for {
		select {
		case <-stop:
			return total, nil
		default:
		}
		n, last, err := r.pass(ctx, from, r.batch)
		if err != nil {
			if pg.Unavailable(err) {
				return total, err
			}
			r.log.LogAttrs(ctx, slog.LevelWarn, "relay: batch failed, going row by row", slog.Any("error", err))
			n, last, err = r.singly(ctx, from, r.batch)
			if err != nil {
				return total, err
			}
		}
		total += n
		if n < r.batch {
			return total, nil
		}
		from = last
	}
}

// pass fans out up to n events in one transaction.
func (r *Relay) pass(ctx context.Context, from uuid.UUID, n int) (count int, last uuid.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	events, err := r.claim(ctx, from, n)
	if len(events) > 0 {
		count, last = len(events), events[len(events)-1].ID
	}
	return count, last, err
}

// claim fans out up to n events in one transaction. When that fails it tells
// which it had claimed.
func (r *Relay) claim(ctx context.Context, from uuid.UUID, n int) (events []outbox.Event, err error) {
	var batch *telemetry.Batch
	err = r.db.InTx(ctx, func(tx *pg.Tx) (err error) {
		batch = nil
		if events, err = outbox.Claim(ctx, tx, from, n); err != nil || len(events) == 0 {
			return err
		}
		ctx, begun := r.Telemetry.Batch(ctx, len(events))
		batch = begun
		return r.fanOut(ctx, tx, events, batch)
	})
	batch.End(err)
	return events, err
}

// singly fans out up to n events, each in a transaction of its own, and puts
// off those that fail.
func (r *Relay) singly(ctx context.Context, from uuid.UUID, n int) (count int, last uuid.UUID, err error) {
	for range n {
		events, cause := r.claim(ctx, from, 1)
		if len(events) == 0 || pg.Unavailable(cause) {
			return count, last, cause
		}
		event := events[0]
		if cause != nil {
			if err := r.putOff(ctx, event, cause); err != nil {
				return count, last, err
			}
		}
		count++
		from, last = event.ID, event.ID
	}
	return count, last, nil
}

func (r *Relay) putOff(ctx context.Context, e outbox.Event, cause error) error {
	var poisoned bool
	err := r.db.InTx(ctx, func(tx *pg.Tx) (err error) {
		if pg.LockTimeout(cause) {
			// somebody holds a row that it needs, which is no fault of the event's
			return outbox.Delay(ctx, tx, e.ID)
		}
		poisoned, err = outbox.Failed(ctx, tx, e.ID, cause)
		return err
	})
	level := slog.LevelWarn
	if poisoned {
		level = slog.LevelError
	}
	r.log.LogAttrs(ctx, level, "relay: event failed", slog.Bool("poisoned", poisoned), slog.String("event", e.ID.String()),
		slog.String("type", e.Type), slog.String("owner", e.OwnerID.String()), slog.Int("attempt", e.Attempts+1), slog.Any("error", cause))
	return err
}

// fanOut writes the tasks of claimed events and enqueues their jobs.
func (r *Relay) fanOut(ctx context.Context, tx *pg.Tx, events []outbox.Event, batch *telemetry.Batch) error {
	var jobs []river.InsertManyParams
	var made []task.Made
	var covers []int // the job of each task made
	var causes []int // the event that each job is made of
	merged := map[[2]string]int{}
	var commands []outbox.Event
	queues := map[string]bool{}
	ask := func(i int, e outbox.Event, kind outbox.Type) error {
		for _, subscriber := range kind.Subscribers {
			route := r.routes[subscriber]
			key := [2]string{subscriber, e.Subject}
			job, covered := merged[key]
			if !covered || !route.coalesce {
				params, queue, err := r.params(subscriber, route, e)
				if err != nil {
					return err
				}
				job = len(jobs)
				jobs, causes, queues[queue] = append(jobs, params), append(causes, i), true
				merged[key] = job
			} else {
				batch.Join(i, causes[job])
			}
			made = append(made, task.Made{ID: task.ID{Event: e.ID, Subscriber: subscriber}, OwnerID: e.OwnerID, Subject: e.Subject})
			covers = append(covers, job)
		}
		return nil
	}
	at := make(map[uuid.UUID]int, len(events))
	for i := range events {
		e := &events[i]
		e.Trace = batch.Event(e.ID, e.OwnerID, e.Type, e.Trace, e.OccurredAt)
		at[e.ID] = i
		kind, ok := r.types[e.Type]
		if !ok {
			return fmt.Errorf("event type %q is not declared", e.Type)
		}
		if kind.Command {
			commands = append(commands, *e)
		}
		if err := ask(i, *e, kind); err != nil {
			return err
		}
		tx.Notify(outbox.Fanned, e.ID.String())
	}
	hooks, err := match(ctx, tx, events)
	if err != nil {
		return err
	}
	for i, e := range hooks.events {
		if err := ask(at[hooks.causes[i]], e, r.types[e.Type]); err != nil {
			return err
		}
	}
	raw, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	var tasks pgx.Batch
	hooks.write(&tasks)
	if len(jobs) > 0 {
		inserted, err := r.client.InsertManyTx(ctx, raw, jobs)
		if err != nil {
			return err
		}
		for i := range made {
			made[i].JobID = inserted[covers[i]].Job.ID
		}
		task.Make(&tasks, made)
	}
	for queue := range queues {
		nudge(tx, queue)
	}
	if len(commands) == 0 {
		return tx.Last(ctx, &tasks)
	}
	if err := raw.SendBatch(ctx, &tasks).Close(); err != nil {
		return err
	}
	for _, e := range commands {
		queue, err := r.carryOut(ctx, tx, e)
		if err != nil {
			return err
		}
		if queue != "" {
			nudge(tx, queue)
		}
	}
	return nil
}

func (r *Relay) params(subscriber string, route route, e outbox.Event) (p river.InsertManyParams, queue string, err error) {
	kind, ok := task.LookupKind(subscriber)
	if !ok || route.args == nil {
		return p, "", fmt.Errorf("subscriber %q of %s has no route", subscriber, e.Type)
	}
	// a panic is the fault of this event, not the end of the relay
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("route of %s panicked: %v", subscriber, v)
		}
	}()
	args, err := route.args(e)
	if err != nil {
		return p, "", err
	}
	return river.InsertManyParams{Args: args, InsertOpts: &river.InsertOpts{Queue: kind.Queue, MaxAttempts: kind.MaxAttempts + task.SpareAttempts}}, kind.Queue, nil
}

// carryOut does what the owner asked of a task's job.
func (r *Relay) carryOut(ctx context.Context, tx *pg.Tx, e outbox.Event) (queue string, err error) {
	asked, err := command(e)
	if err != nil {
		return "", err
	}
	id := task.ID{Event: asked.EventID, Subscriber: asked.Subscriber}
	raw, err := tx.Begin(ctx)
	if err != nil {
		return "", err
	}
	target, err := task.Target(ctx, tx, e.OwnerID, id)
	if err != nil || !target.Found {
		return "", err
	}
	switch e.Type {
	case outbox.TaskCancelRequested:
		// a retry may have overtaken this command
		if !target.CancelRequested || target.JobID == 0 || target.OthersOpen {
			return "", nil
		}
		if kind, _ := task.LookupKind(id.Subscriber); kind.Apart {
			return "", nil // another job may be at work on it; its own finds that nothing is left
		}
		_, err = r.client.JobCancelTx(ctx, raw, target.JobID)
		if errors.Is(err, river.ErrNotFound) {
			err = nil
		}
		return "", err
	case outbox.TaskRetryRequested:
		if target.State != task.Pending {
			return "", nil
		}
		kind, _ := task.LookupKind(id.Subscriber)
		if asked.JobID != 0 {
			job, err := r.client.JobRetryTx(ctx, raw, asked.JobID)
			switch {
			case errors.Is(err, river.ErrNotFound):
			case err != nil:
				return "", err
			case target.JobID != 0:
				return kind.Queue, nil
			case job.State == rivertype.JobStateRunning, job.FinalizedAt != nil:
				// the latter when River records the end while JobRetryTx waits for it
				return "", fmt.Errorf("job %d has ended, but River has not recorded it yet", job.ID)
			default:
				return kind.Queue, task.Cover(ctx, tx, id, job.ID)
			}
		}
		// there was no job yet, or River has pruned it: the work starts over
		cause, err := outbox.Get(ctx, tx, id.Event)
		if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind {
			return "", task.Lost(ctx, tx, id, "the event that asked for this work is no longer kept")
		}
		if err != nil {
			return "", err
		}
		params, queue, err := r.params(id.Subscriber, r.routes[id.Subscriber], cause)
		if err != nil {
			return "", err
		}
		inserted, err := r.client.InsertManyTx(ctx, raw, []river.InsertManyParams{params})
		if err != nil {
			return "", err
		}
		return queue, task.Cover(ctx, tx, id, inserted[0].Job.ID)
	}
	return "", fmt.Errorf("command %q is not known", e.Type)
}

// nudge tells River's workers that a queue has jobs. River's own notice would
// be sent inside the transaction, and at most once in an interval, so that a job
// inserted just after another waits for the poll.
func nudge(tx *pg.Tx, queue string) {
	tx.NotifyWhole("public.river_insert", `{"queue": "`+queue+`"}`)
}
