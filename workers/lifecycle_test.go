package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"standmeet/relay"
	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// child, when set, makes the test binary a worker on the database that it
// names, whose jobs never end, or send mails (childMail): it is there to be killed.
const child = "STANDMEET_TEST_WORKER"

func TestMain(m *testing.M) {
	Builder()
	if url := os.Getenv(child); url != "" {
		ctx := context.Background()
		err := func() error {
			effects, err := pg.Open(ctx, url, pg.Options{MaxConns: 8})
			if err != nil {
				return err
			}
			jobs, err := pg.Open(ctx, url, pg.Options{MaxConns: 8, AsyncCommit: true})
			if err != nil {
				return err
			}
			register := only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error { select {} })
			if address := os.Getenv(childMail); address != "" {
				register = forChild(address)
			}
			if dir := os.Getenv(childSite); dir != "" {
				register = forChildSite(dir)
			}
			w, err := New(effects, jobs, Options{register: register})
			if err != nil {
				return err
			}
			return w.Run(ctx)
		}()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// world is a database with a relay, and workers as the test wants them.
type world struct {
	*testing.T
	url      string
	db       *pg.DB
	receipts *task.Receipts
	owner    uuid.UUID
	relay    *relay.Relay
}

func newWorld(t *testing.T) *world {
	w := newWorldAtRest(t)
	w.relays()
	return w
}

// newWorldAtRest is one whose relay does not run yet.
func newWorldAtRest(t *testing.T) *world {
	url := pgtest.URL(t)
	w := &world{T: t, url: url, db: pgtest.Open(t, url, pg.Options{MaxConns: 16}), owner: uuid.New()}
	if _, err := w.db.Exec(t.Context(), `CREATE TABLE effects (job bigint, at timestamptz DEFAULT clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.relay, err = relay.New(pgtest.Open(t, url, pg.Options{AsyncCommit: true}), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	wait := waiter.New(w.db, waiter.Options{Keep: true}, task.FinalSource(w.db), outbox.FanoutSource(w.db), w.relay.Source())
	w.receipts = task.NewReceipts(w.db, wait)
	t.Cleanup(wait.Close)
	return w
}

// relays runs the relay until the test ends.
func (w *world) relays() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.relay.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(func() { stop(); running.Wait() })
}

// work starts workers; the returned function stops them and waits.
func (w *world) work(register func(*river.Workers, *env)) (stop func()) {
	w.Helper()
	ws, err := New(pgtest.Open(w, w.url, pg.Options{MaxConns: 10}), pgtest.Open(w, w.url, pg.Options{MaxConns: 8, AsyncCommit: true}), Options{register: register})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ws.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.Error(err)
			}
		})
	}
	w.Cleanup(stop)
	return stop
}

// only registers a transactional and an outward kind, both doing the same.
func only(transactional, outward string, do func(ctx context.Context, job int64) error) func(*river.Workers, *env) {
	fast := func(int) time.Duration { return 5 * time.Millisecond }
	return func(registry *river.Workers, e *env) {
		i := newWorker(e, transactional, fast, func(ctx context.Context, j *river.Job[task.IndexArgs]) error {
			if err := do(ctx, j.ID); err != nil {
				return err
			}
			return effect(ctx, e.db, j.ID, func(tx *pg.Tx) error {
				open, err := task.Complete(ctx, tx, []task.Job{record(j, nil)})
				if err == nil && !open[j.ID] {
					return errNotOpen
				}
				return err
			})
		})
		i.kind.MaxAttempts = 3
		m := newWorker(e, outward, fast, func(ctx context.Context, j *river.Job[task.MailTestArgs]) error {
			if err := do(ctx, j.ID); err != nil {
				return err
			}
			// the outside world doesn't roll back
			ctx = context.WithoutCancel(ctx)
			if err := effect(ctx, e.db, j.ID, nil); err != nil {
				return err
			}
			return complete(ctx, e.db, j, nil)
		})
		m.kind.MaxAttempts = 3
		river.AddWorker(registry, i)
		river.AddWorker(registry, m)
		river.AddWorker(registry, newWorker(e, task.TasksBulk, fast, bulk(e.db)))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, fast, periodic(e.db)))
	}
}

var errNotOpen = errors.New("cancelled meanwhile")

func effect(ctx context.Context, db *pg.DB, job int64, with func(*pg.Tx) error) error {
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		if with != nil {
			if err := with(tx); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO effects (job) VALUES ($1)`, job)
		return err
	})
	if errors.Is(err, errNotOpen) {
		return nil
	}
	return err
}

// ask records an event that asks for a task of the kind.
func (w *world) ask(kind string) task.ID {
	w.Helper()
	id, event := outbox.NewID(), outbox.NoteChanged
	if kind == task.MailTest {
		event = outbox.MailTestRequested
	}
	if err := w.db.InTx(w.Context(), func(tx *pg.Tx) error {
		return outbox.Record(w.Context(), tx, id, event, w.owner, uuid.NewString(), struct{}{})
	}); err != nil {
		w.Fatal(err)
	}
	return task.ID{Event: id, Subscriber: kind}
}

func (w *world) get(id task.ID) task.Detail {
	w.Helper()
	d, err := task.Get(w.Context(), w.db, w.owner, id)
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) count(sql string, args ...any) (n int) {
	w.Helper()
	if err := w.db.QueryRow(w.Context(), sql, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatal("never came: " + what)
		}
	}
}

func (w *world) state(id task.ID, want task.State) task.Detail {
	w.Helper()
	var d task.Detail
	w.eventually(fmt.Sprintf("%s %s", id, want), func() bool { d = w.get(id); return d.State == want })
	if d.Sentence != task.Say(id.Subscriber, want) {
		w.Errorf("%s says %q", want, d.Sentence)
	}
	return d
}

// settled waits until River, too, has nothing left to do.
func (w *world) settled() {
	w.Helper()
	w.eventually("rest", func() bool {
		return w.count(`SELECT (SELECT count(*) FROM river_job WHERE finalized_at IS NULL AND kind <> 'periodic.run') + (SELECT count(*) FROM event_queue)`) == 0
	})
}

func (w *world) cancel(id task.ID) (task.State, error) {
	var requested bool
	err := w.db.InTx(w.Context(), func(tx *pg.Tx) (err error) {
		requested, err = task.Cancel(w.Context(), tx, w.owner, id)
		return err
	})
	if err == nil && requested {
		w.receipts.Resume(id).Await(w.Context(), time.Now(), 2*time.Second)
	}
	d, gerr := task.Get(w.Context(), w.db, w.owner, id)
	return d.State, errors.Join(err, gerr)
}

func (w *world) retry(id task.ID) error {
	return w.db.InTx(w.Context(), func(tx *pg.Tx) error { return task.Retry(w.Context(), tx, w.owner, id) })
}

func code(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

func TestCancelledMidRunIsWhatTheAnswerSaid(t *testing.T) {
	for _, kind := range []string{task.CorpusIndex, task.MailTest} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var started atomic.Int64
			w.work(only(task.CorpusIndex, task.MailTest, func(ctx context.Context, _ int64) error {
				started.Add(1)
				select {
				case <-time.After(50 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}))
			const jobs = 50
			answers := map[task.ID]task.State{}
			var mu sync.Mutex
			var asking sync.WaitGroup
			for range jobs {
				asking.Go(func() {
					id := w.ask(kind)
					w.eventually("running", func() bool { s := w.get(id).State; return s == task.Running || s.Terminal() })
					state, err := w.cancel(id)
					if err != nil && code(err) != "task_ended" {
						t.Error(err)
					}
					mu.Lock()
					answers[id] = state
					mu.Unlock()
				})
			}
			asking.Wait()
			w.settled()
			completed := 0
			for id, said := range answers {
				if is := w.get(id).State; is != said {
					t.Errorf("the answer said %s, it is %s", said, is)
				} else if is == task.Completed {
					completed++
				}
			}
			if n := w.count(`SELECT count(*) FROM effects`); n != completed {
				t.Errorf("%d effects of %d completed tasks", n, completed)
			}
		})
	}
}

func TestDiscardedAfterTheLastAttemptThenRetried(t *testing.T) {
	for _, kind := range []string{task.CorpusIndex, task.MailTest} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var broken atomic.Bool
			broken.Store(true)
			var tries atomic.Int64
			w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error {
				tries.Add(1)
				if broken.Load() {
					return errors.New("the disk is full")
				}
				return nil
			}))
			id := w.ask(kind)
			receipt := w.receipts.Resume(id)
			state, wait := receipt.Await(t.Context(), time.Now(), 20*time.Second)
			if state != task.Discarded || wait.Ended != waiter.Observed {
				t.Fatalf("the receipt: %s, %+v", state, wait)
			}
			d := w.get(id)
			if tries.Load() != 3 || len(d.Errors) != 3 || d.Errors[2].Attempt != 3 || d.LastError != "the disk is full" || d.Timeline.Finished == nil {
				t.Errorf("after %d tries: %+v", tries.Load(), d)
			}
			if _, err := w.cancel(id); code(err) != "task_ended" {
				t.Errorf("cancelling it: %v", err)
			}
			broken.Store(false)
			// at once, though River may not have recorded its end yet
			if err := w.retry(id); err != nil {
				t.Fatal(err)
			}
			if err := w.retry(id); code(err) != "task_pending" && code(err) != "task_completed" && code(err) != "task_running" {
				t.Errorf("retrying it again: %v", err)
			}
			w.state(id, task.Completed)
			if n := w.count(`SELECT count(*) FROM effects`); n != 1 {
				t.Errorf("%d effects", n)
			}
			w.settled()
			w.state(id, task.Completed)
			if err := w.retry(id); code(err) != "task_completed" {
				t.Errorf("retrying what is done: %v", err)
			}
		})
	}
}

func TestRetryAfterRiverPrunedTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var broken atomic.Bool
	broken.Store(true)
	w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error {
		if broken.Load() {
			return permanent(errors.New("no such address"))
		}
		return nil
	}))
	id := w.ask(task.MailTest)
	w.state(id, task.Discarded)
	w.settled()
	if _, err := w.db.Exec(t.Context(), `DELETE FROM river_job WHERE kind = 'mail.test'`); err != nil {
		t.Fatal(err)
	}
	d := w.get(id)
	if d.State != task.Discarded || d.LastError != "no such address" || len(d.Errors) != 1 || d.Attempts != 1 {
		t.Errorf("without River's row: %+v", d)
	}
	broken.Store(false)
	if err := w.retry(id); err != nil {
		t.Fatal(err)
	}
	w.state(id, task.Completed)
}

// However River ends a job, the task row says so at once.
func TestTaskRowFollowsRiver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, err := river.NewClient(riverpgxv5.New(w.db.Pool()), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]struct {
		end  func(job int64) error
		want task.State
	}{
		"cancelled": {func(job int64) error { _, err := client.JobCancel(t.Context(), job); return err }, task.Cancelled},
		"deleted":   {func(job int64) error { _, err := client.JobDelete(t.Context(), job); return err }, task.Cancelled},
		"discarded by the rescuer or the scheduler": {func(job int64) error {
			_, err := w.db.Exec(t.Context(), `UPDATE river_job SET state = 'discarded', finalized_at = now(), attempt = 3,
				errors = array_append(errors, '{"at": "2026-01-02T03:04:05Z", "attempt": 3, "error": "Stuck job rescued by Rescuer", "trace": ""}') WHERE id = $1`, job)
			return err
		}, task.Discarded},
		"called done by River alone": {func(job int64) error {
			_, err := w.db.Exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = $1`, job)
			return err
		}, task.Discarded},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			id := w.ask(task.CorpusIndex)
			var job int64
			w.eventually("a job", func() bool {
				return w.db.QueryRow(t.Context(), `SELECT job_id FROM tasks WHERE event_id = $1`, id.Event).Scan(&job) == nil
			})
			if s := w.get(id).State; s != task.Pending {
				t.Fatalf("before: %s", s)
			}
			if err := e.end(job); err != nil {
				t.Fatal(err)
			}
			if d := w.get(id); d.State != e.want || d.Timeline.Finished == nil {
				t.Errorf("after: %+v", d)
			}
		})
	}
}

func TestCancelledBeforeTheRelayRan(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	w := &world{T: t, url: url, db: pgtest.Open(t, url, pg.Options{}), owner: uuid.New()}
	id := w.ask(task.CorpusIndex)
	if s := w.get(id).State; s != task.Pending {
		t.Fatalf("before: %s", s)
	}
	if err := w.db.InTx(t.Context(), func(tx *pg.Tx) error { _, err := task.Cancel(t.Context(), tx, uuid.New(), id); return err }); code(err) != "not_found" {
		t.Errorf("another owner: %v", err)
	}
	if state, err := w.cancel(id); state != task.Cancelled || err != nil {
		t.Fatalf("cancelled: %s, %v", state, err)
	}
	r, err := relay.New(pgtest.Open(t, url, pg.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer stop()
	w.eventually("fan-out", func() bool { return w.count(`SELECT count(*) FROM event_queue`) == 0 })
	if s := w.get(id).State; s != task.Cancelled {
		t.Errorf("after the relay: %s", s)
	}
	if err := w.retry(id); err != nil {
		t.Fatal(err)
	}
	w.eventually("a job that covers it", func() bool {
		return w.count(`SELECT count(*) FROM tasks t JOIN river_job j ON j.id = t.job_id WHERE t.event_id = $1 AND t.state = 'pending' AND j.state = 'available'`, id.Event) == 1
	})
}

func TestKilledWorkersJobRunsAgainWithinAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+w.url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids := []task.ID{w.ask(task.CorpusIndex), w.ask(task.MailTest)}
	for _, id := range ids {
		w.state(id, task.Running)
	}
	// as if each were on its last attempt: being killed is no failure
	if _, err := w.db.Exec(t.Context(), `UPDATE river_job SET errors = ARRAY['{"at": "2026-01-02T03:04:05Z", "attempt": 1, "error": "a", "trace": ""}', '{"at": "2026-01-02T03:04:05Z", "attempt": 2, "error": "b", "trace": ""}']::jsonb[] WHERE kind <> 'periodic.run'`); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	killed := time.Now()
	w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error { return nil }))
	for _, id := range ids {
		w.state(id, task.Completed)
	}
	// a minute, and what a busy machine adds to it
	if took := time.Since(killed); took > 75*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := w.count(`SELECT count(*) FROM effects`); n != 2 {
		t.Errorf("%d effects", n)
	}
}

func TestGracefulStopFinishesRunningJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running := make(chan struct{}, 1)
	release := make(chan struct{})
	stop := w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error {
		running <- struct{}{}
		<-release
		return nil
	}))
	id := w.ask(task.MailTest)
	<-running
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	if s := w.get(id).State; s != task.Completed {
		t.Errorf("stopped while it was %s", s)
	}
}

// A cancel of a task that waits for its next attempt takes effect at once, and
// one that was asked for while an attempt ran, by its next attempt at the latest.
func TestCancelledBetweenAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running, release := make(chan struct{}, 9), make(chan error)
	w.work(func(registry *river.Workers, e *env) {
		m := newWorker(e, task.MailTest, quick, func(ctx context.Context, j *river.Job[task.MailTestArgs]) error {
			running <- struct{}{}
			if err := <-release; err != nil {
				return err
			}
			return complete(ctx, e.db, j, nil)
		})
		river.AddWorker(registry, m)
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodic(e.db)))
	})
	id := w.ask(task.MailTest)
	<-running
	release <- errors.New("not yet")
	w.state(id, task.Retryable)
	before := w.get(id)
	if state, err := w.cancel(id); state != task.Cancelled || err != nil {
		t.Fatalf("cancelled between attempts: %s, %v", state, err)
	}
	// what was tried so far stays told, at once and when River forgets the job
	tried := func(when string) {
		t.Helper()
		d := w.get(id)
		if d.State != task.Cancelled || d.Attempts != 1 || before.Attempts != 1 || d.LastError != "not yet" || len(d.Errors) != 1 || d.Timeline.Started == nil || !d.Timeline.Started.Equal(*before.Timeline.Started) {
			t.Errorf("%s: %+v, before %+v", when, d, before)
		}
	}
	tried("at once")
	w.settled()
	tried("at rest")
	if _, err := w.db.Exec(t.Context(), `DELETE FROM river_job`); err != nil {
		t.Fatal(err)
	}
	tried("without its job")

	id = w.ask(task.MailTest)
	<-running
	// the relay is not asked: the command is there, the job goes on and fails
	if _, err := w.db.Exec(t.Context(), `UPDATE tasks SET cancel_requested_at = now() WHERE event_id = $1`, id.Event); err != nil {
		t.Fatal(err)
	}
	release <- errors.New("not yet")
	w.settled()
	if d := w.get(id); d.State != task.Cancelled {
		t.Errorf("asked for during an attempt: %+v", d)
	}
}

func TestBulkGoesThroughAllThatMatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var broken atomic.Bool
	broken.Store(true)
	w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error {
		if broken.Load() {
			return permanent(errors.New("no"))
		}
		return nil
	}))
	var ids []task.ID
	for range 30 {
		ids = append(ids, w.ask(task.CorpusIndex))
	}
	spared := w.ask(task.MailTest)
	for _, id := range append(ids, spared) {
		w.state(id, task.Discarded)
	}
	broken.Store(false)
	event := outbox.NewID()
	if err := w.db.InTx(t.Context(), func(tx *pg.Tx) error {
		return outbox.Record(t.Context(), tx, event, outbox.TasksBulkRequested, w.owner, "retry", task.Bulk{Action: "retry", Kind: task.CorpusIndex, State: task.Discarded})
	}); err != nil {
		t.Fatal(err)
	}
	d := w.state(task.ID{Event: event, Subscriber: task.TasksBulk}, task.Completed)
	if d.Progress == nil || d.Progress.Done != 30 || string(d.Result) == "" {
		t.Errorf("the bulk task: %+v %s", d, d.Result)
	}
	for _, id := range ids {
		w.state(id, task.Completed)
	}
	w.state(spared, task.Discarded)
}

func TestPeriodicJobsRunAndAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := outbox.Before(time.Now().Add(-8 * 24 * time.Hour))
	queued := old
	queued[15]++
	if _, err := w.db.Exec(t.Context(), `
		INSERT INTO events (id, type, owner_id, subject, data) VALUES ($1, 'token.created', $3, 'x', '{}'), ($2, 'token.created', $3, 'x', '{}')`, old, queued, w.owner); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Exec(t.Context(), `INSERT INTO event_queue (event_id, poisoned_at) VALUES ($1, now())`, queued); err != nil {
		t.Fatal(err)
	}
	ancient := outbox.Before(time.Now().Add(-31 * 24 * time.Hour))
	open := ancient
	open[15]++
	if _, err := w.db.Exec(t.Context(), `
		INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES
			($1, 'corpus.index', $3, 'x', 'completed', now() - interval '31 days'), ($2, 'corpus.index', $3, 'x', 'pending', NULL)`, ancient, open, w.owner); err != nil {
		t.Fatal(err)
	}
	w.work(only(task.CorpusIndex, task.MailTest, func(context.Context, int64) error { return nil }))
	w.eventually("every periodic job's run", func() bool {
		runs, err := task.Runs(t.Context(), w.db)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.FinishedAt == nil {
				return false
			}
			if r.Error != "" {
				t.Fatalf("%s: %s", r.Name, r.Error)
			}
		}
		return len(runs) == len(task.Periodics())
	})
	rows, err := w.db.Query(t.Context(), `SELECT id FROM events UNION SELECT event_id FROM tasks`)
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v; want the poisoned event and the open task", left, err)
	}
}
