package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	netmail "net/mail"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/config"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// childMail, when set beside child, makes that worker send mails to this server.
const childMail = "STANDMEET_TEST_WORKER_SMTP"

// forChild registers what a child process works on that is to send mails.
func forChild(address string) func(*river.Workers, *env) {
	return func(registry *river.Workers, e *env) {
		mailer, err := NewMailer(context.Background(), smtpConfig(address), "")
		if err != nil {
			panic(err)
		}
		letters(mailer, patient, to("ada@example.test"))(registry, e)
	}
}

func smtpConfig(address string) config.Config {
	return config.Config{MailSupplier: config.MailSMTP, MailFrom: "page@sender.test", SMTPURL: &url.URL{Scheme: "smtp", Host: address}}
}

// letters registers the kinds that mail: mail.test, and owner.notify, which may
// five times an hour.
func letters(mailer Mailer, pause backoff, m func(river.JobArgs) mail.Message, change ...func(*task.Kind)) func(*river.Workers, *env) {
	return func(registry *river.Workers, e *env) {
		p := &post{db: e.db, log: e.log, mailer: mailer}
		test := newWorker(e, task.MailTest, pause, func(ctx context.Context, job *river.Job[task.MailTestArgs]) error {
			return deliver(ctx, p, job, m(job.Args))
		})
		for _, c := range change {
			c(&test.kind)
		}
		river.AddWorker(registry, test)
		river.AddWorker(registry, newWorker(e, task.OwnerNotify, pause, func(ctx context.Context, job *river.Job[task.OwnerNotifyArgs]) error {
			return deliver(ctx, p, job, m(job.Args), perOwner(5, time.Hour))
		}))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, pause, periodic(e.db)))
	}
}

// to is a mail to that address whatever the task.
func to(address string) func(river.JobArgs) mail.Message {
	return func(river.JobArgs) mail.Message {
		return mail.Message{To: mail.Address{Name: "Ada", Email: address}, Subject: "Hello", Text: "A line.\n"}
	}
}

func soon(int) time.Duration  { return 5 * time.Millisecond }
func later(int) time.Duration { return time.Hour }

// mailbox is an SMTP server.
type mailbox struct {
	address string
	mu      sync.Mutex
	// refuse answers that command; act is called with each mail before the reply
	refuse map[string]error
	act    func(n int, c net.Conn)
	mails  []string // Message-IDs
	to     []string
	tries  int
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveMailbox(t, l)
}

func serveMailbox(t *testing.T, l net.Listener) *mailbox {
	b := &mailbox{address: l.Addr().String(), act: func(int, net.Conn) {}}
	s := smtp.NewServer(b)
	s.Domain, s.ErrorLog = "mx.test", slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		_ = l.Close()
		_ = s.Close()
		serving.Wait()
	})
	return b
}

func (b *mailbox) mailer(t *testing.T) Mailer {
	t.Helper()
	m, err := NewMailer(t.Context(), smtpConfig(b.address), "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (b *mailbox) got() (ids, to []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mails, b.to
}

func (b *mailbox) refusing(refuse map[string]error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

func (b *mailbox) acting(act func(n int, c net.Conn)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.act = act
}

func (b *mailbox) answer(command string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refuse[command]
}

func (b *mailbox) NewSession(c *smtp.Conn) (smtp.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries++
	return &letter{b: b, conn: c.Conn()}, b.refuse["EHLO"]
}

type letter struct {
	b    *mailbox
	conn net.Conn
	to   string
}

func (l *letter) Reset()        {}
func (l *letter) Logout() error { return nil }

func (l *letter) Mail(string, *smtp.MailOptions) error { return l.b.answer("MAIL") }

func (l *letter) Rcpt(to string, _ *smtp.RcptOptions) error {
	l.to = to
	return l.b.answer("RCPT")
}

func (l *letter) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if err := l.b.answer("DATA"); err != nil {
		return err
	}
	l.b.mu.Lock()
	l.b.mails, l.b.to = append(l.b.mails, m.Header.Get("Message-Id")), append(l.b.to, l.to)
	n, act := len(l.b.mails), l.b.act
	l.b.mu.Unlock()
	act(n, l.conn)
	return nil
}

func refusal(code int) *smtp.SMTPError {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "no, says the server"}
}

// askFor records an event of that type for its one task.
func (w *world) askFor(owner uuid.UUID, event, kind string) task.ID {
	w.Helper()
	id := outbox.NewID()
	if err := w.db.InTx(w.Context(), func(tx *pg.Tx) error {
		return outbox.Record(w.Context(), tx, id, event, owner, uuid.NewString(), struct{}{})
	}); err != nil {
		w.Fatal(err)
	}
	return task.ID{Event: id, Subscriber: kind}
}

// messageID is the Message-ID of a task's mail.
func messageID(id task.ID) string {
	return "<" + strings.ReplaceAll(id.String(), ":", ".") + "@sender.test>"
}

// The first attempt fails, in every way; then the mail goes out. The states that
// are read meanwhile, and in the end, agree with the mails that were received.
func TestFirstAttemptFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*mailbox)
		// mails that the server has had when the task waits for its next attempt
		mails int
	}{
		"not welcome":      {func(b *mailbox) { b.refusing(map[string]error{"EHLO": refusal(421)}) }, 0},
		"sender, later":    {func(b *mailbox) { b.refusing(map[string]error{"MAIL": refusal(451)}) }, 0},
		"recipient, later": {func(b *mailbox) { b.refusing(map[string]error{"RCPT": refusal(450)}) }, 0},
		"content, later":   {func(b *mailbox) { b.refusing(map[string]error{"DATA": refusal(452)}) }, 0},
		"dropped, unsaid":  {func(b *mailbox) { b.acting(func(_ int, c net.Conn) { _ = c.Close() }) }, 1},
		"silent for too long": {func(b *mailbox) {
			gone := make(chan struct{})
			t.Cleanup(func() { close(gone) })
			b.acting(func(int, net.Conn) { <-gone })
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newMailbox(t)
			c.fail(b)
			w.work(letters(b.mailer(t), later, to("ada@example.test"), func(k *task.Kind) { k.Timeout = 2 * time.Second }))
			id := w.ask(task.MailTest)
			d := w.state(id, task.Retryable)
			if ids, _ := b.got(); len(ids) != c.mails || d.Attempts != 1 || len(d.Errors) != 1 || d.LastError == "" {
				t.Errorf("%d mails, %+v", len(ids), d)
			}
			b.refusing(nil)
			b.acting(func(int, net.Conn) {})
			if err := w.retry(id); err != nil {
				t.Fatal(err)
			}
			d = w.state(id, task.Completed)
			ids, to := b.got()
			if len(ids) != c.mails+1 || d.Attempts != 2 || d.LastError != "" {
				t.Errorf("%d mails, %+v", len(ids), d)
			}
			for i := range ids {
				if ids[i] != messageID(id) || to[i] != "ada@example.test" {
					t.Errorf("mail %d is %s to %s, the task's is %s", i, ids[i], to[i], messageID(id))
				}
			}
			if n := w.count(`SELECT count(*) FROM mail_turns WHERE recipient = 'ada@example.test'`); n != 1 {
				t.Errorf("it holds %d turns", n)
			}
		})
	}
}

// Nobody listens where the mail server should be; then it starts.
func TestServerStartsLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	mailer, err := NewMailer(t.Context(), smtpConfig(address), "")
	if err != nil {
		t.Fatal(err)
	}
	w.work(letters(mailer, later, to("ada@example.test")))
	id := w.ask(task.MailTest)
	w.state(id, task.Retryable)
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	b := serveMailbox(t, l)
	if err := w.retry(id); err != nil {
		t.Fatal(err)
	}
	w.state(id, task.Completed)
	if ids, _ := b.got(); len(ids) != 1 || ids[0] != messageID(id) {
		t.Errorf("%v", ids)
	}
}

func TestMailThatFailsForGood(t *testing.T) {
	for name, c := range map[string]struct {
		refuse   map[string]error
		to       string
		attempts int
	}{
		"sender":             {map[string]error{"MAIL": refusal(553)}, "ada@example.test", 1},
		"recipient":          {map[string]error{"RCPT": refusal(550)}, "ada@example.test", 1},
		"content":            {map[string]error{"DATA": refusal(554)}, "ada@example.test", 1},
		"no address":         {nil, "Eve <x@b.test>", 1},
		"two addresses":      {nil, "you@a.test>, <evil@b.test", 1},
		"a command":          {nil, "x@b.test\r\nRCPT TO:<y@b.test>", 1},
		"later, every time":  {map[string]error{"RCPT": refusal(450)}, "ada@example.test", 8},
		"login, every time":  {map[string]error{"MAIL": refusal(530)}, "ada@example.test", 8},
		"not welcome at all": {map[string]error{"EHLO": refusal(554)}, "ada@example.test", 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newMailbox(t)
			b.refusing(c.refuse)
			w.work(letters(b.mailer(t), soon, to(c.to)))
			id := w.ask(task.MailTest)
			d := w.state(id, task.Discarded)
			if ids, _ := b.got(); len(ids) != 0 || d.Attempts != c.attempts || len(d.Errors) != c.attempts {
				t.Errorf("%d mails, %+v", len(ids), d)
			}
			w.settled()
			w.state(id, task.Discarded)
		})
	}
	t.Run("no supplier", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.work(letters(nil, soon, to("ada@example.test")))
		if d := w.state(w.ask(task.MailTest), task.Discarded); d.Attempts != 1 || !strings.Contains(d.LastError, "no mail server is configured") {
			t.Errorf("%+v", d)
		}
	})
}

func TestMailQueuedBeforeARestart(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	register := letters(b.mailer(t), soon, to("ada@example.test"))
	stop := w.work(register)
	w.state(w.ask(task.MailTest), task.Completed)
	stop()
	id := w.ask(task.MailTest)
	w.eventually("a job", func() bool { return w.count(`SELECT count(*) FROM river_job WHERE kind = 'mail.test'`) == 2 })
	w.state(id, task.Pending)
	w.work(register)
	w.state(id, task.Completed)
	if ids, _ := b.got(); len(ids) != 2 || ids[1] != messageID(id) {
		t.Errorf("%v", ids)
	}
}

// A worker is killed when the server has the mail and nothing of that is
// recorded: the mail goes out a second time, and both are one.
func TestKilledBetweenSendAndRecord(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	killed := make(chan struct{})
	worker := exec.CommandContext(t.Context(), os.Args[0])
	worker.Env = append(os.Environ(), child+"="+w.url, childMail+"="+b.address)
	b.acting(func(n int, _ net.Conn) {
		if n == 1 {
			_ = worker.Process.Kill()
			_ = worker.Wait()
			close(killed)
		}
	})
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	id := w.ask(task.MailTest)
	select {
	case <-killed:
	case <-time.After(time.Minute):
		t.Fatal("it sent no mail")
	}
	w.state(id, task.Running)
	// what the rescuer does once the kind's time is up
	if _, err := w.db.Exec(t.Context(), `UPDATE river_job SET state = 'available', scheduled_at = now(),
		errors = array_append(errors, '{"at": "2026-01-02T03:04:05Z", "attempt": 1, "error": "Stuck job rescued by Rescuer", "trace": ""}') WHERE kind = 'mail.test'`); err != nil {
		t.Fatal(err)
	}
	w.work(letters(b.mailer(t), soon, to("ada@example.test")))
	w.state(id, task.Completed)
	if ids, _ := b.got(); len(ids) != 2 || ids[0] != messageID(id) || ids[1] != ids[0] {
		t.Errorf("the mails are %v, the task's is %s", ids, messageID(id))
	}
	if n := w.count(`SELECT count(*) FROM mail_turns`); n != 1 {
		t.Errorf("%d turns", n)
	}
}

// The attempt's time is up, or its owner cancels it, while the server says yes:
// what has happened is recorded.
func TestSentAtTheLastMoment(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	sent := func(ctx context.Context, m mail.Message) error {
		if err := b.mailer(t).Send(ctx, m); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	w.work(letters(mailerFunc(sent), soon, to("ada@example.test"), func(k *task.Kind) { k.Timeout = time.Second }))
	id := w.ask(task.MailTest)
	w.state(id, task.Completed)
	cancelled := w.ask(task.MailTest)
	w.eventually("its mail", func() bool { ids, _ := b.got(); return len(ids) == 2 })
	if state, err := w.cancel(cancelled); err != nil || state != task.Completed {
		t.Errorf("cancelled too late: %s, %v", state, err)
	}
	w.settled()
	w.state(cancelled, task.Completed)
	if ids, _ := b.got(); len(ids) != 2 {
		t.Errorf("%v", ids)
	}
}

type mailerFunc func(context.Context, mail.Message) error

func (f mailerFunc) Send(ctx context.Context, m mail.Message) error { return f(ctx, m) }

// snoozed waits until as many jobs are put off.
func (w *world) snoozed(n int) {
	w.Helper()
	w.eventually(fmt.Sprint(n, " put off"), func() bool {
		return w.count(`SELECT count(*) FROM river_job WHERE state = 'scheduled' AND kind IN ('mail.test', 'owner.notify')`) == n
	})
}

// pass lets an hour pass for the turns, and has River look at what is put off.
func (w *world) pass() {
	w.Helper()
	for _, sql := range []string{
		`UPDATE mail_turns SET at = at - interval '1 hour'`,
		`UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state = 'scheduled'`,
	} {
		if _, err := w.db.Exec(w.Context(), sql); err != nil {
			w.Fatal(err)
		}
	}
}

// The 31st mail to a person within an hour waits, whoever it is from and however
// the address is written; it spends no attempt, and goes out when its time comes.
func TestRecipientCap(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	w.work(letters(b.mailer(t), soon, func(args river.JobArgs) mail.Message {
		_, event := args.(caused).Origin()
		return to([]string{"ada@example.test", "Ada@Example.test", "ADA@EXAMPLE.TEST"}[event[15]%3])(args)
	}))
	owners := []uuid.UUID{w.owner, uuid.New()}
	for i := range recipientMost {
		w.askFor(owners[i%2], outbox.MailTestRequested, task.MailTest)
	}
	w.eventually("30 mails", func() bool { return w.count(`SELECT count(*) FROM tasks WHERE state = 'completed'`) == recipientMost })
	late := w.ask(task.MailTest)
	w.snoozed(1)
	d := w.state(late, task.Pending)
	if d.Attempts != 0 || len(d.Errors) != 0 || d.LastError != "" {
		t.Errorf("put off: %+v", d)
	}
	if n := w.count(`SELECT extract(epoch FROM scheduled_at - now())::int FROM river_job WHERE state = 'scheduled'`); n < 3500 || n > 3600 {
		t.Errorf("put off for %d s", n)
	}
	if code(w.retry(late)) != "task_pending" {
		t.Error("retrying overtakes the cap")
	}
	// a second look changes nothing
	if _, err := w.db.Exec(t.Context(), `UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state = 'scheduled'`); err != nil {
		t.Fatal(err)
	}
	w.eventually("its second look", func() bool {
		return w.count(`SELECT coalesce((metadata->>'snoozes')::int, 0) FROM river_job WHERE args->>'event_id' = $1`, late.Event) == 2
	})
	w.snoozed(1)
	if ids, _ := b.got(); len(ids) != recipientMost {
		t.Errorf("%d mails", len(ids))
	}
	w.pass()
	if d := w.state(late, task.Completed); d.Attempts != 1 || len(d.Errors) != 0 {
		t.Errorf("sent: %+v", d)
	}
	if ids, _ := b.got(); len(ids) != recipientMost+1 || ids[recipientMost] != messageID(late) {
		t.Errorf("%d mails", len(ids))
	}
}

// What is put off can be cancelled at once.
func TestCancelledWhilePutOff(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	w.full("ada@example.test")
	w.work(letters(b.mailer(t), soon, to("ada@example.test")))
	id := w.ask(task.MailTest)
	w.snoozed(1)
	if state, err := w.cancel(id); err != nil || state != task.Cancelled {
		t.Errorf("%s, %v", state, err)
	}
	w.settled()
	w.pass()
	w.settled()
	w.state(id, task.Cancelled)
	if ids, _ := b.got(); len(ids) != 0 {
		t.Errorf("%v", ids)
	}
}

// full gives away all turns of a recipient.
func (w *world) full(recipient string) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), `
		INSERT INTO mail_turns (event_id, subscriber, owner_id, recipient)
		SELECT gen_random_uuid(), 'mail.test', gen_random_uuid(), $1 FROM generate_series(1, $2::int)`, recipient, recipientMost); err != nil {
		w.Fatal(err)
	}
}

// Two workers that ask at once never give away more turns than there are, and
// nothing is lost over it.
func TestWorkersAtOnce(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	const all = 2*recipientMost + 10
	for i := range all {
		kind, event := task.MailTest, outbox.MailTestRequested
		if i%2 == 0 {
			kind, event = task.OwnerNotify, outbox.AccessSubmitted
		}
		w.askFor(uuid.New(), event, kind)
	}
	w.eventually("the jobs", func() bool {
		return w.count(`SELECT count(*) FROM river_job WHERE kind IN ('mail.test', 'owner.notify')`) == all
	})
	for range 2 {
		w.work(letters(b.mailer(t), soon, to("ada@example.test")))
	}
	check := func(sent int) {
		t.Helper()
		w.snoozed(all - sent)
		w.eventually("the mails", func() bool { return w.count(`SELECT count(*) FROM tasks WHERE state = 'completed'`) == sent })
		if ids, _ := b.got(); len(ids) != sent {
			t.Errorf("%d mails, not %d", len(ids), sent)
		}
		var failed string
		if err := w.db.QueryRow(t.Context(), `
			SELECT coalesce(string_agg(e::text, E'\n'), '') FROM river_job, unnest(errors) AS e
			WHERE e->>'error' NOT LIKE '%database can''t be reached%' -- a machine too busy to connect in time`).Scan(&failed); err != nil || failed != "" {
			t.Errorf("attempts failed: %s, %v", failed, err)
		}
	}
	check(recipientMost)
	w.pass()
	check(2 * recipientMost)
	w.pass()
	check(all)
	ids, _ := b.got()
	once := map[string]bool{}
	for _, id := range ids {
		once[id] = true
	}
	if len(once) != all {
		t.Errorf("%d of %d mails", len(once), all)
	}
}

// The sixth mail of its kind within an hour is dropped: the owner reads why, and
// nothing is retried. Other owners and other kinds are not concerned.
func TestOwnerCap(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	var logged logs
	register := letters(b.mailer(t), soon, to("ada@example.test"))
	w.work(func(registry *river.Workers, e *env) {
		e.log = slog.New(slog.NewTextHandler(&logged, nil))
		register(registry, e)
	})
	notify := func(owner uuid.UUID) task.ID { return w.askFor(owner, outbox.AccessSubmitted, task.OwnerNotify) }
	for range 5 {
		w.state(notify(w.owner), task.Completed)
	}
	dropped := notify(w.owner)
	d := w.state(dropped, task.Cancelled)
	const why = "no mail: more than 5 of this kind were due within 1h"
	if d.LastError != why || len(d.Errors) != 1 || d.Timeline.Finished == nil {
		t.Errorf("%+v", d)
	}
	w.settled()
	if !strings.Contains(logged.String(), why) || !strings.Contains(logged.String(), dropped.String()) || strings.Contains(logged.String(), "attempt failed") {
		t.Errorf("logged: %s", logged.String())
	}
	if d := w.state(dropped, task.Cancelled); d.LastError != why {
		t.Errorf("once River has recorded it: %+v", d)
	}
	w.state(w.ask(task.MailTest), task.Completed)
	other := uuid.New()
	theirs := notify(other)
	w.eventually("the other owner's", func() bool {
		return w.count(`SELECT count(*) FROM tasks WHERE event_id = $1 AND state = 'completed'`, theirs.Event) == 1
	})
	if ids, _ := b.got(); len(ids) != 7 {
		t.Errorf("%d mails", len(ids))
	}
	w.pass()
	w.state(notify(w.owner), task.Completed)
	// the owner wants the dropped one after all
	if err := w.retry(dropped); err != nil {
		t.Fatal(err)
	}
	w.state(dropped, task.Completed)
	if ids, _ := b.got(); len(ids) != 9 {
		t.Errorf("%d mails", len(ids))
	}
}

// A mail whose attempts failed until others had used its owner's share up is
// dropped too, and what went wrong before stays to be read.
func TestDroppedAfterFailures(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	w.work(letters(b.mailer(t), later, to("ada@example.test")))
	notify := func() task.ID { return w.askFor(w.owner, outbox.AccessSubmitted, task.OwnerNotify) }
	b.refusing(map[string]error{"RCPT": refusal(450)})
	first := notify()
	w.state(first, task.Retryable)
	b.refusing(nil)
	if _, err := w.db.Exec(t.Context(), `UPDATE mail_turns SET at = at - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.state(notify(), task.Completed)
	}
	if err := w.retry(first); err != nil {
		t.Fatal(err)
	}
	d := w.state(first, task.Cancelled)
	if len(d.Errors) != 2 || !strings.Contains(d.Errors[0].Error, "no, says the server") || !strings.HasPrefix(d.LastError, "no mail: more than 5") {
		t.Errorf("%+v", d.Errors)
	}
	if ids, _ := b.got(); len(ids) != 5 {
		t.Errorf("%d mails", len(ids))
	}
}

type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What failed for good, or was cancelled, doesn't count; what is still being
// tried does.
func TestTurnsAreGivenBack(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newMailbox(t)
	w.full("ada@example.test")
	if _, err := w.db.Exec(t.Context(), `DELETE FROM mail_turns WHERE event_id = (SELECT event_id FROM mail_turns LIMIT 1)`); err != nil {
		t.Fatal(err)
	}
	w.work(letters(b.mailer(t), later, to("ada@example.test")))
	b.refusing(map[string]error{"RCPT": refusal(450)})
	first := w.ask(task.MailTest)
	w.state(first, task.Retryable)
	b.refusing(map[string]error{"RCPT": refusal(550)})
	second := w.ask(task.MailTest)
	w.snoozed(1)
	w.state(second, task.Pending)
	if state, err := w.cancel(first); err != nil || state != task.Cancelled {
		t.Fatal(state, err)
	}
	again := func() {
		t.Helper()
		if _, err := w.db.Exec(t.Context(), `UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state = 'scheduled'`); err != nil {
			t.Fatal(err)
		}
	}
	again()
	w.state(second, task.Discarded)
	b.refusing(nil)
	w.state(w.ask(task.MailTest), task.Completed)
	third := w.ask(task.MailTest)
	w.snoozed(1)
	w.state(third, task.Pending)
	// the owner has the failed one tried again: it waits like every other
	if err := w.retry(second); err != nil {
		t.Fatal(err)
	}
	w.snoozed(2)
	w.state(second, task.Retryable)
	if ids, _ := b.got(); len(ids) != 1 {
		t.Errorf("%d mails", len(ids))
	}
	w.pass()
	w.state(second, task.Completed)
	w.state(third, task.Completed)
}

func TestOldTurnsAreRemoved(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	if _, err := db.Exec(t.Context(), `
		INSERT INTO mail_turns (event_id, subscriber, owner_id, recipient, at)
		SELECT gen_random_uuid(), 'mail.test', gen_random_uuid(), 'ada@example.test', now() - make_interval(hours => h) FROM generate_series(20, 30) AS h`); err != nil {
		t.Fatal(err)
	}
	note, err := runPeriodic(t.Context(), db, nil, "guests.retention")
	var left int
	if err := errors.Join(err, db.QueryRow(t.Context(), `SELECT count(*) FROM mail_turns`).Scan(&left)); err != nil || left != 4 || !strings.HasPrefix(note, "7 ") {
		t.Errorf("%d left, %q, %v", left, note, err)
	}
}

func TestNewMailer(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		config config.Config
		want   string
		fault  string
	}{
		"SMTP":             {smtpConfig("mail.test"), "*mail.SMTP", ""},
		"SMTP without URL": {config.Config{MailSupplier: config.MailSMTP}, "<nil>", "SMTP_URL is not set"},
		"SES":              {config.Config{MailSupplier: config.MailSES, SESRegion: "eu-west-1", SESEndpoint: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}, "*mail.SES", ""},
		"a directory":      {config.Config{MailSupplier: config.MailDirectory}, "mail.Dir", ""},
		"none":             {config.Config{MailSupplier: config.MailNone}, "<nil>", ""},
	} {
		m, err := NewMailer(t.Context(), c.config, dir)
		if got := fmt.Sprintf("%T", m); got != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
