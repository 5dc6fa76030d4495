package waiter_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/waiter"
)

// The tests wait for rows of a table of their own: done(key).
const channel = "waiter_test"

func source(db *pg.DB) waiter.Source {
	return waiter.Source{Channel: channel, Read: func(ctx context.Context, keys []string) (map[string]any, error) {
		rows, err := db.Query(ctx, `SELECT key FROM done WHERE key = ANY ($1)`, keys)
		if err != nil {
			return nil, err
		}
		found := map[string]any{}
		var key string
		_, err = pgx.ForEachRow(rows, []any{&key}, func() error { found[key] = true; return nil })
		return found, err
	}}
}

type bench struct {
	t     *testing.T
	admin *pg.DB // straight to the database
	db    *pg.DB // the pool of the waiter under test
	w     *waiter.Waiter
}

// setup makes a waiter whose connections lead through url.
func setup(t *testing.T, direct, url string, o waiter.Options) *bench {
	t.Helper()
	b := &bench{t: t, admin: pgtest.Open(t, direct, pg.Options{}), db: pgtest.Open(t, url, pg.Options{Name: "under_test"})}
	if _, err := b.admin.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS done (key text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	b.w = waiter.New(b.db, o, source(b.db))
	t.Cleanup(b.w.Close)
	return b
}

func (b *bench) finish(key string, signal bool) {
	b.t.Helper()
	if err := b.admin.InTx(context.Background(), func(tx *pg.Tx) error {
		if signal {
			tx.Notify(channel, key)
		}
		_, err := tx.Exec(context.Background(), `INSERT INTO done VALUES ($1)`, key)
		return err
	}); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) register(keys ...string) *waiter.Ticket {
	b.t.Helper()
	var ks []waiter.Key
	for _, k := range keys {
		ks = append(ks, waiter.Key{Signal: k, Read: k})
	}
	ticket := b.w.Register(channel, ks...)
	if ticket == nil {
		b.t.Fatal("no place")
	}
	return ticket
}

// listening counts the connections of the pool under test that hold LISTEN:
// their last statement was one.
func (b *bench) listening() (n int) {
	b.t.Helper()
	if err := b.admin.QueryRow(context.Background(), `
		SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'under_test' AND (query LIKE 'LISTEN%' OR query = 'SELECT 1')`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatal("never came: " + what)
		}
	}
}

const budget = 2 * time.Second

// await waits for the usual budget, gives the place back, and checks that both
// together kept it: a request's answer waits for both. The allowance is for a busy
// machine.
func (b *bench) await(ticket *waiter.Ticket) (waiter.Ended, time.Duration) {
	b.t.Helper()
	began := time.Now()
	_, ended := ticket.Wait(context.Background(), began.Add(budget))
	ticket.Close()
	took := time.Since(began)
	if took > budget+500*time.Millisecond {
		b.t.Errorf("the wait took %v of a budget of %v", took, budget)
	}
	return ended, took
}

func TestObservedBySignal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	ticket := b.register("a")
	b.finish("a", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func TestObservedWithoutSignal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	for i := range 5 {
		key := fmt.Sprint(i)
		ticket := b.register(key)
		b.eventually("LISTEN", func() bool { return b.listening() == 1 })
		b.finish(key, false)
		if ended, _ := b.await(ticket); ended != waiter.Observed {
			t.Errorf("ended %s", ended)
		}
	}
}

func TestCommittedBeforeItRegistered(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{Keep: true})
	b.eventually("LISTEN", func() bool { return b.listening() == 1 })
	b.finish("a", true)
	ticket := b.register("a")
	ticket.Recheck()
	if ended, took := b.await(ticket); ended != waiter.Observed || took > waiter.PollEvery {
		t.Errorf("ended %s after %v", ended, took)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	if ended, took := b.await(b.register("never")); ended != waiter.Timeout || took < budget {
		t.Errorf("ended %s after %v", ended, took)
	}
}

func TestSeveralKeysEndTogether(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	ticket := b.register("a", "b")
	b.finish("a", true)
	values, ended := ticket.Wait(t.Context(), time.Now().Add(400*time.Millisecond))
	if ended != waiter.Timeout || len(values) != 1 || values["a"] != true {
		t.Errorf("half done: %s with %v", ended, values)
	}
	b.finish("b", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func TestSixtyFifthIsTurnedAwayAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	var tickets []*waiter.Ticket
	for i := range waiter.PerChannel {
		tickets = append(tickets, b.register(fmt.Sprint(i)))
	}
	began := time.Now()
	if b.w.Register(channel, waiter.Key{Signal: "x", Read: "x"}) != nil {
		t.Error("a 65th waiter got a place")
	}
	if took := time.Since(began); took > 50*time.Millisecond {
		t.Errorf("being turned away took %v", took)
	}
	tickets[0].Close()
	b.register("x").Close()
	for _, ticket := range tickets[1:] {
		ticket.Close()
	}
}

func TestFunctionHoldsNoListenWhenNobodyWaits(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	if n := b.listening(); n != 0 {
		t.Errorf("%d listen before anybody waited", n)
	}
	for i := range 20 {
		key := fmt.Sprint(i)
		ticket := b.register(key)
		b.finish(key, true)
		if ended, _ := b.await(ticket); ended != waiter.Observed {
			t.Errorf("ended %s", ended)
		}
		// await has closed the ticket: nothing may be left of it
		if n := b.listening(); n != 0 {
			t.Fatalf("%d listen after the last waiter left", n)
		}
	}
}

func TestListenerTerminatedDuringTheWait(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{Keep: true})
	ticket := b.register("a")
	b.eventually("LISTEN", func() bool { return b.listening() == 1 })
	b.terminate()
	b.finish("a", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func TestListenerTerminatedBeforeTheWait(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	ticket := b.register("first")
	b.finish("first", true)
	b.await(ticket)
	// the connection sleeps without LISTEN; the server ends it
	if _, err := b.admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'under_test' AND datname = current_database()`); err != nil {
		t.Fatal(err)
	}
	ticket = b.register("a")
	b.finish("a", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func (b *bench) terminate() {
	b.t.Helper()
	if _, err := b.admin.Exec(context.Background(), `
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'under_test' AND (query LIKE 'LISTEN%' OR query = 'SELECT 1')`); err != nil {
		b.t.Error(err)
	}
}

func TestSocketFallsSilentDuringTheWait(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	b := setup(t, direct, proxy.URL, waiter.Options{Keep: true})
	ticket := b.register("a")
	b.eventually("LISTEN", func() bool { return b.listening() == 1 })
	proxy.Silence()
	b.finish("a", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func TestSocketSilentBeforeTheWait(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	b := setup(t, direct, proxy.URL, waiter.Options{})
	ticket := b.register("first")
	b.finish("first", true)
	b.await(ticket)
	proxy.Silence()
	ticket = b.register("a")
	b.finish("a", true)
	if ended, _ := b.await(ticket); ended != waiter.Observed {
		t.Errorf("ended %s", ended)
	}
}

func TestDatabaseGoneForTheWholeWait(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody answers here
	gone := pgtest.Open(t, "postgres://nobody@"+l.Addr().String()+"/none", pg.Options{})
	b.w = waiter.New(gone, waiter.Options{}, source(gone))
	t.Cleanup(b.w.Close)
	if ended, _ := b.await(b.register("a")); ended != waiter.ListenerDown {
		t.Errorf("ended %s", ended)
	}
}

// At least 200 waits while the listener is terminated every 100 ms and once falls
// silent: each is answered within its budget, and connections don't pile up.
func TestWaitsOverAFailingListener(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	b := setup(t, direct, proxy.URL, waiter.Options{Keep: true})
	ctx, stop := context.WithCancel(t.Context())
	var hits sync.WaitGroup
	var hit atomic.Int64
	hits.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if hit.Add(1) == 5 {
					proxy.Silence()
				} else {
					b.terminate()
				}
			}
		}
	})
	var waits sync.WaitGroup
	places := make(chan struct{}, 40)
	for i := 0; i < 200 || hit.Load() < 10; i++ {
		places <- struct{}{}
		waits.Go(func() {
			defer func() { <-places }()
			key := fmt.Sprint("k", i)
			ticket := b.register(key)
			b.finish(key, true)
			if ended, _ := b.await(ticket); ended != waiter.Observed {
				t.Errorf("wait %d ended %s", i, ended)
			}
			if n := b.listening(); n > 1 {
				t.Errorf("%d LISTEN connections", n)
			}
		})
	}
	waits.Wait()
	stop()
	hits.Wait()
}

// Everybody comes and goes at random while LISTEN is switched on and off: at no
// moment is it open twice, and it is closed whenever nobody waits.
func TestComingAndGoing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := setup(t, url, url, waiter.Options{})
	ctx, stop := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	samples, seen := 0, 0
	sampling.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				n := b.listening()
				samples++
				if n > 0 {
					seen++
				}
				if n > 1 {
					t.Errorf("%d LISTEN connections at once", n)
				}
			}
		}
	})
	wait := func(key string) {
		ticket := b.register(key)
		b.finish(key, true)
		if ended, _ := b.await(ticket); ended != waiter.Observed {
			t.Errorf("%s ended %s", key, ended)
		}
	}
	var waits sync.WaitGroup
	for i := range 8 {
		waits.Go(func() {
			for j := range 25 {
				wait(fmt.Sprintf("%d-%d", i, j))
			}
		})
	}
	waits.Wait()
	for round := range 20 {
		for i := range 1 + round%8 {
			waits.Go(func() { wait(fmt.Sprintf("round%d-%d", round, i)) })
		}
		waits.Wait()
		if n := b.listening(); n != 0 {
			t.Errorf("%d listen after the last waiter of round %d left", n, round)
		}
	}
	stop()
	sampling.Wait()
	if seen == 0 {
		t.Errorf("LISTEN was not seen in %d samples", samples)
	}
}
