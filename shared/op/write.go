package op

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/pg"
	"standmeet/shared/telemetry"
)

// inFlight is how long a request waits for another one with its key.
const inFlight = 2 * time.Second

// NewWrite declares an operation whose write is one transaction. commit does the
// write and returns what the answer is made of, a value that survives JSON;
// answer runs after the commit, may wait, and must not write. commit may run
// more than once, each time in a transaction of its own.
//
// It takes an idempotency key. What commit returned is stored under the key in
// the same transaction, so that a repetition runs answer alone and a write that
// failed left nothing. A key belongs to the owner, or to the visitor's session or
// else the address of a caller who is none, and to the operation and its path
// parameters. Another input under the key is 422 idempotency_key_reused; a key
// whose first request is still running after 2 s is 409 idempotency_in_flight.
func NewWrite[In, C, Out any](
	s Spec, db *pg.DB,
	commit func(ctx context.Context, tx *pg.Tx, c auth.Caller, in In) (C, error),
	answer func(ctx context.Context, c auth.Caller, committed C) (Out, error),
) *Operation {
	return NewPreparedWrite(s, db, func(_ context.Context, _ auth.Caller, in In) (In, error) { return in, nil }, commit, answer)
}

// NewPreparedWrite is NewWrite for a write that needs more than the database:
// prepare runs before the transaction, also of a repetition, and must leave nothing
// that anybody sees.
func NewPreparedWrite[In, P, C, Out any](
	s Spec, db *pg.DB,
	prepare func(ctx context.Context, c auth.Caller, in In) (P, error),
	commit func(ctx context.Context, tx *pg.Tx, c auth.Caller, prepared P) (C, error),
	answer func(ctx context.Context, c auth.Caller, committed C) (Out, error),
) *Operation {
	var o *Operation
	o = newOperation[In, Out](s, true, func(ctx context.Context, c auth.Caller, in any) (any, error) {
		var committed C
		key := CallFrom(ctx).IdempotencyKey
		// what it lacks may have been used up by the request that this one repeats
		prepared, unprepared := prepare(ctx, c, *in.(*In))
		writing, span := telemetry.Start(ctx, "transaction")
		err := db.InTx(writing, func(tx *pg.Tx) (err error) {
			if key == "" {
				if unprepared == nil {
					committed, err = commit(writing, tx, c, prepared)
				}
				return cmp.Or(unprepared, err)
			}
			row, err := o.claim(writing, tx, c, in, key)
			if err != nil {
				return err
			}
			if row.stored != nil {
				telemetry.Replayed(writing)
				committed = *new(C)
				return json.Unmarshal(row.stored, &committed)
			}
			if unprepared != nil {
				return unprepared
			}
			if committed, err = commit(writing, tx, c, prepared); err != nil {
				return err
			}
			return row.store(writing, tx, committed)
		})
		span.End(err)
		if err != nil && s.Failed != nil {
			err = s.Failed(ctx, c, err)
		}
		if err != nil {
			return nil, err
		}
		out, err := answer(ctx, c, committed)
		if err != nil {
			return nil, saved(err)
		}
		return out, nil
	})
	return o
}

// saved keeps an answer that could not be made from denying the write: it is
// committed, whatever became of the rest.
func saved(err error) error {
	return &fault.Fault{Kind: fault.Unavailable, Code: "saved_unanswered", RetryAfter: time.Second, Err: err,
		Detail: "The change was saved, but its result can't be read right now. Don't make it again: read it, or repeat the request with the Idempotency-Key that you sent."}
}

// keyRow is the row of an idempotency key that this transaction holds, or what
// an earlier one stored in it.
type keyRow struct {
	owner      any
	scope, key string
	stored     []byte
}

// claim inserts the key's row. Where another transaction holds it, the insert
// waits for its end: after a rollback the row is ours, after a commit it is
// there to be read.
func (o *Operation) claim(ctx context.Context, tx *pg.Tx, c auth.Caller, in any, key string) (keyRow, error) {
	row := keyRow{owner: c.OwnerID, scope: o.keyScope(c, in), key: key}
	canonical, err := json.Marshal(in)
	if err != nil {
		return row, err
	}
	for _, f := range CallFrom(ctx).Files {
		canonical = fmt.Appendf(canonical, " %q %x", f.Name, sha256.Sum256(f.Content))
	}
	fingerprint := sha256.Sum256(canonical)
	tx.Hold()
	raw, err := tx.Begin(ctx)
	if err != nil {
		return row, err
	}
	var b pgx.Batch
	var claimed bool
	var first []byte
	b.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, inFlight.Milliseconds()))
	b.Queue(`INSERT INTO idempotency_keys (owner_id, scope, key, fingerprint) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
		row.owner, row.scope, row.key, fingerprint[:]).Exec(func(tag pgconn.CommandTag) error {
		claimed = tag.RowsAffected() == 1
		return nil
	})
	b.Queue(`SELECT fingerprint, committed FROM idempotency_keys WHERE (owner_id, scope, key) = ($1, $2, $3)`,
		row.owner, row.scope, row.key).QueryRow(func(r pgx.Row) error { return r.Scan(&first, &row.stored) })
	b.Queue(`SET LOCAL lock_timeout TO DEFAULT`)
	if err := raw.SendBatch(ctx, &b).Close(); err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "55P03" { // lock_not_available
			return row, &fault.Fault{Kind: fault.Conflict, Code: "idempotency_in_flight", RetryAfter: time.Second, Err: err,
				Detail: "A request with this idempotency key is still running. Ask again for its answer."}
		}
		if pg.IsNoRows(err) {
			// retention took the row between the two statements: InTx runs us again
			return row, &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "op: the key's row is gone"}
		}
		return row, err
	}
	switch {
	case claimed:
		row.stored = nil
	case string(first) != string(fingerprint[:]):
		return row, fault.New(fault.Unprocessable, "idempotency_key_reused", "This idempotency key was used for a different request. Use a new one.")
	}
	return row, nil
}

func (r keyRow) store(ctx context.Context, tx *pg.Tx, committed any) error {
	b, err := json.Marshal(committed)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE idempotency_keys SET committed = $4 WHERE (owner_id, scope, key) = ($1, $2, $3)`,
		r.owner, r.scope, r.key, string(b))
	return err
}

// keyScope is the operation and the resource that the path names, and for a
// caller who is no owner the visitor's session, or where the request came from
// when there is none: many visitors may share an address.
func (o *Operation) keyScope(c auth.Caller, in any) string {
	var b strings.Builder
	b.WriteString(o.spec.Name)
	switch {
	case c.OwnerID != (uuid.UUID{}):
	case c.VisitorSession != "":
		fmt.Fprintf(&b, " visitor=%x", sha256.Sum256([]byte(c.VisitorSession)))
	default:
		fmt.Fprintf(&b, " from=%q", limit.Address(c.RemoteAddr))
	}
	v := reflect.ValueOf(in).Elem()
	for _, f := range o.input.fields {
		if f.in == inPath {
			fmt.Fprintf(&b, " %s=%q", f.param, fmt.Sprint(v.FieldByIndex(f.index).Interface()))
		}
	}
	return b.String()
}
