// Package pg is the only door to PostgreSQL: it opens the pool, begins every
// transaction, and sends the signals that a transaction asked for once it has
// committed.
package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"standmeet/shared/fault"
)

// Options tune a pool. The zero value suits a function.
type Options struct {
	// MaxConns bounds the pool; 0 is 4. Never below 2: with one connection a
	// silently dead socket costs the whole budget before a second is dialled.
	MaxConns int32
	// AsyncCommit makes every commit of this pool return before its WAL is
	// flushed. Only for work that is done again when it is lost.
	AsyncCommit bool
	// StatementTimeout ends a statement that runs longer; 0 is 30 s, negative
	// is none.
	StatementTimeout time.Duration
	// LockTimeout ends a statement that waits longer for another transaction's
	// lock; 0 is none. For processes that must not stand still because one row is
	// held.
	LockTimeout time.Duration
	// Name is shown as application_name in pg_stat_activity.
	Name string
	// Tracer sees every statement; nil costs nothing.
	Tracer pgx.QueryTracer
}

// pingTimeout is how long a pooled connection that was idle may take to answer
// before it is thrown away; pingAfter is the idle time from which it is asked.
// A socket whose peer vanished looks alive to the kernel, and a query on it
// would otherwise hang until its deadline.
const (
	pingTimeout = 500 * time.Millisecond
	pingAfter   = time.Second
	dialTimeout = 2 * time.Second
)

// DB is a pool of connections to one database. It connects lazily: Open
// succeeds while the database is down.
type DB struct {
	pool    *pgxpool.Pool
	signals *signals
}

// Open prepares a pool for the database at url. It fails only on a malformed
// url.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("pg: %w", err)
	}
	db := &DB{}
	cfg.MaxConns = max(o.MaxConns, 2)
	if o.MaxConns == 0 {
		cfg.MaxConns = 4
	}
	cfg.PingTimeout = pingTimeout
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > pingAfter
	}
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.ConnConfig.ConnectTimeout = dialTimeout
	cfg.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}).DialContext
	cfg.AfterConnect = registerUUID
	cfg.ConnConfig.Tracer = o.Tracer
	params := cfg.ConnConfig.RuntimeParams
	if o.Name != "" {
		params["application_name"] = o.Name
	}
	if o.AsyncCommit {
		params["synchronous_commit"] = "off"
	}
	switch {
	case o.StatementTimeout == 0:
		params["statement_timeout"] = "30s"
	case o.StatementTimeout > 0:
		params["statement_timeout"] = fmt.Sprint(o.StatementTimeout.Milliseconds())
	}
	if o.LockTimeout > 0 {
		params["lock_timeout"] = fmt.Sprint(o.LockTimeout.Milliseconds())
	}
	// nobody thinks inside a transaction: who is idle there is frozen or gone, and
	// holds locks
	params["idle_in_transaction_session_timeout"] = "5s"
	params["TimeZone"] = "UTC"
	// Each statement of ours has its index, whatever its arguments. A table that
	// has grown since it was last analysed looks small to the planner, which would
	// rather read all of it; and a list of ids would be planned anew each time.
	params["enable_seqscan"] = "off"
	params["plan_cache_mode"] = "force_generic_plan"
	// compiling a plan costs more than any of our statements take
	params["jit"] = "off"
	if db.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("pg: %w", err)
	}
	db.signals = newSignals(db.pool)
	return db, nil
}

// Pool is for reads that need no transaction and for libraries that take a
// pool.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }

// Connect opens a connection outside the pool, for LISTEN. Whoever asks closes
// it.
func (db *DB) Connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := db.pool.Config().ConnConfig
	cfg.Tracer = nil
	return pgx.ConnectConfig(ctx, cfg)
}

// Reset closes every pooled connection, those in use when they come back. For
// when one was found to have fallen silent.
func (db *DB) Reset() { db.pool.Reset() }

// Notify sends a signal that belongs to no transaction. Like every signal it is
// a hint: it may be merged with others or lost.
func (db *DB) Notify(channel, payload string) { db.signals.add(signal{channel, payload, false}) }

// Flush returns when the signals asked for so far have been sent, or ctx ends.
// A function calls it before it may be frozen.
func (db *DB) Flush(ctx context.Context) { db.signals.flush(ctx) }

// Close sends what is still to be signalled, for at most a second, and closes
// every connection. It doesn't wait long for a server that has fallen silent.
func (db *DB) Close() {
	db.signals.close()
	closed := make(chan struct{})
	go func() {
		db.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(dialTimeout):
	}
}

// Query runs one query on the pool, outside any transaction of ours.
func (db *DB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	rows, err := db.pool.Query(ctx, sql, args...)
	return rows, Fault(err)
}

// QueryRow is Query for one row; Scan tells the error.
func (db *DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return db.pool.QueryRow(ctx, sql, args...)
}

// Exec runs one statement on the pool, a transaction of its own.
func (db *DB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := db.pool.Exec(ctx, sql, args...)
	return tag, Fault(err)
}

// Querier is what a read needs: the pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// IsNoRows reports that a QueryRow found nothing.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Violates reports that err is the violation of the named constraint or unique
// index.
func Violates(err error, constraint string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.ConstraintName == constraint && e.Code[:2] == "23"
}

// LockTimeout reports that err is a statement that gave up waiting for a lock.
func LockTimeout(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "55P03"
}

// busy is the code of a statement that the database gave up on because of others,
// or of how long it took.
const busy = "database_busy"

// Fault turns an error that says the database cannot be reached, is shutting
// down or is out of something into fault code "database_unavailable", and one of a
// statement that was given up (a lock or the statement's time ran out, or it lost
// against others again and again) into "database_busy", both 503 with Retry-After
// 1 s. Every other error comes back as it was.
func Fault(err error) error {
	var f *fault.Fault
	var e *pgconn.PgError
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case Unavailable(err):
		return &fault.Fault{
			Kind: fault.Unavailable, Code: "database_unavailable", RetryAfter: time.Second,
			Detail: "The database can't be reached right now. Try again shortly.", Err: err,
		}
	case errors.As(err, &e) && givenUp(e.Code):
		return &fault.Fault{
			Kind: fault.Unavailable, Code: busy, RetryAfter: time.Second,
			Detail: "The database is too busy right now. Try again shortly.", Err: err,
		}
	}
	return err
}

func givenUp(code string) bool {
	switch code {
	case "40001", "40P01", // serialization failure, deadlock
		"55P03",                   // lock_timeout
		"53000", "53200", "53400", // out of memory and the like
		"57014", // statement_timeout, or cancelled by hand
		"25P04": // transaction_timeout
		return true
	}
	return false
}

// Unavailable reports that err says something about the database's health and
// nothing about the statement: trying again later may help. A statement that was
// given up may be at fault itself, so that is not meant.
func Unavailable(err error) bool {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Kind == fault.Unavailable && f.Code != busy
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case e.Code[:2] == "08", // connection exception
			e.Code == "53100", e.Code == "53300", // disk full, too many connections
			e.Code == "57P01", e.Code == "57P02", e.Code == "57P03", // shutdown, crash, starting up
			e.Code == "25P03", e.Code == "57P05", // we were idle for too long: the process was held up or frozen
			e.Code == "25006": // read-only: another server has taken over
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) ||
		errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err)
}
