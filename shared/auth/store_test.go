package auth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

func inTx[T any](t *testing.T, db *pg.DB, f func(ctx context.Context, tx *pg.Tx) (T, error)) T {
	t.Helper()
	var out T
	err := db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		out, err = f(t.Context(), tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func owner(t *testing.T, db *pg.DB, handle string) auth.Profile {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (auth.Profile, error) {
		return auth.EnsureOwner(ctx, tx, auth.Profile{Handle: handle, Name: "Ada", Email: handle + "@example.test"})
	})
}

type made struct {
	auth.Token
	secret string
}

func token(t *testing.T, db *pg.DB, owner uuid.UUID, want auth.Token) made {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (m made, err error) {
		m.Token, m.secret, err = auth.CreateToken(ctx, tx, owner, want)
		return m, err
	})
}

func code(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestEnsureOwner(t *testing.T) {
	db := pgtest.DB(t)
	first := owner(t, db, "me")
	again := inTx(t, db, func(ctx context.Context, tx *pg.Tx) (auth.Profile, error) {
		return auth.EnsureOwner(ctx, tx, auth.Profile{Handle: "me", Name: "Other", Email: "other@example.test"})
	})
	if again != first || first.Email != "me@example.test" || first.ID == (uuid.UUID{}) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if got, err := auth.GetOwner(t.Context(), db, first.ID); err != nil || got != first {
		t.Errorf("GetOwner: %+v, %v", got, err)
	}
	if _, err := auth.GetOwner(t.Context(), db, uuid.New()); code(err) != "not_found" {
		t.Error("GetOwner of nobody:", err)
	}
	for _, p := range []auth.Profile{{Handle: "Me", Email: "a@b.test"}, {Handle: "", Email: "a@b.test"}, {Handle: "ok", Email: "a@b.test>"}} {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error { _, err := auth.EnsureOwner(t.Context(), tx, p); return err })
		if code(err) != "invalid_request" {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestTokens(t *testing.T) {
	db := pgtest.DB(t)
	store := &auth.Store{DB: db}
	me, other := owner(t, db, "me"), owner(t, db, "other")
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Second)
	live := token(t, db, me.ID, auth.Token{Name: "live", Scopes: []string{"corpus:read"}, ExpiresAt: &soon})
	expired := token(t, db, me.ID, auth.Token{Name: "expired", Scopes: []string{"*"}, ExpiresAt: &past})

	c, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: live.secret})
	if err != nil || c.Kind != auth.Owner || c.OwnerID != me.ID || c.Handle != "me" || c.TokenID != live.ID || !c.Allows("corpus:read") || c.Allows("corpus:write") {
		t.Errorf("%+v, %v", c, err)
	}
	if len(live.secret) != 47 || !strings.HasPrefix(live.secret, "smt_") {
		t.Errorf("token looks like %q", live.secret)
	}
	for name, secret := range map[string]string{
		"expired": expired.secret, "unknown": "smt_" + strings.Repeat("A", 43), "cut": live.secret[:46], "longer": live.secret + "A",
		"without prefix": live.secret[4:], "NUL": "smt_" + strings.Repeat("\x00", 43), "junk": "x",
	} {
		if c, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: secret}); code(err) != "unauthorized" || c.Kind != auth.Anonymous || fault.From(err).Status() != 401 {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if c, err := store.Authenticate(t.Context(), auth.Credentials{Session: live.secret}); code(err) != "unauthorized" {
		t.Errorf("a token as session: %+v, %v", c, err)
	}
	if c, err := store.Authenticate(t.Context(), auth.Credentials{}); err != nil || c.Kind != auth.Anonymous {
		t.Errorf("nothing: %+v, %v", c, err)
	}

	revoke := func(owner, id uuid.UUID) (changed bool, err error) {
		err = db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
			_, changed, err = auth.RevokeToken(t.Context(), tx, owner, id)
			return err
		})
		return changed, err
	}
	if _, err := revoke(other.ID, live.ID); code(err) != "not_found" {
		t.Error("revoking another owner's token:", err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: live.secret}); err != nil {
		t.Error("another owner's revoke worked:", err)
	}
	if changed, err := revoke(me.ID, live.ID); !changed || err != nil {
		t.Error("revoke:", changed, err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: live.secret}); code(err) != "unauthorized" {
		t.Error("revoked, and still", err)
	}
	if changed, err := revoke(me.ID, live.ID); changed || err != nil {
		t.Error("revoking again:", changed, err)
	}
	store.Flush(t.Context())
}

func TestListTokens(t *testing.T) {
	db := pgtest.DB(t)
	me, other := owner(t, db, "me"), owner(t, db, "other")
	token(t, db, other.ID, auth.Token{Name: "other", Scopes: []string{"*"}})
	for _, name := range []string{"a", "b", "c"} {
		token(t, db, me.ID, auth.Token{Name: name, Scopes: []string{"*"}})
	}
	var names string
	var after *auth.TokenCursor
	for pages := 1; ; pages++ {
		items, next, total, err := auth.ListTokens(t.Context(), db, me.ID, after, 2)
		if err != nil || total != 3 {
			t.Fatal(total, err)
		}
		for _, i := range items {
			names += i.Name
		}
		if after = next; next == nil {
			if pages != 2 {
				t.Error(pages, "pages")
			}
			break
		}
	}
	if names != "cba" {
		t.Errorf("listed %q", names)
	}
}

// The use of a token is noted once a minute, whatever the number of requests.
func TestLastUsed(t *testing.T) {
	db := pgtest.DB(t)
	store := &auth.Store{DB: db}
	me := owner(t, db, "me")
	m := token(t, db, me.ID, auth.Token{Name: "a", Scopes: []string{"*"}})
	use := func() {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: m.secret}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		store.Flush(t.Context())
	}
	read := func() (used *time.Time, version uint32) {
		if err := db.QueryRow(t.Context(), `SELECT last_used_at, xmin::text::bigint FROM tokens WHERE id = $1`, m.ID).Scan(&used, &version); err != nil {
			t.Fatal(err)
		}
		return used, version
	}
	use()
	first, version := read()
	if first == nil || time.Since(*first) > time.Minute {
		t.Fatalf("last used %v", first)
	}
	use()
	if again, v := read(); v != version {
		t.Errorf("written again within the minute: %v, then %v", first, again)
	}
	if _, err := db.Exec(t.Context(), `UPDATE tokens SET last_used_at = now() - interval '2 minutes'`); err != nil {
		t.Fatal(err)
	}
	use()
	if later, _ := read(); time.Since(*later) > time.Minute {
		t.Errorf("not written after a minute: %v", later)
	}
}

// A request isn't kept waiting by the note of its use, and Flush gives up with
// its context.
func TestTouchDoesNotBlock(t *testing.T) {
	url := pgtest.URL(t)
	db, blocker := pgtest.Open(t, url, pg.Options{}), pgtest.Open(t, url, pg.Options{})
	store := &auth.Store{DB: db}
	me := owner(t, db, "me")
	m := token(t, db, me.ID, auth.Token{Name: "a", Scopes: []string{"*"}})
	err := blocker.InTx(t.Context(), func(tx *pg.Tx) error {
		// from now on the note waits for us, and reads don't
		if _, err := tx.Exec(t.Context(), `LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		for range 3 {
			if _, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: m.secret}); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		store.Flush(ctx)
		if ctx.Err() == nil {
			t.Error("Flush returned while the note was waiting")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	store.Flush(t.Context())
	var used *time.Time
	if err := db.QueryRow(t.Context(), `SELECT last_used_at FROM tokens`).Scan(&used); err != nil || used == nil {
		t.Errorf("after the lock: %v, %v", used, err)
	}
}

func TestSignIn(t *testing.T) {
	db := pgtest.DB(t)
	store := &auth.Store{DB: db}
	me := owner(t, db, "me")
	link := func(life time.Duration) string {
		return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (string, error) {
			return auth.CreateSignInLink(ctx, tx, me.ID, life)
		})
	}
	signIn := func(link string) (session string, err error) {
		err = db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
			_, session, err = auth.SignIn(t.Context(), tx, link)
			return err
		})
		return session, err
	}
	for name, secret := range map[string]string{"expired": link(-time.Second), "unknown": strings.Repeat("A", 43), "empty": "", "junk": "a b"} {
		if _, err := signIn(secret); code(err) != "link_expired" {
			t.Errorf("%s: %v", name, err)
		}
	}

	// used by many at once, it signs in one
	once := link(time.Minute)
	sessions := make(chan string, 8)
	var all sync.WaitGroup
	for range cap(sessions) {
		all.Go(func() {
			session, err := signIn(once)
			switch code(err) {
			case "":
				sessions <- session
			case "link_expired":
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(sessions) != 1 {
		t.Fatalf("%d sessions of one link", len(sessions))
	}
	session := <-sessions
	c, err := store.Authenticate(t.Context(), auth.Credentials{Session: session})
	if err != nil || c.Kind != auth.Owner || c.OwnerID != me.ID || c.Handle != "me" || !c.Allows("account:write") || c.TokenID != (uuid.UUID{}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Bearer: session}); code(err) != "unauthorized" {
		t.Error("a session as token:", err)
	}
	signOut := func(session string) (ended bool) {
		return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (bool, error) {
			_, ended, err := auth.SignOut(ctx, tx, session)
			return ended, err
		})
	}
	if signOut("junk") || !signOut(session) || signOut(session) {
		t.Error("sign-out: wrong report")
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Session: session}); code(err) != "unauthorized" {
		t.Error("signed out, and still", err)
	}

	late, err := signIn(link(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `UPDATE sessions SET expires_at = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Session: late}); code(err) != "unauthorized" {
		t.Error("an expired session:", err)
	}
	if _, err := signIn(link(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM sessions`).Scan(&kept); err != nil || kept != 1 {
		t.Errorf("%d sessions kept (%v): expired ones are not forgotten", kept, err)
	}
}

// No secret is stored.
func TestSecretsAreHashed(t *testing.T) {
	db := pgtest.DB(t)
	me := owner(t, db, "me")
	m := token(t, db, me.ID, auth.Token{Name: "a", Scopes: []string{"*"}})
	var rows string
	if err := db.QueryRow(t.Context(), `SELECT string_agg(t::text, ' ') FROM tokens t`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(rows, m.secret) || strings.Contains(rows, m.secret[4:]) {
		t.Error("the token's row holds its secret")
	}
}

func TestDatabaseDown(t *testing.T) {
	db := pgtest.Open(t, "postgres://u:p@127.0.0.1:1/x?sslmode=disable", pg.Options{})
	store := &auth.Store{DB: db}
	for _, c := range []auth.Credentials{{Bearer: "smt_" + strings.Repeat("A", 43)}, {Session: strings.Repeat("A", 43)}} {
		if _, err := store.Authenticate(t.Context(), c); code(err) != "database_unavailable" {
			t.Error(err)
		}
	}
}
