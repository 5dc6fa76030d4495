package auth

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// SessionLife is how long a session lasts from signing in.
const SessionLife = 30 * 24 * time.Hour

// CreateSignInLink makes the secret of a link that signs the owner in once,
// within life. Links that have expired are forgotten.
func CreateSignInLink(ctx context.Context, tx *pg.Tx, owner uuid.UUID, life time.Duration) (secret string, err error) {
	if _, err := tx.Exec(ctx, `DELETE FROM sign_in_links WHERE owner_id = $1 AND expires_at < now()`, owner); err != nil {
		return "", err
	}
	secret, hash := newSecret("")
	_, err = tx.Exec(ctx, `
		INSERT INTO sign_in_links (token_hash, owner_id, expires_at) VALUES ($1, $2, now() + $3)`, hash, owner, life)
	return secret, err
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
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE owner_id = $1 AND expires_at < now()`, owner); err != nil {
		return owner, "", err
	}
	session, hash = newSecret("")
	_, err = tx.Exec(ctx, `
		INSERT INTO sessions (id_hash, owner_id, expires_at) VALUES ($1, $2, now() + $3)`, hash, owner, SessionLife)
	return owner, session, err
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
