package access

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// CodeState is whether a code is accepted.
type CodeState string

// The states of a code.
const (
	Active  CodeState = "active"
	Expired CodeState = "expired"
	Revoked CodeState = "revoked"
)

// Code is an access code as its owner reads it, without the code itself.
type Code struct {
	ID           uuid.UUID  `json:"id"`
	Label        string     `json:"label"`
	Hint         string     `json:"hint" jsonschema:"its last four characters"`
	State        CodeState  `json:"state" enum:"active,expired,revoked"`
	Members      int        `json:"members" jsonschema:"visitors who redeemed it and whose sessions have not ended"`
	MemberLimit  *int       `json:"member_limit,omitempty" jsonschema:"how many may; absent: any number"`
	BookingQuota *int       `json:"booking_quota,omitempty" jsonschema:"how many bookings it is good for; absent: any number"`
	RequestID    *uuid.UUID `json:"request_id,omitempty" jsonschema:"the access request that it answered"`
	CreatedAt    time.Time  `json:"created_at"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty" jsonschema:"absent: it doesn't expire"`
	RevokedAt    *time.Time `json:"revoked_at,omitempty"`
}

// usable is the fault "code_revoked" or "code_expired" (409) of a code that
// nobody can redeem.
func (c Code) usable() error {
	switch c.State {
	case Revoked:
		return fault.New(fault.Conflict, "code_revoked", "The code was revoked.")
	case Expired:
		return fault.New(fault.Conflict, "code_expired", "The code has expired.")
	case Active:
	}
	return nil
}

// MaxLabel is the longest label, in characters.
const MaxLabel = 200

// Terms are what a code is good for; what is nil is not limited.
type Terms struct {
	Label        string
	ExpiresAt    *time.Time
	MemberLimit  *int
	BookingQuota *int
}

// differs reports that t asks for what the code doesn't have. What t leaves out it
// doesn't ask for.
func (c Code) differs(t Terms) bool {
	number := func(asked, has *int) bool { return asked != nil && (has == nil || *asked != *has) }
	label := oneLine(t.Label)
	return !blank(label) && label != c.Label || number(t.MemberLimit, c.MemberLimit) || number(t.BookingQuota, c.BookingQuota) ||
		// PostgreSQL keeps microseconds
		t.ExpiresAt != nil && (c.ExpiresAt == nil || t.ExpiresAt.Sub(*c.ExpiresAt).Abs() >= time.Microsecond)
}

// issue stores a new code. Its label must not be empty.
func issue(ctx context.Context, tx *pg.Tx, owner uuid.UUID, keys secret.Keys, t Terms) (uuid.UUID, error) {
	id := uuid.New()
	t.Label = oneLine(t.Label)
	if err := required("label", t.Label); err != nil {
		return id, err
	}
	if t.ExpiresAt != nil && !t.ExpiresAt.After(time.Now()) {
		return id, fault.InvalidField("expires_at", "too_small", "expires_at must be in the future.")
	}
	code := keys.Code(id.String())
	_, err := tx.Exec(ctx, `
		INSERT INTO codes (id, owner_id, label, code_hash, hint, member_limit, booking_quota, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		id, owner, t.Label, secret.Hash(code), code[len(code)-4:], t.MemberLimit, t.BookingQuota, t.ExpiresAt)
	return id, err
}

// Create makes a code without a request. Faults: "invalid_request" (400);
// with.Cannot.
func Create(ctx context.Context, tx *pg.Tx, owner uuid.UUID, with Issuing, t Terms) (id uuid.UUID, err error) {
	if with.Cannot != nil {
		return id, with.Cannot
	}
	if id, err = issue(ctx, tx, owner, with.Keys, t); err != nil {
		return id, err
	}
	return id, outbox.Record(ctx, tx, outbox.NewID(), outbox.CodeCreated, owner, id.String(), map[string]any{"code_id": id})
}

// Reveal derives a code again. Faults: "not_found"; "code_key_gone" (409) when
// none of the keys made it.
func Reveal(ctx context.Context, q pg.Querier, owner, id uuid.UUID, keys secret.Keys) (string, error) {
	var hash []byte
	err := q.QueryRow(ctx, `SELECT code_hash FROM codes WHERE id = $1 AND owner_id = $2`, id, owner).Scan(&hash)
	if pg.IsNoRows(err) {
		return "", fault.NotFound("code")
	}
	if err != nil {
		return "", pg.Fault(err)
	}
	code, ok := keys.FindCode(id.String(), hash)
	if !ok {
		return "", fault.New(fault.Conflict, "code_key_gone", "The key that this code was made with is not among those of this installation (SECRET_KEY), so the code can't be shown or mailed. It still works for those who have it.")
	}
	return code, nil
}

// A member is a session that holds the code; one that has expired is none,
// whether it was removed yet or not.
const membersSQL = `(SELECT count(*) FROM visitor_grants g JOIN visitor_sessions v ON v.id_hash = g.session_hash
	WHERE g.code_id = c.id AND v.expires_at > now())`

const codesSQL = `
	SELECT c.id, c.label, c.hint,
		CASE WHEN c.revoked_at IS NOT NULL THEN 'revoked' WHEN c.expires_at <= now() THEN 'expired' ELSE 'active' END,
		` + membersSQL + `, c.member_limit, c.booking_quota,
		(SELECT r.id FROM access_requests r WHERE r.code_id = c.id), c.created_at, c.expires_at, c.revoked_at
	FROM codes c WHERE c.owner_id = $1 `

func scanCode(row pgx.CollectableRow) (c Code, err error) {
	err = row.Scan(&c.ID, &c.Label, &c.Hint, &c.State, &c.Members, &c.MemberLimit, &c.BookingQuota, &c.RequestID, &c.CreatedAt, &c.ExpiresAt, &c.RevokedAt)
	return c, err
}

// GetCode reads one code; fault "not_found" for another owner's.
func GetCode(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (c Code, err error) {
	rows, err := q.Query(ctx, codesSQL+`AND c.id = $2`, owner, id)
	if err != nil {
		return c, pg.Fault(err)
	}
	c, err = pgx.CollectExactlyOneRow(rows, scanCode)
	if pg.IsNoRows(err) {
		return c, fault.NotFound("code")
	}
	return c, pg.Fault(err)
}

// ListCodes reads an owner's codes, newest first, also those that have ended,
// after the cursor. more tells that the list goes on; total counts all.
func ListCodes(ctx context.Context, q pg.Querier, owner uuid.UUID, after Cursor, limit int) (items []Code, more bool, total int, err error) {
	after = after.upto()
	rows, err := q.Query(ctx, codesSQL+`AND (c.created_at, c.id) < ($2, $3) ORDER BY c.created_at DESC, c.id DESC LIMIT $4`,
		owner, after.CreatedAt, after.ID, limit+1)
	if err != nil {
		return nil, false, 0, err
	}
	if items, err = pgx.CollectRows(rows, scanCode); err != nil {
		return nil, false, 0, pg.Fault(err)
	}
	if more = len(items) > limit; more {
		items = items[:limit]
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM codes WHERE owner_id = $1`, owner).Scan(&total)
	return items, more, total, pg.Fault(err)
}

// Revoke ends a code for good, and what visitors see by it from their next
// request on. Revoking again changes nothing. Fault "not_found".
func Revoke(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) error {
	tag, err := tx.Exec(ctx, `UPDATE codes SET revoked_at = now() WHERE id = $1 AND owner_id = $2 AND revoked_at IS NULL`, id, owner)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		_, err := GetCode(ctx, tx, owner, id)
		return err
	}
	return outbox.Record(ctx, tx, outbox.NewID(), outbox.CodeRevoked, owner, id.String(), map[string]any{"code_id": id})
}
