package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
)

// postbox is an SMTP server that keeps what it is given.
type postbox struct {
	url string

	mu sync.Mutex
	// act is called with each mail before it is acknowledged
	act   func(n int)
	mails []postcard
}

type postcard struct{ id, to, raw string }

func newPostbox(t *testing.T) *postbox {
	t.Helper()
	b := &postbox{act: func(int) {}}
	server := smtp.NewServer(b)
	server.Domain = "mx.test"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.url = "smtp://" + l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		_ = l.Close()
		_ = server.Close()
		serving.Wait()
	})
	return b
}

func (b *postbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &posting{b: b}, nil }

// to is the mails to an address.
func (b *postbox) to(address string) (all []postcard) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.mails {
		if m.to == address {
			all = append(all, m)
		}
	}
	return all
}

type posting struct {
	b  *postbox
	to []string
}

func (p *posting) Mail(string, *smtp.MailOptions) error {
	p.to = nil
	return nil
}

func (p *posting) Rcpt(to string, _ *smtp.RcptOptions) error {
	p.to = append(p.to, to)
	return nil
}

func (p *posting) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	p.b.mu.Lock()
	p.b.mails = append(p.b.mails, postcard{m.Header.Get("Message-Id"), strings.Join(p.to, " "), string(raw)})
	n, act := len(p.b.mails), p.b.act
	p.b.mu.Unlock()
	act(n)
	return nil
}

func (*posting) Reset()        {}
func (*posting) Logout() error { return nil }

// env is what processes share that hand their mails to b.
func (b *postbox) env() []string {
	return []string{"SMTP_URL=" + b.url, "SECRET_KEY=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))}
}

// asks makes an access request as an anonymous visitor and gives its id.
func (s *site) asks(change object) string {
	s.Helper()
	body := object{"name": "Eve", "email": "eve@visitor.test", "message": "Hello"}
	for k, v := range change {
		body[k] = v
	}
	visitor := *s
	visitor.token = ""
	a := visitor.must("POST", "/v1/public/"+s.handle+"/access-requests", body)
	if len(a.body) != 2 || a.text("message") != "Submitted" {
		s.Errorf("a request is answered with %s", a.raw)
	}
	return a.text("request_id")
}

// Case M5, with real processes: ten approve at once over both faces.
func TestApprovedOverBothFacesAtOnce(t *testing.T) {
	t.Parallel()
	b := newPostbox(t)
	s := newSite(t)
	s.start("gateway", b.env()...)
	s.start("relay,workers", b.env()...)
	id := s.asks(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range 10 {
		all.Go(func() {
			a := s.over(faces[i%2], "access_requests.approve", object{"id": id, "label": fmt.Sprint("by ", i)})
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(a.status, " ", a.text("code"), " ", a.text("mail.job_id"))]++
		})
	}
	all.Wait()
	s.rest()
	if len(answers) != 1 {
		t.Errorf("%v", answers)
	}
	if total := s.must("GET", "/v1/codes", nil).at("total"); total != 1.0 || len(b.to("eve@visitor.test")) != 1 {
		t.Errorf("%v codes, %d mails", total, len(b.to("eve@visitor.test")))
	}
	if a := s.must("GET", "/v1/access-requests/"+id, nil); a.text("request.state") != "replied" || a.text("request.mail.state") != "sent" {
		t.Error(a.raw)
	}
}

// The worker is killed when the mail server has the mail and nothing of that is
// recorded: until it is sent again the request is not replied, and both mails are
// one.
func TestKilledWhileTheCodeIsMailed(t *testing.T) {
	t.Parallel()
	b := newPostbox(t)
	s := newSite(t)
	s.start("gateway", b.env()...)
	s.start("relay", b.env()...)
	worker := s.start("workers", b.env()...)
	id := s.asks(nil)
	s.eventually("the mail to the owner", func() bool {
		return s.must("GET", "/v1/access-requests/"+id, nil).text("request.notify.state") == "completed"
	})
	b.mu.Lock()
	b.act = func(n int) {
		if n == 2 {
			worker.kill()
		}
	}
	b.mu.Unlock()
	a := s.must("POST", "/v1/access-requests/"+id+"/approve", object{})
	if a.text("mail.state") != "sending" || a.text("wait.ended") != "timeout" {
		t.Errorf("%s", a.raw)
	}
	s.eventually("the kill", func() bool {
		select {
		case <-worker.done:
			return true
		default:
			return false
		}
	})
	if r := s.must("GET", "/v1/access-requests/"+id, nil); r.text("request.state") != "approved" || r.text("request.mail.state") != "sending" {
		t.Errorf("%s", r.raw)
	}
	// what the rescuer does once the kind's time is up
	s.exec(`UPDATE river_job SET state = 'available', scheduled_at = now(),
		errors = array_append(errors, '{"at": "2026-01-02T03:04:05Z", "attempt": 1, "error": "Stuck job rescued by Rescuer", "trace": ""}') WHERE kind = 'access_request.approval_mail'`)
	s.start("workers", b.env()...)
	s.eventually("replied", func() bool {
		r := s.must("GET", "/v1/access-requests/"+id, nil)
		return r.text("request.state") == "replied" && r.text("request.mail.state") == "sent"
	})
	if mails := b.to("eve@visitor.test"); len(mails) != 2 || mails[0].id != mails[1].id || !strings.Contains(mails[0].id, eventOf(a.text("mail.job_id"))) {
		t.Errorf("%v", mails)
	}
}

// A client that knows the Tasks extension follows the mail with a code as a task,
// whose result is what the call would answer now; the code in it is for who may
// approve.
func TestCodeMailAsTask(t *testing.T) {
	t.Parallel()
	b := newPostbox(t)
	s := newSite(t)
	s.start("gateway,relay", b.env()...)
	id := s.asks(nil)
	started := s.tool("access_requests_approve", object{"id": id, "wait_seconds": 0}, true)
	receipt := started.text("result.taskId")
	if started.text("result.resultType") != "task" || !strings.HasSuffix(receipt, ":access_request.approval_mail") {
		t.Fatal(started.raw)
	}
	plain := s.tool("access_requests_approve", object{"id": id, "wait_seconds": 0}, false)
	code := plain.text("result.structuredContent.code")
	if plain.text("result.structuredContent.mail.job_id") != receipt || code == "" || strings.Contains(started.raw, code) {
		t.Errorf("%s\n%s", plain.raw, started.raw)
	}
	if a := s.rpc("tasks/get", object{"taskId": receipt}, true); a.text("result.status") != "working" || strings.Contains(a.raw, code) {
		t.Error(a.raw)
	}
	reader := *s
	reader.token = s.must("POST", "/v1/tokens", object{"name": "reader", "scopes": []string{"access:read", "tasks:read"}}).text("secret")
	s.start("workers", b.env()...)
	completes(s, receipt)
	a := s.rpc("tasks/get", object{"taskId": receipt}, true)
	const content = "result.result.structuredContent."
	if a.text("result.status") != "completed" || a.text(content+"mail.state") != "sent" || a.text(content+"code") != code || a.text(content+"mail.job_id") != receipt {
		t.Error(a.raw)
	}
	if a := reader.rpc("tasks/get", object{"taskId": receipt}, true); a.text("result.status") != "completed" || strings.Contains(a.raw, code) {
		t.Errorf("to who may not approve: %s", a.raw)
	}
	if mails := b.to("eve@visitor.test"); len(mails) != 1 {
		t.Errorf("%d mails", len(mails))
	}
	again := s.tool("access_requests_resend_mail", object{"id": id, "wait_seconds": 0}, true)
	if again.text("result.resultType") != "task" || again.text("result.taskId") == receipt {
		t.Error(again.raw)
	}
	completes(s, again.text("result.taskId"))
	if a := s.rpc("tasks/get", object{"taskId": again.text("result.taskId")}, true); a.text(content+"code") != code || len(b.to("eve@visitor.test")) != 2 {
		t.Error(a.raw)
	}
}

// What is shared by code is seen by who redeemed one, by cookie and bearer, and
// by nobody from the moment that the code ends.
func TestWhatACodeOpens(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	coded := s.create(object{"genre": "wiki", "title": "Coded", "body": "quincunx by code", "visibility": "coded"})
	s.create(object{"genre": "wiki", "title": "Public", "body": "quincunx for all", "visibility": "public"})
	s.create(object{"genre": "wiki", "title": "Private", "body": "quincunx for me", "visibility": "private"})
	other := s.stranger("stranger")
	visitor := *s
	visitor.token = ""
	public := "/v1/public/" + s.handle
	// sees is how many notes a visitor sees, in every way the same
	sees := func(want int, credentials ...string) {
		t.Helper()
		status := 404
		if want == 2 {
			status = 200
		}
		list, search := visitor.must("GET", public+"/notes", nil, credentials...), visitor.must("GET", public+"/search?q=quincunx", nil, credentials...)
		note := visitor.call("GET", public+"/notes/"+coded.text("note.path"), nil, credentials...)
		if list.at("total") != float64(want) || len(search.items()) != want || note.status != status || strings.Contains(list.raw+search.raw+note.raw, "Private") {
			t.Errorf("%v: %s %s %d", credentials, list.raw, search.raw, note.status)
		}
	}
	redeem := func(handle, code string, credentials ...string) (bearer, cookie string) {
		t.Helper()
		a := visitor.must("POST", "/v1/public/"+handle+"/codes/redeem", object{"code": code}, credentials...)
		cookies := (&http.Response{Header: a.header}).Cookies()
		if len(cookies) != 1 || cookies[0].Value != a.text("session") || cookies[0].Secure {
			t.Fatalf("%v %s", a.header, a.raw)
		}
		return "Authorization: Bearer " + a.text("session"), "Cookie: sm_visitor=" + a.text("session")
	}
	sees(1)
	theirs := other.must("POST", "/v1/codes", object{"label": "another's"})
	bearer, cookie := redeem("stranger", theirs.text("code"))
	sees(1, bearer)
	sees(1, cookie)

	first, second := s.must("POST", "/v1/codes", object{"label": "first"}), s.must("POST", "/v1/codes", object{"label": "second"})
	// into the session that holds another owner's code already
	if again, _ := redeem(s.handle, first.text("code"), cookie); again != bearer {
		t.Error("another session")
	}
	otherBearer, otherCookie := redeem(s.handle, second.text("code"))
	for _, credentials := range []string{bearer, cookie, otherBearer, otherCookie} {
		sees(2, credentials)
	}
	s.must("POST", "/v1/codes/"+first.text("details.id")+"/revoke", nil)
	sees(1, bearer)
	sees(1, cookie)
	sees(2, otherCookie)
	s.exec(`UPDATE codes SET expires_at = clock_timestamp() WHERE id = $1`, second.text("details.id"))
	// no code of the session is left: a program is told so, a browser reads what anybody may
	if a := visitor.call("GET", "/v1/public/"+s.handle+"/notes", nil, otherBearer); a.status != 401 || a.text("code") != "visitor_session_expired" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	sees(1, otherCookie)
	// visitors may nothing else
	for _, path := range []string{"/v1/corpus", "/v1/access-requests", "/v1/codes"} {
		if a := visitor.call("GET", path, nil, bearer); a.status != 403 {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	for name, code := range map[string]string{"revoked": first.text("code"), "expired": second.text("code"), "another owner's": theirs.text("code")} {
		if a := visitor.call("POST", public+"/codes/redeem", object{"code": code}); a.status != 403 || a.text("code") != "code_not_accepted" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
}

// The gateway dies after it approved, and after it asked for another mail, before
// it answered: the same requests under the same keys get the code and the receipt,
// and nothing is done twice.
func TestApprovalWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	b := newPostbox(t)
	s := newSite(t)
	s.start("relay,workers", b.env()...)
	gateway := s.start("gateway", b.env()...)
	approve, resend := s.asks(nil), s.asks(object{"email": "again@visitor.test"})
	s.must("POST", "/v1/access-requests/"+resend+"/approve", object{})
	s.eventually("the first mail", func() bool {
		return s.must("GET", "/v1/access-requests/"+resend, nil).text("request.mail.state") == "sent"
	})
	// from now on no mail is taken before the gateway is gone
	gone := make(chan struct{})
	b.mu.Lock()
	b.act = func(int) { <-gone }
	b.mu.Unlock()
	const about = `SELECT count(*) FROM events WHERE type = $1 AND subject = $2`
	var answers [2]string
	check := func(i int) func(a answer) bool {
		return func(a answer) bool {
			same := a.text("code") + a.text("mail.job_id")
			first := answers[i]
			answers[i] = same
			return a.text("mail.state") == "sent" && (first == "" || first == same)
		}
	}
	all := []keyed{
		{
			name: "approve", method: "POST", path: "/v1/access-requests/" + approve + "/approve", body: object{"label": "one"}, other: object{"label": "another"},
			once: about, about: []any{"access_request.approved", approve}, check: check(0),
		},
		{
			name: "resend", method: "POST", path: "/v1/access-requests/" + resend + "/resend-mail", body: object{},
			once: about, about: []any{"access_request.mail_requested", resend}, check: check(1),
		},
	}
	asked := make(chan answer)
	for _, k := range all {
		go func() { asked <- s.call(k.method, k.path, k.body, k.key()) }()
	}
	s.eventually("all commits", func() bool {
		return s.count(`SELECT count(*) FROM idempotency_keys WHERE committed IS NOT NULL`) == len(all)
	})
	gateway.kill()
	close(gone)
	for range all {
		if a := <-asked; a.err == nil {
			t.Fatalf("it was answered: %d %s", a.status, a.raw)
		}
	}
	s.start("gateway", b.env()...)
	s.rest()
	for _, k := range all {
		k.repeats(s, 2)
	}
	if codes, first, second := s.count(`SELECT count(*) FROM codes`), len(b.to("eve@visitor.test")), len(b.to("again@visitor.test")); codes != 2 || first != 1 || second != 2 {
		t.Errorf("%d codes, %d and %d mails", codes, first, second)
	}
	if n := s.count(`SELECT count(*) FROM idempotency_keys WHERE committed::text LIKE '%' || $1 || '%'`, answers[0][:19]); n != 0 {
		t.Error("the code is kept with the key")
	}
}
