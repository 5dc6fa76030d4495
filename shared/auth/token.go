package auth

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Token is an API token without its secret.
type Token struct {
	ID         uuid.UUID  `json:"id"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" jsonschema:"absent: it doesn't expire"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty" jsonschema:"to the minute; absent: never"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty" jsonschema:"absent: it was not revoked"`
}

const tokenColumns = `id, name, scopes, created_at, expires_at, last_used_at, revoked_at`

func scanToken(row pgx.CollectableRow) (t Token, err error) {
	err = row.Scan(&t.ID, &t.Name, &t.Scopes, &t.CreatedAt, &t.ExpiresAt, &t.LastUsedAt, &t.RevokedAt)
	return t, err
}

// CreateToken makes a token of t's name, scopes and expiry. The secret is not
// stored: nobody can learn it later.
func CreateToken(ctx context.Context, tx *pg.Tx, owner uuid.UUID, t Token) (created Token, secret string, err error) {
	secret, hash := newSecret(TokenPrefix)
	rows, err := tx.Query(ctx, `
		INSERT INTO tokens (id, owner_id, name, token_hash, scopes, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
		RETURNING `+tokenColumns, uuid.New(), owner, t.Name, hash, t.Scopes, t.ExpiresAt)
	if err != nil {
		return t, "", err
	}
	created, err = pgx.CollectExactlyOneRow(rows, scanToken)
	return created, secret, err
}

// TokenCursor is a place in a list of tokens: the last one seen.
type TokenCursor struct {
	CreatedAt time.Time `json:"c"`
	ID        uuid.UUID `json:"i"`
}

// ListTokens reads an owner's tokens, newest first, also those that have ended,
// after the cursor (nil: from the newest). next is nil on the last page; total
// counts all.
func ListTokens(ctx context.Context, q pg.Querier, owner uuid.UUID, after *TokenCursor, limit int) (items []Token, next *TokenCursor, total int, err error) {
	upto := TokenCursor{CreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
	if after != nil {
		upto = *after
	}
	rows, err := q.Query(ctx, `
		SELECT `+tokenColumns+` FROM tokens WHERE owner_id = $1 AND (created_at, id) < ($2, $3)
		ORDER BY created_at DESC, id DESC LIMIT $4`, owner, upto.CreatedAt, upto.ID, limit+1)
	if err != nil {
		return nil, nil, 0, err
	}
	if items, err = pgx.CollectRows(rows, scanToken); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		last := items[limit-1]
		next = &TokenCursor{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM tokens WHERE owner_id = $1`, owner).Scan(&total)
	return items, next, total, pg.Fault(err)
}

// RevokeToken ends a token for good. changed is false when it had been revoked
// before, which is no error. Fault "not_found" for another owner's.
func RevokeToken(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) (t Token, changed bool, err error) {
	tag, err := tx.Exec(ctx, `UPDATE tokens SET revoked_at = now() WHERE id = $1 AND owner_id = $2 AND revoked_at IS NULL`, id, owner)
	if err != nil {
		return t, false, err
	}
	rows, err := tx.Query(ctx, `SELECT `+tokenColumns+` FROM tokens WHERE id = $1 AND owner_id = $2`, id, owner)
	if err != nil {
		return t, false, err
	}
	t, err = pgx.CollectExactlyOneRow(rows, scanToken)
	if pg.IsNoRows(err) {
		return t, false, fault.NotFound("token")
	}
	return t, tag.RowsAffected() == 1, err
}
