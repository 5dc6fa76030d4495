package pg

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"standmeet/shared/fault"
)

// commitTimeout bounds the commit alone: it no longer follows the caller's
// context, since a caller that hung up must not leave the outcome in doubt.
const commitTimeout = 5 * time.Second

// Tx is one transaction. It begins with its first statement, so that a
// transaction made of a single batch costs one round trip.
type Tx struct {
	conn      *pgxpool.Conn
	raw       pgx.Tx
	hold      bool
	committed bool
	signals   []signal
}

// InTx runs f in one transaction and commits when f returns nil; anything else
// rolls back. Signals that f asked for go out after the commit. A deadlock or
// serialisation failure runs f again, at most twice, so f must do nothing but
// talk to the database.
//
// When the connection is lost during the commit the outcome is unknown: fault
// code "commit_unknown" (503).
func (db *DB) InTx(ctx context.Context, f func(tx *Tx) error) error {
	for attempt := 0; ; attempt++ {
		err := db.inTx(ctx, f)
		var e *pgconn.PgError
		if err == nil || attempt == 2 || !errors.As(err, &e) || e.Code != "40001" && e.Code != "40P01" {
			return unchanged(Fault(err))
		}
	}
}

func (db *DB) inTx(ctx context.Context, f func(tx *Tx) error) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx := &Tx{conn: conn}
	defer conn.Release()
	defer func() {
		// on error and on panic; nothing to do after a commit
		if tx.raw != nil && !tx.committed {
			rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
			defer cancel()
			_ = tx.raw.Rollback(rollback)
		}
	}()
	if err := f(tx); err != nil {
		return err
	}
	if tx.raw != nil && !tx.committed {
		commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if err := tx.raw.Commit(commit); err != nil {
			return outcome(err)
		}
	}
	for _, s := range tx.signals {
		db.signals.add(s)
	}
	return nil
}

// unchanged adds to a 503 what is known of a transaction that did not reach
// its commit.
func unchanged(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && (f.Code == "database_unavailable" || f.Code == busy) {
		told := *f
		told.Detail = strings.Replace(f.Detail, "Try again", "Nothing was changed; try again", 1)
		return &told
	}
	return err
}

// outcome names a commit whose answer was lost. A statement error means that
// the server rolled back, except when it was shutting down while it answered. A
// session that ended because it was idle (57P05) had not been asked yet.
func outcome(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code[:3] != "57P" || e.Code == "57P05") || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) {
		return err
	}
	return &fault.Fault{
		Kind: fault.Unavailable, Code: "commit_unknown", RetryAfter: time.Second, Err: err,
		Detail: "The connection was lost while the change was being saved, so it may or may not be there. Look before you repeat it, or repeat it with the Idempotency-Key that you sent.",
	}
}

// Begin makes sure that the transaction has begun and gives it to a library
// that takes a pgx transaction. It must not be committed or rolled back there.
func (tx *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if tx.committed {
		return nil, pgx.ErrTxClosed
	}
	if tx.raw == nil {
		raw, err := tx.conn.Begin(ctx)
		if err != nil {
			return nil, err
		}
		tx.raw = raw
	}
	return tx.raw, nil
}

// Exec runs one statement in the transaction.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	return raw.Exec(ctx, sql, args...)
}

// Query runs one query in the transaction.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return raw.Query(ctx, sql, args...)
}

// QueryRow runs one query in the transaction and keeps its first row.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return failedRow{err}
	}
	return raw.QueryRow(ctx, sql, args...)
}

// Last sends the transaction's final statements in one round trip, and the
// commit with them unless Hold was called. After it the transaction takes no
// more statements, but signals may still be asked for.
func (tx *Tx) Last(ctx context.Context, b *pgx.Batch) error {
	if tx.committed {
		return pgx.ErrTxClosed
	}
	if tx.hold {
		raw, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		return raw.SendBatch(ctx, b).Close()
	}
	// A pipeline up to its Sync is one transaction of PostgreSQL's own; one that
	// has begun is ended in the pipeline, which stops at the first error.
	if tx.raw != nil {
		b.Queue("commit")
	}
	if err := tx.conn.SendBatch(ctx, b).Close(); err != nil {
		return outcome(err)
	}
	tx.committed = true
	return nil
}

// Hold keeps Last from committing, for a caller that has more to write after f.
func (tx *Tx) Hold() { tx.hold = true }

// Notify asks for a signal after the commit, and only then: NOTIFY inside a
// writing transaction holds an instance-wide lock through the commit's flush.
func (tx *Tx) Notify(channel, payload string) {
	tx.signals = append(tx.signals, signal{channel, payload, false})
}

// NotifyWhole is Notify for a payload that must not be joined with others.
func (tx *Tx) NotifyWhole(channel, payload string) {
	tx.signals = append(tx.signals, signal{channel, payload, true})
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }
