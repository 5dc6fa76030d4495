package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// TokenPrefix begins every API token, so that scanners for leaked secrets know
// one when they see it.
const TokenPrefix = "smt_"

const (
	secretBytes = 32
	// maxTouches bounds the tokens whose use is still to be noted; what is above
	// it is noted by a later use.
	maxTouches   = 1024
	touchTimeout = 5 * time.Second
	// lookTimeout is far more than an indexed read of one row takes
	lookTimeout      = time.Second
	lookAgainTimeout = 5 * time.Second
)

// Store authenticates against the database. Nothing is cached: a token that was
// revoked, or a session that was ended, is refused from the next request on.
// It is safe for concurrent use and must not be copied.
type Store struct {
	DB *pg.DB

	mu sync.Mutex
	// due are the tokens whose use is to be noted
	due map[uuid.UUID]struct{}
	// noting is closed when the goroutine that notes them has ended; nil when
	// there is none
	noting chan struct{}
	// hashing holds one element for each password that is being hashed
	hashing chan struct{}
}

// Authenticate tells whose credentials these are: in one indexed read, by the
// SHA-256 of the secret, so that its timing tells nothing about one. No
// credentials are the anonymous caller. Unknown, expired and revoked ones are
// fault "unauthorized" (401), all in the same words, and a visitor's
// "visitor_session_expired" (401), also when none of its codes holds; a database
// out of reach is "database_unavailable" (503).
func (s *Store) Authenticate(ctx context.Context, c Credentials) (Caller, error) {
	switch {
	case strings.HasPrefix(c.Bearer, VisitorPrefix):
		return s.byVisitor(ctx, c.Bearer)
	case c.Bearer != "":
		return s.byToken(ctx, c.Bearer)
	case c.Session != "":
		caller, err := s.bySession(ctx, c.Session)
		if err != nil || c.Visitor == "" {
			return caller, err
		}
		// the session says who calls; a visitor's that has ended adds nothing
		visitor, err := s.byVisitor(ctx, c.Visitor)
		if f := fault.From(err); f != nil && f.Kind != fault.Unauthorized {
			return Caller{}, err
		}
		caller.Grants, caller.Ended, caller.VisitorSession = visitor.Grants, visitor.Ended, visitor.VisitorSession
		return caller, nil
	case c.Visitor != "":
		return s.byVisitor(ctx, c.Visitor)
	}
	return Caller{}, nil
}

var errUnauthorized = fault.New(fault.Unauthorized, "unauthorized", "The token or session is unknown, has expired or was revoked.")

func (s *Store) byToken(ctx context.Context, token string) (Caller, error) {
	hash, ok := hashSecret(token, TokenPrefix)
	if !ok {
		return Caller{}, errUnauthorized
	}
	c := Caller{Kind: Owner}
	var stale bool
	err := s.look(ctx, `
		SELECT t.id, t.owner_id, o.handle, t.scopes, t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute'
		FROM tokens t JOIN owners o ON o.id = t.owner_id
		WHERE t.token_hash = $1 AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())`, hash,
		&c.TokenID, &c.OwnerID, &c.Handle, &c.Scopes, &stale)
	if err != nil {
		return Caller{}, refused(err)
	}
	if stale {
		s.touch(c.TokenID)
	}
	return c, nil
}

func (s *Store) bySession(ctx context.Context, session string) (Caller, error) {
	hash, ok := hashSecret(session, "")
	if !ok {
		return Caller{}, errUnauthorized
	}
	c := Caller{Kind: Owner, Scopes: []string{AllScopes}, Session: session}
	err := s.look(ctx, `
		SELECT s.owner_id, o.handle FROM sessions s JOIN owners o ON o.id = s.owner_id
		WHERE s.id_hash = $1 AND s.expires_at > now()`, hash, &c.OwnerID, &c.Handle)
	if err != nil {
		return Caller{}, refused(err)
	}
	return c, nil
}

// look reads the row of a secret. It is the first that a request asks of the
// database, so it is also what finds that the pool's connections have fallen
// silent: then they are closed, and it is asked again on a fresh one.
func (s *Store) look(ctx context.Context, sql string, hash []byte, into ...any) error {
	for again := false; ; again = true {
		conn, err := s.DB.Pool().Acquire(ctx)
		if err != nil {
			return err
		}
		patience := lookTimeout
		if again {
			patience = lookAgainTimeout // a fresh connection that is slow is only busy
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		err = conn.QueryRow(asking, sql, hash).Scan(into...)
		silent := err != nil && asking.Err() != nil && ctx.Err() == nil
		cancel()
		conn.Release()
		if !silent || again {
			return err
		}
		s.DB.Reset()
	}
}

func refused(err error) error {
	if pg.IsNoRows(err) {
		return errUnauthorized
	}
	return pg.Fault(err)
}

// touch has the use of a token noted soon, without keeping its request waiting.
// One goroutine at a time does so, for all tokens that gathered meanwhile.
func (s *Store) touch(token uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) >= maxTouches {
		return
	}
	if s.due == nil {
		s.due = map[uuid.UUID]struct{}{}
	}
	s.due[token] = struct{}{}
	if s.noting == nil {
		s.noting = make(chan struct{})
		go s.note(s.noting)
	}
}

func (s *Store) note(done chan struct{}) {
	defer close(done)
	for {
		s.mu.Lock()
		due := s.due
		s.due = nil
		if len(due) == 0 {
			s.noting = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		tokens := make([]uuid.UUID, 0, len(due))
		for id := range due {
			tokens = append(tokens, id)
		}
		ctx, cancel := context.WithTimeout(context.Background(), touchTimeout)
		// Nobody is told, and nobody waits: losing it costs a minute of precision.
		_ = s.DB.InTx(ctx, func(tx *pg.Tx) error {
			var b pgx.Batch
			b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
			b.Queue(`
				UPDATE tokens SET last_used_at = now() WHERE id IN (
					SELECT id FROM tokens
					WHERE id = ANY ($1) AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
					ORDER BY id FOR UPDATE SKIP LOCKED)`, tokens)
			return tx.Last(ctx, &b)
		})
		cancel()
	}
}

// Flush returns when every use so far has been noted, or ctx ends. A process
// calls it before it may be frozen, and before it closes the database.
func (s *Store) Flush(ctx context.Context) {
	s.mu.Lock()
	done := s.noting
	s.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// newSecret makes a secret of 32 random bytes and the hash that is stored of it.
// A plain hash is enough: such a secret can't be guessed, however fast hashing is.
func newSecret(prefix string) (secret string, hash []byte) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	secret = prefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

// hashSecret refuses what newSecret can't have made.
func hashSecret(secret, prefix string) (hash []byte, ok bool) {
	rest, ok := strings.CutPrefix(secret, prefix)
	if !ok || len(rest) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return nil, false
	}
	sum := sha256.Sum256([]byte(secret))
	return sum[:], true
}
