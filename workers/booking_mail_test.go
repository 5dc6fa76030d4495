package workers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/emersion/go-ical"
	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// invitation is a mail about a booking as the server got it.
type invitation struct {
	to, subject, replyTo string
	// parts by media type; the calendar's parameters
	parts  map[string]string
	method string
	raw    []byte
}

// postOffice is an SMTP server that keeps each mail whole.
type postOffice struct {
	t       *testing.T
	address string

	mu    sync.Mutex
	taken []invitation
	// answer decides about a mail; nil takes it
	answer  func(invitation) error
	refused int
}

func newPostOffice(t *testing.T) *postOffice {
	o := &postOffice{t: t, answer: func(invitation) error { return nil }}
	server := smtp.NewServer(o)
	server.Domain, server.ErrorLog = "mx.test", slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.address = listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		_ = server.Close()
		serving.Wait()
	})
	return o
}

func (o *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) { return &delivery{o: o}, nil }

func (o *postOffice) answers(f func(invitation) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = f
}

// to are the mails to an address, in the order of their arrival.
func (o *postOffice) to(address string) (all []invitation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.taken {
		if m.to == address {
			all = append(all, m)
		}
	}
	return all
}

func (o *postOffice) refusals() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

type delivery struct {
	o  *postOffice
	to string
}

func (*delivery) Reset()                               {}
func (*delivery) Logout() error                        { return nil }
func (*delivery) Mail(string, *smtp.MailOptions) error { return nil }

func (d *delivery) Rcpt(to string, _ *smtp.RcptOptions) error {
	d.to = to
	return nil
}

func (d *delivery) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m := invitation{to: d.to, parts: map[string]string{}, raw: raw}
	read, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		d.o.t.Errorf("%v: %s", err, raw)
		return err
	}
	m.subject, _ = new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
	m.replyTo = read.Header.Get("Reply-To")
	m.open(d.o.t, read.Header.Get("Content-Type"), read.Header.Get("Content-Transfer-Encoding"), read.Body)
	d.o.mu.Lock()
	answer := d.o.answer
	d.o.mu.Unlock()
	err = answer(m) // it may take its time
	d.o.mu.Lock()
	defer d.o.mu.Unlock()
	if err != nil {
		d.o.refused++
		return err
	}
	d.o.taken = append(d.o.taken, m)
	return nil
}

// open reads a part, and those within.
func (m *invitation) open(t *testing.T, contentType, encoding string, body io.Reader) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Errorf("%s: %v", contentType, err)
		return
	}
	if strings.HasPrefix(media, "multipart/") {
		for parts := multipart.NewReader(body, params["boundary"]); ; {
			p, err := parts.NextRawPart()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				return
			}
			m.open(t, p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p)
		}
	}
	switch strings.ToLower(encoding) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		t.Errorf("%s: %v", contentType, err)
	}
	m.parts[media] = string(content)
	if media == "text/calendar" {
		m.method = params["method"]
	}
}

// calendarOf reads the one event of a mail, and checks what calendars want of any.
func calendarOf(t *testing.T, m invitation) (method string, event *ical.Component) {
	t.Helper()
	raw := m.parts["text/calendar"]
	if attached := m.parts["application/ics"]; attached != raw {
		t.Errorf("the attachment is another: %s", attached)
	}
	cal, err := ical.NewDecoder(strings.NewReader(raw)).Decode()
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if other, err := ics.ParseCalendar(strings.NewReader(raw)); err != nil || len(other.Events()) != 1 {
		t.Errorf("the second parser: %v: %s", err, raw)
	}
	if len(cal.Children) != 1 {
		t.Fatalf("%s", raw)
	}
	method, event = cal.Props.Get("METHOD").Value, cal.Children[0]
	if m.method != method {
		t.Errorf("the part's method is %s, the object's %s", m.method, method)
	}
	return method, event
}

// reception is a desk whose mails are about bookings.
type reception struct {
	*desk
	post *postOffice
}

func newReception(t *testing.T) *reception {
	t.Parallel()
	r := &reception{desk: newDesk(t), post: newPostOffice(t)}
	week := object{}
	for _, d := range []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"} {
		week[d] = []object{{"from": "09:00", "to": "17:00"}}
	}
	r.ok("PUT", "/v1/availability", object{"time_zone": "Europe/Berlin", "weekly": week, "horizon_days": 730})
	return r
}

func (r *reception) workers(pause backoff, keyed bool) (stop func()) {
	mailer, err := NewMailer(r.Context(), smtpConfig(r.post.address), "")
	if err != nil {
		r.Fatal(err)
	}
	return r.work(func(registry *river.Workers, e *env) {
		p := &post{db: e.db, log: e.log, mailer: mailer, url: page}
		if keyed {
			p.keys = r.keys
		}
		visitor, owner := newWorker(e, task.BookingMail, pause, bookingMail(p)), newWorker(e, task.BookingOwnerMail, pause, bookingOwnerMail(p))
		visitor.kind.MaxAttempts = 100
		river.AddWorker(registry, visitor)
		river.AddWorker(registry, owner)
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodic(e.db)))
	})
}

// ahead is the next such day that is at least a week ahead.
func ahead(month time.Month, day int) time.Time {
	now := time.Now().UTC()
	t := time.Date(now.Year(), month, day, 0, 0, 0, 0, time.UTC)
	if t.Before(now.AddDate(0, 0, 7)) {
		t = t.AddDate(1, 0, 0)
	}
	return t
}

const visitorMail, ownerMail = "vera@visitor.test", "ada@owner.test"

// booked books, moves and cancels, and gives the booking.
func (r *reception) booked(more object) answer {
	r.Helper()
	body := object{"start": ahead(time.June, 15).Add(7 * time.Hour).Format(time.RFC3339), "name": "Vera", "email": visitorMail, "topic": "A talk"}
	for k, v := range more {
		body[k] = v
	}
	return r.ok("POST", "/v1/public/me/bookings", body)
}

func (r *reception) moved(a answer, start time.Time) answer {
	r.Helper()
	return r.ok("POST", "/v1/bookings/"+a.text("booking.id")+"/reschedule", object{"start": start.Format(time.RFC3339), "manage_token": a.text("manage_token")})
}

func (r *reception) cancelled(a answer) answer {
	r.Helper()
	return r.ok("POST", "/v1/bookings/"+a.text("booking.id")+"/cancel", object{})
}

// task is that of the booking's change with that sequence.
func (r *reception) task(a answer, sequence int, kind string) task.ID {
	r.Helper()
	id := task.ID{Subscriber: kind}
	if err := r.db.QueryRow(r.Context(), `SELECT id FROM events WHERE subject = $1 AND type LIKE 'booking.%' AND (data->>'sequence')::int = $2`, a.text("booking.id"), sequence).Scan(&id.Event); err != nil {
		r.Fatal(err)
	}
	return id
}

// stands waits until the booking says so of its mail, and checks that it says
// nothing else on the way.
func (r *reception) says(a answer, state string) {
	r.Helper()
	r.eventually("mail "+state, func() bool {
		got := r.ok("GET", "/v1/bookings/"+a.text("booking.id"), nil)
		if said := claim.MatchString(got.text("sentence")); said != (got.text("notification.state") == "sent") {
			r.Errorf("it contradicts itself: %s", got.raw)
		}
		return got.text("notification.state") == state
	})
}

// Case B4 with the text of B5: book, move over a change of the clock, cancel.
func TestMailsOfABooking(t *testing.T) {
	r := newReception(t)
	topic := "a, b; c\n•🎉予算, 見直し; path C:\\new " + strings.Repeat("長", 60)
	name := `Lee, "Sam"; Ops: X`
	summer, winter := ahead(time.June, 15).Add(7*time.Hour), ahead(time.January, 20).Add(8*time.Hour)
	a := r.booked(object{"topic": topic, "name": name, "start": summer.Format(time.RFC3339)})
	r.moved(a, winter)
	last := r.cancelled(a)
	if last.text("notification.state") != "sending" {
		t.Errorf("%s", last.raw)
	}
	// all three wait, and are made in whatever order the relay and the workers like
	r.relays()
	r.workers(soon, true)
	r.says(a, "sent")
	r.settled()

	mails := r.post.to(visitorMail)
	if len(mails) != 3 {
		t.Fatalf("%d mails", len(mails))
	}
	organizer := ""
	for i, want := range []struct {
		method, status, subject, when string
		start                         time.Time
	}{
		{"REQUEST", "CONFIRMED", "Booked: Ada Möller, ", "09:00–09:30 Europe/Berlin (UTC+02:00)", summer},
		{"REQUEST", "CONFIRMED", "Moved: Ada Möller, ", "09:00–09:30 Europe/Berlin (UTC+01:00)", winter},
		{"CANCEL", "CANCELLED", "Cancelled: Ada Möller, ", "09:00–09:30 Europe/Berlin (UTC+01:00)", winter},
	} {
		m := mails[i]
		method, event := calendarOf(t, m)
		text := func(name string) string { s, _ := event.Props.Text(name); return s }
		start, _ := event.Props.DateTime("DTSTART", time.UTC)
		end, _ := event.Props.DateTime("DTEND", time.UTC)
		if method != want.method || text("STATUS") != want.status || text("UID") != a.text("booking.id") || event.Props.Get("SEQUENCE").Value != fmt.Sprint(i) ||
			!start.Equal(want.start) || end.Sub(start) != 30*time.Minute || text("SUMMARY") != topic {
			t.Errorf("mail %d: %s", i, m.parts["text/calendar"])
		}
		o, v := event.Props.Get("ORGANIZER"), event.Props.Get("ATTENDEE")
		if o.Value != "mailto:"+ownerMail || o.Params.Get("CN") != "Ada Möller" || v.Value != "mailto:"+visitorMail || v.Params.Get("CN") != `Lee, ^'Sam^'; Ops: X` {
			t.Errorf("mail %d: %v, %v", i, o, v)
		}
		if organizer == "" {
			organizer = fmt.Sprint(o)
		}
		if organizer != fmt.Sprint(o) {
			t.Errorf("mail %d has another organizer: %v", i, o)
		}
		plain := strings.ReplaceAll(m.parts["text/plain"], "\r\n", "\n")
		linked := strings.Contains(plain, a.text("manage_url")) && strings.Contains(m.parts["text/html"], `href="`+a.text("manage_url")+`"`)
		if !strings.HasPrefix(m.subject, want.subject) || !strings.HasSuffix(m.subject, want.when) || !strings.Contains(plain, "When: ") || !strings.Contains(plain, want.when) ||
			!strings.Contains(plain, want.start.Format("15:04")+"–"+want.start.Add(30*time.Minute).Format("15:04")+" UTC\n") ||
			linked != (i < 2) || !strings.Contains(m.replyTo, "<"+ownerMail+">") {
			t.Errorf("mail %d: %s, reply to %s\n%s", i, m.subject, m.replyTo, plain)
		}
		// kept with -artifacts, to be looked at with other tools
		dir := t.ArtifactDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.eml", i)), m.raw, 0o600), os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.ics", i)), []byte(m.parts["text/calendar"]), 0o600)); err != nil {
			t.Error(err)
		}
	}
	notices := r.post.to(ownerMail)
	if len(notices) != 3 {
		t.Fatalf("%d mails to the owner", len(notices))
	}
	for i, want := range []string{"Somebody booked a time with you.", "The visitor moved a booking.", "You cancelled a booking."} {
		plain := notices[i].parts["text/plain"]
		if !strings.HasPrefix(plain, want) || notices[i].method != "" || strings.Contains(string(notices[i].raw), a.text("manage_token")) || !strings.Contains(notices[i].replyTo, "<"+visitorMail+">") {
			t.Errorf("notice %d: %s", i, plain)
		}
	}
}

func later451(invitation) error { return refusal(451) }

// While a mail waits for its next attempt, the later ones of its booking wait too;
// those of others don't.
func TestLaterMailsWait(t *testing.T) {
	r := newReception(t)
	r.post.answers(func(m invitation) error {
		if m.to == visitorMail {
			return refusal(451)
		}
		return nil
	})
	a := r.booked(nil)
	r.moved(a, ahead(time.June, 16).Add(7*time.Hour))
	r.cancelled(a)
	r.booked(object{"email": "other@visitor.test", "start": ahead(time.June, 17).Add(7 * time.Hour).Format(time.RFC3339)})
	r.relays()
	r.workers(func(int) time.Duration { return 50 * time.Millisecond }, true)
	r.eventually("the other's mail", func() bool { return len(r.post.to("other@visitor.test")) == 1 })
	r.eventually("three attempts", func() bool { return r.post.refusals() >= 3 })
	// they have been put off without losing an attempt
	second, third := r.task(a, 1, task.BookingMail), r.task(a, 2, task.BookingMail)
	for _, id := range []task.ID{second, third} {
		r.eventually("it was put off", func() bool {
			return r.count(`SELECT count(*) FROM river_job j JOIN tasks t ON t.job_id = j.id WHERE t.event_id = $1 AND t.subscriber = $2 AND (j.metadata->>'snoozes')::int > 0`, id.Event, id.Subscriber) == 1
		})
		if d := r.get(id); d.State.Terminal() || len(d.Errors) != 0 {
			t.Errorf("%+v", d.Task)
		}
	}
	r.says(a, "sending")
	if n := len(r.post.to(visitorMail)); n != 0 {
		t.Errorf("%d mails", n)
	}
	r.post.answers(func(invitation) error { return nil })
	r.says(a, "sent")
	r.settled()
	r.inSequence(0, 1, 2)
}

// inSequence checks the numbers of the visitor's mails, in the order they came.
func (r *reception) inSequence(want ...int) {
	r.Helper()
	var got []int
	for _, m := range r.post.to(visitorMail) {
		_, event := calendarOf(r.T, m)
		n, _ := event.Props.Get("SEQUENCE").Int()
		got = append(got, n)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("mails %v, want %v", got, want)
	}
}

// A mail that failed for good holds up nothing; one that is tried again after a
// later one was sent is dropped.
func TestBookingMailThatFailsForGood(t *testing.T) {
	r := newReception(t)
	r.post.answers(func(m invitation) error {
		if strings.HasPrefix(m.subject, "Booked") {
			return refusal(550)
		}
		return nil
	})
	r.relays()
	r.workers(soon, true)
	a := r.booked(nil)
	r.says(a, "failed")
	r.moved(a, ahead(time.June, 16).Add(7*time.Hour))
	r.cancelled(a)
	r.says(a, "sent")
	r.settled()
	r.inSequence(1, 2)

	r.post.answers(func(invitation) error { return nil })
	first := r.task(a, 0, task.BookingMail)
	r.state(first, task.Discarded)
	if err := r.retry(first); err != nil {
		t.Fatal(err)
	}
	d := r.state(first, task.Cancelled)
	if !strings.Contains(d.LastError, "a later one about this booking went out before") {
		t.Errorf("%+v", d.Task)
	}
	r.settled()
	r.inSequence(1, 2)
	r.says(a, "sent")
}

// A mail that had failed for good and is tried again while a later one is with the
// mail server, or is to be tried once more, must not come after it: it is dropped.
func TestEarlierMailTriedAgain(t *testing.T) {
	for name, busy := range map[string]bool{"meanwhile": true, "between attempts": false} {
		t.Run(name, func(t *testing.T) {
			r := newReception(t)
			arrived, release := make(chan struct{}, 9), make(chan struct{})
			r.post.answers(func(m invitation) error {
				switch {
				case m.to != visitorMail:
					return nil
				case strings.HasPrefix(m.subject, "Booked"):
					return refusal(550)
				case busy:
					arrived <- struct{}{}
					<-release
					return nil
				}
				return refusal(451)
			})
			r.relays()
			r.workers(func(int) time.Duration { return 50 * time.Millisecond }, true)
			a := r.booked(nil)
			r.says(a, "failed")
			r.cancelled(a)
			first, second := r.task(a, 0, task.BookingMail), r.task(a, 1, task.BookingMail)
			if busy {
				<-arrived
			} else {
				r.state(second, task.Retryable)
			}
			r.post.answers(func(m invitation) error {
				if m.to == visitorMail && strings.HasPrefix(m.subject, "Cancelled") && !busy {
					select {
					case <-release:
					default:
						return refusal(451)
					}
				}
				return nil
			})
			if err := r.retry(first); err != nil {
				t.Fatal(err)
			}
			if d := r.state(first, task.Cancelled); !strings.Contains(d.LastError, "a later one about this booking is being sent already") {
				t.Errorf("%+v", d.Task)
			}
			close(release)
			r.state(second, task.Completed)
			r.settled()
			r.inSequence(1)
			r.says(a, "sent")
		})
	}
}

// The relay makes tasks in whatever order: the mail of a change whose
// predecessor's task is not even made waits, unless that event was set aside.
func TestMailBeforeItsPredecessorsTask(t *testing.T) {
	for name, release := range map[string]string{
		"held":      ``,
		"set aside": `UPDATE event_queue SET poisoned_at = now() WHERE event_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newReception(t)
			a := r.booked(nil)
			r.cancelled(a)
			first, second := r.task(a, 0, task.BookingMail), r.task(a, 1, task.BookingMail)
			held, err := r.db.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Rollback(context.Background()) }()
			if _, err := held.Exec(t.Context(), `SELECT FROM event_queue WHERE event_id = $1 FOR UPDATE`, first.Event); err != nil {
				t.Fatal(err)
			}
			r.relays()
			r.workers(soon, true)
			r.eventually("the second was put off", func() bool {
				// nobody thinks in a transaction for long
				if _, err := held.Exec(t.Context(), `SELECT`); err != nil {
					t.Fatal(err)
				}
				return r.count(`SELECT count(*) FROM river_job j JOIN tasks t ON t.job_id = j.id WHERE t.event_id = $1 AND t.subscriber = $2 AND (j.metadata->>'snoozes')::int > 0`, second.Event, second.Subscriber) == 1
			})
			r.inSequence()
			if release != "" {
				if _, err := held.Exec(t.Context(), release, first.Event); err != nil {
					t.Fatal(err)
				}
			}
			if err := held.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.says(a, "sent")
			if release == "" {
				r.inSequence(0, 1)
			} else {
				r.inSequence(1)
			}
		})
	}
}

// What can never be mailed fails at once.
func TestBookingMailThatCannotBe(t *testing.T) {
	r := newReception(t)
	r.relays()
	r.workers(later, false)
	a := r.booked(nil)
	r.says(a, "failed")
	if d := r.state(r.task(a, 0, task.BookingMail), task.Discarded); !strings.Contains(d.LastError, "SECRET_KEY") {
		t.Errorf("%+v", d.Task)
	}
	r.state(r.task(a, 0, task.BookingOwnerMail), task.Completed)
	for _, data := range []string{`{}`, `{"booking_id": 1}`, `{"booking_id": "` + uuid.NewString() + `"}`} {
		event := outbox.NewID()
		if err := r.db.InTx(t.Context(), func(tx *pg.Tx) error {
			return outbox.Record(t.Context(), tx, event, outbox.BookingCancelled, r.owner, uuid.NewString(), json.RawMessage(data))
		}); err != nil {
			t.Fatal(err)
		}
		r.state(task.ID{Event: event, Subscriber: task.BookingMail}, task.Discarded)
		r.state(task.ID{Event: event, Subscriber: task.BookingOwnerMail}, task.Discarded)
	}
	if n := len(r.post.to(visitorMail)); n != 0 {
		t.Errorf("%d mails", n)
	}
}

// Mails that were asked for before a stop go out after it, once.
func TestBookingMailsAfterARestart(t *testing.T) {
	r := newReception(t)
	r.post.answers(later451)
	r.relays()
	stop := r.workers(func(int) time.Duration { return 50 * time.Millisecond }, true)
	a := r.booked(nil)
	r.eventually("an attempt", func() bool { return r.post.refusals() > 0 })
	stop()
	r.cancelled(a)
	r.says(a, "sending")
	r.post.answers(func(invitation) error { return nil })
	r.workers(soon, true)
	r.says(a, "sent")
	r.settled()
	r.inSequence(0, 1)
}
