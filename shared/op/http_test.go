package op

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
)

type echoIn struct {
	ID      uuid.UUID   `json:"id" path:"id"`
	Rest    string      `json:"rest" path:"rest"`
	Q       string      `json:"q,omitempty" query:"q" maxLength:"10"`
	Tags    []string    `json:"tags,omitempty" query:"tag" maxItems:"2"`
	Match   string      `json:"if_match,omitempty" header:"If-Match"`
	Title   string      `json:"title,omitempty"`
	Parent  Opt[string] `json:"parent,omitzero"`
	Version int         `json:"version,omitempty"`
}

type echoOut struct {
	In     echoIn      `json:"in"`
	Remote string      `json:"remote"`
	Wait   int64       `json:"wait_ms"`
	Asked  bool        `json:"asked"`
	Owner  uuid.UUID   `json:"owner"`
	Kind   string      `json:"kind"`
	List   []time.Time `json:"list"`
}

func echo(ctx context.Context, c auth.Caller, in echoIn) (echoOut, error) {
	call := CallFrom(ctx)
	if in.Title == "panic" {
		panic("secret")
	}
	if in.Title == "fail" {
		return echoOut{}, errors.New("secret")
	}
	if in.Title == "hang" {
		<-ctx.Done()
		return echoOut{}, ctx.Err()
	}
	if in.Title == "conflict" {
		return echoOut{}, fault.New(fault.Conflict, "version_conflict", "It has changed.")
	}
	return echoOut{In: in, Remote: c.RemoteAddr, Wait: call.Wait.Milliseconds(), Asked: call.WaitAsked, Owner: c.OwnerID, Kind: c.Kind.String()}, nil
}

func echoCatalog() Catalog {
	return NewCatalog(
		New(Spec{Name: "echo.update", Method: "PATCH", Path: "/v1/echo/{id}/{rest...}", Status: 202, Scope: "echo:write", Summary: "Echo.",
			MaxBody: 500, MaxWait: 2 * time.Second, Timeout: 3 * time.Second}, echo),
		New(Spec{Name: "echo.get", Method: "GET", Path: "/v1/echo/{id}/{rest...}", Scope: "echo:read", Summary: "Echo."}, echo),
		New(Spec{Name: "echo.public", Method: "GET", Path: "/v1/public/{id}/{rest}", Access: Public, Summary: "Echo.", MaxWait: time.Second, WaitIfAsked: true}, echo),
		New(Spec{Name: "echo.delete", Method: "DELETE", Path: "/v1/echo", Status: 204, Scope: "echo:write", Summary: "Nothing."},
			func(context.Context, auth.Caller, struct{}) (struct{}, error) { return struct{}{}, nil }),
		New(Spec{Name: "echo.short", Method: "POST", Path: "/v1/short", Access: Public, Summary: "Too slow.", Timeout: 10 * time.Millisecond},
			func(ctx context.Context, _ auth.Caller, _ struct{}) (struct{}, error) {
				<-ctx.Done()
				return struct{}{}, ctx.Err()
			}),
	)
}

func testServer(log io.Writer) *Server {
	return &Server{
		Logger:  slog.New(slog.NewJSONHandler(log, nil)),
		MaxWait: 1500 * time.Millisecond,
		Authenticate: func(_ context.Context, c auth.Credentials) (auth.Caller, error) {
			switch {
			case c.Bearer == "good" || c.Session == "good":
				return owner, nil
			case c.Bearer == "reader":
				return auth.Caller{Kind: auth.Owner, Scopes: []string{"echo:read"}}, nil
			case c.Bearer == "visitor":
				return auth.Caller{Kind: auth.Visitor}, nil
			case c.Bearer == "down":
				return auth.Caller{}, &fault.Fault{Kind: fault.Unavailable, Code: "database_unavailable", Detail: "Down.", Err: errors.New("secret")}
			}
			return auth.Caller{}, fault.New(fault.Unauthorized, "unauthorized", "Unknown.")
		},
	}
}

const anID = "018f0000-0000-7000-8000-00000000000a"

type exchange struct {
	name, method, target string
	header               map[string]string
	body                 string
	status               int
	code, field          string
}

func TestHTTPFaults(t *testing.T) {
	h := echoCatalog().Handler(testServer(io.Discard))
	patch, get := "/v1/echo/"+anID+"/r", "/v1/echo/"+anID+"/r"
	js := map[string]string{"Content-Type": "application/json"}
	for _, c := range []exchange{
		{"no route", "GET", "/v1/nothing", nil, "", 404, "not_found", ""},
		{"root", "GET", "/", nil, "", 404, "not_found", ""},
		{"double slash", "GET", "/v1//echo", nil, "", 404, "not_found", ""},
		{"two slashes", "GET", "//", nil, "", 404, "not_found", ""},
		{"dots", "GET", "/v1/x/../echo", nil, "", 404, "not_found", ""},
		{"trailing slash", "DELETE", "/v1/echo/", nil, "", 404, "not_found", ""},
		{"method", "PUT", patch, nil, "", 405, "method_not_allowed", ""},
		{"options", "OPTIONS", patch, nil, "", 405, "method_not_allowed", ""},
		{"bad id", "GET", "/v1/echo/nope/r", nil, "", 404, "not_found", ""},
		{"bad id text", "GET", "/v1/public/" + anID + "/%ff", nil, "", 404, "not_found", ""},
		{"zero in path", "GET", "/v1/public/" + anID + "/a%00", nil, "", 404, "not_found", ""},
		{"no credentials", "GET", get, map[string]string{"Authorization": ""}, "", 401, "unauthorized", ""},
		{"unknown token", "GET", get, map[string]string{"Authorization": "Bearer bad"}, "", 401, "unauthorized", ""},
		{"visitor", "GET", get, map[string]string{"Authorization": "Bearer visitor"}, "", 403, "forbidden", ""},
		{"scope", "PATCH", patch, map[string]string{"Authorization": "Bearer reader"}, "", 403, "forbidden_scope", ""},
		{"database down", "GET", get, map[string]string{"Authorization": "Bearer down"}, "", 503, "database_unavailable", ""},
		{"unauthorized before 404 of an id", "GET", "/v1/echo/nope/r", map[string]string{"Authorization": ""}, "", 401, "unauthorized", ""},
		{"parameter", "GET", get + "?x=1", nil, "", 400, "unknown_parameter", "x"},
		{"empty parameter", "GET", get + "?=1", nil, "", 400, "unknown_parameter", `""`},
		{"parameter by its json name", "GET", get + "?tags=1", nil, "", 400, "unknown_parameter", "tags"},
		{"parameter twice", "GET", get + "?q=1&q=2", nil, "", 400, "duplicate_field", "q"},
		{"parameter type", "GET", get + "?version=x", nil, "", 400, "wrong_type", "version"},
		{"parameter empty", "GET", get + "?version=", nil, "", 400, "wrong_type", "version"},
		{"parameter space", "GET", get + "?version=%205", nil, "", 400, "wrong_type", "version"},
		{"parameter null", "GET", get + "?version=null", nil, "", 400, "wrong_type", "version"},
		{"parameter rule", "GET", get + "?q=12345678901", nil, "", 400, "too_long", "q"},
		{"parameter text", "GET", get + "?q=%ff", nil, "", 400, "invalid_text", "q"},
		{"too many", "GET", get + "?tag=1&tag=2&tag=3", nil, "", 400, "too_many", "tag"},
		{"query", "GET", get + "?q=%zz", nil, "", 400, "malformed_query", ""},
		{"semicolon", "GET", get + "?q=1;q=2", nil, "", 400, "malformed_query", ""},
		{"a read with a body", "GET", get, js, `{"title":"x"}`, 400, "unknown_field", "title"},
		{"path field in the body", "PATCH", patch, js, `{"id":"` + anID + `"}`, 400, "unknown_field", "id"},
		{"query field in the body", "PATCH", patch, js, `{"q":"a"}`, 400, "unknown_field", "q"},
		{"body field in the query", "PATCH", patch + "?title=x", nil, "", 400, "unknown_parameter", "title"},
		{"no content type", "PATCH", patch, nil, `{}`, 415, "unsupported_media_type", ""},
		{"form", "PATCH", patch, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, `{}`, 415, "unsupported_media_type", ""},
		{"text", "PATCH", patch, map[string]string{"Content-Type": "text/plain"}, `{}`, 415, "unsupported_media_type", ""},
		{"broken type", "PATCH", patch, map[string]string{"Content-Type": "application/json; ;"}, `{}`, 415, "unsupported_media_type", ""},
		{"charset", "PATCH", patch, map[string]string{"Content-Type": "application/json; charset=latin1"}, `{}`, 415, "unsupported_media_type", ""},
		{"gzip", "PATCH", patch, map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, `{}`, 415, "unsupported_content_encoding", ""},
		{"too large", "PATCH", patch, js, `{"title":"` + strings.Repeat("x", 500) + `"}`, 413, "body_too_large", ""},
		{"malformed", "PATCH", patch, js, `{"title":`, 400, "malformed_json", ""},
		{"trailing", "PATCH", patch, js, `{} {}`, 400, "malformed_json", ""},
		{"list", "PATCH", patch, js, `[]`, 400, "wrong_type", ""},
		{"wait in body and query", "PATCH", patch + "?wait_seconds=1", js, `{"wait_seconds":1}`, 400, "duplicate_field", "wait_seconds"},
		{"negative wait", "PATCH", patch, js, `{"wait_seconds":-1}`, 400, "too_small", "wait_seconds"},
		{"handler's fault", "PATCH", patch, js, `{"title":"conflict"}`, 409, "version_conflict", ""},
		{"handler's error", "PATCH", patch, js, `{"title":"fail"}`, 500, "internal", ""},
		{"handler's panic", "PATCH", patch, js, `{"title":"panic"}`, 500, "internal", ""},
		{"timeout", "POST", "/v1/short", nil, "", 503, "timeout", ""},
		{"session of another site", "PATCH", patch, map[string]string{"Authorization": "", "Cookie": auth.SessionCookie + "=good", "Content-Type": "application/json", "Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site"}, `{}`, 403, "cross_origin", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, body := do(t, h, c)
			if res.StatusCode != c.status {
				t.Fatalf("%d %s, want %d", res.StatusCode, body, c.status)
			}
			if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("content type %q", got)
			}
			if strings.Contains(string(body), "secret") {
				t.Errorf("the cause is shown: %s", body)
			}
			var p fault.Problem
			if err := json.Unmarshal(body, &p); err != nil {
				t.Fatal(err)
			}
			if p.Status != c.status || p.Code != c.code || p.Type != "/problems/"+c.code || p.Title == "" || p.Detail == "" || p.Errors == nil {
				t.Errorf("problem %s, want %s", body, c.code)
			}
			if c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Name != c.field || p.Errors[0].Code != c.code) {
				t.Errorf("errors %s, want %s", body, c.field)
			}
			if id := res.Header.Get(RequestIDHeader); id == "" || p.Instance != "/requests/"+id {
				t.Errorf("request id %q, instance %q", id, p.Instance)
			}
			switch c.status {
			case 401:
				if res.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Error("no WWW-Authenticate")
				}
			case 405:
				if res.Header.Get("Allow") != "GET, HEAD, PATCH" {
					t.Errorf("Allow: %s", res.Header.Get("Allow"))
				}
			case 503:
				if res.Header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After: %q", res.Header.Get("Retry-After"))
				}
			}
		})
	}
}

// do sends the request; it is the owner's unless it says otherwise.
func do(t *testing.T, h http.Handler, c exchange) (reply, []byte) {
	t.Helper()
	r := httptest.NewRequest(c.method, "http://example.test"+strings.ReplaceAll(c.target, " ", "%20"), nil)
	if c.body != "" {
		r = httptest.NewRequest(c.method, "http://example.test"+c.target, strings.NewReader(c.body))
	}
	r.Header.Set("Authorization", "Bearer good")
	for name, value := range c.header {
		if value == "" {
			r.Header.Del(name)
		} else {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return reply{w.Code, w.Result().Header, w.Result().ContentLength}, w.Body.Bytes()
}

// reply is an answer whose body has been read.
type reply struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

func TestHTTPAnswers(t *testing.T) {
	h := echoCatalog().Handler(testServer(io.Discard))
	target := "/v1/echo/" + anID + "/"
	id := uuid.MustParse(anID)
	js := func(more ...string) map[string]string {
		m := map[string]string{"Content-Type": "application/json; charset=UTF-8"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for _, c := range []struct {
		exchange
		want    echoIn
		wait    int64
		asked   bool
		applied string
	}{
		{exchange{"all of it", "PATCH", target + "a/b%20c?q=x%2By&tag=1&tag=%E6%97%A5", js("If-Match", `"3"`), `{"title":"t","parent":null,"version":5}`, 202, "", ""},
			echoIn{ID: id, Rest: "a/b c", Q: "x+y", Tags: []string{"1", "日"}, Match: `"3"`, Title: "t", Parent: Opt[string]{Set: true, Null: true}, Version: 5}, 1500, false, ""},
		{exchange{"an empty body", "PATCH", target + "r", nil, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, false, ""},
		{exchange{"a blank body", "PATCH", target + "r", js(), " \n", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, false, ""},
		{exchange{"a kind of JSON", "PATCH", target + "r", map[string]string{"Content-Type": "application/merge-patch+json"}, `{"title":"t"}`, 202, "", ""}, echoIn{ID: id, Rest: "r", Title: "t"}, 1500, false, ""},
		{exchange{"all in the query", "GET", target + "r?title=t&version=5&parent=", nil, "", 200, "", ""}, echoIn{ID: id, Rest: "r", Title: "t", Version: 5, Parent: Opt[string]{Set: true, Null: true}}, 0, false, ""},
		{exchange{"prefer on what doesn't wait", "GET", target + "r", map[string]string{"Prefer": "wait=1"}, "", 200, "", ""}, echoIn{ID: id, Rest: "r"}, 0, false, ""},
		{exchange{"strange letters", "GET", target + "%25%23%3F%E6%97%A5/..x", nil, "", 200, "", ""}, echoIn{ID: id, Rest: "%#?日/..x"}, 0, false, ""},
		{exchange{"prefer 0", "PATCH", target + "r", map[string]string{"Prefer": "wait=0"}, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 0, true, "wait=0"},
		{exchange{"prefer 1", "PATCH", target + "r", map[string]string{"Prefer": `respond-async, WAIT="1"; x=y`}, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1000, true, "wait=1"},
		{exchange{"prefer more", "PATCH", target + "r", map[string]string{"Prefer": "wait=99999999999999999999"}, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, true, "wait=1"},
		{exchange{"prefer nonsense", "PATCH", target + "r", map[string]string{"Prefer": "wait=soon"}, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, false, ""},
		{exchange{"wait in the body", "PATCH", target + "r", js("Prefer", "wait=1"), `{"wait_seconds":0.25}`, 202, "", ""}, echoIn{ID: id, Rest: "r"}, 250, true, ""},
		{exchange{"a huge wait", "PATCH", target + "r", js(), `{"wait_seconds":1e300}`, 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, true, ""},
		{exchange{"no wait in the body", "PATCH", target + "r", js(), `{"wait_seconds":null}`, 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, false, ""},
		{exchange{"no wait in the body, but preferred", "PATCH", target + "r", js("Prefer", "wait=0"), `{"wait_seconds":null}`, 202, "", ""}, echoIn{ID: id, Rest: "r"}, 0, true, "wait=0"},
		{exchange{"wait in the query", "PATCH", target + "r?wait_seconds=1", nil, "", 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1000, true, ""},
		{exchange{"only when asked", "GET", "/v1/public/" + anID + "/r", nil, "", 200, "", ""}, echoIn{ID: id, Rest: "r"}, 0, false, ""},
		{exchange{"asked", "GET", "/v1/public/" + anID + "/r?wait_seconds=60", nil, "", 200, "", ""}, echoIn{ID: id, Rest: "r"}, 1000, true, ""},
		{exchange{"a session of this site", "PATCH", target + "r", js("Authorization", "", "Cookie", auth.SessionCookie+"=good", "Sec-Fetch-Site", "same-origin"), `{}`, 202, "", ""}, echoIn{ID: id, Rest: "r"}, 1500, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, body := do(t, h, c.exchange)
			if res.StatusCode != c.status || res.Header.Get("Content-Type") != "application/json" || res.Header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%d %v %s", res.StatusCode, res.Header, body)
			}
			if got := res.Header.Get("Preference-Applied"); got != c.applied {
				t.Errorf("Preference-Applied %q, want %q", got, c.applied)
			}
			var out echoOut
			if err := json.Unmarshal(body, &out); err != nil {
				t.Fatal(err)
			}
			if out.In.Tags != nil && len(out.In.Tags) == 0 {
				out.In.Tags = nil
			}
			if !reflect.DeepEqual(out.In, c.want) {
				t.Errorf("\ngot  %+v\nwant %+v", out.In, c.want)
			}
			if out.Wait != c.wait || out.Asked != c.asked || out.Remote != "192.0.2.1" {
				t.Errorf("wait %d, asked %v, remote %s; want %d, %v", out.Wait, out.Asked, out.Remote, c.wait, c.asked)
			}
			if !bytes.Contains(body, []byte(`"list":[]`)) {
				t.Errorf("a list is null: %s", body)
			}
		})
	}
}

func TestPublicTellsWhoIsKnown(t *testing.T) {
	h := echoCatalog().Handler(testServer(io.Discard))
	for header, want := range map[string]string{"": "anonymous", "Bearer good": "owner", "Bearer bad": "anonymous", "Bearer visitor": "visitor"} {
		_, body := do(t, h, exchange{method: "GET", target: "/v1/public/" + anID + "/r", header: map[string]string{"Authorization": header}})
		var out echoOut
		if err := json.Unmarshal(body, &out); err != nil || out.Kind != want {
			t.Errorf("%q: %s, want %s", header, body, want)
		}
	}
	res, _ := do(t, h, exchange{method: "GET", target: "/v1/public/" + anID + "/r", header: map[string]string{"Authorization": "Bearer down"}})
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a database that is down makes the owner anonymous: %d", res.StatusCode)
	}
}

func TestNoContentAndHead(t *testing.T) {
	srv := httptest.NewServer(echoCatalog().Handler(testServer(io.Discard)))
	defer srv.Close()
	send := func(method, path string) (reply, []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer good")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{res.StatusCode, res.Header, res.ContentLength}, body
	}
	if res, _ := send("DELETE", "/v1/echo"); res.StatusCode != http.StatusNoContent || res.Header.Get("Content-Type") != "" || res.ContentLength > 0 {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	get, _ := send("GET", "/v1/echo/"+anID+"/r")
	head, body := send("HEAD", "/v1/echo/"+anID+"/r")
	if head.StatusCode != http.StatusOK || head.ContentLength != get.ContentLength || head.ContentLength <= 0 {
		t.Errorf("HEAD %d of %d bytes, GET has %d", head.StatusCode, head.ContentLength, get.ContentLength)
	}
	if len(body) > 0 {
		t.Errorf("HEAD has a body: %q", body)
	}
}

// A Content-Length that promises more than is sent, and one that promises less.
func TestContentLengthLies(t *testing.T) {
	srv := httptest.NewServer(echoCatalog().Handler(testServer(io.Discard)))
	defer srv.Close()
	for _, c := range []struct {
		length int
		body   string
		status string
	}{
		{20, `{"title":"t"}`, "400"},
		{13, `{"title":"t"}`, "202"},
		{12, `{"title":"t"}`, "400"},
		{501, `{}`, "413"},
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PATCH /v1/echo/%s/r HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", anID, c.length, c.body)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) {
			t.Errorf("length %d of %s: %q %v, want %s", c.length, c.body, answer, err, c.status)
		}
	}
	// without a length the limit still holds
	r := httptest.NewRequest(http.MethodPatch, "/v1/echo/"+anID+"/r", io.MultiReader(strings.NewReader(strings.Repeat(" ", 501))))
	r.ContentLength = -1
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	echoCatalog().Handler(testServer(io.Discard)).ServeHTTP(w, r)
	if w.Code != 413 {
		t.Errorf("chunked: %d", w.Code)
	}
}

func TestFailuresAreLogged(t *testing.T) {
	var log bytes.Buffer
	h := echoCatalog().Handler(testServer(&log))
	js := map[string]string{"Content-Type": "application/json", RequestIDHeader: "req-7"}
	for title, want := range map[string][]string{
		"fail":     {`"error":"secret"`, `"operation":"echo.update"`, `"request_id":"req-7"`, `"owner":"` + owner.OwnerID.String() + `"`, `"code":"internal"`, `"level":"ERROR"`},
		"panic":    {`panic: secret`, `"stack":"`, `http_test.go`, `"request_id":"req-7"`},
		"conflict": nil,
		"fine":     nil,
	} {
		log.Reset()
		res, _ := do(t, h, exchange{method: "PATCH", target: "/v1/echo/" + anID + "/r", header: js, body: `{"title":"` + title + `"}`})
		if res.Header.Get(RequestIDHeader) != "req-7" {
			t.Errorf("%s: request id %q", title, res.Header.Get(RequestIDHeader))
		}
		if want == nil && log.Len() > 0 {
			t.Errorf("%s: logged %s", title, log.String())
		}
		for _, part := range want {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%s: the log lacks %s: %s", title, part, log.String())
			}
		}
	}
	log.Reset()
	do(t, h, exchange{method: "GET", target: "/v1/echo/" + anID + "/r", header: map[string]string{"Authorization": "Bearer down"}})
	if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), `"level":"WARN"`) {
		t.Errorf("an authenticator that fails is not logged: %s", log.String())
	}
	log.Reset()
	_, err := testServer(&log).Call(t.Context(), echoCatalog().ByName("echo.update"), owner, json.RawMessage(`{"id":"`+anID+`","rest":"r","title":"fail"}`), CallInfo{Face: "mcp", RequestID: "m-1"})
	if fault.From(err).Code != "internal" || !strings.Contains(log.String(), `"request_id":"m-1"`) {
		t.Errorf("%v %s", err, log.String())
	}
}

func TestRequestIDsThatALogCantTake(t *testing.T) {
	for _, id := range []string{"", "a b", "a\nb", "é", strings.Repeat("x", 129)} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[RequestIDHeader] = []string{id}
		got := RequestID(r)
		if got == id || len(got) < 20 {
			t.Errorf("%q stays %q", id, got)
		}
	}
}

func TestFlushComesBeforeTheAnswerIsHandedOver(t *testing.T) {
	var flushed int
	s := testServer(io.Discard)
	s.Flush = func(context.Context) { flushed++ }
	h := echoCatalog().Handler(s)
	do(t, h, exchange{method: "GET", target: "/v1/echo/" + anID + "/r"})
	do(t, h, exchange{method: "PATCH", target: "/v1/echo/" + anID + "/r", header: map[string]string{"Content-Type": "application/json"}, body: `{"title":"panic"}`})
	if _, err := s.Call(t.Context(), echoCatalog().ByName("echo.get"), owner, json.RawMessage(`{"id":"`+anID+`","rest":""}`), CallInfo{}); err != nil {
		t.Error(err)
	}
	if flushed != 3 {
		t.Errorf("flushed %d times of 3", flushed)
	}
}

func TestHeadersOfAnAnswer(t *testing.T) {
	t.Parallel()
	tag := Header{Name: "ETag", Description: "Its version.", Value: func(out any) string { return out.(echoOut).In.Q }}
	c := NewCatalog(New(Spec{Name: "echo.tagged", Method: "GET", Path: "/v1/tagged/{id}/{rest}", Access: Public, Summary: "Echo.", Headers: []Header{tag}}, echo))
	h := c.Handler(&Server{})
	for query, want := range map[string]string{"q=%223%22": `"3"`, "": "", "q=x&title=conflict": "", "q=12345678901": ""} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/tagged/"+uuid.NewString()+"/x?"+query, nil))
		if got := w.Header().Get("ETag"); got != want || (w.Code == 200) != (query == "" || want != "") {
			t.Errorf("%s: %d, ETag %q, want %q", query, w.Code, got, want)
		}
	}
	doc, err := c.OpenAPI(Info{Title: "Test", Version: "1"})
	if err != nil || !bytes.Contains(doc, []byte(`"ETag": {`)) || !bytes.Contains(doc, []byte("Its version.")) {
		t.Errorf("%v %s", err, doc)
	}
}

func TestPreferWait(t *testing.T) {
	for _, c := range []struct {
		headers []string
		want    time.Duration
		ok      bool
	}{
		{nil, 0, false},
		{[]string{"wait=0"}, 0, true},
		{[]string{"wait=10"}, 10 * time.Second, true},
		{[]string{`wait="10"`}, 10 * time.Second, true},
		{[]string{"Wait = 3 ; foo=bar"}, 3 * time.Second, true},
		{[]string{"respond-async, wait=3"}, 3 * time.Second, true},
		{[]string{"respond-async", "wait=3"}, 3 * time.Second, true},
		{[]string{"wait=3, wait=5"}, 3 * time.Second, true},
		{[]string{`foo="a, wait=9", wait=2`}, 2 * time.Second, true},
		{[]string{`foo="a\", wait=9", wait=2`}, 2 * time.Second, true},
		{[]string{"return=minimal; wait=9"}, 0, false},
		{[]string{"waiting=9"}, 0, false},
		{[]string{"wait"}, 0, false},
		{[]string{"wait="}, 0, false},
		{[]string{"wait=-1"}, 0, false},
		{[]string{"wait=1.5"}, 0, false},
		{[]string{"wait=x"}, 0, false},
		{[]string{"wait=99999999999999999999"}, maxPrefer * time.Second, true},
		{[]string{`"`, ",,;;=,"}, 0, false},
	} {
		got, ok := preferWait(http.Header{"Prefer": c.headers})
		if got != c.want || ok != c.ok {
			t.Errorf("%q: %v %v, want %v %v", c.headers, got, ok, c.want, c.ok)
		}
	}
}

func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"wait=1", `a="b, wait=2";c, wait=3`, `"\`, ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, ok := preferWait(http.Header{"Prefer": {header}})
		if got < 0 || got > maxPrefer*time.Second || !ok && got != 0 {
			t.Errorf("%q: %v %v", header, got, ok)
		}
	})
}

func BenchmarkHTTPCreate(b *testing.B) {
	o := New(Spec{Name: "corpus.create", Method: "POST", Path: "/v1/corpus", Scope: "corpus:write", Summary: "Create."},
		func(_ context.Context, _ auth.Caller, in createIn) (createOut, error) {
			return createOut{Body: in.Body, Tags: in.Tags}, nil
		})
	h := NewCatalog(o).Handler(testServer(io.Discard))
	body := createBody()
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/corpus", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer good")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}

type createOut struct {
	Body string   `json:"body"`
	Tags []string `json:"tags"`
}
