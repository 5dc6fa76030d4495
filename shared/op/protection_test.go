package op_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/op"
	"standmeet/shared/op/apigw"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// gate is a server with the real store, a visitor and an owner.
type gate struct {
	t       *testing.T
	db      *pg.DB
	h       http.Handler
	me      auth.Profile
	session string // the owner's
	token   string
	visitor string
	code    uuid.UUID
}

type who struct {
	Kind    string    `json:"kind"`
	Owner   uuid.UUID `json:"owner"`
	Granted bool      `json:"granted"`
	From    string    `json:"from"`
	Serial  string    `json:"serial"`
}

func newGate(t *testing.T, most int) *gate {
	t.Helper()
	g := &gate{t: t, db: pgtest.DB(t), code: uuid.New()}
	store := &auth.Store{DB: g.db}
	t.Cleanup(func() { store.Flush(context.Background()) })
	err := g.db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		if g.me, err = auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: "me", Email: "me@example.test"}); err != nil {
			return err
		}
		if _, g.token, err = auth.CreateToken(t.Context(), tx, g.me.ID, auth.Token{Name: "x", Scopes: []string{"gate:read"}}); err != nil {
			return err
		}
		link, err := auth.CreateSignInLink(t.Context(), tx, g.me.ID, time.Minute)
		if err != nil {
			return err
		}
		if _, g.session, err = auth.SignIn(t.Context(), tx, link); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `INSERT INTO codes (id, owner_id, code_hash, hint) VALUES ($1, $2, $3, '')`, g.code, g.me.ID, g.code[:]); err != nil {
			return err
		}
		g.visitor, _, _, err = auth.Admit(t.Context(), tx, "", g.code)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(_ context.Context, c auth.Caller, _ struct{}) (who, error) {
		return who{Kind: c.Kind.String(), Owner: c.OwnerID, Granted: c.Reads(g.me.ID), From: c.RemoteAddr}, nil
	}
	type proof struct {
		Proof string `json:"proof,omitempty"`
	}
	write := func(_ context.Context, _ *pg.Tx, c auth.Caller, _ proof) (who, error) {
		return who{Kind: c.Kind.String(), From: c.RemoteAddr, Serial: uuid.NewString()}, nil
	}
	answer := func(_ context.Context, _ auth.Caller, w who) (who, error) { return w, nil }
	file := func(_ context.Context, _ auth.Caller, in proof) (op.File, error) {
		f := op.File{Body: []byte("<script>alert(1)</script>"), ETag: `"v1"`, Modified: time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC)}
		if in.Proof == "save" {
			f.Download, f.CacheControl, f.ContentType = "a \"b\"\r\nX: y.ics", "public, max-age=60", "text/plain; charset=utf-8"
		}
		return f, nil
	}
	s := &op.Server{
		Authenticate: store.Authenticate, Logger: slog.New(slog.DiscardHandler),
		Limit: func(ctx context.Context, address string) error {
			return limit.Rule{Name: "public", Most: most, Per: time.Hour}.Take(ctx, g.db, limit.Address(address))
		},
	}
	g.h = op.NewCatalog(
		op.New(op.Spec{Name: "gate.public", Method: "GET", Path: "/v1/public", Access: op.Public, Summary: "x"}, tell),
		op.NewWrite(op.Spec{Name: "gate.write", Method: "POST", Path: "/v1/public", Access: op.Public, Summary: "x", MaxBody: 100}, g.db, write, answer),
		op.New(op.Spec{Name: "gate.own", Method: "POST", Path: "/v1/own", Scope: "gate:read", Summary: "x"}, tell),
		op.New(op.Spec{Name: "gate.guest", Method: "POST", Path: "/v1/guest", Access: op.Guest, Scope: "gate:write", Summary: "x"},
			func(ctx context.Context, c auth.Caller, in proof) (who, error) {
				if in.Proof != "mine" {
					if err := op.CallFrom(ctx).Owner(c); err != nil {
						return who{}, err
					}
				}
				return tell(ctx, c, struct{}{})
			}),
		op.New(op.Spec{Name: "gate.file", Method: "GET", Path: "/v1/file", Access: op.Public, Summary: "x", Produces: "text/calendar; charset=utf-8"}, file),
	).Handler(s)
	return g
}

type reply struct {
	status int
	header http.Header
	raw    string
	who    who
	code   string
}

// send sends a request; headers are name, value. From is the address that it
// comes from.
func (g *gate) send(method, path, body string, headers ...string) reply {
	g.t.Helper()
	r := httptest.NewRequestWithContext(g.t.Context(), method, "http://page.test"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "From" {
			r.RemoteAddr = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.h.ServeHTTP(w, r)
	out := reply{status: w.Code, header: w.Result().Header, raw: w.Body.String()}
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		var p fault.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			g.t.Fatal(err)
		}
		out.code = p.Code
		if err := json.Unmarshal(w.Body.Bytes(), &out.who); err != nil {
			g.t.Fatal(err)
		}
	}
	return out
}

func session(s string) string { return auth.SessionCookie + "=" + s }
func visitor(s string) string { return auth.VisitorCookie + "=" + s }

// A browser sends its cookies along whoever made it send the request; what
// changes something must come from our own pages.
func TestCookiesFromOtherSites(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	stale := strings.Repeat("A", 43)
	sites := map[string][]string{
		"cross-site":               {"Sec-Fetch-Site", "cross-site"},
		"a sibling domain":         {"Sec-Fetch-Site", "same-site"},
		"another origin":           {"Origin", "https://evil.test"},
		"an opaque origin":         {"Origin", "null"},
		"our name on another port": {"Origin", "http://page.test:8081"},
	}
	for name, site := range sites {
		for cookie, value := range map[string]string{"session": session(g.session), "visitor": visitor(g.visitor), "both": session(g.session) + "; " + visitor(g.visitor), "stale and visitor": session(stale) + "; " + visitor(g.visitor)} {
			if r := g.send("POST", "/v1/public", "{}", append(site, "Cookie", value)...); r.status != 403 || r.code != "cross_origin" {
				t.Errorf("%s, %s: %d %s", name, cookie, r.status, r.raw)
			}
			// reading changes nothing, and the other site can't see the answer
			if r := g.send("GET", "/v1/public", "", append(site, "Cookie", value)...); r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("GET, %s, %s: %d %s", name, cookie, r.status, r.raw)
			}
		}
		if r := g.send("POST", "/v1/own", "", append(site, "Cookie", session(g.session))...); r.status != 403 || r.code != "cross_origin" {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
		// a token is sent by whoever knows it
		for _, token := range []string{g.token, g.visitor} {
			if r := g.send("POST", "/v1/public", "{}", append(site, "Authorization", "Bearer "+token)...); r.status != 200 || r.who.Kind == "anonymous" {
				t.Errorf("%s, token: %d %s", name, r.status, r.raw)
			}
		}
		if r := g.send("POST", "/v1/public", "{}", site...); r.status != 200 || r.who.Kind != "anonymous" {
			t.Errorf("%s, nobody: %d %s", name, r.status, r.raw)
		}
		// what counts for nothing gives nobody away
		if r := g.send("POST", "/v1/public", "{}", append(site, "Cookie", session(stale))...); r.status != 200 || r.who.Kind != "anonymous" {
			t.Errorf("%s, stale: %d %s", name, r.status, r.raw)
		}
	}
	for name, site := range map[string][]string{
		"our page": {"Sec-Fetch-Site", "same-origin", "Origin", "http://page.test"}, "typed": {"Sec-Fetch-Site", "none"},
		"an old browser": {"Origin", "http://page.test"}, "no browser": {},
	} {
		if r := g.send("POST", "/v1/own", "", append(site, "Cookie", session(g.session))...); r.status != 200 || r.who.Kind != "owner" {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
		if r := g.send("POST", "/v1/public", "{}", append(site, "Cookie", visitor(g.visitor))...); r.status != 200 || r.who.Kind != "visitor" {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
}

func TestVisitorCredentials(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	stale, gone := strings.Repeat("A", 43), "smv_"+strings.Repeat("A", 43)
	for name, c := range map[string]struct {
		headers []string
		kind    string
		granted bool
	}{
		"nobody":                          {nil, "anonymous", false},
		"visitor's cookie":                {[]string{"Cookie", visitor(g.visitor)}, "visitor", true},
		"visitor's token":                 {[]string{"Authorization", "Bearer " + g.visitor}, "visitor", true},
		"visitor's secret as a session":   {[]string{"Cookie", session(g.visitor)}, "anonymous", false},
		"session's secret as a visitor's": {[]string{"Cookie", visitor(g.session)}, "anonymous", false},
		"stale session, visitor":          {[]string{"Cookie", session(stale) + "; " + visitor(g.visitor)}, "visitor", true},
		"stale session, stale visitor":    {[]string{"Cookie", session(stale) + "; " + visitor(gone)}, "anonymous", false},
		"session, stale visitor":          {[]string{"Cookie", session(g.session) + "; " + visitor(gone)}, "owner", true},
		"stale owner's token, cookies":    {[]string{"Authorization", "Bearer smt_" + stale, "Cookie", visitor(g.visitor)}, "anonymous", false},
		"junk":                            {[]string{"Cookie", "sm_visitor=\"; sm_visitor=;;=; sm_session=%00"}, "anonymous", false},
		"twice":                           {[]string{"Cookie", visitor(gone) + "; " + visitor(g.visitor)}, "anonymous", false}, // the first counts
	} {
		if r := g.send("GET", "/v1/public", "", c.headers...); r.status != 200 || r.who.Kind != c.kind || r.who.Granted != c.granted {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
	for name, headers := range map[string][]string{"cookie": {"Cookie", visitor(g.visitor)}, "token": {"Authorization", "Bearer " + g.visitor}} {
		if r := g.send("POST", "/v1/own", "", headers...); r.status != 403 || r.code != "forbidden" {
			t.Errorf("a visitor's %s: %d %s", name, r.status, r.raw)
		}
	}
	// an owner whose session has ended is asked to sign in, visitor or not
	for _, cookie := range []string{session(stale), session(stale) + "; " + visitor(g.visitor)} {
		if r := g.send("POST", "/v1/own", "", "Cookie", cookie); r.status != 401 || r.code != "unauthorized" {
			t.Errorf("%d %s", r.status, r.raw)
		}
	}
	// a code that ends takes with it what it gave: a browser goes on as anybody, and a
	// program that sends the session's token learns that it would see less
	if _, err := g.db.Exec(t.Context(), `UPDATE codes SET revoked_at = now()`); err != nil {
		t.Fatal(err)
	}
	if r := g.send("GET", "/v1/public", "", "Cookie", visitor(g.visitor)); r.status != 200 || r.who.Kind != "anonymous" || r.who.Granted {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for _, path := range []string{"GET /v1/public", "POST /v1/public", "POST /v1/guest", "POST /v1/own", "GET /v1/file"} {
		method, path, _ := strings.Cut(path, " ")
		for name, token := range map[string]string{"revoked": g.visitor, "unknown": gone, "junk": "smv_x"} {
			r := g.send(method, path, "", "Authorization", "Bearer "+token, "Cookie", session(g.session))
			if r.status != 401 || r.code != "visitor_session_expired" || r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s, %s: %d %s", method, path, name, r.status, r.raw)
			}
		}
	}
}

func TestGuestAccess(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		code    string
	}{
		"nobody":             {`{}`, nil, 401, "unauthorized"},
		"nobody, proof":      {`{"proof":"mine"}`, nil, 200, ""},
		"nobody, wrong":      {`{"proof":"x"}`, nil, 401, "unauthorized"},
		"visitor":            {`{}`, []string{"Cookie", visitor(g.visitor)}, 403, "forbidden"},
		"visitor, proof":     {`{"proof":"mine"}`, []string{"Cookie", visitor(g.visitor)}, 200, ""},
		"owner":              {`{}`, []string{"Cookie", session(g.session)}, 200, ""},
		"token of less":      {`{}`, []string{"Authorization", "Bearer " + g.token}, 403, "forbidden_scope"},
		"token, proof":       {`{"proof":"mine"}`, []string{"Authorization", "Bearer " + g.token}, 200, ""},
		"stale":              {`{}`, []string{"Cookie", session(strings.Repeat("A", 43))}, 401, "unauthorized"},
		"stale, proof":       {`{"proof":"mine"}`, []string{"Cookie", session(strings.Repeat("A", 43))}, 200, ""},
		"stale token, proof": {`{"proof":"mine"}`, []string{"Authorization", "Bearer smt_x"}, 200, ""},
		"another site":       {`{"proof":"mine"}`, []string{"Cookie", session(g.session), "Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
	} {
		if r := g.send("POST", "/v1/guest", c.body, c.headers...); r.status != c.status || r.code != c.code {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
}

// One address that floods is refused in time, and nobody else is: not by what it
// says of itself, through the gateway either.
func TestFlood(t *testing.T) {
	t.Parallel()
	g := newGate(t, 20)
	direct := g.h
	for name, h := range map[string]http.Handler{"direct": direct, "gateway": apigw.InProcess(direct)} {
		g.h = h
		from := "203.0.113." + map[string]string{"direct": "1", "gateway": "2"}[name]
		answered, refused := 0, 0
		for i := range 30 {
			ip := "198.51.100." + string(rune('0'+i%10))
			r := g.send("GET", "/v1/public", "", "From", from+":5000", "X-Forwarded-For", ip, "X-Real-Ip", ip, "Forwarded", "for="+ip, "True-Client-Ip", ip, "Cf-Connecting-Ip", ip)
			switch {
			case r.status == 200 && r.who.From == from:
				answered++
			case r.status == 429 && r.code == "rate_limited" && r.header.Get("Retry-After") != "" && r.header.Get("Content-Type") == "application/problem+json":
				refused++
			default:
				t.Errorf("%s: %d %s", name, r.status, r.raw)
			}
		}
		if answered != 20 || refused != 10 {
			t.Errorf("%s: %d answered, %d refused", name, answered, refused)
		}
		if r := g.send("GET", "/v1/public", "", "From", "192.0.2.77:5000"); r.status != 200 {
			t.Errorf("%s: another address: %d", name, r.status)
		}
		if r := g.send("GET", "/v1/public", "", "From", from+":6000", "Cookie", visitor(g.visitor)); r.status != 429 {
			t.Errorf("%s: a visitor there: %d", name, r.status)
		}
		if r := g.send("GET", "/v1/public", "", "From", from+":6000", "Cookie", session(g.session)); r.status != 200 {
			t.Errorf("%s: the owner there: %d", name, r.status)
		}
	}
}

func TestPublicBodyLimit(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	if r := g.send("POST", "/v1/public", `{"proof":"`+strings.Repeat("x", 200)+`"}`); r.status != 413 || r.code != "body_too_large" {
		t.Errorf("%d %s", r.status, r.raw)
	}
}

// An idempotency key of a caller who is no owner is that of their session, or of
// their address.
func TestKeysOfGuests(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	var second string
	if err := g.db.InTx(t.Context(), func(tx *pg.Tx) (err error) {
		second, _, _, err = auth.Admit(t.Context(), tx, "", g.code)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	serial := func(headers ...string) string {
		t.Helper()
		r := g.send("POST", "/v1/public", "{}", append(headers, "Idempotency-Key", "k")...)
		if r.status != 200 || r.who.Serial == "" {
			t.Fatalf("%d %s", r.status, r.raw)
		}
		return r.who.Serial
	}
	callers := map[string][]string{
		"an address": {"From", "192.0.2.1:1"}, "another": {"From", "192.0.2.2:1"}, "the owner": {"From", "192.0.2.1:1", "Cookie", session(g.session)},
		"a visitor there": {"From", "192.0.2.1:1", "Cookie", visitor(g.visitor)}, "another visitor there": {"From", "192.0.2.1:1", "Cookie", visitor(second)},
	}
	first := map[string]string{}
	seen := map[string]string{}
	for name, headers := range callers {
		first[name] = serial(headers...)
		if other, twice := seen[first[name]]; twice {
			t.Errorf("%s got the answer of %s", name, other)
		}
		seen[first[name]] = name
	}
	for name, headers := range callers {
		if got := serial(headers...); got != first[name] {
			t.Errorf("%s: repeated, and done again", name)
		}
	}
	if got := serial("From", "203.0.113.5:1", "Cookie", visitor(g.visitor)); got != first["a visitor there"] {
		t.Error("a visitor who moved to another network is not known by their key")
	}
	if n := 0; g.db.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE scope LIKE '%smv\_%'`).Scan(&n) != nil || n != 0 {
		t.Error("a key's row holds a visitor's secret")
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	g := newGate(t, 1000)
	r := g.send("GET", "/v1/file", "")
	for name, want := range map[string]string{
		"Content-Type": "text/calendar; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-cache",
		"Etag": `"v1"`, "Last-Modified": "Sun, 28 Mar 2027 01:00:00 GMT", "Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": "",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.status != 200 || r.raw != "<script>alert(1)</script>" {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for name, headers := range map[string][]string{
		"its ETag": {"If-None-Match", `"v1"`}, "a weak one": {"If-None-Match", `W/"v1"`}, "one of them": {"If-None-Match", `"v0", "v1"`}, "its time": {"If-Modified-Since", "Sun, 28 Mar 2027 01:00:00 GMT"},
	} {
		for method, want := range map[string]int{"GET": 304, "HEAD": 304} {
			if r := g.send(method, "/v1/file", "", headers...); r.status != want || r.raw != "" || r.header.Get("Etag") != `"v1"` {
				t.Errorf("%s, %s: %d %v %q", method, name, r.status, r.header, r.raw)
			}
		}
	}
	if r := g.send("GET", "/v1/file", "", "If-None-Match", `"v0"`); r.status != 200 {
		t.Errorf("another version: %d", r.status)
	}
	if r := g.send("HEAD", "/v1/file", ""); r.status != 200 || r.raw != "" || r.header.Get("Content-Length") != "25" {
		t.Errorf("HEAD: %d %v %q", r.status, r.header, r.raw)
	}
	saved := g.send("GET", "/v1/file?proof=save", "")
	if d := saved.header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment;") || strings.ContainsAny(d, "\r\n") || saved.header.Get("X") != "" {
		t.Errorf("%q", d)
	}
	if saved.header.Get("Cache-Control") != "public, max-age=60" || saved.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v", saved.header)
	}
	// through the gateway it is the same
	srv := httptest.NewServer(apigw.InProcess(g.h))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v1/file", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range []string{"", `"v1"`} {
		req.Header.Set("If-None-Match", match)
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close() // read to its end
		if want := map[string]int{"": 200, `"v1"`: 304}[match]; err != nil || res.StatusCode != want || (want == 304) != (len(body) == 0) || res.Header.Get("Etag") != `"v1"` {
			t.Errorf("%q through the gateway: %d %v %q %v", match, res.StatusCode, res.Header, body, err)
		}
	}
}

// Whatever comes as a cookie, it is a caller or none, and never a failure of
// ours or somebody else's session.
func FuzzCookies(f *testing.F) {
	g := newGateForFuzz(f)
	for _, s := range []string{"", "sm_session=x", "sm_visitor=smv_", "sm_session=" + strings.Repeat("A", 43), "sm_visitor=smv_" + strings.Repeat("A", 43), "sm_session=\x00", "sm_session=\"a\"; sm_session=b", ";;;=", "sm_visitor=smv_" + strings.Repeat("\xff", 43)} {
		f.Add(s, "")
	}
	f.Add("", "Bearer smt_"+strings.Repeat("A", 43))
	f.Add("", "Bearer smv_"+strings.Repeat("é", 43))
	f.Fuzz(func(t *testing.T, cookie, authorization string) {
		r := &http.Request{Method: "GET", URL: httptest.NewRequest("GET", "/v1/public", nil).URL, Header: http.Header{"Cookie": {cookie}, "Authorization": {authorization}}, RemoteAddr: "192.0.2.1:1"}
		c, err := g.Anyone(r.WithContext(t.Context()))
		if f := fault.From(err); f != nil && f.Code == "visitor_session_expired" && strings.HasPrefix(auth.CredentialsOf(r).Bearer, auth.VisitorPrefix) {
			return
		}
		if err != nil || c.Kind != auth.Anonymous || c.RemoteAddr != "192.0.2.1" {
			t.Errorf("%q, %q: %+v, %v", cookie, authorization, c, err)
		}
	})
}

func newGateForFuzz(f *testing.F) *op.Server {
	f.Helper()
	store := &auth.Store{DB: pgtest.DB(f)}
	return &op.Server{Authenticate: store.Authenticate}
}
