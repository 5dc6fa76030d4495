package access

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

const requestColumns = `r.id, r.name, r.org, r.email, r.message, r.state, r.code_id, r.created_at, r.approved_at, r.replied_at, r.closed_at,
	r.mail_event, coalesce(r.mail_state, '')`

// fields are where requestColumns go.
func (r *Request) fields() []any {
	return []any{&r.ID, &r.Name, &r.Org, &r.Email, &r.Message, &r.State, &r.CodeID, &r.CreatedAt, &r.ApprovedAt, &r.RepliedAt, &r.ClosedAt, &r.MailEvent, &r.MailState}
}

func read(ctx context.Context, q pg.Querier, owner, id uuid.UUID, locking string) (r Request, err error) {
	err = q.QueryRow(ctx, `SELECT `+requestColumns+` FROM access_requests r WHERE r.id = $1 AND r.owner_id = $2 `+locking, id, owner).Scan(r.fields()...)
	if pg.IsNoRows(err) {
		return r, fault.NotFound("access request")
	}
	return r, pg.Fault(err)
}

// Get reads one request; fault "not_found" for another owner's.
func Get(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (Request, error) {
	return read(ctx, q, owner, id, "")
}

// lock reads a request and holds it to the end of tx.
func lock(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) (Request, error) {
	return read(ctx, tx, owner, id, "FOR UPDATE")
}

// Cursor is a place in a list of requests or codes: the last one seen. The zero
// Cursor is before the first.
type Cursor struct {
	CreatedAt time.Time `json:"c"`
	ID        uuid.UUID `json:"i"`
}

// upto is what the ones that follow are below.
func (c Cursor) upto() Cursor {
	if c == (Cursor{}) {
		return Cursor{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), uuid.Max}
	}
	return c
}

// List reads an owner's requests in a state ("": all), newest first, after the
// cursor. more tells that the list goes on; total counts all that match.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, state State, after Cursor, limit int) (items []Request, more bool, total int, err error) {
	after = after.upto()
	rows, err := q.Query(ctx, `
		SELECT `+requestColumns+` FROM access_requests r
		WHERE r.owner_id = $1 AND ($2 = '' OR r.state = $2) AND (r.created_at, r.id) < ($3, $4)
		ORDER BY r.created_at DESC, r.id DESC LIMIT $5`, owner, state, after.CreatedAt, after.ID, limit+1)
	if err != nil {
		return nil, false, 0, err
	}
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Request, err error) {
		err = row.Scan(r.fields()...)
		return r, err
	})
	if err != nil {
		return nil, false, 0, pg.Fault(err)
	}
	if more = len(items) > limit; more {
		items = items[:limit]
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM access_requests WHERE owner_id = $1 AND ($2 = '' OR state = $2)`, owner, state).Scan(&total)
	return items, more, total, pg.Fault(err)
}

// Close decides a request without a code. Closing again changes nothing. Fault
// "request_approved" (409) for one whose code exists.
func Close(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) (Request, error) {
	r, err := lock(ctx, tx, owner, id)
	switch {
	case err != nil || r.State == Closed:
		return r, err
	case r.State != Open:
		return r, fault.New(fault.Conflict, "request_approved", "This request was approved: its code exists. Revoke the code to take it back.")
	}
	if err := tx.QueryRow(ctx, `
		UPDATE access_requests r SET state = 'closed', closed_at = now() WHERE r.id = $1 RETURNING `+requestColumns, id).Scan(r.fields()...); err != nil {
		return r, err
	}
	return r, outbox.Record(ctx, tx, outbox.NewID(), outbox.AccessClosed, owner, id.String(), map[string]any{"request_id": id})
}
