package account_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"standmeet/shared/task"
)

const otter, badger = "velvet otter ran", "patient badger sang"

func (w *world) setPassword(password string) {
	w.t.Helper()
	if a := w.call(w.token, "PUT", "/v1/account/password", `{"password":"`+password+`"}`); a.status != 200 || a.body["set"] != true {
		w.t.Fatalf("%d %s", a.status, a.raw)
	}
}

func (w *world) events(kind string) int {
	return w.count(`SELECT count(*) FROM events WHERE type = '` + kind + `'`)
}

// raw sends a request as c has cookies for it; headers are name, value.
func (w *world) raw(c *http.Client, method, path, body string, headers ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.do(c, r)
}

func (w *world) cookies(c *http.Client) []*http.Cookie {
	u, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.Jar.Cookies(u)
}

func TestSetPassword(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.browser()
	w.post(b, "/sign-in", url.Values{"token": {w.link()}})
	for body, want := range map[string]string{
		`{}`:                             "missing_field",
		`{"password":""}`:                "too_short",
		`{"password":"short"}`:           "too_short",
		`{"password":"password1234"}`:    "too_common",
		`{"password":"me@example.test"}`: "too_common",
		`{"password":"` + strings.Repeat("x1y2", 65) + `"}`:   "too_long",
		`{"password":"` + otter + `","current_passwort":"x"}`: "unknown_field",
		`{"password":12345678901234}`:                         "wrong_type",
	} {
		a := w.raw(b, "PUT", "/v1/account/password", body)
		code := a.body["code"]
		if errors, _ := a.body["errors"].([]any); len(errors) == 1 {
			code = errors[0].(map[string]any)["code"]
		}
		if a.status != 400 || code != want {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.raw, want)
		}
	}
	// a token that can't do everything can't make itself a session
	limited := w.call(w.token, "POST", "/v1/tokens", `{"name":"x","scopes":["account:write"]}`).body["secret"].(string)
	if a := w.call(limited, "PUT", "/v1/account/password", `{"password":"`+otter+`"}`); a.status != 403 || a.body["code"] != "forbidden_scope" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.raw(b, "PUT", "/v1/account/password", `{"password":"`+otter+`"}`, "Sec-Fetch-Site", "cross-site"); a.status != 403 || a.body["code"] != "cross_origin" {
		t.Errorf("from another site: %d %s", a.status, a.raw)
	}
	if w.events("account.password_changed") != 0 || w.count(`SELECT count(*) FROM owners WHERE password_hash IS NOT NULL`) != 0 {
		t.Error("a refused password was set")
	}

	other := w.browser()
	w.post(other, "/sign-in", url.Values{"token": {w.link()}})
	if a := w.raw(b, "PUT", "/v1/account/password", `{"password":"`+otter+`"}`, "Idempotency-Key", "k"); a.status != 200 || a.body["set"] != true || strings.Contains(a.raw, otter) {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if a := w.raw(b, "GET", "/v1/account", ""); a.status != 200 {
		t.Errorf("the session that changed it: %d", a.status)
	}
	if a := w.raw(other, "GET", "/v1/account", ""); a.status != 401 {
		t.Errorf("another session: %d", a.status)
	}
	// nothing keeps the password or a plain hash of it
	if n := w.count(`SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d idempotency keys of it", n)
	}
	if n := w.count(`SELECT count(*) FROM events WHERE data::text LIKE '%otter%'`); n != 0 {
		t.Error("an event holds the password")
	}
	// a token needs the current one
	if a := w.call(w.token, "PUT", "/v1/account/password", `{"password":null}`); a.status != 403 || a.body["code"] != "current_password_missing" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(w.token, "PUT", "/v1/account/password", `{"password":null,"current_password":"`+badger+`"}`); a.status != 403 || a.body["code"] != "current_password_wrong" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(w.token, "PUT", "/v1/account/password", `{"password":null,"current_password":"`+otter+`"}`); a.status != 200 || a.body["set"] != false {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if n := w.events("account.password_changed"); n != 2 {
		t.Errorf("%d changes recorded", n)
	}
}

func TestSignInWithPasswordForm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.setPassword(otter)
	if a := w.get(w.browser(), "/sign-in"); a.status != 200 || !strings.Contains(a.raw, `type="password"`) || !strings.Contains(a.raw, `action="/sign-in/mail"`) || strings.Contains(a.raw, "<script") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	for _, login := range []string{"me", "me@example.test"} {
		b := w.browser()
		// a session that somebody planted is not the one that begins
		planted := w.browser()
		w.post(planted, "/sign-in", url.Values{"token": {w.link()}})
		u, _ := url.Parse(w.url)
		b.Jar.SetCookies(u, w.cookies(planted))
		before := w.cookies(b)[0].Value
		a := w.post(b, "/sign-in", url.Values{"login": {login}, "password": {otter}}, "Origin", w.url, "Sec-Fetch-Site", "same-origin")
		if a.status != 200 || !strings.Contains(a.raw, "Signed in as <strong>me</strong>") || w.cookies(b)[0].Value == before {
			t.Errorf("%s: %d %s", login, a.status, a.raw)
		}
	}
	id := regexp.MustCompile(`value="(nobody|me|other)"`)
	var words string
	for _, try := range []url.Values{
		{"login": {"me"}, "password": {badger}}, {"login": {"nobody"}, "password": {badger}}, {"login": {"other"}, "password": {badger}}, {"login": {"me"}},
	} {
		b := w.browser()
		a := w.post(b, "/sign-in", try)
		text := id.ReplaceAllString(a.raw, "")
		if a.status != 401 || words != "" && text != words || len(w.cookies(b)) != 0 {
			t.Errorf("%v: %d %s", try, a.status, a.raw)
		}
		words = text
	}
	if !strings.Contains(words, `role="alert"`) || strings.Contains(words, badger) {
		t.Error(words)
	}
	if a := w.post(w.browser(), "/sign-in", url.Values{"login": {"me"}, "password": {otter}}, "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("from another site: %d", a.status)
	}
	if n := w.events("account.signed_in"); n != 4 {
		t.Errorf("%d sign-ins recorded", n)
	}
}

func TestFormIsLocked(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.setPassword(otter)
	for range 10 {
		if a := w.post(w.browser(), "/sign-in", url.Values{"login": {"me"}, "password": {badger}}); a.status != 401 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
	}
	a := w.post(w.browser(), "/sign-in", url.Values{"login": {"me"}, "password": {otter}}, "X-Forwarded-For", "203.0.113.9")
	if a.status != 429 || a.header.Get("Retry-After") == "" || !strings.Contains(a.raw, "A sign-in link still works.") {
		t.Errorf("%d %v %s", a.status, a.header, a.raw)
	}
	if a := w.call("", "POST", "/v1/session", `{"login":"me","password":"`+otter+`"}`); a.status != 429 || a.body["code"] != "rate_limited" || a.header.Get("Retry-After") == "" || a.header.Get("Set-Cookie") != "" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.post(w.browser(), "/sign-in", url.Values{"token": {w.link()}}); !strings.Contains(a.raw, "Signed in as") {
		t.Errorf("the link: %d %s", a.status, a.raw)
	}
}

func TestSessionOperations(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.setPassword(otter)
	var refusal string
	for _, body := range []string{`{"login":"me","password":"` + badger + `"}`, `{"login":"nobody","password":"` + otter + `"}`, `{"login":"other","password":""}`} {
		a := w.call("", "POST", "/v1/session", body)
		delete(a.body, "instance")
		detail, _ := a.body["detail"].(string)
		if a.status != 401 || a.body["code"] != "sign_in_refused" || a.header.Get("Set-Cookie") != "" || refusal != "" && detail != refusal {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
		refusal = detail
	}
	if a := w.raw(http.DefaultClient, "POST", "/v1/session", "login=me&password="+otter, "Content-Type", "application/x-www-form-urlencoded"); a.status != 415 {
		t.Errorf("what a form of another site could send: %d %s", a.status, a.raw)
	}
	b, other := w.browser(), w.browser()
	for _, c := range []*http.Client{b, other} {
		a := w.raw(c, "POST", "/v1/session", `{"login":"me","password":"`+otter+`"}`)
		cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
		if a.status != 200 || err != nil || cookie.Name != "sm_session" || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure || cookie.Path != "/" || strings.Contains(a.raw, cookie.Value) {
			t.Fatalf("%d %v %s", a.status, a.header, a.raw)
		}
		if owner, _ := a.body["owner"].(map[string]any); owner["handle"] != "me" {
			t.Error(a.raw)
		}
	}
	list := w.raw(b, "GET", "/v1/sessions", "")
	items, _ := list.body["items"].([]any)
	current := 0
	for _, i := range items {
		if i.(map[string]any)["current"] == true {
			current++
		}
	}
	if len(items) != 2 || list.body["total"] != 2.0 || current != 1 {
		t.Error(list.raw)
	}
	if a := w.raw(b, "DELETE", "/v1/session", "", "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("sign-out from another site: %d", a.status)
	}
	if a := w.raw(b, "DELETE", "/v1/session", ""); a.status != 204 || len(w.cookies(b)) != 0 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(w.token, "DELETE", "/v1/session", ""); a.status != 204 {
		t.Errorf("a token, which has no session: %d %s", a.status, a.raw)
	}
	if a := w.raw(other, "GET", "/v1/account", ""); a.status != 200 {
		t.Errorf("another session ended too: %d", a.status)
	}
	if a := w.call(w.other, "DELETE", "/v1/sessions", ""); a.status != 200 || a.body["ended"] != 0.0 {
		t.Errorf("another owner: %d %s", a.status, a.raw)
	}
	if a := w.call(w.token, "DELETE", "/v1/sessions", ""); a.status != 200 || a.body["ended"] != 1.0 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.raw(other, "GET", "/v1/account", ""); a.status != 401 {
		t.Errorf("signed out everywhere, and still %d", a.status)
	}
	if n := w.events("account.signed_out"); n != 2 {
		t.Errorf("%d sign-outs recorded", n)
	}
}

func TestSignOutEverywhereButton(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b, other := w.browser(), w.browser()
	for _, c := range []*http.Client{b, other} {
		w.post(c, "/sign-in", url.Values{"token": {w.link()}})
	}
	if a := w.post(b, "/sign-out", url.Values{"everywhere": {"1"}}); a.status != 200 || !strings.Contains(a.raw, "not signed in") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.raw(other, "GET", "/v1/account", ""); a.status != 401 {
		t.Errorf("%d", a.status)
	}
}

// Asking for a link answers the same for an owner, for nobody, and for one who
// asked too often, takes as long, and says nothing that has not happened.
func TestAskForLink(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var words string
	for _, login := range []string{"me", "me@example.test", "ME", "me", "nobody", "no@example.test", "", "a@b@c\x00"} {
		began := time.Now()
		a := w.post(w.browser(), "/sign-in/mail", url.Values{"login": {login}})
		if a.status != 200 || words != "" && a.raw != words || time.Since(began) < 300*time.Millisecond {
			t.Errorf("%q: %d after %v: %s", login, a.status, time.Since(began), a.raw)
		}
		words = a.raw
	}
	if !strings.Contains(words, task.SignInAsked()) || regexp.MustCompile(`(?i)\b(sent|told|mailed|notified|invited)\b`).MatchString(words) {
		t.Error(words)
	}
	if n := w.events("account.sign_in_link_requested"); n != 3 {
		t.Errorf("%d links asked for, want 3", n)
	}
	if n := w.count(`SELECT count(*) FROM sign_in_links`); n != 0 {
		t.Errorf("%d links made by a function", n)
	}
	// two more from this address, then it is refused whoever it asks for
	for range 2 {
		w.post(w.browser(), "/sign-in/mail", url.Values{"login": {"nobody"}})
	}
	for _, login := range []string{"me", "nobody"} {
		if a := w.post(w.browser(), "/sign-in/mail", url.Values{"login": {login}}, "X-Forwarded-For", "203.0.113.9"); a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	if a := w.post(w.browser(), "/sign-in/mail", url.Values{"login": {"me"}}, "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("from another site: %d", a.status)
	}
}
