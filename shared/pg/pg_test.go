package pg_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

func setup(t *testing.T) *pg.DB {
	t.Helper()
	db := pgtest.DB(t)
	if _, err := db.Exec(t.Context(), `CREATE TABLE t (id int PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	return db
}

func rows(t *testing.T, db *pg.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(context.Background(), `SELECT count(*) FROM t`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insert(ids ...int) *pgx.Batch {
	var b pgx.Batch
	for _, id := range ids {
		b.Queue(`INSERT INTO t VALUES ($1)`, id)
	}
	return &b
}

var errRefused = errors.New("refused")

func TestTransactionIsAllOrNothing(t *testing.T) {
	t.Parallel()
	ways := map[string]struct {
		f    func(ctx context.Context, tx *pg.Tx) error
		want int
	}{
		"nothing": {func(context.Context, *pg.Tx) error { return nil }, 0},
		"statements": {func(ctx context.Context, tx *pg.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO t VALUES (1)`)
			return err
		}, 1},
		"one batch": {func(ctx context.Context, tx *pg.Tx) error { return tx.Last(ctx, insert(1, 2)) }, 2},
		"statement, then batch": {func(ctx context.Context, tx *pg.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO t VALUES (1)`); err != nil {
				return err
			}
			return tx.Last(ctx, insert(2))
		}, 2},
		"held batch, then statement": {func(ctx context.Context, tx *pg.Tx) error {
			tx.Hold()
			if err := tx.Last(ctx, insert(1)); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `INSERT INTO t VALUES (2)`)
			return err
		}, 2},
		"batch that fails in its middle": {func(ctx context.Context, tx *pg.Tx) error { return tx.Last(ctx, insert(1, 1, 2)) }, 0},
		"batch that fails after a statement": {func(ctx context.Context, tx *pg.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO t VALUES (1)`); err != nil {
				return err
			}
			return tx.Last(ctx, insert(2, 2))
		}, 0},
		"statement, then refused": {func(ctx context.Context, tx *pg.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO t VALUES (1)`); err != nil {
				return err
			}
			return errRefused
		}, 0},
		"held batch, then refused": {func(ctx context.Context, tx *pg.Tx) error {
			tx.Hold()
			if err := tx.Last(ctx, insert(1)); err != nil {
				return err
			}
			return errRefused
		}, 0},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			err := db.InTx(t.Context(), func(tx *pg.Tx) error { return way.f(t.Context(), tx) })
			if (err == nil) != (way.want > 0 || name == "nothing") {
				t.Errorf("error %v", err)
			}
			if n := rows(t, db); n != way.want {
				t.Errorf("%d rows, want %d", n, way.want)
			}
		})
	}
}

func TestPanicRollsBack(t *testing.T) {
	t.Parallel()
	db := setup(t)
	func() {
		defer func() { _ = recover() }()
		_ = db.InTx(t.Context(), func(tx *pg.Tx) error {
			if _, err := tx.Exec(t.Context(), `INSERT INTO t VALUES (1)`); err != nil {
				return err
			}
			panic("boom")
		})
	}()
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows", n)
	}
	if open := db.Pool().Stat().AcquiredConns(); open != 0 {
		t.Errorf("%d connections were not given back", open)
	}
}

func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := setup(t)
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error { return tx.Last(t.Context(), insert(1, 2)) }); err != nil {
		t.Fatal(err)
	}
	var holding, done sync.WaitGroup
	holding.Add(2)
	for _, order := range [][2]int{{1, 2}, {2, 1}} {
		done.Go(func() {
			first := true
			if err := db.InTx(context.Background(), func(tx *pg.Tx) error {
				for i, id := range order {
					if _, err := tx.Exec(context.Background(), `UPDATE t SET id = id WHERE id = $1`, id); err != nil {
						return err
					}
					if i == 0 && first {
						first = false
						holding.Done()
						holding.Wait()
					}
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

// listen collects the payloads of a channel.
func listen(t *testing.T, db *pg.DB, channel string) func() []string {
	t.Helper()
	conn, err := db.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return func() (payloads []string) {
		// notifications come in order: what precedes the mark has come
		if _, err := db.Exec(t.Context(), "SELECT pg_notify($1, 'mark')", channel); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "mark" {
				return payloads
			}
			payloads = append(payloads, n.Payload)
		}
	}
}

func TestSignalsFollowTheCommitAndOnlyIt(t *testing.T) {
	t.Parallel()
	db := setup(t)
	heard := listen(t, db, "c")
	_ = db.InTx(t.Context(), func(tx *pg.Tx) error { tx.Notify("c", "never"); return errRefused })
	_ = db.InTx(t.Context(), func(tx *pg.Tx) error { tx.Notify("c", "nor this"); return tx.Last(t.Context(), insert(1, 1)) })
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Notify("c", "a")
		tx.Notify("c", "b")
		tx.Notify("c", "a")
		tx.NotifyWhole("c", `{"x": 1}`)
		tx.NotifyWhole("c", `{"y": 2}`)
		return tx.Last(t.Context(), insert(7))
	}); err != nil {
		t.Fatal(err)
	}
	db.Flush(t.Context())
	if got := strings.Join(heard(), "|"); got != `a,b|{"x": 1}|{"y": 2}` {
		t.Errorf("heard %s", got)
	}
}

func TestManySignalsFitIntoPayloads(t *testing.T) {
	t.Parallel()
	db := setup(t)
	heard := listen(t, db, "c")
	want := map[string]bool{}
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		for i := range 2000 {
			key := fmt.Sprintf("key-%036d", i)
			want[key] = true
			tx.Notify("c", key)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	db.Flush(t.Context())
	for _, payload := range heard() {
		if len(payload) >= 8000 {
			t.Errorf("a payload of %d bytes", len(payload))
		}
		for key := range strings.SplitSeq(payload, ",") {
			delete(want, key)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d of 2000 keys were not heard", len(want))
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	gone := pgtest.Open(t, "postgres://nobody@127.0.0.1:1/none", pg.Options{})
	err := gone.InTx(t.Context(), func(tx *pg.Tx) error { _, err := tx.Exec(t.Context(), `SELECT 1`); return err })
	var f *fault.Fault
	if !errors.As(err, &f) || f.Code != "database_unavailable" || f.Status() != 503 || f.RetryAfter <= 0 {
		t.Errorf("no server: %v", err)
	}
	db := setup(t)
	err = db.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	})
	if !errors.As(err, &f) || f.Code != "database_unavailable" {
		t.Errorf("terminated: %v", err)
	}
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error { return tx.Last(t.Context(), insert(1)) }); err != nil {
		t.Errorf("the next one: %v", err)
	}
	err = db.InTx(t.Context(), func(tx *pg.Tx) error { return tx.Last(t.Context(), insert(1)) })
	if pg.Unavailable(err) || !pg.Violates(err, "t_pkey") {
		t.Errorf("a violation: %v", err)
	}
	if pg.Unavailable(nil) || pg.Unavailable(context.Canceled) || pg.Unavailable(&pgconn.PgError{Code: "42601"}) {
		t.Error("healthy errors count as unavailable")
	}
}

// How the server ends what it won't wait for: each is told as 503, and only what
// is the database's own trouble counts as that.
func TestCodesOfTheServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"08006": "database_unavailable", "53100": "database_unavailable", "53300": "database_unavailable",
		"57P01": "database_unavailable", "57P02": "database_unavailable", "57P03": "database_unavailable",
		"25P03": "database_unavailable", "57P05": "database_unavailable", "25006": "database_unavailable",
		"53200": "database_busy", "57014": "database_busy", "55P03": "database_busy", "40001": "database_busy", "40P01": "database_busy", "25P04": "database_busy",
		"23505": "internal", "42601": "internal", "57P04": "internal", "XX000": "internal",
	} {
		err := pg.Fault(fmt.Errorf("asked: %w", &pgconn.PgError{Code: code}))
		f := fault.From(err)
		if f.Code != want || (f.Status() == 503) != (want != "internal") || (f.RetrySeconds() > 0) != (want != "internal") {
			t.Errorf("%s: %v", code, f)
		}
		if pg.Unavailable(err) != (want == "database_unavailable") || pg.Unavailable(&pgconn.PgError{Code: code}) != (want == "database_unavailable") {
			t.Errorf("%s: unavailable: %v", code, pg.Unavailable(err))
		}
	}
}

// A process that stands still for longer than the server lets a transaction, or a
// session, be idle has changed nothing and may try again.
func TestHeldUp(t *testing.T) {
	t.Parallel()
	db := setup(t)
	other := pgtest.URL(t)
	watch := pgtest.Open(t, other, pg.Options{})
	gone := func(pid int) {
		t.Helper()
		for n, deadline := 1, time.Now().Add(time.Minute); n > 0; {
			if err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&n); err != nil || time.Now().After(deadline) {
				t.Fatalf("backend %d is still there, %v", pid, err)
			}
		}
	}
	for name, last := range map[string]func(tx *pg.Tx) error{
		"before a statement":  func(tx *pg.Tx) error { _, err := tx.Exec(t.Context(), `SELECT 1`); return err },
		"before the commit":   func(*pg.Tx) error { return nil },
		"before a last batch": func(tx *pg.Tx) error { return tx.Last(t.Context(), insert(7)) },
	} {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			var pid int
			if _, err := tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = '20ms'`); err != nil {
				return err
			}
			if err := tx.QueryRow(t.Context(), `INSERT INTO t VALUES (5) RETURNING pg_backend_pid()`).Scan(&pid); err != nil {
				return err
			}
			gone(pid)
			return last(tx)
		})
		if f := fault.From(err); f == nil || f.Status() != 503 || f.Code != "database_unavailable" || !strings.Contains(f.Detail, "Nothing was changed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows", n)
	}
	var pid int
	if err := db.QueryRow(t.Context(), `SELECT pg_backend_pid() FROM set_config('idle_session_timeout', '20', false)`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	gone(pid)
	// the pool finds it before use once it was idle for a while
	if _, err := db.Exec(t.Context(), `SELECT 1`); err != nil && fault.From(err).Code != "database_unavailable" {
		t.Errorf("idle: %v", err)
	}
	slow := pgtest.Open(t, other, pg.Options{StatementTimeout: 20 * time.Millisecond})
	if _, err := slow.Exec(t.Context(), `SELECT pg_sleep(60)`); fault.From(err).Code != "database_busy" {
		t.Errorf("statement_timeout: %v", err)
	}
}

func TestLostAnswerToACommitIsUnknown(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	db := pgtest.Open(t, proxy.URL, pg.Options{})
	if _, err := db.Exec(t.Context(), `CREATE TABLE t (id int PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		b := insert(1)
		b.Queue(`SELECT pg_sleep(0.2)`)
		time.AfterFunc(100*time.Millisecond, proxy.Silence)
		return tx.Last(ctx, b)
	})
	var f *fault.Fault
	if !errors.As(err, &f) || f.Code != "commit_unknown" || f.Status() != 503 {
		t.Errorf("%v", err)
	}
}

func TestSilentConnectionsAreFoundBeforeUse(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	db := pgtest.Open(t, proxy.URL, pg.Options{})
	if _, err := db.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Fatal(err)
	}
	proxy.Silence()
	// idle for longer than the pool trusts a connection
	idle := time.NewTimer(1100 * time.Millisecond)
	<-idle.C
	began := time.Now()
	if _, err := db.Exec(t.Context(), `SELECT 1`); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}
