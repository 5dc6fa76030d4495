package auth_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

const otter, badger = "velvet otter ran", "patient badger sang"

func noRecord(*pg.Tx) error            { return nil }
func noSignIn(*pg.Tx, uuid.UUID) error { return nil }
func setup(t *testing.T) (*pg.DB, *auth.Store, auth.Profile) {
	t.Helper()
	db := pgtest.DB(t)
	return db, &auth.Store{DB: db}, owner(t, db, "me")
}

func set(t *testing.T, s *auth.Store, owner uuid.UUID, change auth.PasswordChange) error {
	t.Helper()
	return s.SetPassword(t.Context(), owner, change, noRecord)
}

func viaLink(t *testing.T, db *pg.DB, owner uuid.UUID) (session string) {
	t.Helper()
	return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (string, error) {
		link, err := auth.CreateSignInLink(ctx, tx, owner, time.Minute)
		if err != nil {
			return "", err
		}
		_, session, err := auth.SignIn(ctx, tx, link)
		return session, err
	})
}

func TestSignInByPassword(t *testing.T) {
	t.Parallel()
	db, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	owner(t, db, "linker") // without a password
	recorded := 0
	sign := func(login, password, from string) (string, error) {
		return store.SignInByPassword(t.Context(), login, password, from, func(_ *pg.Tx, who uuid.UUID) error {
			if recorded++; who != me.ID {
				t.Error("another owner")
			}
			return nil
		})
	}
	seen := map[string]bool{}
	for _, login := range []string{"me", " ME ", "me@example.test", "Me@Example.TEST"} {
		session, err := sign(login, otter, "192.0.2.1")
		if err != nil || seen[session] {
			t.Fatalf("%s: %v", login, err)
		}
		seen[session] = true
		if c, err := store.Authenticate(t.Context(), auth.Credentials{Session: session}); err != nil || c.OwnerID != me.ID || c.Session != session || !c.Allows(auth.AllScopes) {
			t.Errorf("%+v, %v", c, err)
		}
	}
	var words string
	for name, try := range map[string][2]string{
		"wrong": {"me", badger}, "unknown": {"nobody", otter}, "unknown address": {"no@example.test", otter}, "no password": {"linker", ""},
		"no password, some": {"linker", otter}, "empty login": {"", otter}, "junk": {"a@b@c", otter}, "zero": {"me\x00", otter}, "not text": {"\xff", otter},
	} {
		_, err := sign(try[0], try[1], "192.0.2.1")
		f := fault.From(err)
		if f == nil || f.Code != "sign_in_refused" || f.Status() != 401 || words != "" && f.Detail != words {
			t.Errorf("%s: %v", name, err)
			continue
		}
		words = f.Detail
	}
	if recorded != 4 {
		t.Errorf("%d sign-ins recorded", recorded)
	}
}

// What takes a moment with a wrong password takes it for anybody: so much less
// can't be mistaken for noise.
func TestSignInTakesTheSameTime(t *testing.T) {
	db, store, me := setup(t)
	owner(t, db, "linker")
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	quickest := map[string]time.Duration{}
	for range 5 {
		for _, login := range []string{"me", "nobody", "linker", "no@example.test"} {
			began := time.Now()
			if _, err := store.SignInByPassword(t.Context(), login, badger, "192.0.2.1", noSignIn); code(err) != "sign_in_refused" {
				t.Fatal(err)
			}
			if took := time.Since(began); quickest[login] == 0 || took < quickest[login] {
				quickest[login] = took
			}
		}
	}
	for login, took := range quickest {
		if took < quickest["me"]/2 || took > quickest["me"]*2 {
			t.Errorf("%s: %v, and a wrong password %v", login, took, quickest["me"])
		}
	}
}

func TestLockOut(t *testing.T) {
	t.Parallel()
	_, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	try := func(login, password, from string) *fault.Fault {
		_, err := store.SignInByPassword(t.Context(), login, password, from, noSignIn)
		return fault.From(err)
	}
	// a success costs nothing
	for range 12 {
		if f := try("me", otter, "192.0.2.9"); f != nil {
			t.Fatal(f)
		}
	}
	// at once, and as unknown names are locked too, no more than ten are looked at
	for _, login := range []string{"me", "nobody"} {
		var refused, locked atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				switch f := try(login, badger, "192.0.2.1"); {
				case f != nil && f.Code == "sign_in_refused":
					refused.Add(1)
				case f != nil && f.Code == "rate_limited" && f.Status() == 429 && f.RetrySeconds() > 0:
					locked.Add(1)
				default:
					t.Errorf("%v", f)
				}
			})
		}
		all.Wait()
		// those above thirty from one address are locked for that reason
		if n := refused.Load(); n > 10 || login == "me" && n != 10 {
			t.Errorf("%s: %d passwords were looked at", login, n)
		}
	}
	// also from elsewhere, and the right one
	if f := try("me", otter, "198.51.100.7"); f == nil || f.Code != "rate_limited" {
		t.Errorf("locked, and still: %v", f)
	}
	// the link still works, and another name from elsewhere
	if viaLink(t, store.DB, me.ID) == "" {
		t.Error("no session")
	}
	if f := try("me@example.test", otter, "198.51.100.7"); f != nil {
		t.Error(f)
	}
}

func TestLockOutOfAnAddress(t *testing.T) {
	t.Parallel()
	_, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	looked := 0
	for i := range 33 {
		from := "2001:db8::" + string(rune('a'+i%6)) // one network is one caller
		_, err := store.SignInByPassword(t.Context(), "name-"+string(rune('a'+i)), badger, from, noSignIn)
		if code(err) == "sign_in_refused" {
			looked++
		}
	}
	if looked < 30 || looked > 31 { // one comes back every 30 s
		t.Errorf("%d looked at", looked)
	}
	if _, err := store.SignInByPassword(t.Context(), "me", otter, "2001:db8::1", noSignIn); code(err) != "rate_limited" {
		t.Error(err)
	}
	if _, err := store.SignInByPassword(t.Context(), "me", otter, "2001:db8:0:1::1", noSignIn); err != nil {
		t.Error("another network:", err)
	}
}

func TestSetPassword(t *testing.T) {
	t.Parallel()
	db, store, me := setup(t)
	other := owner(t, db, "other")
	mine, second, theirs := viaLink(t, db, me.ID), viaLink(t, db, me.ID), viaLink(t, db, other.ID)
	unused := inTx(t, db, func(ctx context.Context, tx *pg.Tx) (string, error) {
		return auth.CreateSignInLink(ctx, tx, me.ID, time.Hour)
	})
	holds := func(session string) bool {
		_, err := store.Authenticate(t.Context(), auth.Credentials{Session: session})
		return err == nil
	}
	if err := set(t, store, me.ID, auth.PasswordChange{Password: "short", Session: mine}); code(err) != "invalid_request" || !holds(second) {
		t.Error(err)
	}
	failed := errors.New("no")
	if err := store.SetPassword(t.Context(), me.ID, auth.PasswordChange{Password: otter, Session: mine}, func(*pg.Tx) error { return failed }); err == nil || !holds(second) {
		t.Error("what isn't recorded isn't changed:", err)
	}
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter, Session: mine}); err != nil {
		t.Fatal(err)
	}
	if !holds(mine) || holds(second) || !holds(theirs) {
		t.Error("the wrong sessions ended")
	}
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error { _, _, err := auth.SignIn(t.Context(), tx, unused); return err }); code(err) != "link_expired" {
		t.Error("a link from before:", err)
	}

	// a session that a link has just begun needs no current password; others do
	if err := set(t, store, me.ID, auth.PasswordChange{Password: badger, Session: mine}); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec(t.Context(), `UPDATE sessions SET created_at = now() - interval '31 minutes'`); err != nil {
		t.Fatal(err)
	}
	byPassword, err := store.SignInByPassword(t.Context(), "me", badger, "192.0.2.1", noSignIn)
	if err != nil {
		t.Fatal(err)
	}
	for name, session := range map[string]string{"old link": mine, "by password": byPassword, "another's": theirs, "none": "", "junk": "x"} {
		if err := set(t, store, me.ID, auth.PasswordChange{Password: otter, Session: session}); code(err) != "current_password_missing" || fault.From(err).Status() != 403 {
			t.Errorf("%s: %v", name, err)
		}
		if err := set(t, store, me.ID, auth.PasswordChange{Session: session, Current: otter}); code(err) != "current_password_wrong" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// removing it; then the password signs nobody in
	if err := set(t, store, me.ID, auth.PasswordChange{Current: badger, Session: mine}); err != nil {
		t.Fatal(err)
	}
	if holds(byPassword) || !holds(mine) {
		t.Error("the wrong sessions ended")
	}
	for _, password := range []string{badger, ""} {
		if _, err := store.SignInByPassword(t.Context(), "me", password, "192.0.2.1", noSignIn); code(err) != "sign_in_refused" {
			t.Error(err)
		}
	}
}

// Guessing the current password is as limited as signing in.
func TestCurrentPasswordIsLimited(t *testing.T) {
	t.Parallel()
	_, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := set(t, store, me.ID, auth.PasswordChange{Password: badger, Current: "wrong"}); code(err) != "current_password_wrong" {
			t.Fatal(err)
		}
	}
	if err := set(t, store, me.ID, auth.PasswordChange{Password: badger, Current: otter}); code(err) != "rate_limited" {
		t.Error(err)
	}
}

// Of changes that run at once, each by somebody who knows the password that
// held, one is made.
func TestSetPasswordAtOnce(t *testing.T) {
	t.Parallel()
	_, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	var all sync.WaitGroup
	for _, next := range []string{"purple walrus hums", "gentle heron naps", "silver ferret digs"} {
		all.Go(func() {
			err := set(t, store, me.ID, auth.PasswordChange{Password: next, Current: otter})
			switch code(err) {
			case "":
				made.Add(1)
			case "password_changed", "current_password_wrong":
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("%d changes made", made.Load())
	}
}

// A password of another cost still signs in, and is then hashed anew.
func TestRehash(t *testing.T) {
	t.Parallel()
	db, store, me := setup(t)
	// "password", by the reference implementation with 64 MiB
	old := "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	if _, err := db.Exec(t.Context(), `UPDATE owners SET password_hash = $2 WHERE id = $1`, me.ID, old); err != nil {
		t.Fatal(err)
	}
	var hashes []string
	for range 2 {
		if _, err := store.SignInByPassword(t.Context(), "me", "password", "192.0.2.1", noSignIn); err != nil {
			t.Fatal(err)
		}
		var now string
		if err := db.QueryRow(t.Context(), `SELECT password_hash FROM owners WHERE id = $1`, me.ID).Scan(&now); err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, now)
	}
	if hashes[0] == old || hashes[1] != hashes[0] {
		t.Error(hashes)
	}
}

// A change that comes while a password is being checked leaves no session of the
// old one.
func TestSignInDuringAChange(t *testing.T) {
	t.Parallel()
	db, store, me := setup(t)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter}); err != nil {
		t.Fatal(err)
	}
	signed := make(chan error, 1)
	err := store.SetPassword(t.Context(), me.ID, auth.PasswordChange{Password: badger, Current: otter}, func(tx *pg.Tx) error {
		// the row is locked by now: the sign-in sees the old password and waits
		go func() {
			_, err := store.SignInByPassword(t.Context(), "me", otter, "192.0.2.1", noSignIn)
			signed <- err
		}()
		for waiting := 0; waiting == 0; {
			if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) OR NOT granted AND locktype = 'transactionid'`).Scan(&waiting); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-signed; code(err) != "sign_in_refused" {
		t.Error(err)
	}
	var sessions int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM sessions`).Scan(&sessions); err != nil || sessions != 0 {
		t.Errorf("%d sessions, %v", sessions, err)
	}
}

// Placing a link again lengthens its life and doesn't make a used one anew.
func TestPlaceSignInLink(t *testing.T) {
	t.Parallel()
	db, _, me := setup(t)
	const secret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	works := false
	place := func(life time.Duration) error {
		return db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
			works, err = auth.PlaceSignInLink(t.Context(), tx, me.ID, secret, life)
			return err
		})
	}
	use := func() string {
		return code(db.InTx(t.Context(), func(tx *pg.Tx) error { _, _, err := auth.SignIn(t.Context(), tx, secret); return err }))
	}
	if err := place(-time.Minute); err != nil || use() != "link_expired" {
		t.Error("an expired one worked", err)
	}
	if err := errors.Join(place(time.Minute), place(time.Minute)); err != nil || !works || use() != "" {
		t.Error("a placed one didn't work", err)
	}
	if err := place(time.Minute); err != nil || works || use() != "link_expired" {
		t.Error("a used one worked again", err)
	}
	var links int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM sign_in_links`).Scan(&links); err != nil || links != 1 {
		t.Errorf("%d links, %v", links, err)
	}
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := auth.PlaceSignInLink(t.Context(), tx, me.ID, "short", time.Minute)
		return err
	}); err == nil {
		t.Error("placed what can't be one")
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	db, store, me := setup(t)
	other := owner(t, db, "other")
	mine, theirs := viaLink(t, db, me.ID), viaLink(t, db, other.ID)
	if err := set(t, store, me.ID, auth.PasswordChange{Password: otter, Session: mine}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SignInByPassword(t.Context(), "me", otter, "192.0.2.1", noSignIn); err != nil {
		t.Fatal(err)
	}
	list, err := auth.ListSessions(t.Context(), db, me.ID, mine)
	if err != nil || len(list) != 2 || list[0].Method != "password" || list[0].Current || list[1].Method != "link" || !list[1].Current {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := auth.ListSessions(t.Context(), db, me.ID, ""); err != nil || len(list) != 2 || list[0].Current || list[1].Current {
		t.Errorf("%+v, %v", list, err)
	}
	end := func() int64 {
		return inTx(t, db, func(ctx context.Context, tx *pg.Tx) (int64, error) { return auth.SignOutEverywhere(ctx, tx, me.ID) })
	}
	if end() != 2 || end() != 0 {
		t.Error("wrong counts")
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Session: mine}); code(err) != "unauthorized" {
		t.Error(err)
	}
	if _, err := store.Authenticate(t.Context(), auth.Credentials{Session: theirs}); err != nil {
		t.Error("another owner's session ended:", err)
	}
}
