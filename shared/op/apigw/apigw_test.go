package apigw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"standmeet/shared/auth"
	"standmeet/shared/op"
)

func event(t *testing.T, name string) (e events.APIGatewayV2HTTPRequest) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func invoke(t *testing.T, h http.HandlerFunc, e events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPResponse {
	t.Helper()
	res, err := Lambda(h)(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// Case L1: cookies, and stages with a name.
func TestCookiesBothWays(t *testing.T) {
	res := invoke(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Values("Cookie"); !reflect.DeepEqual(got, []string{"theme=dark; sm_session=p%3Dq; stray; lang=de"}) {
			t.Errorf("Cookie: %q", got)
		}
		if c := auth.CredentialsOf(r); c.Session != "p%3Dq" {
			t.Errorf("session %q", c.Session)
		}
		if r.RemoteAddr != "198.51.100.9" || r.Host != "api.standmeet.test" || op.RequestID(r) != "cookie-request" {
			t.Errorf("from %s to %s, id %s", r.RemoteAddr, r.Host, op.RequestID(r))
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		w.Header().Add("Vary", "Cookie")
		w.Header().Add("Vary", "Accept")
	}, event(t, "cookies.json"))
	if !reflect.DeepEqual(res.Cookies, []string{"a=1", "b=2"}) || res.Headers["Set-Cookie"] != "" || res.Headers["Vary"] != "Cookie, Accept" || res.StatusCode != http.StatusOK {
		t.Errorf("%+v", res)
	}
}

func TestStageIsStripped(t *testing.T) {
	for _, c := range []struct{ stage, path, want string }{
		{"live", "/live/v1/account", "/v1/account"},
		{"live", "/live", "/"},
		{"live", "/live/", "/"},
		{"live", "/lively/v1", "/lively/v1"},
		{"live", "/v1/live", "/v1/live"},
		{"$default", "/live/v1", "/live/v1"},
		{"$default", "", "/"},
		{"", "/v1", "/v1"},
	} {
		e := event(t, "stage.json")
		e.RequestContext.Stage, e.RawPath = c.stage, c.path
		invoke(t, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != c.want || r.URL.RawQuery != "a=1&a=%2B" || !reflect.DeepEqual(r.URL.Query()["a"], []string{"1", "+"}) {
				t.Errorf("%v: %s", c, r.URL)
			}
		}, e)
	}
}

// Case L3: bodies in base64, both ways.
func TestBase64Body(t *testing.T) {
	invoke(t, func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if want := `{"method":"tools/list","note":"日本"}`; err != nil || string(b) != want || r.ContentLength != int64(len(want)) || r.Header.Get("Content-Length") != "" {
			t.Errorf("%q %v, length %d", b, err, r.ContentLength)
		}
		if r.RemoteAddr != "2001:db8::9" {
			t.Errorf("from %s", r.RemoteAddr)
		}
	}, event(t, "base64.json"))
	e := event(t, "base64.json")
	e.Body = "not base64!"
	if _, err := Lambda(http.NotFoundHandler())(t.Context(), e); err == nil {
		t.Error("a broken body is accepted")
	}
}

func TestWhatTravelsAsText(t *testing.T) {
	for _, c := range []struct {
		contentType, encoding, body string
		base64                      bool
	}{
		{"application/json", "", `{"a":"日"}`, false},
		{"application/problem+json", "", `{}`, false},
		{"text/html; charset=utf-8", "", "<p>", false},
		{"image/svg+xml", "", "<svg/>", false},
		{"application/json", "gzip", "\x1f\x8b", true},
		{"text/plain", "", "\xff", true},
		{"image/png", "", "\x89PNG", true},
		{"application/zip", "", "PK", true},
		{"application/octet-stream", "", "ascii", true},
		{"", "", "plain", false},
		{"", "", "\x89PNG\r\n\x1a\n", true},
		{"application/zip", "", "", false},
	} {
		res := invoke(t, func(w http.ResponseWriter, _ *http.Request) {
			if c.contentType != "" {
				w.Header().Set("Content-Type", c.contentType)
			}
			if c.encoding != "" {
				w.Header().Set("Content-Encoding", c.encoding)
			}
			_, _ = io.WriteString(w, c.body)
		}, event(t, "stage.json"))
		if res.IsBase64Encoded != c.base64 || !c.base64 && res.Body != c.body {
			t.Errorf("%+v: %+v", c, res)
		}
	}
}

func TestAnswerIsAsNetHTTPHasIt(t *testing.T) {
	res := invoke(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-A", "1")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-B", "2")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "<!doctype html>")
	}, event(t, "stage.json"))
	if res.StatusCode != http.StatusTeapot || res.Headers["X-A"] != "1" || res.Headers["X-B"] != "" || res.Headers["Content-Type"] != "text/html; charset=utf-8" {
		t.Errorf("%+v", res)
	}
	if res := invoke(t, func(http.ResponseWriter, *http.Request) {}, event(t, "stage.json")); res.StatusCode != http.StatusOK || res.Body != "" {
		t.Errorf("%+v", res)
	}
	if res := invoke(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, event(t, "stage.json")); res.StatusCode != http.StatusNoContent {
		t.Errorf("%+v", res)
	}
	e := event(t, "stage.json")
	e.RequestContext.HTTP.Method = "HEAD"
	if res := invoke(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }, e); res.Body != "" || res.Headers["Content-Length"] != "5" {
		t.Errorf("HEAD: %+v", res)
	}
}

// local is h behind the gateway and Lambda's own handler: HTTP, event JSON,
// handler, response JSON, HTTP.
func local(t testing.TB, h http.Handler) *httptest.Server {
	srv := httptest.NewServer(InProcess(h))
	t.Cleanup(srv.Close)
	return srv
}

func send(t *testing.T, srv *httptest.Server, method, target string, header http.Header, body []byte) (reply, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+target, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, r.URL.RawQuery}, b
}

// reply is an answer whose body has been read, and the query that was sent.
type reply struct {
	StatusCode int
	Header     http.Header
	query      string
}

func TestRoundTrip(t *testing.T) {
	binary := make([]byte, 70000)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	srv := local(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		h := w.Header()
		h.Set("Content-Type", r.Header.Get("Content-Type"))
		h.Set("X-Path", fmt.Sprintf("%q", r.URL.Path))
		h.Set("X-Query", r.URL.RawQuery)
		h.Set("X-Cookie", r.Header.Get("Cookie"))
		h.Set("X-Many", r.Header.Get("X-Many"))
		h.Set("X-Host", r.Host)
		h.Set("X-Remote", r.RemoteAddr)
		h.Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(b)))
		h.Set("X-Method", r.Method)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(b)
	}))
	for _, c := range []struct {
		method, target, path, contentType string
		body                              []byte
	}{
		{"POST", "/v1/a?x=%2B&y=1&y=2", "/v1/a", "application/json", []byte(`{"a":"日<>"}`)},
		{"PUT", "/v1/%25/%23/%3F/%E6%97%A5/%20", "/v1/%/#/?/日/ ", "application/zip", binary},
		{"POST", "/", "/", "text/plain", []byte("\xff\xfe")},
		{"DELETE", "/v1/a", "/v1/a", "text/plain", nil},
		{"GET", "/v1/%252F", "/v1/%2F", "text/plain", nil},
	} {
		header := http.Header{"Content-Type": {c.contentType}, "Cookie": {"p=1; q=2"}, "X-Many": {"a", "b"}}
		res, body := send(t, srv, c.method, c.target, header, c.body)
		sum := fmt.Sprintf("%x", sha256.Sum256(c.body))
		if res.StatusCode != http.StatusCreated || fmt.Sprintf("%x", sha256.Sum256(body)) != sum || res.Header.Get("X-Sum") != sum {
			t.Errorf("%s %s: %d, body %d bytes of %d", c.method, c.target, res.StatusCode, len(body), len(c.body))
		}
		for name, want := range map[string]string{
			"X-Path": fmt.Sprintf("%q", c.path), "X-Query": res.query, "X-Cookie": "p=1; q=2", "X-Many": "a,b",
			"X-Host": srv.Listener.Addr().String(), "X-Remote": "127.0.0.1", "X-Method": c.method, "Content-Type": c.contentType,
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.target, name, got, want)
			}
		}
		if got := res.Header.Values("Set-Cookie"); !reflect.DeepEqual(got, []string{"a=1", "b=2"}) {
			t.Errorf("Set-Cookie %q", got)
		}
	}
	res, body := send(t, srv, "HEAD", "/v1/a", nil, nil)
	if res.StatusCode != http.StatusCreated || len(body) > 0 {
		t.Errorf("HEAD: %d %q", res.StatusCode, body)
	}
}

// Operations give the same answer behind the gateway as by themselves.
func TestOperationBehindTheGateway(t *testing.T) {
	type in struct {
		Name string `json:"name" path:"name"`
	}
	h := op.NewCatalog(op.New(op.Spec{Name: "test.name", Method: "GET", Path: "/v1/names/{name}", Access: op.Public, Summary: "Name."},
		func(_ context.Context, c auth.Caller, in in) (in2 struct {
			Name   string `json:"name"`
			Remote string `json:"remote"`
		}, _ error) {
			in2.Name, in2.Remote = in.Name, c.RemoteAddr
			return in2, nil
		})).Handler(&op.Server{})
	srv := local(t, h)
	for target, want := range map[string]string{
		"/v1/names/%25%23%3F%E6%97%A5%20x": `{"name":"%#?日 x","remote":"127.0.0.1"}`,
		"/v1/names/018f:corpus.index":      `{"name":"018f:corpus.index","remote":"127.0.0.1"}`,
		"/v1/names/%2541":                  `{"name":"%41","remote":"127.0.0.1"}`,
	} {
		res, body := send(t, srv, "GET", target, nil, nil)
		if res.StatusCode != http.StatusOK || string(body) != want || res.Header.Get("Content-Type") != "application/json" || res.Header.Get(op.RequestIDHeader) == "" {
			t.Errorf("%s: %d %s, want %s", target, res.StatusCode, body, want)
		}
	}
	res, body := send(t, srv, "POST", "/v1/names/x", http.Header{op.RequestIDHeader: {"mine"}}, nil)
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" || !bytes.Contains(body, []byte(`"instance":"/requests/mine"`)) {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
}

func TestGatewayFailures(t *testing.T) {
	respond := func(answer string, err error) func(context.Context, []byte) ([]byte, error) {
		return func(context.Context, []byte) ([]byte, error) { return []byte(answer), err }
	}
	for name, c := range map[string]struct {
		invoke func(context.Context, []byte) ([]byte, error)
		body   []byte
		status int
		code   string
	}{
		"function failed":  {respond("", errors.New("secret")), nil, 500, "internal"},
		"function timeout": {respond("", context.DeadlineExceeded), nil, 503, "timeout"},
		"no JSON":          {respond("secret", nil), nil, 500, "internal"},
		"no status":        {respond("{}", nil), nil, 500, "internal"},
		"bad base64":       {respond(`{"statusCode":200,"body":"!","isBase64Encoded":true}`, nil), nil, 500, "internal"},
		"huge answer":      {respond(`{"statusCode":200,"body":"`+strings.Repeat("x", maxEvent)+`"}`, nil), nil, 500, "internal"},
		"huge body":        {respond("{}", nil), make([]byte, maxBody+1), 413, "body_too_large"},
		"huge event":       {respond("{}", nil), make([]byte, 5<<20), 413, "body_too_large"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(c.body))
		w := httptest.NewRecorder()
		Gateway(c.invoke).ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) || strings.Contains(w.Body.String(), "secret") || w.Header().Get(op.RequestIDHeader) == "" {
			t.Errorf("%s: %d %s, want %d %s", name, w.Code, w.Body, c.status, c.code)
		}
	}
}

func TestForwardedHeaders(t *testing.T) {
	var got events.APIGatewayV2HTTPRequest
	h := Gateway(func(_ context.Context, b []byte) ([]byte, error) {
		return []byte(`{"statusCode":204}`), json.Unmarshal(b, &got)
	})
	r := httptest.NewRequest(http.MethodGet, "http://api.test:8443/v1/a?x=1&x=2", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.1")
	r.Header.Set("Cookie", "a=1; b=2")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 204 || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"x-forwarded-for": "203.0.113.1, 192.0.2.1", "x-forwarded-proto": "http", "x-forwarded-port": "8443", "host": "api.test:8443", "cookie": "",
	} {
		if got.Headers[name] != want {
			t.Errorf("%s is %q, want %q", name, got.Headers[name], want)
		}
	}
	c := got.RequestContext
	if c.HTTP.SourceIP != "192.0.2.1" || c.DomainName != "api.test" || c.Stage != "$default" || c.HTTP.Method != http.MethodGet || c.RequestID == "" || got.QueryStringParameters["x"] != "1,2" {
		t.Errorf("%+v", got)
	}
	if !reflect.DeepEqual(got.Cookies, []string{"a=1", "b=2"}) {
		t.Errorf("cookies %q", got.Cookies)
	}
}

func BenchmarkGatewayRoundTrip(b *testing.B) {
	type in struct {
		Body string `json:"body"`
	}
	h := op.NewCatalog(op.New(op.Spec{Name: "test.echo", Method: "POST", Path: "/v1/echo", Access: op.Public, Summary: "Echo."},
		func(_ context.Context, _ auth.Caller, in in) (in2 struct {
			Body string `json:"body"`
		}, _ error) {
			in2.Body = in.Body
			return in2, nil
		})).Handler(&op.Server{})
	srv := local(b, h)
	body, _ := json.Marshal(in{strings.Repeat("A line of **Markdown** text, with words.\n", 48)})
	b.ReportAllocs()
	for b.Loop() {
		res, err := srv.Client().Post(srv.URL+"/v1/echo", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res.Status, err)
		}
		res.Body.Close()
	}
}
