package workers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/riverqueue/river"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/config"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// received is a mail as the server got it.
type received struct {
	from      string
	to        []string
	header    netmail.Header
	text, web string
}

func (l received) word(header string) string {
	decoded, _ := new(mime.WordDecoder).DecodeHeader(l.header.Get(header))
	return decoded
}

// office is an SMTP server that does as it is told.
type office struct {
	*testing.T
	address string

	mu      sync.Mutex
	refusal *smtp.SMTPError // answers DATA
	hangUp  int             // so many mails are taken and not acknowledged
	taken   []received
	refused int
}

func newOffice(t *testing.T) *office {
	o := &office{T: t}
	server := smtp.NewServer(o)
	server.Domain, server.ReadTimeout, server.WriteTimeout = "mx.test", 20*time.Second, 20*time.Second
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.address = listener.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		_ = server.Close()
		<-done
	})
	return o
}

func (o *office) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &visit{o: o, conn: c}, nil
}

func (o *office) refuse(e *smtp.SMTPError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusal = e
}

func (o *office) mails() []received {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]received(nil), o.taken...)
}

// to is the mails to an address.
func (o *office) to(address string) (all []received) {
	for _, l := range o.mails() {
		if len(l.to) != 1 || !strings.Contains(l.header.Get("To"), "<"+l.to[0]+">") {
			o.Errorf("recipients %v of a mail to %s", l.to, l.header.Get("To"))
		}
		if l.to[0] == address {
			all = append(all, l)
		}
	}
	return all
}

func (o *office) refusals() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

type visit struct {
	o    *office
	conn *smtp.Conn
	received
}

func (v *visit) Mail(from string, _ *smtp.MailOptions) error {
	v.received = received{from: from}
	return nil
}

func (v *visit) Rcpt(to string, _ *smtp.RcptOptions) error {
	v.to = append(v.to, to)
	return nil
}

func (v *visit) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	if v.o.refusal != nil {
		v.o.refused++
		return v.o.refusal
	}
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		v.o.Errorf("%v: %s", err, raw)
		return err
	}
	v.header = m.Header
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		v.o.Errorf("content type %s, %v", kind, err)
		return err
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			v.o.Errorf("%v: %s", err, raw)
			return err
		}
		var body []byte
		switch p.Header.Get("Content-Transfer-Encoding") {
		case "base64":
			body, err = io.ReadAll(base64.NewDecoder(base64.StdEncoding, p))
		default:
			body, err = io.ReadAll(quotedprintable.NewReader(p))
		}
		if err != nil {
			v.o.Error(err)
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			v.web = string(body)
		} else {
			v.text = strings.ReplaceAll(string(body), "\r\n", "\n")
		}
	}
	v.o.taken = append(v.o.taken, v.received)
	if v.o.hangUp > 0 {
		v.o.hangUp--
		_ = v.conn.Close()
	}
	return nil
}

func (*visit) Reset()        {}
func (*visit) Logout() error { return nil }

const page = "https://page.test"

// desk is a page with its owner, a mail server, and the operations over HTTP and
// MCP.
type desk struct {
	*world
	mail  *office
	keys  secret.Keys
	base  string
	token string
}

func newDesk(t *testing.T) *desk {
	d := &desk{world: newWorldAtRest(t), mail: newOffice(t)}
	var err error
	if d.keys, err = secret.ParseKeys(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), secret.MinKey))); err != nil {
		t.Fatal(err)
	}
	if err := d.db.InTx(t.Context(), func(tx *pg.Tx) error {
		me, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "me", Name: "Ada Möller", Email: "ada@owner.test"})
		if err != nil {
			return err
		}
		d.owner = me.ID
		_, d.token, err = auth.CreateToken(t.Context(), tx, me.ID, auth.Token{Name: "t", Scopes: []string{"*"}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	requests := d.db
	wait := waiter.New(requests, waiter.Options{}, task.FinalSource(requests), outbox.FanoutSource(requests))
	t.Cleanup(wait.Close)
	store := &auth.Store{DB: requests}
	t.Cleanup(func() { store.Flush(context.Background()) })
	f := functions.New(functions.Deps{DB: requests, Waiter: wait, Receipts: task.NewReceipts(requests, wait), Auth: store, Keys: d.keys, PublicURL: page, Mail: true})
	mux := http.NewServeMux()
	for path, name := range map[string]string{"/": functions.Any, "/mcp": functions.MCP} {
		h, err := f.Endpoint(name)
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(path, h)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	d.base = s.URL
	return d
}

// mails starts the workers that mail, with a pause between attempts that a test
// can wait for.
func (d *desk) mails() (stop func()) {
	mailer, err := NewMailer(d.Context(), config.Config{MailSupplier: config.MailSMTP, SMTPURL: &url.URL{Scheme: "smtp", Host: d.mail.address}, MailFrom: "page@sender.test"}, "")
	if err != nil {
		d.Fatal(err)
	}
	return d.work(func(registry *river.Workers, e *env) {
		p := &post{db: e.db, log: e.log, mailer: mailer, keys: d.keys, url: page}
		pause := func(int) time.Duration { return 30 * time.Millisecond }
		approval, notify := newWorker(e, task.ApprovalMail, pause, approvalMail(p)), newWorker(e, task.OwnerNotify, pause, ownerNotify(p))
		approval.kind.MaxAttempts, notify.kind.MaxAttempts = 1000, 1000
		river.AddWorker(registry, approval)
		river.AddWorker(registry, notify)
		river.AddWorker(registry, newWorker(e, task.TasksBulk, quick, bulk(e.db)))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodic(e.db)))
	})
}

type object = map[string]any

type answer struct {
	status int
	body   object
	raw    string
}

func (a answer) at(path string) any {
	var v any = a.body
	for key := range strings.SplitSeq(path, ".") {
		in, _ := v.(object)
		v = in[key]
	}
	return v
}

func (a answer) text(path string) string { s, _ := a.at(path).(string); return s }

// call may be used by many at once.
func (d *desk) call(method, path string, body object, headers ...string) (a answer) {
	var payload []byte
	if body != nil {
		payload, _ = json.Marshal(body)
	}
	r, err := http.NewRequestWithContext(d.Context(), method, d.base+path, bytes.NewReader(payload))
	if err != nil {
		d.Error(err)
		return a
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+d.token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		d.Error(err)
		return a
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	a = answer{status: res.StatusCode, raw: string(raw)}
	if err := json.Unmarshal(raw, &a.body); err != nil {
		d.Errorf("%s %s: %v: %s", method, path, err, raw)
	}
	return a
}

func (d *desk) ok(method, path string, body object, headers ...string) answer {
	d.Helper()
	a := d.call(method, path, body, headers...)
	if a.status/100 != 2 {
		d.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return a
}

// tool calls an MCP tool and gives its result as HTTP would.
func (d *desk) tool(name string, arguments object) answer {
	a := d.call("POST", "/mcp", object{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": object{"name": name, "arguments": arguments}}, "Accept", "application/json, text/event-stream")
	body, _ := a.at("result.structuredContent").(object)
	return answer{status: a.status, body: body, raw: a.raw}
}

// asked makes an access request and gives its path.
func (d *desk) asked(change object) string {
	d.Helper()
	body := object{"name": "Eve", "email": "eve@visitor.test", "message": "Hello"}
	for k, v := range change {
		body[k] = v
	}
	a := d.ok("POST", "/v1/public/me/access-requests", body)
	return "/v1/access-requests/" + a.text("request_id")
}

var claim = regexp.MustCompile(`(?i)\b(sent|told|mailed|invited|notified|informed|delivered)\b`)

// stands reads the request. Whatever it says of the mail must agree with itself.
func (d *desk) stands(path string) answer {
	d.Helper()
	a := d.ok("GET", path, nil)
	mail, said := a.text("request.mail.state"), claim.MatchString(a.text("request.mail.sentence"))
	if said != (mail == "sent") || a.text("request.state") == "replied" && a.at("request.replied_at") == nil {
		d.Errorf("it contradicts itself: %s", a.raw)
	}
	return a
}

func (d *desk) becomes(path, state, mail string) answer {
	d.Helper()
	var a answer
	d.eventually(state+", "+mail, func() bool {
		a = d.stands(path)
		return a.text("request.state") == state && a.text("request.mail.state") == mail
	})
	return a
}

// What the owner and the visitor get, through the whole product. What a visitor
// wrote is shown as it is and is nothing else (case M3).
func TestRequestToCode(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.relays()
	d.mails()
	const markup = `<a href=https://b.test>Reset</a>`
	path := d.asked(object{"name": `Eve, "F" <x@b.test>`, "org": "山田\r\nBcc: you@b.test", "message": markup + "\n\nhttps://b.test/x\n" + strings.Repeat("x", 5000)})
	d.eventually("the mail to the owner", func() bool { return len(d.mail.to("ada@owner.test")) == 1 })
	l := d.mail.to("ada@owner.test")[0]
	if subject := l.word("Subject"); subject != `A request for access to your page, from Eve, "F" <x@b.test>` || l.header.Get("Bcc") != "" {
		t.Errorf("%q, %v", subject, l.header)
	}
	if !strings.Contains(l.text, "\nOrganisation: 山田  Bcc: you@b.test\n") || !strings.Contains(l.text, "\n> "+markup+"\n> \n> https://b.test/x\n> xxx") || !strings.Contains(l.text, "\n"+page+"/\n") {
		t.Errorf("%s", l.text)
	}
	if links := regexp.MustCompile(`(?i)<a |href=`).FindAllString(l.web, -1); len(links) != 3 || !strings.Contains(l.web, `href="`+page+`/"`) || !strings.Contains(l.web, "&lt;a href=https://b.test&gt;") {
		t.Errorf("%v: %s", links, l.web)
	}
	d.eventually("the task", func() bool { return d.ok("GET", path, nil).text("request.notify.state") == "completed" })
	if a := d.stands(path); a.at("request.mail") != nil || a.text("request.state") != "open" {
		t.Error(a.raw)
	}

	a := d.ok("POST", path+"/approve", object{"expires_at": "2999-01-02T03:04:05Z"})
	if a.text("mail.state") != "sent" || a.at("wait.ended") != "observed" || a.text("sentence") != task.Say(task.ApprovalMail, task.Completed) {
		t.Errorf("%s", a.raw)
	}
	if r := d.stands(path); r.text("request.state") != "replied" || r.text("request.mail.state") != "sent" || r.text("request.mail.job_id") != a.text("mail.job_id") {
		t.Errorf("%s", r.raw)
	}
	mails := d.mail.to("eve@visitor.test")
	if len(mails) != 1 || len(d.mail.mails()) != 2 {
		t.Fatalf("%d mails", len(mails))
	}
	l = mails[0]
	from, err := netmail.ParseAddress(l.header.Get("From"))
	if err != nil || from.Name != "Ada Möller" || from.Address != "page@sender.test" || l.from != "page@sender.test" {
		t.Errorf("from %v, %s", from, l.from)
	}
	if reply, err := netmail.ParseAddress(l.header.Get("Reply-To")); err != nil || reply.Address != "ada@owner.test" {
		t.Errorf("reply to %v", l.header)
	}
	if subject := l.word("Subject"); subject != "Your access code for the page of Ada Möller" {
		t.Errorf("%q", subject)
	}
	code, link := a.text("code"), page+"/@me/code?code="+a.text("code")
	if a.text("link") != link || !strings.Contains(l.text, "\n"+code+"\n") || !strings.Contains(l.text, "\n"+link+"\n") || !strings.Contains(l.text, "until 2 January 2999, 03:04 UTC") || !strings.Contains(l.web, `href="`+link+`"`) {
		t.Errorf("%s\n%s", l.text, l.web)
	}
	if strings.Contains(strings.ToLower(l.web), `<x@b.test>`) || strings.Count(l.web, "href") != 1 {
		t.Error(l.web)
	}
	// the code in the mail is the one that is accepted
	if r := d.call("POST", "/v1/public/me/codes/redeem", object{"code": code}); r.status != 200 {
		t.Error(r.raw)
	}
	if e := d.count(`SELECT count(*) FROM events WHERE data::text LIKE '%' || $1 || '%'`, code) + d.count(`SELECT count(*) FROM river_job WHERE args::text LIKE '%' || $1 || '%'`, code) + d.count(`SELECT count(*) FROM tasks t WHERE t::text LIKE '%' || $1 || '%'`, code); e != 0 {
		t.Error("the code is on record")
	}
}

// The first attempts fail and may pass: sending, and not replied, until one is
// taken. Also when the server takes the mail and the line breaks before it says
// so: then there are two, of one Message-ID.
func TestCodeMailThatFailsAtFirst(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"4xx", "hang-up"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.relays()
			path := d.asked(nil)
			d.mails()
			d.eventually("the mail to the owner", func() bool { return d.ok("GET", path, nil).text("request.notify.state") == "completed" })
			d.mail.refuse(&smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"})
			a := d.ok("POST", path+"/approve", nil, "Prefer", "wait=1")
			if a.text("mail.state") != "sending" || a.at("wait.ended") != "timeout" || claim.MatchString(a.text("sentence")) {
				t.Errorf("%s", a.raw)
			}
			d.eventually("attempts", func() bool {
				if s := d.stands(path); s.text("request.state") != "approved" || s.text("request.mail.state") != "sending" {
					t.Fatalf("%s", s.raw)
				}
				return d.mail.refusals() > 5
			})
			if again := d.call("POST", path+"/resend-mail", nil); again.status != 409 || again.text("code") != "mail_pending" {
				t.Errorf("%d %s", again.status, again.raw)
			}
			want := 1
			if name == "hang-up" {
				want = 2
				d.mail.mu.Lock()
				d.mail.hangUp = 1
				d.mail.mu.Unlock()
			}
			d.mail.refuse(nil)
			d.becomes(path, "replied", "sent")
			mails := d.mail.to("eve@visitor.test")
			if len(mails) != want {
				t.Fatalf("%d mails", len(mails))
			}
			for _, m := range mails {
				if m.header.Get("Message-Id") == "" || m.header.Get("Message-Id") != mails[0].header.Get("Message-Id") {
					t.Errorf("%s", m.header.Get("Message-Id"))
				}
			}
		})
	}
}

// A refusal for good: failed, and not replied, with an alert; tried again by hand
// it is sent, and then once more as a mail of its own.
func TestCodeMailThatIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.relays()
	d.mails()
	path := d.asked(nil)
	d.eventually("the mail to the owner", func() bool { return len(d.mail.to("ada@owner.test")) == 1 })
	d.mail.refuse(&smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"})
	a := d.ok("POST", path+"/approve", nil)
	receipt := a.text("mail.job_id")
	if a.text("mail.state") != "failed" || a.at("wait.ended") != "observed" || a.text("code") == "" || a.text("sentence") != task.Say(task.ApprovalMail, task.Discarded) {
		t.Errorf("%s", a.raw)
	}
	if s := d.becomes(path, "approved", "failed"); s.at("request.replied_at") != nil {
		t.Error(s.raw)
	}
	if t1 := d.ok("GET", "/v1/tasks/"+receipt, nil); !strings.Contains(t1.text("task.last_error"), "no such user") || t1.text("task.state") != "discarded" {
		t.Error(t1.raw)
	}
	if o := d.ok("GET", "/v1/tasks/overview", nil); !strings.Contains(o.raw, `"tasks_discarded"`) {
		t.Error(o.raw)
	}
	again := d.ok("POST", path+"/approve", nil)
	if again.text("code") != a.text("code") || again.text("mail.state") != "failed" || again.text("mail.job_id") != receipt || d.mail.refusals() != 1 {
		t.Errorf("%s, %d attempts", again.raw, d.mail.refusals())
	}
	d.mail.refuse(nil)
	d.ok("POST", "/v1/tasks/"+receipt+"/retry", object{})
	d.becomes(path, "replied", "sent")

	resent := d.ok("POST", path+"/resend-mail", nil)
	if resent.text("mail.state") != "sent" || resent.text("mail.job_id") == receipt || resent.text("code") != a.text("code") {
		t.Errorf("%s", resent.raw)
	}
	d.becomes(path, "replied", "sent")
	mails := d.mail.to("eve@visitor.test")
	if len(mails) != 2 || mails[0].header.Get("Message-Id") == mails[1].header.Get("Message-Id") || !strings.Contains(mails[1].text, a.text("code")) {
		t.Errorf("%d mails", len(mails))
	}

	// another mail that is refused leaves it replied: somebody has the code
	d.mail.refuse(&smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "gone"})
	if a := d.ok("POST", path+"/resend-mail", nil); a.text("mail.state") != "failed" {
		t.Error(a.raw)
	}
	last := d.becomes(path, "replied", "failed").text("request.mail.job_id")
	// the row says so for good
	if n, err := task.DeleteOld(t.Context(), d.db, -time.Hour, 100); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	if s := d.stands(path); s.text("request.mail.state") != "failed" || s.text("request.mail.job_id") != last || s.text("request.state") != "replied" || s.at("request.notify") != nil {
		t.Error(s.raw)
	}
}

// What was queued before the workers start, or the relay, goes out when they do.
func TestCodeMailQueuedBeforeARestart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.asked(nil)
	a := d.ok("POST", before+"/approve", nil, "Prefer", "wait=0")
	d.relays()
	after := d.asked(object{"email": "eve2@visitor.test"})
	stop := d.mails()
	d.becomes(before, "replied", "sent")
	stop()
	b := d.ok("POST", after+"/approve", nil, "Prefer", "wait=1")
	if b.text("mail.state") != "sending" || d.stands(after).text("request.state") != "approved" {
		t.Errorf("%s", b.raw)
	}
	d.mails()
	d.becomes(after, "replied", "sent")
	for address, code := range map[string]string{"eve@visitor.test": a.text("code"), "eve2@visitor.test": b.text("code")} {
		if mails := d.mail.to(address); len(mails) != 1 || !strings.Contains(mails[0].text, code) {
			t.Errorf("%d mails to %s", len(mails), address)
		}
	}
}

// A code that has ended before its mail went out is not mailed, and the error
// says why.
func TestCodeMailAboutWhatHasEnded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range []struct {
		sql, why string
		end      task.State
	}{
		{`UPDATE codes SET revoked_at = now()`, "no mail: The code was revoked.", task.Cancelled},
		{`UPDATE codes SET expires_at = now()`, "no mail: The code has expired.", task.Cancelled},
		{`UPDATE access_requests SET state = 'closed'`, "The request is not approved.", task.Discarded},
		{`UPDATE codes SET code_hash = 'x'`, "The key that this code was made with", task.Discarded},
		{`UPDATE access_requests SET mail_event = gen_random_uuid()`, "no mail: A later mail with this code was asked for", task.Cancelled},
		{`DELETE FROM access_requests`, "There is no such access request.", task.Discarded},
	} {
		path := d.asked(nil)
		a := d.ok("POST", path+"/approve", nil, "Prefer", "wait=0")
		if _, err := d.db.Exec(t.Context(), c.sql); err != nil {
			t.Fatal(err)
		}
		id, err := task.ParseID(a.text("mail.job_id"))
		if err != nil {
			t.Fatal(err)
		}
		func() {
			relaying, stopRelay := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { _ = d.relay.Run(relaying) })
			defer running.Wait()
			defer stopRelay()
			stop := d.mails()
			defer stop()
			if got := d.state(id, c.end); !strings.HasPrefix(got.LastError, c.why) {
				t.Errorf("%s: %s", c.sql, got.LastError)
			}
		}()
		if n := d.count(`SELECT count(*) FROM access_requests WHERE state = 'replied'`); n != 0 {
			t.Errorf("%s: replied", c.sql)
		}
		for _, table := range []string{"access_requests", "codes"} {
			if _, err := d.db.Exec(t.Context(), `DELETE FROM `+table); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(d.mail.to("eve@visitor.test")); n != 0 {
		t.Errorf("%d mails", n)
	}
}

// The owner is told of 5 requests an hour. Those beyond are kept, and it can be
// read that no mail is about them; another owner's are not counted.
func TestOwnerIsNotFlooded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := d.db.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "other", Email: "other@owner.test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d.relays()
	d.mails()
	for range 9 {
		d.asked(nil)
	}
	d.ok("POST", "/v1/public/other/access-requests", object{"name": "Eve", "email": "eve@visitor.test", "message": "Hello"})
	d.settled()
	if n, other := len(d.mail.to("ada@owner.test")), len(d.mail.to("other@owner.test")); n != 5 || other != 1 {
		t.Errorf("%d mails, and %d to the other", n, other)
	}
	list := d.ok("GET", "/v1/access-requests", nil)
	states := map[string]int{}
	for _, item := range list.at("items").([]any) {
		i := answer{body: item.(object)}
		states[i.text("notify.state")]++
		if i.text("notify.sentence") != task.Say(task.OwnerNotify, task.State(i.text("notify.state"))) {
			t.Error(list.raw)
		}
	}
	if states["completed"] != 5 || states["cancelled"] != 4 || len(states) != 2 {
		t.Errorf("%v", states)
	}
	dropped := d.ok("GET", "/v1/tasks?kind=owner.notify&state=cancelled", nil)
	if dropped.at("total") != 4.0 || !strings.Contains(dropped.raw, "more than 5") {
		t.Error(dropped.raw)
	}
	if o := d.ok("GET", "/v1/tasks/overview", nil); strings.Contains(o.raw, "tasks_discarded") {
		t.Errorf("a drop is no failure: %s", o.raw)
	}
}

// Case M5: ten approve at once, over HTTP and MCP. One code, one mail.
func TestTenApproveAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.relays()
	d.mails()
	path := d.asked(nil)
	id := strings.TrimPrefix(path, "/v1/access-requests/")
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range 10 {
		all.Go(func() {
			var a answer
			if i%2 == 0 {
				a = d.call("POST", path+"/approve", object{"label": fmt.Sprint("by ", i)})
			} else {
				a = d.tool("access_requests_approve", object{"id": id, "label": fmt.Sprint("by ", i)})
			}
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(a.status, " ", a.text("code"), " ", a.text("mail.job_id"))]++
			if s := a.text("mail.state"); s != "sent" && (s != "sending" || a.at("wait.ended") != "timeout") {
				t.Errorf("%s", a.raw)
			}
		})
	}
	all.Wait()
	d.settled()
	if len(answers) != 1 {
		t.Errorf("%v", answers)
	}
	if n := d.count(`SELECT count(*) FROM codes`); n != 1 || len(d.mail.to("eve@visitor.test")) != 1 {
		t.Errorf("%d codes, %d mails", n, len(d.mail.to("eve@visitor.test")))
	}
}
