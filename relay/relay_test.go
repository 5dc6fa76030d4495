package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
)

// child, when set, makes the test binary a relay on the database that it names,
// to be killed by its parent.
const child = "STANDMEET_TEST_RELAY"

func TestMain(m *testing.M) {
	if url := os.Getenv(child); url != "" {
		ctx := context.Background()
		db, err := pg.Open(ctx, url, pg.Options{AsyncCommit: true, Name: child})
		if err == nil {
			var r *Relay
			if r, err = New(db, quiet()); err == nil {
				r.batch = 37
				err = r.Run(ctx)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newRelay(t *testing.T, db *pg.DB) *Relay {
	t.Helper()
	r, err := New(db, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func record(t *testing.T, db *pg.DB, owner uuid.UUID, subject string) uuid.UUID {
	t.Helper()
	id := outbox.NewID()
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		return outbox.Record(t.Context(), tx, id, outbox.NoteChanged, owner, subject, map[string]any{})
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

func count(t *testing.T, db *pg.DB, sql string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits for a condition, not for a time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("never came: " + what)
		}
	}
}

func drain(t *testing.T, r *Relay) int {
	t.Helper()
	n, err := r.drain(t.Context(), nil, uuid.UUID{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// every event has its one task, and every task a job that exists
func checkFannedOnce(t *testing.T, db *pg.DB, events int) {
	t.Helper()
	if n := count(t, db, `SELECT count(*) FROM event_queue`); n != 0 {
		t.Errorf("%d events still queued", n)
	}
	if n := count(t, db, `SELECT count(*) FROM events e JOIN tasks t ON t.event_id = e.id JOIN river_job j ON j.id = t.job_id`); n != events {
		t.Errorf("%d tasks with a job, want %d", n, events)
	}
	if n := count(t, db, `SELECT count(*) FROM river_job j WHERE NOT EXISTS (SELECT FROM tasks t WHERE t.job_id = j.id)`); n != 0 {
		t.Errorf("%d jobs without a task", n)
	}
}

func TestCommitsOutOfOrderAreNotSkipped(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r, owner := newRelay(t, db), uuid.New()
	early := outbox.NewID()
	began, release, committed := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		committed <- db.InTx(context.Background(), func(tx *pg.Tx) error {
			if err := outbox.Record(context.Background(), tx, early, outbox.NoteChanged, owner, uuid.NewString(), nil); err != nil {
				return err
			}
			close(began)
			<-release
			return nil
		})
	}()
	<-began
	record(t, db, owner, uuid.NewString())
	if n := drain(t, r); n != 1 {
		t.Fatalf("fanned out %d, want the one that is committed", n)
	}
	close(release)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if n := drain(t, r); n != 1 {
		t.Fatalf("fanned out %d, want the late one", n)
	}
	checkFannedOnce(t, db, 2)
}

func TestRolledBackWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	refused := errors.New("refused")
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		if err := outbox.Record(t.Context(), tx, outbox.NewID(), outbox.NoteChanged, uuid.New(), uuid.NewString(), nil); err != nil {
			return err
		}
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM event_queue)`); n != 0 {
		t.Errorf("%d rows of an event that never happened", n)
	}
	drain(t, newRelay(t, db))
	checkFannedOnce(t, db, 0)
}

func TestTenRelaysFanOutOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := pgtest.Open(t, url, pg.Options{})
	const events = 5000
	if _, err := db.Exec(t.Context(), `
		SELECT record_event('corpus.note.changed', $1, gen_random_uuid()::text, '{}') FROM generate_series(1, $2::int)`, uuid.New(), events); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var relays sync.WaitGroup
	for range 10 {
		r := newRelay(t, pgtest.Open(t, url, pg.Options{MaxConns: 2, AsyncCommit: true}))
		r.batch = 50
		relays.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "an empty queue", func() bool { return count(t, db, `SELECT count(*) FROM event_queue`) == 0 })
	stop()
	relays.Wait()
	checkFannedOnce(t, db, events)
}

// gates lets a test stop a relay inside its transaction: at a point of it, after
// a number of rows, the relay waits for advisory lock 4711.
const gates = `
	CREATE SEQUENCE gate_passed;
	CREATE TABLE gate (point text, after bigint);
	INSERT INTO gate VALUES ('', 0);
	CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF TG_ARGV[0] = (SELECT point FROM gate) AND nextval('gate_passed') = (SELECT after FROM gate) THEN
			PERFORM pg_advisory_xact_lock(4711);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER gate AFTER DELETE ON event_queue FOR EACH ROW EXECUTE FUNCTION gate('claimed');
	CREATE TRIGGER gate AFTER INSERT ON river_job FOR EACH ROW EXECUTE FUNCTION gate('enqueued');
	CREATE TRIGGER gate AFTER INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION gate('made');
	CREATE CONSTRAINT TRIGGER gate_commit AFTER INSERT ON tasks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate('committing')`

// A relay is killed 50 times, at a random row of a random step between claim and
// commit, or at any moment. What PostgreSQL was about to do for it is then
// carried through or cut off, as a lost connection may do either.
func TestKilledRelayLosesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := pgtest.Open(t, url, pg.Options{})
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(gates)
	keeper, err := db.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close(context.WithoutCancel(t.Context()))
	keep := func(do string) {
		t.Helper()
		if _, err := keeper.Exec(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + child + `' AND wait_event_type = 'Lock' AND wait_event = 'advisory'`
	rounds, each := 50, 150
	if testing.Short() {
		rounds = 10
	}
	points := []string{"claimed", "enqueued", "made", "committing", ""}
	owner, events := uuid.New(), 0
	for round := range rounds {
		exec(`SELECT record_event('corpus.note.changed', $1, gen_random_uuid()::text, '{}') FROM generate_series(1, $2::int)`, owner, each)
		events += each
		point := points[round%len(points)]
		queued := count(t, db, `SELECT count(*) FROM event_queue`)
		// of those that are there: the last batches are reached too
		exec(`UPDATE gate SET point = $1, after = $2`, point, 1+rand.IntN(queued))
		exec(`SELECT setval('gate_passed', 1, false)`)
		keep(`SELECT pg_advisory_lock(4711)`)
		done := count(t, db, `SELECT count(*) FROM tasks`)
		cmd := startChild(t, url)
		if point != "" {
			eventually(t, "the relay at the gate "+point, func() bool { return count(t, db, waiting) == 1 })
		} else {
			some := done + rand.IntN(queued)
			eventually(t, "some fan-out", func() bool { return count(t, db, `SELECT count(*) FROM tasks`) >= some })
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if rand.IntN(2) == 0 {
			exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + child + `'`)
		}
		keep(`SELECT pg_advisory_unlock(4711)`)
		eventually(t, "the end of its connections", func() bool {
			return count(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '`+child+`'`) == 0
		})
		if all := count(t, db, `SELECT (SELECT count(*) FROM event_queue) + (SELECT count(*) FROM tasks)`); all != events {
			t.Fatalf("round %d, killed at %q: %d events are queued or tasks, want %d", round, point, all, events)
		}
		if n := count(t, db, `SELECT count(*) FROM tasks t FULL JOIN river_job j ON j.id = t.job_id WHERE t.event_id IS NULL OR j.id IS NULL`); n != 0 {
			t.Fatalf("round %d, killed at %q: %d tasks or jobs without the other", round, point, n)
		}
	}
	exec(`UPDATE gate SET point = ''`)
	cmd := startChild(t, url)
	eventually(t, "an empty queue", func() bool { return count(t, db, `SELECT count(*) FROM event_queue`) == 0 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	checkFannedOnce(t, db, events)
}

func startChild(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+url)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestChangesOfOneNoteShareAJob(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	owner, note := uuid.New(), uuid.NewString()
	ids := []uuid.UUID{record(t, db, owner, note), record(t, db, owner, uuid.NewString()), record(t, db, owner, note), record(t, db, owner, note)}
	drain(t, newRelay(t, db))
	jobs := map[uuid.UUID]int{}
	for _, id := range ids {
		jobs[id] = count(t, db, `SELECT job_id FROM tasks WHERE event_id = $1`, id)
	}
	if jobs[ids[0]] != jobs[ids[2]] || jobs[ids[0]] != jobs[ids[3]] || jobs[ids[0]] == jobs[ids[1]] {
		t.Errorf("jobs %v: the changes of one note should share one, another note's has its own", jobs)
	}
	checkFannedOnce(t, db, 4)
}

func TestBadEventIsSetAsideAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r, owner := newRelay(t, db), uuid.New()
	good := record(t, db, owner, uuid.NewString())
	bad := record(t, db, owner, "no note id")
	also := record(t, db, owner, uuid.NewString())
	due := func() {
		if _, err := db.Exec(t.Context(), `UPDATE event_queue SET due_at = clock_timestamp()`); err != nil {
			t.Fatal(err)
		}
	}
	drain(t, r)
	for _, id := range []uuid.UUID{good, also} {
		if n := count(t, db, `SELECT count(*) FROM tasks WHERE event_id = $1`, id); n != 1 {
			t.Errorf("a good event beside the bad one has %d tasks", n)
		}
	}
	if n := count(t, db, `SELECT count(*) FROM event_queue WHERE due_at > clock_timestamp() AND attempts = 1 AND last_error LIKE '%is no id%'`); n != 1 {
		t.Error("the bad event was not put off with its error")
	}
	for range outbox.MaxAttempts {
		due()
		drain(t, r)
	}
	e, err := outbox.Read(t.Context(), db, owner, bad)
	if err != nil || e.Status != outbox.Poisoned || e.Attempts != outbox.MaxAttempts || e.LastError == "" {
		t.Fatalf("after %d failures: %+v, %v", outbox.MaxAttempts, e, err)
	}
	overview, err := task.ReadOverview(t.Context(), db, owner)
	if err != nil || len(overview.Alerts) != 1 || overview.Alerts[0].Code != "events_poisoned" {
		t.Errorf("alerts %+v, %v", overview.Alerts, err)
	}
	d, err := task.Get(t.Context(), db, owner, task.ID{Event: bad, Subscriber: task.CorpusIndex})
	if err != nil || d.State != task.Pending {
		t.Errorf("the receipt of a poisoned event: %+v, %v", d, err)
	}

	// the cause is repaired, and the event put back
	r.routes[task.CorpusIndex] = route{args: func(e outbox.Event) (river.JobArgs, error) {
		return task.IndexArgs{OwnerID: e.OwnerID}, nil
	}}
	requeue := func(owner uuid.UUID) error {
		return db.InTx(t.Context(), func(tx *pg.Tx) error { return outbox.Requeue(t.Context(), tx, owner, bad) })
	}
	if err := requeue(uuid.New()); err == nil {
		t.Error("another owner put it back")
	}
	if err := requeue(owner); err != nil {
		t.Fatal(err)
	}
	if err := requeue(owner); err == nil {
		t.Error("it was put back twice")
	}
	drain(t, r)
	checkFannedOnce(t, db, 3)
}

func TestPanicInARouteIsAFailureOfItsEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := newRelay(t, db)
	r.routes[task.CorpusIndex] = route{args: func(outbox.Event) (river.JobArgs, error) { panic("boom") }}
	record(t, db, uuid.New(), uuid.NewString())
	drain(t, r)
	if n := count(t, db, `SELECT count(*) FROM event_queue WHERE last_error LIKE '%boom%'`); n != 1 {
		t.Error("the event of a panicking route was not put off")
	}
}

func TestEverySubscriberHasARoute(t *testing.T) {
	t.Parallel()
	all := routes()
	used := map[string]bool{}
	for _, e := range outbox.Types() {
		for _, s := range e.Subscribers {
			used[s] = true
			if _, ok := all[s]; !ok {
				t.Errorf("%s of %s has no route", s, e.Name)
			}
			if _, ok := task.LookupKind(s); !ok {
				t.Errorf("%s of %s is no declared kind", s, e.Name)
			}
		}
	}
	for s := range all {
		if !used[s] {
			t.Errorf("route %s is nobody's subscriber", s)
		}
	}
}

func TestHeldRowDelaysOnlyItsEvent(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := pgtest.Open(t, url, pg.Options{})
	owner := uuid.New()
	held, free := record(t, db, owner, uuid.NewString()), record(t, db, owner, uuid.NewString())
	// somebody is about to cancel the task before its relay came by, and is frozen
	tx, err := db.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO tasks (event_id, subscriber, owner_id, subject, state) SELECT id, 'corpus.index', owner_id, subject, 'cancelled' FROM events WHERE id = $1`, held); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, pgtest.Open(t, url, pg.Options{LockTimeout: 100 * time.Millisecond}))
	drain(t, r)
	if n := count(t, db, `SELECT count(*) FROM tasks WHERE event_id = $1`, free); n != 1 {
		t.Error("the free event waited for the held one")
	}
	if n := count(t, db, `SELECT count(*) FROM event_queue WHERE event_id = $1 AND attempts = 0 AND due_at > clock_timestamp()`, held); n != 1 {
		t.Error("the held event was not put off, or a failure was counted")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `UPDATE event_queue SET due_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	drain(t, r)
	checkFannedOnce(t, db, 2)
}

// A retry that overtakes the cancel before it: the relay carries out neither
// against the other.
func TestRetryOvertakesCancel(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r, owner := newRelay(t, db), uuid.New()
	for _, fannedOut := range []bool{false, true} {
		id := task.ID{Event: record(t, db, owner, uuid.NewString()), Subscriber: task.CorpusIndex}
		if fannedOut {
			drain(t, r)
		}
		if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			_, err := task.Cancel(t.Context(), tx, owner, id)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		items, _, total, err := task.List(t.Context(), db, owner, task.Filter{Subject: subjectOf(t, db, id)}, nil, 10)
		if err != nil || total != 1 || len(items) != 1 || items[0].State != task.Cancelled {
			t.Errorf("fanned out %t: listed %d of %d: %+v, %v", fannedOut, len(items), total, items, err)
		}
		if err := db.InTx(t.Context(), func(tx *pg.Tx) error { return task.Retry(t.Context(), tx, owner, id) }); err != nil {
			t.Fatal(err)
		}
		drain(t, r)
		if n := count(t, db, `SELECT count(*) FROM tasks t JOIN river_job j ON j.id = t.job_id WHERE t.event_id = $1 AND t.state = 'pending' AND j.state = 'available'`, id.Event); n != 1 {
			t.Errorf("fanned out %t: the retried task has no job to run", fannedOut)
		}
	}
}

func subjectOf(t *testing.T, db *pg.DB, id task.ID) (s string) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT subject FROM events WHERE id = $1`, id.Event).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A task outlives its event only when there is nothing left to retry; where it
// did all the same, a retry ends it and says why.
func TestRetryWithoutItsEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r, owner := newRelay(t, db), uuid.New()
	old := outbox.Before(time.Now().Add(-8 * 24 * time.Hour))
	for i, state := range []task.State{task.Discarded, task.Completed} {
		old[15] = byte(i)
		if _, err := db.Exec(t.Context(), `INSERT INTO events (id, type, owner_id, subject, data) VALUES ($1, 'corpus.note.changed', $2, 'x', '{}')`, old, owner); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES ($1, 'corpus.index', $2, 'x', $3, now())`, old, owner, state); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := outbox.DeleteOld(t.Context(), db, 7*24*time.Hour, 100); n != 1 || err != nil {
		t.Fatalf("%d events removed, %v: want the completed one's", n, err)
	}
	if _, err := db.Exec(t.Context(), `DELETE FROM events`); err != nil {
		t.Fatal(err)
	}
	old[15] = 0
	id := task.ID{Event: old, Subscriber: task.CorpusIndex}
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error { return task.Retry(t.Context(), tx, owner, id) }); err != nil {
		t.Fatal(err)
	}
	drain(t, r)
	d, err := task.Get(t.Context(), db, owner, id)
	if err != nil || d.State != task.Discarded || d.LastError == "" {
		t.Errorf("%+v, %v", d, err)
	}
	if n := count(t, db, `SELECT count(*) FROM event_queue`); n != 0 {
		t.Error("the command is still queued")
	}
}
