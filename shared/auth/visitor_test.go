package auth_test

import (
	"context"
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

func accessCode(t *testing.T, db *pg.DB, owner uuid.UUID) uuid.UUID {
	t.Helper()
	id := uuid.New()
	if _, err := db.Exec(t.Context(), `INSERT INTO codes (id, owner_id, code_hash, hint) VALUES ($1, $2, $3, '')`, id, owner, id[:]); err != nil {
		t.Fatal(err)
	}
	return id
}

type admission struct {
	secret   string
	expires  time.Time
	admitted bool
}

func admit(t *testing.T, db *pg.DB, session string, code uuid.UUID) admission {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (a admission, err error) {
		a.secret, a.expires, a.admitted, err = auth.Admit(ctx, tx, session, code)
		return a, err
	})
}

func TestVisitorSessions(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	store := &auth.Store{DB: db}
	me, other, third := owner(t, db, "me"), owner(t, db, "other"), owner(t, db, "third")
	mine, theirs := accessCode(t, db, me.ID), accessCode(t, db, other.ID)
	by := func(c auth.Credentials) auth.Caller {
		t.Helper()
		caller, err := store.Authenticate(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return caller
	}

	// one session holds the codes of several owners
	first := admit(t, db, "", mine)
	if !first.admitted || time.Until(first.expires) < auth.VisitorLife-time.Minute {
		t.Errorf("%+v", first)
	}
	if again := admit(t, db, first.secret, mine); again.admitted || again.secret != first.secret {
		t.Errorf("the same code again: %+v", again)
	}
	if second := admit(t, db, first.secret, theirs); !second.admitted || second.secret != first.secret {
		t.Errorf("a code of another owner: %+v", second)
	}
	for name, c := range map[string]auth.Credentials{"cookie": {Visitor: first.secret}, "bearer": {Bearer: first.secret}} {
		v := by(c)
		code, ok := v.Code(other.ID)
		if v.Kind != auth.Visitor || v.OwnerID != (uuid.UUID{}) || len(v.Grants) != 2 || !v.Reads(me.ID) || !ok || code != theirs || v.Reads(third.ID) || v.Allows("corpus:read") || v.VisitorSession != first.secret || v.Session != "" {
			t.Errorf("%s: %+v", name, v)
		}
	}

	// whoever has another session doesn't get into this one
	for name, session := range map[string]string{"none": "", "junk": "smv_junk", "unknown": "smv_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "an owner's": first.secret[4:]} {
		if a := admit(t, db, session, mine); a.secret == first.secret || a.secret == session || !a.admitted {
			t.Errorf("%s: %+v", name, a)
		}
	}

	// an owner who is a visitor elsewhere is both
	session := viaLink(t, db, me.ID)
	if c := by(auth.Credentials{Session: session, Visitor: first.secret}); c.Kind != auth.Owner || c.OwnerID != me.ID || !c.Reads(me.ID) || !c.Reads(other.ID) || c.Reads(third.ID) || c.VisitorSession != first.secret {
		t.Errorf("%+v", c)
	}
	if c := by(auth.Credentials{Session: session, Visitor: "smv_junk"}); c.Kind != auth.Owner || c.VisitorSession != "" || c.Reads(other.ID) {
		t.Errorf("with a stale visitor's: %+v", c)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Session: "junk", Visitor: first.secret}); code(err) != "unauthorized" {
		t.Error("a stale session with a visitor's:", err)
	}

	// a code that has ended gives nothing; the session goes on with those that hold
	if _, err := db.Exec(t.Context(), `UPDATE codes SET expires_at = now() - interval '1 second' WHERE id = $1`, mine); err != nil {
		t.Fatal(err)
	}
	if v := by(auth.Credentials{Visitor: first.secret}); v.Reads(me.ID) || !v.Reads(other.ID) || len(v.Ended) != 1 || v.Ended[0] != me.ID {
		t.Errorf("expired: %+v", v)
	}
	if _, err := db.Exec(t.Context(), `UPDATE codes SET revoked_at = now() WHERE id = $1`, theirs); err != nil {
		t.Fatal(err)
	}
	for _, c := range []auth.Credentials{{Visitor: first.secret}, {Bearer: first.secret}, {Bearer: "smv_junk"}, {Bearer: "smv_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}} {
		if v, err := store.Authenticate(t.Context(), c); code(err) != "visitor_session_expired" || v.Kind != auth.Anonymous {
			t.Errorf("all revoked, junk: %+v, %v", v, err)
		}
	}
	if c := by(auth.Credentials{Session: session, Visitor: first.secret}); c.Reads(other.ID) || !c.Reads(me.ID) {
		t.Errorf("revoked, an owner: %+v", c)
	}

	// a session that has ended is nobody's, and a code begins another
	if _, err := db.Exec(t.Context(), `UPDATE visitor_sessions SET expires_at = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Visitor: first.secret}); code(err) != "visitor_session_expired" {
		t.Error("expired session:", err)
	}
	fresh := accessCode(t, db, me.ID)
	if a := admit(t, db, first.secret, fresh); a.secret == first.secret || !a.admitted {
		t.Errorf("into an expired session: %+v", a)
	}
	if n, err := auth.DeleteOldVisitors(t.Context(), db, 100); err != nil || n != 5 {
		t.Errorf("%d old sessions removed, %v", n, err)
	}
	if n, err := auth.DeleteOldVisitors(t.Context(), db, 100); err != nil || n != 0 {
		t.Errorf("%d live sessions removed, %v", n, err)
	}
	var rows string
	if err := db.QueryRow(t.Context(), `SELECT coalesce(string_agg(v::text, ' '), '') FROM visitor_sessions v`).Scan(&rows); err != nil || rows == "" {
		t.Fatal(rows, err)
	}
}

// A session that is begun under a secret of its caller's is begun once.
func TestAdmitAs(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	me := owner(t, db, "me")
	first, second := accessCode(t, db, me.ID), accessCode(t, db, me.ID)
	as := func(session, fresh string, code uuid.UUID) admission {
		return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (a admission, err error) {
			a.secret, a.expires, a.admitted, err = auth.AdmitAs(ctx, tx, session, fresh, code)
			return a, err
		})
	}
	fresh := auth.VisitorPrefix + strings.Repeat("b", 43)
	if a := as("", fresh, first); a.secret != fresh || !a.admitted {
		t.Errorf("%+v", a)
	}
	if a := as("", fresh, first); a.secret != fresh || a.admitted {
		t.Errorf("again: %+v", a)
	}
	other := admit(t, db, "", second)
	if a := as(other.secret, fresh, first); a.secret != other.secret || !a.admitted {
		t.Errorf("into a session that goes on: %+v", a)
	}
	if _, err := db.Exec(t.Context(), `UPDATE visitor_sessions SET expires_at = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if a := as(other.secret, fresh, second); a.secret != fresh || !a.admitted {
		t.Errorf("after the end of both: %+v", a)
	}
	var codes []uuid.UUID
	if err := db.QueryRow(t.Context(), `
		SELECT array_agg(code_id) FROM visitor_grants g JOIN visitor_sessions v ON v.id_hash = g.session_hash WHERE v.expires_at > now()`).Scan(&codes); err != nil || len(codes) != 1 || codes[0] != second {
		t.Errorf("it holds %v, %v", codes, err)
	}
	for _, bad := range []string{"", fresh[1:], fresh + "x"} {
		if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			_, _, _, err := auth.AdmitAs(t.Context(), tx, "", bad, first)
			return err
		}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A redemption makes a session longer, and never shorter.
func TestVisitorSessionIsExtended(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	me := owner(t, db, "me")
	a := admit(t, db, "", accessCode(t, db, me.ID))
	if _, err := db.Exec(t.Context(), `UPDATE visitor_sessions SET expires_at = now() + interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	admit(t, db, a.secret, accessCode(t, db, me.ID))
	var left time.Duration
	if err := db.QueryRow(t.Context(), `SELECT expires_at - now() FROM visitor_sessions`).Scan(&left); err != nil || left < auth.VisitorLife-time.Hour {
		t.Errorf("%v left, %v", left, err)
	}
}

func TestAdmitAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	me := owner(t, db, "me")
	first := admit(t, db, "", accessCode(t, db, me.ID))
	code := accessCode(t, db, me.ID)
	admitted := make(chan bool, 8)
	var all sync.WaitGroup
	for range cap(admitted) {
		all.Go(func() {
			err := db.InTx(t.Context(), func(tx *pg.Tx) error {
				secret, _, in, err := auth.Admit(t.Context(), tx, first.secret, code)
				if secret != first.secret {
					t.Error("another session")
				}
				if err == nil && in {
					admitted <- true
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(admitted) != 1 {
		t.Errorf("admitted %d times", len(admitted))
	}
}

// A database that is down makes nobody a visitor less.
func TestVisitorDatabaseDown(t *testing.T) {
	db := pgtest.Open(t, "postgres://u:p@127.0.0.1:1/x?sslmode=disable", pg.Options{})
	store := &auth.Store{DB: db}
	_, err := store.Authenticate(t.Context(), auth.Credentials{Visitor: "smv_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"})
	if f := fault.From(err); f == nil || f.Code != "database_unavailable" {
		t.Error(err)
	}
}
