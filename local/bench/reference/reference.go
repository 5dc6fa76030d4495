// Package reference is the design that the product is measured against, and is
// linked by nothing but the benchmark: the relay makes River jobs, a worker
// polls every 100 ms, River's batch completer records the end, River's
// subscription turns that into a notification, and a request waits in three
// steps for one after the other. The work of a job is the product's own.
package reference

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"standmeet/shared/corpus"
	"standmeet/shared/pg"
	"standmeet/shared/waiter"
)

// Schema holds tables of the product's shape, and River's.
const Schema = "reference"

const (
	recorded = "reference_events"
	fanned   = "reference_events_fanned"
	final    = "reference_job_final"

	batchSize  = 100
	maxWorkers = 100
	poll       = 100 * time.Millisecond
)

const tables = `
	CREATE SCHEMA reference;
	CREATE TABLE reference.notes (LIKE public.notes INCLUDING ALL);
	CREATE TABLE reference.note_search (LIKE public.note_search INCLUDING ALL);
	CREATE TABLE reference.search_terms (LIKE public.search_terms INCLUDING ALL);
	CREATE TABLE reference.events (id uuid PRIMARY KEY, type text NOT NULL, subject text NOT NULL, fanned_at timestamptz, job_id bigint);
	CREATE INDEX ON reference.events (subject, id DESC);
	CREATE INDEX ON reference.events (id) WHERE fanned_at IS NULL`

// Migrate makes the schema in the migrated database at url.
func Migrate(ctx context.Context, url string) error {
	db, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, tables); err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(db.Pool()), &rivermigrate.Config{Schema: Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Reference is the design at work, in one process.
type Reference struct {
	db     *pg.DB
	waits  *waiter.Waiter
	client *river.Client[pgx.Tx]
	wake   chan struct{}
	stop   context.CancelFunc
	parts  sync.WaitGroup
}

// Options choose what runs.
type Options struct {
	Relay, Workers bool
	// Waiters is how many may wait at a time.
	Waiters int
}

// Start starts it on the database at base, which Migrate has prepared.
func Start(ctx context.Context, base string, o Options) (*Reference, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("search_path", Schema+",public")
	u.RawQuery = q.Encode()
	db, err := pg.Open(ctx, u.String(), pg.Options{MaxConns: 40, Name: Schema})
	if err != nil {
		return nil, err
	}
	r := &Reference{db: db, wake: make(chan struct{}, 1)}
	registry := river.NewWorkers()
	river.AddWorker(registry, &indexWorker{db: db})
	config := &river.Config{Schema: Schema, Workers: registry, Logger: slog.New(slog.DiscardHandler)}
	if o.Workers {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers, FetchPollInterval: poll}}
	}
	if r.client, err = river.NewClient(riverpgxv5.New(db.Pool()), config); err != nil {
		db.Close()
		return nil, err
	}
	r.waits = waiter.New(db, waiter.Options{Keep: true, PerChannel: max(o.Waiters, waiter.PerChannel)},
		waiter.Source{Channel: recorded, Woken: r.poke},
		waiter.Source{Channel: fanned, Read: r.readFanned},
		waiter.Source{Channel: final, Read: r.readFinal})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	if o.Relay {
		r.parts.Go(func() { r.relay(running) })
	}
	if o.Workers {
		ended, unsubscribe := r.client.Subscribe(river.EventKindJobCompleted)
		r.parts.Go(func() {
			for e := range ended {
				db.Notify(final, strconv.FormatInt(e.Job.ID, 10))
			}
		})
		if err := r.client.Start(running); err != nil {
			unsubscribe()
			return nil, errors.Join(err, r.Stop(ctx))
		}
		r.parts.Go(func() { <-r.client.Stopped(); unsubscribe() })
	}
	return r, nil
}

// Stop ends it.
func (r *Reference) Stop(context.Context) error {
	r.stop()
	r.parts.Wait()
	r.waits.Close()
	r.db.Close()
	return nil
}

func (r *Reference) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Write commits a note and its event, and waits until the note is indexed.
func (r *Reference) Write(ctx context.Context, owner uuid.UUID, body string) error {
	note, event := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	deadline := time.Now().Add(10 * time.Second)
	err := r.db.InTx(ctx, func(tx *pg.Tx) error {
		var b pgx.Batch
		queue(&b, note, event, owner, body)
		tx.Notify(recorded, "")
		return tx.Last(ctx, &b)
	})
	if err != nil {
		return err
	}
	var latest uuid.UUID
	err = r.db.QueryRow(ctx, `SELECT id FROM events WHERE subject = $1 AND type = 'corpus.note.changed' ORDER BY id DESC LIMIT 1`, note.String()).Scan(&latest)
	if err != nil {
		return err
	}
	job, err := r.await(ctx, fanned, latest.String(), deadline)
	if err != nil {
		return err
	}
	_, err = r.await(ctx, final, strconv.FormatInt(job.(int64), 10), deadline)
	return err
}

func queue(b *pgx.Batch, note, event, owner uuid.UUID, body string) {
	b.Queue(`INSERT INTO notes (id, owner_id, genre, body) VALUES ($1, $2, 'raw', $3)`, note, owner, body)
	b.Queue(`INSERT INTO events (id, type, subject) VALUES ($1, 'corpus.note.changed', $2)`, event, note.String())
}

// Fill commits notes and their events without waiting.
func (r *Reference) Fill(ctx context.Context, owner uuid.UUID, bodies []string) error {
	return r.db.InTx(ctx, func(tx *pg.Tx) error {
		var b pgx.Batch
		for _, body := range bodies {
			queue(&b, uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), owner, body)
		}
		return tx.Last(ctx, &b)
	})
}

func (r *Reference) await(ctx context.Context, channel, key string, deadline time.Time) (any, error) {
	t := r.waits.Register(channel, waiter.Key{Signal: key, Read: key})
	if t == nil {
		return nil, errors.New("reference: too many waiters")
	}
	defer t.Close()
	t.Recheck()
	values, ended := t.Wait(ctx, deadline)
	if ended != waiter.Observed {
		return nil, fmt.Errorf("reference: %s ended as %s", channel, ended)
	}
	return values[key], nil
}

func (r *Reference) readFanned(ctx context.Context, keys []string) (map[string]any, error) {
	rows, err := r.db.Query(ctx, `SELECT id::text, job_id FROM events WHERE id = ANY ($1::text[]::uuid[]) AND fanned_at IS NOT NULL`, keys)
	return collect(rows, err)
}

func (r *Reference) readFinal(ctx context.Context, keys []string) (map[string]any, error) {
	rows, err := r.db.Query(ctx, `SELECT id::text, id FROM river_job WHERE id = ANY ($1::text[]::bigint[]) AND finalized_at IS NOT NULL`, keys)
	return collect(rows, err)
}

func collect(rows pgx.Rows, err error) (map[string]any, error) {
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	var key string
	var value int64
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error { found[key] = value; return nil })
	return found, err
}

func (r *Reference) relay(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		for {
			n, err := r.fanOut(context.WithoutCancel(ctx))
			if err != nil || n < batchSize {
				break // the next tick tries again
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
		}
	}
}

func (r *Reference) fanOut(ctx context.Context) (n int, err error) {
	err = r.db.InTx(ctx, func(tx *pg.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, subject FROM events WHERE fanned_at IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`, batchSize)
		if err != nil {
			return err
		}
		var events []uuid.UUID
		var jobs []river.InsertManyParams
		var event, note uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&event, &note}, func() error {
			events = append(events, event)
			jobs = append(jobs, river.InsertManyParams{Args: indexArgs{NoteID: note}})
			return nil
		})
		if n = len(events); err != nil || n == 0 {
			return err
		}
		raw, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		inserted, err := r.client.InsertManyTx(ctx, raw, jobs)
		if err != nil {
			return err
		}
		ids := make([]int64, n)
		for i := range inserted {
			ids[i] = inserted[i].Job.ID
			tx.Notify(fanned, events[i].String())
		}
		_, err = tx.Exec(ctx, `
			UPDATE events e SET fanned_at = now(), job_id = k.job
			FROM unnest($1::uuid[], $2::bigint[]) AS k (id, job) WHERE e.id = k.id`, events, ids)
		return err
	})
	return n, err
}

// Unfanned counts the events that the relay has still to see.
func (r *Reference) Unfanned(ctx context.Context) (n int, err error) {
	err = r.db.QueryRow(ctx, `SELECT count(*) FROM events WHERE fanned_at IS NULL`).Scan(&n)
	return n, err
}

// Unfinished counts the jobs that River has not recorded the end of.
func (r *Reference) Unfinished(ctx context.Context) (int, error) { return Unfinished(ctx, r.db) }

// Unfinished is the same of the product's jobs, for a pool of the product.
func Unfinished(ctx context.Context, db *pg.DB) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE finalized_at IS NULL`).Scan(&n)
	return n, err
}

type indexArgs struct {
	NoteID uuid.UUID `json:"note_id"`
}

// Kind is the River job kind.
func (indexArgs) Kind() string { return "corpus.index" }

type indexWorker struct {
	river.WorkerDefaults[indexArgs]
	db    *pg.DB
	known sync.Map
}

// Work implements river.Worker.
func (w *indexWorker) Work(ctx context.Context, job *river.Job[indexArgs]) error {
	sources, err := corpus.ReadForIndex(ctx, w.db, []uuid.UUID{job.Args.NoteID}, 0)
	if err != nil {
		return err
	}
	row := corpus.BuildIndexRow(sources[0])
	var fresh []corpus.Term
	for _, word := range row.Terms {
		t := corpus.Term{OwnerID: row.OwnerID, Word: word}
		if _, ok := w.known.Load(t); !ok {
			fresh = append(fresh, t)
		}
	}
	err = w.db.InTx(ctx, func(tx *pg.Tx) error { return corpus.WriteIndex(ctx, tx, fresh, []corpus.IndexRow{row}) })
	if err == nil {
		for _, t := range fresh {
			w.known.Store(t, struct{}{})
		}
	}
	return err
}
