package guest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/op/apigw"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// world is the product without a relay and workers: its guests' pages, its MCP
// endpoint, and all operations.
type world struct {
	t     *testing.T
	db    *pg.DB
	url   string
	me    auth.Profile
	token string
}

func setup(t *testing.T) *world {
	t.Helper()
	db := pgtest.DB(t)
	w := waiter.New(db, waiter.Options{}, task.FinalSource(db), outbox.FanoutSource(db))
	t.Cleanup(w.Close)
	store := &auth.Store{DB: db}
	t.Cleanup(func() { store.Flush(context.Background()) })
	keys, err := secret.ParseKeys(strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	f := functions.New(functions.Deps{
		DB: db, Waiter: w, Receipts: task.NewReceipts(db, w), Auth: store, Keys: keys, PublicURL: "https://page.test", Mail: true, Logger: slog.New(slog.DiscardHandler),
	})
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{"/": functions.Guest, "/v1/": functions.Any, "/mcp/": functions.MCP} {
		endpoint, err := f.Endpoint(name)
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(pattern, apigw.InProcess(endpoint))
	}
	// a mux would redirect paths that aren't clean; a gateway doesn't
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: "/" + strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 2)[0] + "/"}})
		if pattern == "" {
			t.Error("no route")
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	out := &world{t: t, db: db, url: s.URL}
	err = db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		if out.me, err = auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "me", Name: "Ada <b>Lovelace", Email: "me@example.test"}); err != nil {
			return err
		}
		if _, err = auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "other", Email: "other@example.test"}); err != nil {
			return err
		}
		_, out.token, err = auth.CreateToken(t.Context(), tx, out.me.ID, auth.Token{Name: "x", Scopes: []string{"*"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
	path   string // where redirects led
}

func (w *world) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func (w *world) cookie(c *http.Client) string {
	u, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cookie := range c.Jar.Cookies(u) {
		if cookie.Name == auth.VisitorCookie {
			return cookie.Value
		}
	}
	return ""
}

func (w *world) send(c *http.Client, method, path, kind, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw), path: res.Request.URL.RequestURI()}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			w.t.Fatalf("%v: %s", err, raw)
		}
	}
	return a
}

func (w *world) get(c *http.Client, path string, headers ...string) answer {
	w.t.Helper()
	return w.send(c, "GET", path, "", "", headers...)
}

func (w *world) post(c *http.Client, path string, form url.Values, headers ...string) answer {
	w.t.Helper()
	return w.send(c, "POST", path, "application/x-www-form-urlencoded", form.Encode(), headers...)
}

// own is a call of the owner's that must succeed.
func (w *world) own(method, path, body string) map[string]any {
	w.t.Helper()
	a := w.send(http.DefaultClient, method, path, "application/json", body, "Authorization", "Bearer "+w.token, "Prefer", "wait=0")
	if a.status/100 != 2 {
		w.t.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return a.body
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) notes() {
	w.t.Helper()
	for title, rest := range map[string]string{
		"Public <i>one": `"genre":"wiki","visibility":"public"`, "Coded one": `"genre":"wiki","visibility":"coded"`,
		"Private one": `"genre":"wiki","visibility":"private"`, "An output": `"genre":"output","visibility":"public"`,
	} {
		w.own("POST", "/v1/corpus", `{"title":"`+title+`","body":"The body & <script>alert(1)</script> of it.",`+rest+`}`)
	}
}

func TestOwnersPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.notes()
	b := w.browser()
	for _, path := range []string{"/@me", "/@me/", "/%40me"} {
		a := w.get(b, path)
		if a.status != 200 || !strings.Contains(a.raw, "Ada &lt;b&gt;Lovelace</h1>") || !strings.Contains(a.raw, "Public &lt;i&gt;one") || !strings.Contains(a.raw, "An output") ||
			strings.Contains(a.raw, "Coded one") || strings.Contains(a.raw, "Private one") || strings.Contains(a.raw, "me@example.test") || strings.Contains(a.raw, "<script") {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	a := w.get(b, "/@me")
	for name, want := range map[string]string{"Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8"} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if csp := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Error(csp)
	}
	// every link of it leads to a note
	links := regexp.MustCompile(`href="(/@me/notes/[^"]+)"`).FindAllStringSubmatch(a.raw, -1)
	if len(links) != 2 {
		t.Errorf("%v", links)
	}
	for _, l := range links {
		if n := w.get(b, strings.ReplaceAll(l[1], "&amp;", "&")); n.status != 200 || !strings.Contains(n.raw, "The body &amp; &lt;script&gt;") {
			t.Errorf("%s: %d %s", l[1], n.status, n.raw)
		}
	}
	for _, path := range []string{"/@me/notes/private-one", "/@me/notes/coded-one", "/@me/notes/none", "/@nobody", "/@", "/@me/x", "/@nobody/code", "/@me%00", "/@%ff", "/@me/bookings/junk", "/@Me"} {
		if a := w.get(b, path); a.status != 404 || !strings.Contains(a.raw, "<h1>Not found</h1>") {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	// what is no page of a visitor's is as the catalog has it
	for path, want := range map[string]int{"/me": 404, "/@me/../@other": 404, "/@me//code": 404} {
		if a := w.get(b, path); a.status != want || a.body["code"] != "not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := w.post(b, "/@me", nil); a.status != 404 && a.status != 405 {
		t.Errorf("POST /@me: %d", a.status)
	}
}

// However often a link is followed, the code is used by the button alone.
func TestRedeem(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.notes()
	code, _ := w.own("POST", "/v1/codes", `{"label":"one","member_limit":1}`)["code"].(string)
	b := w.browser()
	address := "/@me/code?code=" + url.QueryEscape(code)
	for range 3 {
		scanner := w.browser()
		if a := w.get(scanner, address); a.status != 200 || !strings.Contains(a.raw, `value="`+code+`"`) || w.cookie(scanner) != "" {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		if a := w.send(scanner, "HEAD", address, "", ""); a.status != 200 || w.cookie(scanner) != "" {
			t.Errorf("HEAD: %d", a.status)
		}
	}
	for name, site := range map[string][]string{"cross-site": {"Sec-Fetch-Site", "cross-site"}, "origin": {"Origin", "https://evil.test"}} {
		if a := w.post(b, "/@me/code", url.Values{"code": {code}}, site...); a.status != 403 || w.cookie(b) != "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if w.count(`SELECT count(*) FROM visitor_sessions`) != 0 || w.count(`SELECT count(*) FROM events WHERE type = 'code.redeemed'`) != 0 {
		t.Fatal("redeemed without the button")
	}
	for name, wrong := range map[string]string{"wrong": "0000-0000-0000-0000", "junk": `"><script>`, "empty": "", "long": strings.Repeat("x", 300), "not text": "\xff\x00"} {
		if a := w.post(b, "/@me/code", url.Values{"code": {wrong}}); a.status < 400 || a.status >= 500 || !strings.Contains(a.raw, `role="alert"`) || strings.Contains(a.raw, "<script") || w.cookie(b) != "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if a := w.post(b, "/@other/code", url.Values{"code": {code}}); a.status != 403 || w.cookie(b) != "" {
		t.Errorf("another owner's page: %d %s", a.status, a.raw)
	}
	noFollow := w.browser()
	noFollow.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	noFollow.Jar = b.Jar
	first := w.post(noFollow, "/@me/code", url.Values{"code": {strings.ToLower(code)}}, "Origin", w.url, "Sec-Fetch-Site", "same-origin")
	cookie, err := http.ParseSetCookie(first.header.Get("Set-Cookie"))
	if first.status != 303 || first.header.Get("Location") != "/@me" || err != nil || cookie.Name != "sm_visitor" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.MaxAge <= 0 {
		t.Fatalf("%d %v %v", first.status, first.header, err)
	}
	if a := w.get(b, "/@me"); !strings.Contains(a.raw, "Coded one") || strings.Contains(a.raw, "Private one") || !strings.Contains(a.raw, "You redeemed a code") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.get(b, "/@me/notes/coded-one"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// again in this browser, and in another, which is one too many
	held := w.cookie(b)
	if a := w.post(b, "/@me/code", url.Values{"code": {code}}); a.status != 200 || w.cookie(b) != held {
		t.Errorf("again: %d %s", a.status, a.raw)
	}
	if c := w.browser(); w.post(c, "/@me/code", url.Values{"code": {code}}).status != 409 || w.cookie(c) != "" {
		t.Error("a member too many")
	}
	// MCP is for owners
	for name, headers := range map[string][]string{"cookie": {"Cookie", "sm_visitor=" + held}, "token": {"Authorization", "Bearer " + held}} {
		if a := w.send(http.DefaultClient, "POST", "/mcp", "application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, headers...); a.status != 401 || a.body["code"] != "unauthorized" {
			t.Errorf("MCP with a visitor's %s: %d %s", name, a.status, a.raw)
		}
	}
	// no more than any visitor, once the code is revoked
	w.own("POST", "/v1/codes/"+w.codeID()+"/revoke", "")
	if a := w.get(b, "/@me"); a.status != 200 || strings.Contains(a.raw, "Coded one") || !strings.Contains(a.raw, "has ended") || !strings.Contains(a.raw, "I have a code") || strings.Contains(a.raw, "You redeemed") {
		t.Errorf("revoked: %d %s", a.status, a.raw)
	}
	if a := w.get(b, "/@me/notes/coded-one"); a.status != 404 || !strings.Contains(a.raw, "has ended") {
		t.Errorf("revoked: %d %s", a.status, a.raw)
	}
	if a := w.get(b, "/v1/public/me/notes"); a.status != 200 {
		t.Errorf("revoked, a browser: %d %s", a.status, a.raw)
	}
	if a := w.get(http.DefaultClient, "/v1/public/me/notes", "Authorization", "Bearer "+held); a.status != 401 || a.body["code"] != "visitor_session_expired" {
		t.Errorf("revoked, a program: %d %s", a.status, a.raw)
	}
	if a := w.get(w.browser(), "/@me"); strings.Contains(a.raw, "has ended") {
		t.Error(a.raw)
	}
	// another code gives it back
	second, _ := w.own("POST", "/v1/codes", `{"label":"two"}`)["code"].(string)
	if a := w.post(b, "/@me/code", url.Values{"code": {second}}); !strings.Contains(a.raw, "Coded one") || strings.Contains(a.raw, "has ended") {
		t.Errorf("another code: %d %s", a.status, a.raw)
	}
}

// A button that is pressed twice, and a page that is sent again, are one visitor.
func TestRedeemTwice(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.notes()
	code, _ := w.own("POST", "/v1/codes", `{"label":"one","member_limit":1}`)["code"].(string)
	other, _ := w.own("POST", "/v1/codes", `{"label":"two"}`)["code"].(string)
	nonce := func() string {
		m := regexp.MustCompile(`name="nonce" value="([A-Z2-7]{26,})"`).FindStringSubmatch(w.get(w.browser(), "/@me/code?code="+code).raw)
		if m == nil {
			t.Fatal("no nonce")
		}
		return m[1]
	}
	once := nonce()
	if nonce() == once {
		t.Fatal("two pages have one nonce")
	}
	browsers := []*http.Client{w.browser(), w.browser(), w.browser()}
	var all sync.WaitGroup
	for _, b := range browsers {
		all.Go(func() {
			if a := w.post(b, "/@me/code", url.Values{"code": {code}, "nonce": {once}}); a.status != 200 || !strings.Contains(a.raw, "Coded one") {
				t.Errorf("%d %s", a.status, a.raw)
			}
		})
	}
	all.Wait()
	held := w.cookie(browsers[0])
	if held == "" || w.cookie(browsers[1]) != held || w.cookie(browsers[2]) != held || w.count(`SELECT count(*) FROM visitor_grants`) != 1 {
		t.Errorf("%d members", w.count(`SELECT count(*) FROM visitor_grants`))
	}
	// the same page with another code in it, without cookies
	b := w.browser()
	if a := w.post(b, "/@me/code", url.Values{"code": {other}, "nonce": {once}}); a.status != 200 || w.cookie(b) == held || w.cookie(b) == "" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// another page is somebody else
	if a := w.post(w.browser(), "/@me/code", url.Values{"code": {code}, "nonce": {nonce()}}); a.status != 409 || !strings.Contains(a.raw, `role="alert"`) {
		t.Errorf("%d %s", a.status, a.raw)
	}
	for path, form := range map[string]url.Values{"/@me/code": {"code": {strings.Repeat("x", 9<<10)}}, "/@me/bookings/x": {"token": {strings.Repeat("x", 9<<10)}}, "/@me/bookings/x/move": {"token": {strings.Repeat("x", 9<<10)}}} {
		if a := w.post(w.browser(), path, form); a.status != 400 || !strings.Contains(a.raw, "could not be read") {
			t.Errorf("a large form, %s: %d", path, a.status)
		}
	}
	for name, guess := range map[string]string{"none": "", "short": "x", "long": strings.Repeat("x", 300), "not text": "\xff\x00234567890123456"} {
		if a := w.post(w.browser(), "/@me/code", url.Values{"code": {code}, "nonce": {guess}}); a.status != 409 && a.status != 400 {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
}

func (w *world) codeID() (id string) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), `SELECT id::text FROM codes`).Scan(&id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestBookingPage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.own("PUT", "/v1/availability", `{"time_zone":"Asia/Shanghai","lead_minutes":0,"weekly":{"monday":[{"from":"09:00","to":"17:00"}],"tuesday":[{"from":"09:00","to":"17:00"}],"wednesday":[{"from":"09:00","to":"17:00"}],"thursday":[{"from":"09:00","to":"17:00"}],"friday":[{"from":"09:00","to":"17:00"}]}}`)
	slots := w.get(http.DefaultClient, "/v1/public/me/bookings/slots")
	items, _ := slots.body["slots"].([]any)
	if len(items) == 0 {
		t.Fatalf("%d %.300s", slots.status, slots.raw)
	}
	start, _ := items[len(items)-1].(map[string]any)["start"].(string)
	made := w.send(http.DefaultClient, "POST", "/v1/public/me/bookings", "application/json", `{"start":"`+start+`","name":"Eve <b>","email":"eve@example.test","time_zone":"America/New_York","topic":"<script>alert(1)</script>"}`)
	token, _ := made.body["manage_token"].(string)
	booking, _ := made.body["booking"].(map[string]any)
	id, _ := booking["id"].(string)
	manage, _ := made.body["manage_url"].(string)
	if made.status != 201 || token == "" || !strings.HasPrefix(manage, "https://page.test/@me/bookings/"+id+"?") {
		t.Fatalf("%d %s", made.status, made.raw)
	}
	page := strings.TrimPrefix(manage, "https://page.test")
	b := w.browser()
	for range 3 {
		a := w.get(b, page)
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			t.Fatal(err)
		}
		zone, err := time.LoadLocation("Asia/Shanghai")
		if err != nil {
			t.Fatal(err)
		}
		if a.status != 200 || !strings.Contains(a.raw, at.In(zone).Format("15:04")) || !strings.Contains(a.raw, "Asia/Shanghai") || !strings.Contains(a.raw, "Cancel this booking") ||
			strings.Contains(a.raw, "<script") || !strings.Contains(a.raw, "Eve &lt;b&gt;") {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		// it claims no mail: no worker has run
		if regexp.MustCompile(`(?i)\b(sent|told|mailed|notified|invited)\b`).MatchString(a.raw) {
			t.Error(a.raw)
		}
	}
	for name, path := range map[string]string{
		"no token": "/@me/bookings/" + id, "wrong token": "/@me/bookings/" + id + "?token=x", "another id": "/@me/bookings/00000000-0000-4000-8000-000000000000?token=" + token, "junk": "/@me/bookings/x?token=" + token,
		"a long token": "/@me/bookings/" + id + "?token=" + strings.Repeat("x", 500),
	} {
		if a := w.get(b, path); a.status != 404 && a.status != 400 || strings.Contains(a.raw, "Eve") {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
		target, form, _ := strings.Cut(path, "?token=")
		if a := w.post(b, target, url.Values{"token": {form}}); a.status != 404 && a.status != 400 {
			t.Errorf("cancel, %s: %d %s", name, a.status, a.raw)
		}
	}
	if a := w.get(b, page); !strings.Contains(a.raw, `In your time zone</dt><dd>`) || !strings.Contains(a.raw, "America/New_York") {
		t.Error(a.raw)
	}
	w.moves(b, id, token, start)
	target := "/@me/bookings/" + id
	if a := w.post(b, target, url.Values{"token": {token}}, "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("from another site: %d %s", a.status, a.raw)
	}
	if n := w.count(`SELECT count(*) FROM bookings WHERE state = 'cancelled'`); n != 0 {
		t.Fatal("cancelled without the button")
	}
	for range 2 {
		a := w.post(b, target, url.Values{"token": {token}}, "Origin", w.url)
		if a.status != 200 || a.path != page || !strings.Contains(a.raw, "is cancelled") || strings.Contains(a.raw, "Cancel this booking") {
			t.Errorf("%d %s %s", a.status, a.path, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.cancelled'`); n != 1 {
		t.Errorf("%d cancellations", n)
	}
}

// moves moves a booking on its page, as a browser without scripts would.
func (w *world) moves(b *http.Client, id, token, was string) {
	w.t.Helper()
	t := w.t
	manage := "/@me/bookings/" + id + "?token=" + token
	href := func(a answer, text string) string {
		t.Helper()
		m := regexp.MustCompile(`href="([^"]+)">` + text).FindStringSubmatch(a.raw)
		if m == nil {
			t.Fatalf("no link %s: %s", text, a.raw)
		}
		return strings.ReplaceAll(m[1], "&amp;", "&")
	}
	file := w.get(b, href(w.get(b, manage), `Calendar file`))
	if file.status != 200 || !strings.HasPrefix(file.raw, "BEGIN"+":VCALENDAR") || !strings.Contains(file.raw, id) {
		t.Errorf("%d %s", file.status, file.raw)
	}
	first := href(w.get(b, manage), "Move this booking")
	offer := w.get(b, first)
	times := regexp.MustCompile(`name="start" value="([^"]+)" required> (\d\d:\d\d)–\d\d:\d\d \((\w{3} \d\d:\d\d)\)`).FindAllStringSubmatch(offer.raw, -1)
	if offer.status != 200 || len(times) < 10 || strings.Contains(offer.raw, was) || strings.Contains(offer.raw, "<script") || !strings.Contains(offer.raw, "Asia/Shanghai") || !strings.Contains(offer.raw, "America/New_York") {
		t.Fatalf("%d %s", offer.status, offer.raw)
	}
	for _, m := range times {
		at, err := time.Parse(time.RFC3339, m[1])
		if err != nil {
			t.Fatal(err)
		}
		for zone, said := range map[string]string{"Asia/Shanghai": at.In(location(t, "Asia/Shanghai")).Format("15:04") + m[2], "America/New_York": at.In(location(t, "America/New_York")).Format("Mon 15:04") + m[3]} {
			if said[:len(said)/2] != said[len(said)/2:] {
				t.Errorf("%s in %s: %s", m[1], zone, said)
			}
		}
	}
	// looking and leafing changes nothing
	later := w.get(b, href(offer, "Later days"))
	if later.status != 200 || strings.Contains(later.raw, times[0][1]) || !strings.Contains(later.raw, `name="start"`) {
		t.Errorf("%d %s", later.status, later.raw)
	}
	if back := w.get(b, href(later, "Earlier days")); back.status != 200 || !strings.Contains(back.raw, times[len(times)/2][1]) {
		t.Errorf("%d %s", back.status, back.raw)
	}
	target := "/@me/bookings/" + id + "/move"
	free, taken := times[0][1], times[1][1]
	other := w.send(http.DefaultClient, "POST", "/v1/public/me/bookings", "application/json", `{"start":"`+taken+`","name":"X","email":"x@example.test"}`)
	if other.status != 201 {
		t.Fatalf("%d %s", other.status, other.raw)
	}
	for name, c := range map[string]struct {
		form   url.Values
		site   string
		status int
		says   string
	}{
		"taken": {url.Values{"token": {token}, "start": {taken}}, "same-origin", 409, "taken"}, "none": {url.Values{"token": {token}}, "same-origin", 400, "Choose one"},
		"junk": {url.Values{"token": {token}, "start": {"x"}}, "same-origin", 400, "Choose one"}, "not offered": {url.Values{"token": {token}, "start": {"2020-01-01T00:00:00Z"}}, "same-origin", 422, "not offered"},
		"another site": {url.Values{"token": {token}, "start": {free}}, "cross-site", 403, "another site"}, "wrong token": {url.Values{"token": {"x"}, "start": {free}}, "same-origin", 404, "no such booking"},
		"no token": {url.Values{"start": {free}}, "same-origin", 404, "no such booking"},
	} {
		a := w.post(b, target, c.form, "Sec-Fetch-Site", c.site)
		if a.status != c.status || !strings.Contains(a.raw, c.says) || c.status == 409 && (!strings.Contains(a.raw, `role="alert"`) || !strings.Contains(a.raw, free) || strings.Contains(a.raw, `"`+taken)) {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.rescheduled'`); n != 0 {
		t.Fatal("moved without the button")
	}
	for range 2 { // pressed twice
		if a := w.post(b, target, url.Values{"token": {token}, "start": {free}}, "Origin", w.url); a.status != 200 || a.path != manage || !strings.Contains(a.raw, times[0][2]) {
			t.Errorf("%d %s %s", a.status, a.path, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'booking.rescheduled'`); n != 1 {
		t.Errorf("%d moves", n)
	}
	// what has begun is not offered to be changed
	if _, err := w.db.Exec(t.Context(), `UPDATE bookings SET starts_at = now() - interval '1 minute', ends_at = now() + interval '1 minute' WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{manage, first} {
		if a := w.get(b, path); a.status != 200 || strings.Contains(a.raw, "Cancel this") || strings.Contains(a.raw, "Move th") || strings.Contains(a.raw, `name="start"`) {
			t.Errorf("begun: %d %s", a.status, a.raw)
		}
	}
	if a := w.post(b, target, url.Values{"token": {token}, "start": {times[3][1]}}, "Origin", w.url); a.status != 409 || !strings.Contains(a.raw, `role="alert"`) {
		t.Errorf("begun: %d %s", a.status, a.raw)
	}
	if _, err := w.db.Exec(t.Context(), `UPDATE bookings SET starts_at = $2, ends_at = $2::timestamptz + interval '30 minutes' WHERE id = $1`, id, free); err != nil {
		t.Fatal(err)
	}
}

func location(t *testing.T, zone string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// A time is booked on the page, once however often the button is pressed; where a
// code is needed the page says so.
func TestBookOnThePage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	if a := w.get(b, "/@me"); strings.Contains(a.raw, "Book a time") {
		t.Error(a.raw)
	}
	if a := w.get(b, "/@me/book"); a.status != 200 || !strings.Contains(a.raw, "takes no bookings") || strings.Contains(a.raw, "<form") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	all := `[{"from":"00:00","to":"24:00"}]`
	w.own("PUT", "/v1/availability", `{"slot_minutes":240,"lead_minutes":0,"weekly":{"monday":`+all+`,"tuesday":`+all+`,"wednesday":`+all+`,"thursday":`+all+`,"friday":`+all+`,"saturday":`+all+`,"sunday":`+all+`}}`)
	offer := w.get(b, "/@me/book")
	nonce := regexp.MustCompile(`name="nonce" value="([^"]+)"`).FindStringSubmatch(offer.raw)
	starts := regexp.MustCompile(`name="start" value="([^"]+)"`).FindAllStringSubmatch(offer.raw, -1)
	if !strings.Contains(w.get(b, "/@me").raw, `href="/@me/book"`) || nonce == nil || len(starts) < 10 {
		t.Fatalf("%d %s", offer.status, offer.raw)
	}
	filled := func(start string, more url.Values) url.Values {
		f := url.Values{"nonce": {nonce[1]}, "start": {start}, "name": {"Eve <b>"}, "email": {"eve@example.test"}, "topic": {"A talk"}, "time_zone": {"Asia/Tokyo"}}
		for k, v := range more {
			f[k] = v
		}
		return f
	}
	first := starts[3][1]
	for name, c := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"a program": {filled(first, url.Values{"website": {"https://b.test"}}), 422, "website"}, "no time": {filled("", nil), 400, "Choose one"}, "junk": {filled("x", nil), 400, "start"},
		"an address": {filled(first, url.Values{"email": {"x"}}), 400, "email"}, "a zone": {filled(first, url.Values{"time_zone": {"Tokyo"}}), 400, "time_zone"}, "the past": {filled("2020-01-01T00:00:00Z", nil), 422, "not offered"},
	} {
		if a := w.post(b, "/@me/book", c.form); a.status != c.status || !strings.Contains(a.raw, `role="alert"`) || !strings.Contains(a.raw, c.says) || !strings.Contains(a.raw, `value="Eve &lt;b&gt;"`) {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	if a := w.post(b, "/@me/book", filled(first, nil), "Sec-Fetch-Site", "cross-site"); a.status != 403 || w.count(`SELECT count(*) FROM bookings`) != 0 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	paths := map[string]bool{}
	for range 2 {
		a := w.post(b, "/@me/book", filled(first, nil))
		paths[a.path] = true
		if a.status != 200 || !strings.Contains(a.raw, "Your booking with") || !strings.Contains(a.raw, "Asia/Tokyo") || regexp.MustCompile(`(?i)\b(sent|told|mailed|notified|invited)\b`).MatchString(a.raw) {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	// gone back to and filled in otherwise, it is another booking
	if a := w.post(b, "/@me/book", filled(starts[5][1], nil)); a.status != 200 || paths[a.path] || len(paths) != 1 || w.count(`SELECT count(*) FROM bookings`) != 2 {
		t.Errorf("%d %s %v", a.status, a.raw, paths)
	}
	if a := w.post(b, "/@me/book", filled(first, url.Values{"nonce": {"another"}})); a.status != 409 && a.status != 422 || !strings.Contains(a.raw, `role="alert"`) {
		t.Errorf("taken: %d %s", a.status, a.raw)
	}

	w.own("PUT", "/v1/availability", `{"requires_code":true}`)
	if a := w.get(b, "/@me/book"); a.status != 200 || !strings.Contains(a.raw, "you need an access code") || !strings.Contains(a.raw, `href="/@me/code"`) || strings.Contains(a.raw, "<form") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.post(b, "/@me/book", filled(starts[7][1], url.Values{"nonce": {"third"}})); a.status != 403 || !strings.Contains(a.raw, "Redeem yours first") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	code, _ := w.own("POST", "/v1/codes", `{"label":"one"}`)["code"].(string)
	w.post(b, "/@me/code", url.Values{"code": {code}})
	if a := w.post(b, "/@me/book", filled(starts[7][1], url.Values{"nonce": {"third"}})); a.status != 200 || !strings.Contains(a.raw, "Your booking with") {
		t.Errorf("%d %s", a.status, a.raw)
	}
}
