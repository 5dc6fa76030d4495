// Package workers carries out what the relay enqueued. It alone touches the
// outside world.
package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"standmeet/shared/blob"
	rules "standmeet/shared/egress"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
)

const (
	// softStop is how long running jobs may go on when the process is asked to
	// stop; then their contexts end, and hardStop later the process gives up on
	// them. Together they stay within 20 s.
	softStop = 15 * time.Second
	hardStop = 4 * time.Second
	// River looks every 30 s for jobs that have been running for longer than
	// rescueAfter and than their kind's timeout, and schedules them within 5 s:
	// a killed worker's jobs run again within a minute.
	rescueAfter = 20 * time.Second
	// slice is how long a job of unbounded length works in one attempt.
	slice = 10 * time.Second
	// indexLanes is how many batches of notes are indexed at a time at most: while one
	// commits, the next is analysed.
	indexLanes = 2
)

// Options configure a process's workers.
type Options struct {
	Logger *slog.Logger
	// Mail sends mails; nil refuses them for good.
	Mail Mailer
	// Keys derive the codes and tokens that mails hold; without them those mails
	// fail for good.
	Keys secret.Keys
	// PublicURL is where the links in mails lead, without a final slash.
	PublicURL string
	// Blobs keeps the files of vaults and sites.
	Blobs blob.Store
	// Egress says which addresses webhooks and feeds may ask.
	Egress rules.Rules
	// SourceBases are other addresses for the APIs of job boards, by kind. They may
	// lie inside, whatever Egress says.
	SourceBases map[string]string
	// Telemetry records each attempt; nil doesn't.
	Telemetry *telemetry.Telemetry
	// register replaces the kinds, in tests
	register func(*river.Workers, *env)
}

// Workers runs jobs. It needs two pools: what River itself writes may be lost in
// a crash of PostgreSQL and is then done again, so its pool commits
// asynchronously; effects and completed tasks must not be lost.
type Workers struct {
	effects *pg.DB
	jobs    *pg.DB
	client  *river.Client[pgx.Tx]
	index   *indexer
	log     *slog.Logger
}

// queues are the worker limits of a process.
func queues() map[string]river.QueueConfig {
	const fast, slow = 100 * time.Millisecond, 500 * time.Millisecond
	return map[string]river.QueueConfig{
		// index jobs only wait for the batch that they are in
		task.QueueIndex:  {MaxWorkers: 400, FetchCooldown: time.Millisecond, FetchPollInterval: fast},
		task.QueueNotify: {MaxWorkers: 10, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: slow},
		// most of their time webhooks wait for somebody's server, without a connection
		task.QueueWebhook:     {MaxWorkers: 200, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: slow},
		task.QueueFetch:       {MaxWorkers: 8, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: slow},
		task.QueueBuild:       {MaxWorkers: 2, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: slow},
		task.QueueMaintenance: {MaxWorkers: 4, FetchCooldown: 10 * time.Millisecond, FetchPollInterval: slow},
	}
}

// MinEffectConns and MinJobConns are the smallest pools that workers start
// with: a connection for each index lane and for each other queue; River's
// producers, completer, leader and LISTEN.
const (
	MinEffectConns = indexLanes + 5
	MinJobConns    = 6
)

// New prepares workers; effects is the pool that work commits through, jobs
// River's own. Both must be as large as [MinEffectConns] and [MinJobConns] say.
func New(effects, jobs *pg.DB, o Options) (*Workers, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if n := effects.Pool().Config().MaxConns; n < MinEffectConns {
		return nil, fmt.Errorf("workers: the effect pool has %d connections, they need %d", n, MinEffectConns)
	}
	if n := jobs.Pool().Config().MaxConns; n < MinJobConns {
		return nil, fmt.Errorf("workers: the job pool has %d connections, River needs %d", n, MinJobConns)
	}
	w := &Workers{effects: effects, jobs: jobs, index: newIndexer(effects, o.Logger, o.Telemetry), log: o.Logger}
	registry := river.NewWorkers()
	if o.register == nil {
		p := &post{db: effects, log: o.Logger, mailer: o.Mail, keys: o.Keys, url: o.PublicURL}
		o.register = func(registry *river.Workers, e *env) {
			river.AddWorker(registry, newWorker(e, task.CorpusIndex, quick, w.index.work))
			river.AddWorker(registry, newWorker(e, task.MailTest, patient, mailTest(p)))
			river.AddWorker(registry, newWorker(e, task.ApprovalMail, patient, approvalMail(p)))
			river.AddWorker(registry, newWorker(e, task.OwnerNotify, patient, ownerNotify(p)))
			river.AddWorker(registry, newWorker(e, task.BookingMail, patient, bookingMail(p)))
			river.AddWorker(registry, newWorker(e, task.BookingOwnerMail, patient, bookingOwnerMail(p)))
			river.AddWorker(registry, newWorker(e, task.SignInMail, patient, signInMail(p)))
			river.AddWorker(registry, newWorker(e, task.TasksBulk, quick, bulk(effects)))
			river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodicWith(effects, o.Blobs)))
			river.AddWorker(registry, newWorker(e, task.MicrositeBuild, quick, newBuilder(effects, o.Blobs).work))
			river.AddWorker(registry, newWorker(e, task.WebhookDeliver, quick, newHooks(e, o.Keys, o.Egress).work))
			river.AddWorker(registry, newWorker(e, task.JobsFetch, quick, jobsFetch(e.db, sources(o.Egress, o.SourceBases))))
		}
	}
	o.register(registry, &env{db: effects, log: o.Logger, telemetry: o.Telemetry})
	client, err := river.NewClient(riverpgxv5.New(jobs.Pool()), &river.Config{
		Queues:               queues(),
		Workers:              registry,
		Logger:               telemetry.AtLeast(o.Logger, slog.LevelWarn),
		JobTimeout:           15 * time.Second,
		RescueStuckJobsAfter: rescueAfter,
		SoftStopTimeout:      softStop,
		PeriodicJobs:         schedules(),
		ReindexerIndexNames:  indexes(),
		// our task rows keep what a reader may ask for
		CompletedJobRetentionPeriod: 24 * time.Hour,
		CancelledJobRetentionPeriod: 24 * time.Hour,
		DiscardedJobRetentionPeriod: 7 * 24 * time.Hour,
	})
	if err != nil {
		return nil, fmt.Errorf("workers: %w", err)
	}
	w.client = client
	return w, nil
}

// indexes are those of River's that our migrations keep.
func indexes() []string {
	return slices.DeleteFunc(river.ReindexerIndexNamesDefault(), func(name string) bool {
		return name == "river_job_args_index" || name == "river_job_metadata_index"
	})
}

// Run works until ctx ends, then lets running jobs finish, within 20 s.
func (w *Workers) Run(ctx context.Context) error {
	if err := w.checkBudget(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before it began
		}
		return err
	}
	stopIndex := w.index.start()
	defer stopIndex()
	if err := w.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), softStop+hardStop)
	defer cancel()
	if err := w.client.Stop(stopping); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("workers: stopped with jobs still running; they will be rescued: %w", err)
	}
	return nil
}

// checkBudget refuses to start when PostgreSQL can't give the pools what they
// may ask for.
func (w *Workers) checkBudget(ctx context.Context) error {
	var limit, reserved int32
	err := w.effects.QueryRow(ctx, `
		SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int`).Scan(&limit, &reserved)
	if err != nil {
		return fmt.Errorf("workers: %w", pg.Fault(err))
	}
	if need := w.effects.Pool().Config().MaxConns + w.jobs.Pool().Config().MaxConns; need > limit-reserved {
		return fmt.Errorf("workers: the pools may open %d connections, PostgreSQL allows %d", need, limit-reserved)
	}
	return nil
}
