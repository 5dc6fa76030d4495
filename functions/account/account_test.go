package account_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/account"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// world is an owner, and another, with the account's functions on a server.
type world struct {
	t     *testing.T
	db    *pg.DB
	url   string
	me    auth.Profile
	token string
	other string
}

func setup(t *testing.T) *world {
	t.Helper()
	db := pgtest.DB(t)
	w := waiter.New(db, waiter.Options{}, task.FinalSource(db), outbox.FanoutSource(db))
	t.Cleanup(w.Close)
	store := &auth.Store{DB: db}
	d := account.Deps{DB: db, Receipts: task.NewReceipts(db, w), Auth: store, Mail: true}
	t.Cleanup(func() { store.Flush(context.Background()) })
	server := &op.Server{Authenticate: store.Authenticate}
	cat := op.NewCatalog(account.Get(d), account.CreateToken(d), account.ListTokens(d), account.RevokeToken(d), account.SendTestMail(d),
		account.SignIn(d), account.SignOut(d), account.Sessions(d), account.SignOutEverywhere(d), account.SetPassword(d))
	pages := account.Pages(d, server)
	mux := http.NewServeMux()
	mux.Handle("/v1/", cat.Handler(server))
	mux.Handle("/", pages)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	out := &world{t: t, db: db, url: s.URL}
	for handle, token := range map[string]*string{"me": &out.token, "other": &out.other} {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			owner, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: handle, Email: handle + "@example.test"})
			if err != nil {
				return err
			}
			if handle == "me" {
				out.me = owner
			}
			_, *token, err = auth.CreateToken(t.Context(), tx, owner.ID, auth.Token{Name: "first", Scopes: []string{"*"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (w *world) call(token, method, path, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.do(http.DefaultClient, r)
}

func (w *world) do(c *http.Client, r *http.Request) answer {
	w.t.Helper()
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			w.t.Fatalf("%v: %s", err, raw)
		}
	}
	return a
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestGet(t *testing.T) {
	w := setup(t)
	a := w.call(w.token, "GET", "/v1/account", "")
	owner, _ := a.body["owner"].(map[string]any)
	if a.status != 200 || owner["handle"] != "me" || owner["email"] != "me@example.test" || a.body["token_id"] == nil {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call("", "GET", "/v1/account", ""); a.status != 401 || a.body["code"] != "unauthorized" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestTokens(t *testing.T) {
	w := setup(t)
	events := w.count(`SELECT count(*) FROM events`)
	created := w.call(w.token, "POST", "/v1/tokens", `{"name":"reader","scopes":["account:read","account:read"],"expires_at":"2999-01-01T00:00:00Z"}`)
	token, _ := created.body["token"].(map[string]any)
	secret, _ := created.body["secret"].(string)
	if created.status != 201 || !strings.HasPrefix(secret, "smt_") || len(token["scopes"].([]any)) != 1 || token["expires_at"] != "2999-01-01T00:00:00Z" {
		t.Fatalf("%d %s", created.status, created.raw)
	}
	if a := w.call(secret, "GET", "/v1/account", ""); a.status != 200 {
		t.Errorf("the new token: %d %s", a.status, a.raw)
	}
	if a := w.call(secret, "POST", "/v1/tokens", `{"name":"x","scopes":["account:read"]}`); a.status != 403 || a.body["code"] != "forbidden_scope" {
		t.Errorf("without account:write: %d %s", a.status, a.raw)
	}
	list := w.call(w.token, "GET", "/v1/tokens?limit=1", "")
	if list.status != 200 || list.body["total"] != 2.0 || list.body["next_cursor"] == nil || strings.Contains(list.raw, secret) {
		t.Errorf("%d %s", list.status, list.raw)
	}
	next := w.call(w.token, "GET", "/v1/tokens?limit=1&cursor="+list.body["next_cursor"].(string), "")
	if items, _ := next.body["items"].([]any); len(items) != 1 || items[0].(map[string]any)["name"] != "first" || next.body["next_cursor"] != nil {
		t.Errorf("page 2: %s", next.raw)
	}
	if a := w.call(w.token, "GET", "/v1/tokens?cursor=junk", ""); a.status != 400 || a.body["code"] != "bad_cursor" {
		t.Errorf("%d %s", a.status, a.raw)
	}

	path := "/v1/tokens/" + token["id"].(string)
	for _, p := range []string{path, "/v1/tokens/" + uuid.NewString(), "/v1/tokens/junk"} {
		if a := w.call(w.other, "DELETE", p, ""); a.status != 404 || a.body["code"] != "not_found" {
			t.Errorf("another owner, %s: %d %s", p, a.status, a.raw)
		}
	}
	for range 2 {
		a := w.call(w.token, "DELETE", path, "")
		if token, _ := a.body["token"].(map[string]any); a.status != 200 || token["revoked_at"] == nil {
			t.Errorf("revoke: %d %s", a.status, a.raw)
		}
	}
	if a := w.call(secret, "GET", "/v1/account", ""); a.status != 401 {
		t.Errorf("revoked: %d", a.status)
	}
	if n := w.count(`SELECT count(*) FROM events`) - events; n != 2 {
		t.Errorf("%d events, want one token.created and one token.revoked", n)
	}
}

func TestCreateTokenRefusals(t *testing.T) {
	w := setup(t)
	limited := w.call(w.token, "POST", "/v1/tokens", `{"name":"limited","scopes":["account:write"]}`).body["secret"].(string)
	before := w.count(`SELECT count(*) FROM tokens`)
	for body, want := range map[string]string{
		`{"name":"x","scopes":["*"]}`:                                                 "forbidden_scope",
		`{"name":"x","scopes":["account:write","corpus:read"]}`:                       "forbidden_scope",
		`{"name":"x","scopes":[]}`:                                                    "invalid_request",
		`{"name":"","scopes":["account:write"]}`:                                      "too_short",
		`{"name":"x"}`:                                                                "missing_field",
		`{"name":"x","scopes":["account:everything"]}`:                                "not_allowed",
		`{"name":"x","scopes":["account:write"],"expires_at":"2020-01-01T00:00:00Z"}`: "invalid_request",
		`{"name":"x","scopes":["account:write"],"expires_at":"tomorrow"}`:             "invalid_format",
		`{"name":"x","scopes":["account:write"],"secret":"smt_mine"}`:                 "unknown_field",
	} {
		if a := w.call(limited, "POST", "/v1/tokens", body); a.body["code"] != want {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.raw, want)
		}
	}
	if after := w.count(`SELECT count(*) FROM tokens`); after != before {
		t.Errorf("%d tokens made by refused requests", after-before)
	}
}

// The answer under an idempotency key is kept, the secret is not.
func TestCreateTokenReplay(t *testing.T) {
	w := setup(t)
	first := w.call(w.token, "POST", "/v1/tokens", `{"name":"x","scopes":["*"]}`, "Idempotency-Key", "k")
	again := w.call(w.token, "POST", "/v1/tokens", `{"name":"x","scopes":["*"]}`, "Idempotency-Key", "k")
	if first.body["secret"] == nil || again.status != 201 || again.body["secret"] != nil ||
		again.body["token"].(map[string]any)["id"] != first.body["token"].(map[string]any)["id"] {
		t.Errorf("%s\n%s", first.raw, again.raw)
	}
	var kept string
	if err := w.db.QueryRow(t.Context(), `SELECT string_agg(k::text, '') FROM idempotency_keys k`).Scan(&kept); err != nil || strings.Contains(kept, "smt_") {
		t.Errorf("%s, %v", kept, err)
	}
}

// What mail.send_test says is what the task says. No relay runs here: the test
// plays it, and the worker.
func TestSendTestMail(t *testing.T) {
	w := setup(t)
	pending := w.call(w.token, "POST", "/v1/mail/send-test", `{"wait_seconds":0}`)
	mail, _ := pending.body["mail"].(map[string]any)
	wait, _ := pending.body["wait"].(map[string]any)
	if pending.status != 200 || mail["state"] != "sending" || wait["ended"] != "not_asked" || pending.body["sentence"] != task.Say(task.MailTest, task.Pending) {
		t.Fatalf("%d %s", pending.status, pending.raw)
	}
	if id, err := task.ParseID(mail["job_id"].(string)); err != nil || id.Subscriber != task.MailTest {
		t.Errorf("%v, %v", id, err)
	} else if got, err := task.Get(t.Context(), w.db, w.me.ID, id); err != nil || got.State != task.Pending {
		t.Errorf("%+v, %v", got, err)
	}
	began := time.Now()
	timeout := w.call(w.token, "POST", "/v1/mail/send-test", "", "Prefer", "wait=1")
	if wait, _ := timeout.body["wait"].(map[string]any); wait["ended"] != "timeout" || wait["asked_ms"] != 1000.0 || time.Since(began) < time.Second {
		t.Errorf("%s", timeout.raw)
	}

	for state, want := range map[task.State]string{task.Completed: "sent", task.Discarded: "failed", task.Cancelled: "failed"} {
		key := string(state)
		first := w.call(w.token, "POST", "/v1/mail/send-test", `{"wait_seconds":0}`, "Idempotency-Key", key)
		id, err := task.ParseID(first.body["mail"].(map[string]any)["job_id"].(string))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.db.Exec(t.Context(), `
			INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES ($1, $2, $3, $4, $5, now())`,
			id.Event, id.Subscriber, w.me.ID, w.me.ID.String(), state)
		if err != nil {
			t.Fatal(err)
		}
		again := w.call(w.token, "POST", "/v1/mail/send-test", ``, "Idempotency-Key", key)
		mail, _ := again.body["mail"].(map[string]any)
		wait, _ := again.body["wait"].(map[string]any)
		if mail["state"] != want || mail["job_id"] != id.String() || wait["ended"] != "observed" || again.body["sentence"] != task.Say(task.MailTest, state) {
			t.Errorf("%s: %s", state, again.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'mail.test_requested'`); n != 5 {
		t.Errorf("%d mails asked for, want 5", n)
	}
}

// browser keeps cookies and follows redirects, as a person's does.
func (w *world) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func (w *world) get(c *http.Client, path string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.do(c, r)
}

func (w *world) post(c *http.Client, path string, form url.Values, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.do(c, r)
}

func (w *world) link() string {
	w.t.Helper()
	var link string
	err := w.db.InTx(w.t.Context(), func(tx *pg.Tx) (err error) {
		link, err = auth.CreateSignInLink(w.t.Context(), tx, w.me.ID, time.Minute)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return link
}

func TestSignInAndOut(t *testing.T) {
	w := setup(t)
	link, b := w.link(), w.browser()
	// however often it is looked at, the link still works
	for range 3 {
		if a := w.get(w.browser(), "/sign-in?token="+link); a.status != 200 || !strings.Contains(a.raw, `value="`+link+`"`) || a.header.Get("Referrer-Policy") != "same-origin" {
			t.Fatalf("%d %s", a.status, a.raw)
		}
	}
	if a := w.post(b, "/sign-in", url.Values{"token": {link}}, "Origin", "https://evil.test", "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("sign-in from another site: %d", a.status)
	}
	a := w.post(b, "/sign-in", url.Values{"token": {link}}, "Origin", w.url, "Sec-Fetch-Site", "same-origin")
	if a.status != 200 || !strings.Contains(a.raw, "Signed in as <strong>me</strong>") {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if a := w.post(w.browser(), "/sign-in", url.Values{"token": {link}}); a.status != 410 || strings.Contains(a.raw, "Signed in") {
		t.Errorf("the link again: %d %s", a.status, a.raw)
	}
	if a := w.get(b, "/sign-in?token="+link); a.status != 200 || !strings.Contains(a.raw, "Signed in as") {
		t.Errorf("the link again, signed in: %d %s", a.status, a.raw)
	}

	// the session is the owner's on the operations, except from another site
	if a := w.get(b, "/v1/account"); a.status != 200 || a.body["token_id"] != nil {
		t.Errorf("%d %s", a.status, a.raw)
	}
	before := w.count(`SELECT count(*) FROM tokens`)
	create := func(site string) answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/tokens", strings.NewReader(`{"name":"x","scopes":["*"]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", site)
		return w.do(b, r)
	}
	if a := create("cross-site"); a.status != 403 || a.body["code"] != "cross_origin" || w.count(`SELECT count(*) FROM tokens`) != before {
		t.Errorf("from another site: %d %s", a.status, a.raw)
	}
	if a := create("same-origin"); a.status != 201 {
		t.Errorf("from our page: %d %s", a.status, a.raw)
	}

	if a := w.post(b, "/sign-out", nil, "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("sign-out from another site: %d", a.status)
	}
	address, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	session := b.Jar.Cookies(address)[0]
	if a := w.post(b, "/sign-out", nil); a.status != 200 || !strings.Contains(a.raw, "not signed in") || len(b.Jar.Cookies(address)) != 0 {
		t.Errorf("sign-out: %d %s", a.status, a.raw)
	}
	stale := w.browser()
	stale.Jar.SetCookies(address, []*http.Cookie{session})
	if a := w.get(stale, "/v1/account"); a.status != 401 {
		t.Errorf("the session after sign-out: %d", a.status)
	}
	if in, out := w.count(`SELECT count(*) FROM events WHERE type = 'account.signed_in'`), w.count(`SELECT count(*) FROM events WHERE type = 'account.signed_out'`); in != 1 || out != 1 {
		t.Errorf("%d sign-ins, %d sign-outs recorded", in, out)
	}
}

func TestCookie(t *testing.T) {
	w := setup(t)
	noFollow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for scheme, secure := range map[string]bool{"http": false, "https": true} {
		a := w.post(noFollow, "/sign-in", url.Values{"token": {w.link()}}, "X-Forwarded-Proto", scheme)
		c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
		if a.status != 303 || a.header.Get("Location") != "/" || err != nil || c.Name != "sm_session" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != secure || c.Path != "/" || c.MaxAge <= 0 {
			t.Errorf("%s: %d %v %v", scheme, a.status, a.header, err)
		}
	}
}

func TestPageRefusals(t *testing.T) {
	w := setup(t)
	b := w.browser()
	if a := w.get(b, "/"); a.status != 200 || !strings.Contains(a.raw, "not signed in") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.get(b, `/sign-in?token="><script>alert(1)</script>`); a.status != 200 || strings.Contains(a.raw, "<script") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.post(b, "/sign-in", url.Values{"token": {strings.Repeat("x", 8<<10)}}); a.status != 400 {
		t.Errorf("a large form: %d", a.status)
	}
	if a := w.post(b, "/sign-in", nil); a.status != 410 {
		t.Errorf("no token: %d", a.status)
	}
	if a := w.get(b, "/sign-out"); a.status != 405 {
		t.Errorf("GET /sign-out: %d", a.status)
	}
	if n := w.count(`SELECT count(*) FROM sessions`); n != 0 {
		t.Errorf("%d sessions of refused requests", n)
	}
}

// The answer for a receipt is what the operation would answer now.
func TestTestMailAnswer(t *testing.T) {
	w := setup(t)
	first := w.call(w.token, "POST", "/v1/mail/send-test", `{"wait_seconds":0}`)
	receipt := first.body["mail"].(map[string]any)["job_id"].(string)
	answer := account.TestMailAnswer(account.Deps{DB: w.db})
	ask := func(owner uuid.UUID, id string) (account.MailSent, error) {
		args, err := json.Marshal(map[string]any{"id": id})
		if err != nil {
			t.Fatal(err)
		}
		res, err := answer.Call(t.Context(), auth.Caller{Kind: auth.Owner, OwnerID: owner, Scopes: []string{"*"}}, args, op.CallInfo{})
		if err != nil {
			return account.MailSent{}, err
		}
		return res.Value.(account.MailSent), nil
	}
	if m, err := ask(w.me.ID, receipt); err != nil || m.Mail.State != "sending" || m.PendingReceipt() != receipt {
		t.Errorf("%+v, %v", m, err)
	}
	id, err := task.ParseID(receipt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Exec(t.Context(), `
		INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES ($1, $2, $3, '', 'completed', now())`,
		id.Event, id.Subscriber, w.me.ID); err != nil {
		t.Fatal(err)
	}
	if m, err := ask(w.me.ID, receipt); err != nil || m.Mail.State != "sent" || m.PendingReceipt() != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, other := range []string{"junk", id.Event.String() + ":corpus.index", uuid.NewString() + ":mail.test"} {
		if m, err := ask(w.me.ID, other); err == nil {
			t.Errorf("%s: %+v", other, m)
		}
	}
	if m, err := ask(uuid.New(), receipt); err == nil {
		t.Errorf("another owner: %+v", m)
	}
}
