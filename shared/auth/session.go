package auth

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// SessionLife is how long a session lasts from signing in.
const SessionLife = 30 * 24 * time.Hour

// keepLinks is how long a link is remembered once it has expired, so that what
// is tried again late can't make a used one anew.
const keepLinks = 7 * 24 * time.Hour

// CreateSignInLink makes the secret of a link that signs the owner in once,
// within life. Links that expired long ago are forgotten.
func CreateSignInLink(ctx context.Context, tx *pg.Tx, owner uuid.UUID, life time.Duration) (secret string, err error) {
	secret, _ = newSecret("")
	_, err = PlaceSignInLink(ctx, tx, owner, secret, life)
	return secret, err
}

// PlaceSignInLink is CreateSignInLink for a secret of 32 bytes in base64url that
// the caller derived. Placing it again lets it live anew. works is false for one
// that was used, or ended by a change of the password: it stays so.
func PlaceSignInLink(ctx context.Context, tx *pg.Tx, owner uuid.UUID, secret string, life time.Duration) (works bool, err error) {
	hash, ok := hashSecret(secret, "")
	if !ok {
		return false, errors.New("auth: this can't be the secret of a link")
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sign_in_links WHERE owner_id = $1 AND expires_at < now() - $2::interval`, owner, keepLinks); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO sign_in_links AS l (token_hash, owner_id, expires_at) VALUES ($1, $2, now() + $3)
		ON CONFLICT (token_hash) DO UPDATE SET expires_at = excluded.expires_at WHERE l.owner_id = excluded.owner_id
		RETURNING used_at IS NULL`, hash, owner, life).Scan(&works)
	if pg.IsNoRows(err) { // another owner's
		return false, nil
	}
	return works, err
}

// SignIn uses up a sign-in link and begins a session. A link that is unknown,
// used or expired is fault "link_expired" (401), and begins none. Sessions that
// have expired are forgotten.
func SignIn(ctx context.Context, tx *pg.Tx, link string) (owner uuid.UUID, session string, err error) {
	expired := fault.New(fault.Unauthorized, "link_expired", "This sign-in link was used already or has expired.")
	hash, ok := hashSecret(link, "")
	if !ok {
		return owner, "", expired
	}
	err = tx.QueryRow(ctx, `
		UPDATE sign_in_links SET used_at = now()
		WHERE token_hash = $1 AND used_at IS NULL AND expires_at > now() RETURNING owner_id`, hash).Scan(&owner)
	if pg.IsNoRows(err) {
		return owner, "", expired
	}
	if err != nil {
		return owner, "", err
	}
	session, err = begin(ctx, tx, owner, true)
	return owner, session, err
}

// begin makes a session of its own for each sign-in, so that nobody can plant
// one. Those that have expired are forgotten.
func begin(ctx context.Context, tx *pg.Tx, owner uuid.UUID, byLink bool) (session string, err error) {
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE owner_id = $1 AND expires_at < now()`, owner); err != nil {
		return "", err
	}
	session, hash := newSecret("")
	_, err = tx.Exec(ctx, `
		INSERT INTO sessions (id_hash, owner_id, expires_at, by_link) VALUES ($1, $2, now() + $3, $4)`, hash, owner, SessionLife, byLink)
	return session, err
}

// SignOut ends a session and tells whose it was; ended is false when there was
// no such session.
func SignOut(ctx context.Context, tx *pg.Tx, session string) (owner uuid.UUID, ended bool, err error) {
	hash, ok := hashSecret(session, "")
	if !ok {
		return owner, false, nil
	}
	err = tx.QueryRow(ctx, `DELETE FROM sessions WHERE id_hash = $1 AND expires_at > now() RETURNING owner_id`, hash).Scan(&owner)
	if pg.IsNoRows(err) {
		return owner, false, nil
	}
	return owner, err == nil, err
}

// SignOutEverywhere ends every session of an owner and reports how many.
func SignOutEverywhere(ctx context.Context, tx *pg.Tx, owner uuid.UUID) (ended int64, err error) {
	err = tx.QueryRow(ctx, `
		WITH gone AS (DELETE FROM sessions WHERE owner_id = $1 RETURNING expires_at)
		SELECT count(*) FILTER (WHERE expires_at > now()) FROM gone`, owner).Scan(&ended)
	return ended, err
}

// Session is one of an owner's, without its secret.
type Session struct {
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Method    string    `json:"method" enum:"link,password" jsonschema:"how it was begun"`
	Current   bool      `json:"current" jsonschema:"it is the session of this call"`
}

// ListSessions reads an owner's sessions, newest first; current is the secret of
// the one that asks, and may be empty.
func ListSessions(ctx context.Context, q pg.Querier, owner uuid.UUID, current string) ([]Session, error) {
	hash, _ := hashSecret(current, "")
	rows, err := q.Query(ctx, `
		SELECT created_at, expires_at, CASE WHEN by_link THEN 'link' ELSE 'password' END, coalesce(id_hash = $2, false)
		FROM sessions WHERE owner_id = $1 AND expires_at > now() ORDER BY created_at DESC, id_hash`, owner, hash)
	if err != nil {
		return nil, pg.Fault(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Session, err error) {
		err = row.Scan(&s.CreatedAt, &s.ExpiresAt, &s.Method, &s.Current)
		return s, err
	})
	return all, pg.Fault(err)
}
