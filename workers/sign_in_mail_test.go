package workers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// busy is a mail server that takes nothing now.
type busy struct{ seen []mail.Message }

func (b *busy) Send(_ context.Context, m mail.Message) error {
	b.seen = append(b.seen, m)
	return errors.New("421 busy")
}

// However often a mail is tried, it holds one link, which lives for half an hour
// from the latest attempt and signs in once.
func TestSignInMailHoldsOneLink(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	keys, err := secret.ParseKeys(strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	var owner auth.Profile
	if err := db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		owner, err = auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "me", Name: "Ada", Email: "ada@example.test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &busy{}
	p := &post{db: db, mailer: server, keys: keys, url: "https://me.test"}
	job := &river.Job[task.SignInMailArgs]{
		JobRow: &rivertype.JobRow{CreatedAt: time.Now()},
		Args:   task.SignInMailArgs{Caused: task.Caused{EventID: outbox.NewID(), OwnerID: owner.ID, Subject: owner.ID.String()}},
	}
	try := func() error { return signInMail(p)(t.Context(), job) }
	links := func() (n, live int) {
		if err := db.QueryRow(t.Context(), `
			SELECT count(*), count(*) FILTER (WHERE used_at IS NULL AND expires_at > now() + interval '29 minutes') FROM sign_in_links`).Scan(&n, &live); err != nil {
			t.Fatal(err)
		}
		return n, live
	}
	for range 3 {
		if err := try(); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Fatal(err)
		}
		if n, live := links(); n != 1 || live != 1 {
			t.Fatalf("%d links, %d live", n, live)
		}
		if _, err := db.Exec(t.Context(), `UPDATE sign_in_links SET expires_at = now() - interval '1 minute'`); err != nil {
			t.Fatal(err)
		}
	}
	if err := try(); err == nil {
		t.Fatal("no error")
	}
	first, last := server.seen[0], server.seen[len(server.seen)-1]
	link, ok := strings.CutPrefix(last.Links[0], "https://me.test/sign-in?token=")
	if !ok || first.Text != last.Text || !strings.Contains(last.Text, last.Links[0]) || last.To.Email != owner.Email {
		t.Errorf("%+v, then %+v", first, last)
	}
	use := func() error {
		return db.InTx(t.Context(), func(tx *pg.Tx) error { _, _, err := auth.SignIn(t.Context(), tx, link); return err })
	}
	if err := use(); err != nil {
		t.Error(err)
	}
	// one that was used, or that a change of the password ended, is not mailed again
	sent := len(server.seen)
	var dropped *river.JobCancelError
	if err := try(); !errors.As(err, &dropped) || !strings.Contains(err.Error(), "used already") {
		t.Errorf("%T %v", err, err)
	}
	if f := fault.From(use()); f == nil || f.Code != "link_expired" {
		t.Errorf("tried again, a used link worked again: %v", f)
	}
	job.Args.EventID = outbox.NewID()
	if err := try(); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Fatal(err)
	}
	store := &auth.Store{DB: db}
	if err := store.SetPassword(t.Context(), owner.ID, auth.PasswordChange{Password: "velvet otter ran"}, func(*pg.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := try(); !errors.As(err, &dropped) || len(server.seen) != sent+1 {
		t.Errorf("%T %v", err, err)
	}

	// one that nobody waits for any more, and one that can't be made, fail for good
	sent = len(server.seen)
	job.CreatedAt = time.Now().Add(-2 * time.Hour)
	var lasts permanentError
	if err := try(); !errors.As(err, &lasts) {
		t.Errorf("%T %v", err, err)
	}
	job.CreatedAt, p.keys = time.Now(), secret.Keys{}
	if err := try(); !errors.As(err, &lasts) {
		t.Errorf("%T %v", err, err)
	}
	job.Args.EventID, p.keys, p.url = outbox.NewID(), keys, ""
	if err := try(); !errors.As(err, &lasts) || !strings.Contains(err.Error(), "PUBLIC_URL") {
		t.Errorf("%T %v", err, err)
	}
	if m := notice(access.Request{Name: "Eve", Message: "Hello"}, owner, ""); len(m.Links) != 0 || strings.Contains(m.Text, "\n\n\n") || !strings.Contains(m.Text, "> Hello") {
		t.Errorf("%+v", m)
	}
	if len(server.seen) != sent {
		t.Error("sent all the same")
	}
}
