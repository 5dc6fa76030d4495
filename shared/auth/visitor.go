package auth

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// VisitorPrefix begins the secret of every visitor's session.
const VisitorPrefix = "smv_"

// VisitorLife is how long a visitor's session lasts from its latest code.
const VisitorLife = 90 * 24 * time.Hour

// errVisitor is for a visitor's session that is unknown, has expired, or whose
// codes have all ended.
var errVisitor = fault.New(fault.Unauthorized, "visitor_session_expired",
	"The visitor's session of this token has ended, or its codes have. Redeem a code for a new one, or leave the token out to go on as anybody.")

// byVisitor finds the codes of a visitor's session that still hold.
func (s *Store) byVisitor(ctx context.Context, session string) (Caller, error) {
	hash, ok := hashSecret(session, VisitorPrefix)
	if !ok {
		return Caller{}, errVisitor
	}
	var owners, codes, ended []uuid.UUID
	err := s.look(ctx, `
		SELECT coalesce(array_agg(c.owner_id ORDER BY g.created_at DESC) FILTER (WHERE h.holds), '{}'),
			coalesce(array_agg(c.id ORDER BY g.created_at DESC) FILTER (WHERE h.holds), '{}'),
			coalesce(array_agg(c.owner_id ORDER BY g.created_at DESC) FILTER (WHERE NOT h.holds), '{}')
		FROM visitor_sessions v
		JOIN visitor_grants g ON g.session_hash = v.id_hash
		JOIN codes c ON c.id = g.code_id
		CROSS JOIN LATERAL (SELECT c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > now()) AS holds) h
		WHERE v.id_hash = $1 AND v.expires_at > now()
		GROUP BY v.id_hash`, hash, &owners, &codes, &ended)
	switch {
	case pg.IsNoRows(err) || err == nil && len(codes) == 0:
		return Caller{}, errVisitor
	case err != nil:
		return Caller{}, pg.Fault(err)
	}
	c := Caller{Kind: Visitor, VisitorSession: session, Ended: ended}
	for i, owner := range owners {
		c.Grants = append(c.Grants, Grant{OwnerID: owner, CodeID: codes[i]})
	}
	return c, nil
}

// Admit puts a code into a visitor's session, and begins one when session is
// empty, unknown or expired. It gives the session's secret. admitted is false
// when the session held the code already. Whether the code still takes members is
// for the caller to see to.
func Admit(ctx context.Context, tx *pg.Tx, session string, code uuid.UUID) (secret string, expires time.Time, admitted bool, err error) {
	fresh, _ := newSecret(VisitorPrefix)
	return AdmitAs(ctx, tx, session, fresh, code)
}

// AdmitAs is Admit, where the session that it begins has the secret fresh: the
// prefix and 32 bytes in base64url that nobody can guess. One that goes on under
// fresh already is not begun again.
func AdmitAs(ctx context.Context, tx *pg.Tx, session, fresh string, code uuid.UUID) (secret string, expires time.Time, admitted bool, err error) {
	expires = time.Now().Add(VisitorLife).Truncate(time.Second)
	var hash []byte
	goesOn := false
	for _, secret = range []string{session, fresh} {
		var ok bool
		if hash, ok = hashSecret(secret, VisitorPrefix); !ok {
			continue
		}
		tag, err := tx.Exec(ctx, `UPDATE visitor_sessions SET expires_at = $2 WHERE id_hash = $1 AND expires_at > now()`, hash, expires)
		if err != nil {
			return "", expires, false, err
		}
		if goesOn = tag.RowsAffected() == 1; goesOn {
			break
		}
	}
	if hash == nil {
		return "", expires, false, errors.New("auth: this can't be the secret of a visitor's session")
	}
	if !goesOn {
		// one that has expired under this secret takes its codes with it
		if _, err := tx.Exec(ctx, `DELETE FROM visitor_sessions WHERE id_hash = $1`, hash); err != nil {
			return "", expires, false, err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO visitor_sessions (id_hash, expires_at) VALUES ($1, $2)`, hash, expires); err != nil {
			return "", expires, false, err
		}
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO visitor_grants (session_hash, code_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, hash, code)
	return secret, expires, err == nil && tag.RowsAffected() == 1, err
}

// DeleteOldVisitors removes visitors' sessions that have expired, at most n, and
// reports how many.
func DeleteOldVisitors(ctx context.Context, db *pg.DB, n int) (int64, error) {
	tag, err := db.Exec(ctx, `
		DELETE FROM visitor_sessions WHERE id_hash IN (
			SELECT id_hash FROM visitor_sessions WHERE expires_at < now() ORDER BY expires_at LIMIT $1)`, n)
	return tag.RowsAffected(), err
}
