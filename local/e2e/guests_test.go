package e2e

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/cookiejar"
	netmail "net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser keeps cookies and follows redirects. It comes from the address from,
// one of this machine's.
func (s *site) browser(from string) *http.Client {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	dial := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dial.DialContext}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}
}

// visit sends what a browser would: a form if there is one.
func (s *site) visit(b *http.Client, method, path string, form url.Values, headers ...string) answer {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{err: err}
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", s.base)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := b.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw), err: err}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(raw, &a.body) // what is no JSON has no body
	}
	return a
}

// mails are the plain texts of the mails that a process wrote to recipient.
func (p *process) mails(recipient string) (texts []string) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.cmd.Dir, "local", ".run", "mail", "*.eml"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			p.t.Fatal(err)
		}
		m, err := netmail.ReadMessage(strings.NewReader(string(raw)))
		if err != nil {
			p.t.Fatal(err)
		}
		if strings.Contains(m.Header.Get("To"), recipient) {
			texts = append(texts, plainText(p.t, m.Header.Get("Content-Type"), m.Header.Get("Content-Transfer-Encoding"), m.Body))
		}
	}
	return texts
}

func plainText(t *testing.T, kind, encoding string, body io.Reader) string {
	t.Helper()
	media, params, err := mime.ParseMediaType(kind)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(media, "multipart/") {
		parts := multipart.NewReader(body, params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err != nil {
				return ""
			}
			if text := plainText(t, part.Header.Get("Content-Type"), part.Header.Get("Content-Transfer-Encoding"), part); text != "" {
				return text
			}
		}
	}
	if media != "text/plain" {
		return ""
	}
	if strings.EqualFold(encoding, "quoted-printable") {
		body = quotedprintable.NewReader(body)
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// An owner who asks for a link gets it by mail; programs that look at mails
// follow it as often as they like; the button signs in once.
func TestSignInByMailedLink(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.start("gateway,relay,workers")
	email := s.must("GET", "/v1/account", nil).text("owner.email")
	owner, stranger := s.browser("127.0.0.1"), s.browser("127.0.0.2")
	known := s.visit(owner, "POST", "/sign-in/mail", url.Values{"login": {s.handle}})
	unknown := s.visit(stranger, "POST", "/sign-in/mail", url.Values{"login": {"nobody"}})
	if known.status != 200 || known.raw != unknown.raw {
		t.Fatalf("%d %s\n%d %s", known.status, known.raw, unknown.status, unknown.raw)
	}
	var link string
	s.eventually("the mail", func() bool {
		for _, text := range p.mails(email) {
			if m := regexp.MustCompile(regexp.QuoteMeta(s.base) + `(/sign-in\?token=[A-Za-z0-9_-]{43})\s`).FindStringSubmatch(text); m != nil {
				link = m[1]
			}
		}
		return link != ""
	})
	s.eventually("the task", func() bool {
		return s.count(`SELECT count(*) FROM tasks WHERE subscriber = 'account.sign_in_mail' AND state = 'completed'`) == 1
	})
	for _, method := range []string{"GET", "HEAD", "GET"} {
		if a := s.visit(stranger, method, link, nil); a.status != 200 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v %s", method, a.status, a.err, a.raw)
		}
	}
	token := url.Values{"token": {link[strings.Index(link, "=")+1:]}}
	if a := s.visit(stranger, "POST", "/sign-in", token, "Sec-Fetch-Site: cross-site"); a.status != 403 {
		t.Errorf("from another site: %d %s", a.status, a.raw)
	}
	if a := s.visit(owner, "POST", "/sign-in", token); a.status != 200 || !strings.Contains(a.raw, "Signed in as <strong>"+s.handle) {
		t.Errorf("%d %v %s", a.status, a.err, a.raw)
	}
	if a := s.visit(stranger, "POST", "/sign-in", token); a.status != 410 || a.header.Get("Set-Cookie") != "" {
		t.Errorf("again: %d %s", a.status, a.raw)
	}

	// the fresh link sets a password without an old one, and that signs in
	const otter = "velvet otter ran"
	set := func(site string) answer {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", s.base+"/v1/account/password", strings.NewReader(`{"password":"`+otter+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", site)
		res, err := owner.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		return answer{status: res.StatusCode, raw: string(raw), err: err}
	}
	if a := set("cross-site"); a.status != 403 {
		t.Errorf("from another site: %d %s", a.status, a.raw)
	}
	if a := set("same-origin"); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	again := s.browser("127.0.0.1")
	if a := s.visit(again, "POST", "/sign-in", url.Values{"login": {email}, "password": {otter}}); a.status != 200 || !strings.Contains(a.raw, "Signed in as") {
		t.Errorf("%d %v %s", a.status, a.err, a.raw)
	}
	// ten wrong ones, however they dress up, and then none is looked at
	var locked answer
	for i := range 11 {
		locked = s.visit(stranger, "POST", "/sign-in", url.Values{"login": {email}, "password": {"wrong"}}, "X-Forwarded-For: 198.51.100."+string(rune('0'+i%10)))
	}
	if locked.status != 429 || locked.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", locked.status, locked.raw)
	}
	if a := s.visit(s.browser("127.0.0.3"), "POST", "/sign-in", url.Values{"login": {email}, "password": {otter}}); a.status != 429 {
		t.Errorf("the right one, locked: %d %s", a.status, a.raw)
	}
}

// An address that asks too often is refused, whatever it says of itself; another
// address, and the owner, are answered meanwhile.
func TestFloodOfOneAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("gateway")
	path := "/v1/public/" + s.handle + "/notes"
	flood := s.browser("127.0.0.2")
	if a := s.visit(flood, "GET", path, nil); a.status != 200 {
		t.Fatalf("%d %v %s", a.status, a.err, a.raw)
	}
	// as after thousands
	s.exec(`UPDATE rate_limits SET tat = clock_timestamp() + interval '3 minutes' WHERE bucket = 'public' AND key = '127.0.0.2'`)
	for i := range 5 {
		a := s.visit(flood, "GET", path, nil, "X-Forwarded-For: 198.51.100."+string(rune('0'+i)))
		if a.status != 429 || a.text("code") != "rate_limited" || a.header.Get("Retry-After") == "" {
			t.Errorf("%d %v %s", a.status, a.err, a.raw)
		}
	}
	// pages count too
	for _, page := range []string{"/@" + s.handle, "/@" + s.handle + "/code"} {
		if a := s.visit(flood, "GET", page, nil); a.status != 429 || !regexp.MustCompile(`Try again in \d+ (second|minute)s\.`).MatchString(a.raw) || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v %s", page, a.status, a.err, a.raw)
		}
	}
	if a := s.visit(s.browser("127.0.0.3"), "GET", path, nil); a.status != 200 {
		t.Errorf("another address: %d %v", a.status, a.err)
	}
	if a := s.must("GET", path, nil); a.status != 200 {
		t.Errorf("the owner: %d", a.status)
	}
}

// A code's page: followed by scanners, used by the button, in real processes.
func TestVisitorsCode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("gateway")
	s.create(object{"genre": "wiki", "title": "Shared by code", "body": "x", "visibility": "coded"}, "Prefer: wait=0")
	made := s.must("POST", "/v1/codes", object{"label": "x", "member_limit": 1})
	code := made.text("code")
	b, scanner := s.browser("127.0.0.1"), s.browser("127.0.0.2")
	page := "/@" + s.handle + "/code"
	for range 5 {
		if a := s.visit(scanner, "GET", page+"?code="+url.QueryEscape(code), nil); a.status != 200 || a.header.Get("Set-Cookie") != "" || !strings.Contains(a.raw, code) {
			t.Fatalf("%d %v %s", a.status, a.err, a.raw)
		}
	}
	nonce := regexp.MustCompile(`name="nonce" value="([^"]+)"`).FindStringSubmatch(s.visit(b, "GET", page, nil).raw)
	if nonce == nil {
		t.Fatal("no nonce")
	}
	// the answer is lost, and the form is sent again, from another network too
	form := url.Values{"code": {code}, "nonce": {nonce[1]}}
	for _, again := range []*http.Client{s.browser("127.0.0.1"), s.browser("127.0.0.3"), b} {
		if a := s.visit(again, "POST", page, form); a.status != 200 || !strings.Contains(a.raw, "Shared by code") {
			t.Errorf("%d %v %s", a.status, a.err, a.raw)
		}
	}
	if n := s.count(`SELECT count(*) FROM visitor_grants`); n != 1 {
		t.Errorf("%d members", n)
	}
	if a := s.visit(scanner, "GET", "/@"+s.handle, nil); a.status != 200 || strings.Contains(a.raw, "Shared by code") {
		t.Errorf("without the code: %d %s", a.status, a.raw)
	}
	if a := s.visit(b, "GET", "/v1/public/"+s.handle+"/notes", nil); a.at("total") != 1.0 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	s.must("POST", "/v1/codes/"+made.text("details.id")+"/revoke", nil)
	if a := s.visit(b, "GET", "/@"+s.handle, nil); a.status != 200 || strings.Contains(a.raw, "Shared by code") || !strings.Contains(a.raw, "has ended") {
		t.Errorf("revoked: %d %s", a.status, a.raw)
	}
	// pages of nobody, and what is no page, are not found in words
	for path, kind := range map[string]string{"/@nobody": "text/html", "/@": "text/html", "/nobody": "problem", "/v1/nothing": "problem", "/@" + s.handle + "/../x": "problem"} {
		if a := s.visit(b, "GET", path, nil); a.status != 404 || !strings.Contains(a.header.Get("Content-Type"), kind) {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}
