package mcp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"standmeet/functions/mcp"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/op/apigw"
)

const owner = "token-of-the-owner"

// tokens are the callers of the tests; a token is a name here.
func authenticate(_ context.Context, c auth.Credentials) (auth.Caller, error) {
	scopes, ok := map[string][]string{
		owner:    {auth.AllScopes},
		"reader": {"corpus:read"},
		"writer": {"corpus:read", "corpus:write"},
		"none":   {},
	}[cmp.Or(c.Bearer, c.Session)] // a session would do elsewhere
	switch {
	case c.Bearer == "down":
		return auth.Caller{}, fault.New(fault.Unavailable, "unavailable", "The database is away.")
	case !ok:
		return auth.Caller{}, fault.New(fault.Unauthorized, "unauthorized", "The token is not known.")
	}
	return auth.Caller{Kind: auth.Owner, OwnerID: uuid.NameSpaceURL, Scopes: scopes}, nil
}

// endpoint serves a world behind the API Gateway event path.
type endpoint struct {
	t *testing.T
	*httptest.Server
	world *world
}

func endpointOf(t *testing.T, middleware ...func(http.Handler) http.Handler) *endpoint {
	t.Helper()
	w := newWorld()
	e := serve(t, handlerOf(w), middleware...)
	e.world = w
	return e
}

func handlerOf(w *world) http.Handler {
	return mcp.New(w.catalog(), mcp.Options{
		Server:         &op.Server{Authenticate: authenticate, Logger: slog.New(slog.DiscardHandler)},
		AllowedOrigins: []string{"https://app.example.test"},
		Answers:        w.answers(),
		Version:        "test",
	})
}

func serve(t *testing.T, handler http.Handler, middleware ...func(http.Handler) http.Handler) *endpoint {
	lambda := apigw.Lambda(handler)
	gateway := apigw.Gateway(func(ctx context.Context, event []byte) ([]byte, error) {
		var req events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal(event, &req); err != nil {
			return nil, err
		}
		res, err := lambda(ctx, req)
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	})
	for _, m := range middleware {
		gateway = m(gateway)
	}
	e := &endpoint{t: t, Server: httptest.NewServer(gateway)}
	t.Cleanup(e.Close)
	return e
}

// answer is an HTTP response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

type header map[string]string

// send posts body as the owner; headers replace the usual ones, "" removes one.
func (e *endpoint) send(method, query, body string, h header) answer {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, e.URL+"/mcp"+query, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+owner)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range h {
		switch {
		case k == "Host":
			req.Host = v
		case v == "":
			req.Header.Del(k)
		default:
			req.Header.Set(k, v)
		}
	}
	res, err := e.Client().Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// message is a JSON-RPC response.
type message struct {
	ID     any             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func (a answer) message(t *testing.T) message {
	t.Helper()
	var m message
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Fatalf("%d %s: %s", a.status, ct, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("%d: %s: %v", a.status, a.body, err)
	}
	return m
}

// rpc is a request of a revision before 2026-07-28.
func (e *endpoint) rpc(query, method string, params any, h header) message {
	e.t.Helper()
	return e.send("POST", query, encode(e.t, map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), h).message(e.t)
}

// modern is a request of revision 2026-07-28.
func (e *endpoint) modern(method, name string, params map[string]any, capabilities map[string]any, h header) (answer, message) {
	e.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	params["_meta"] = map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": capabilities,
		"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
	}
	all := header{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
	for k, v := range h {
		all[k] = v
	}
	a := e.send("POST", "", encode(e.t, map[string]any{"jsonrpc": "2.0", "id": "a", "method": method, "params": params}), all)
	return a, a.message(e.t)
}

// toolResult is the result of tools/call.
type toolResult struct {
	ResultType string `json:"resultType"`
	Content    []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	Structured map[string]any `json:"structuredContent"`
	IsError    bool           `json:"isError"`
}

func (m message) tool(t *testing.T) toolResult {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("error %d: %s", m.Error.Code, m.Error.Message)
	}
	return decode[toolResult](t, m.Result)
}

func (e *endpoint) call(name string, args any) toolResult {
	e.t.Helper()
	return e.rpc("", "tools/call", map[string]any{"name": name, "arguments": args}, nil).tool(e.t)
}

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decode[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

func TestProgress(t *testing.T) {
	e := endpointOf(t)
	call := func(meta map[string]any, accept string) answer {
		return e.send("POST", "", encode(t, map[string]any{"jsonrpc": "2.0", "id": 7, "method": "tools/call",
			"params": map[string]any{"name": "test_tool_with_progress", "arguments": map[string]any{}, "_meta": meta}}), header{"Accept": accept})
	}
	const both = "application/json, text/event-stream"
	asked := map[string]any{"progressToken": "p1"}

	a := call(asked, both)
	if ct := a.header.Get("Content-Type"); a.status != 200 || ct != "text/event-stream" {
		t.Fatalf("%d %s: %s", a.status, ct, a.body)
	}
	var told []string
	var end *message
	for line := range strings.Lines(a.body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "" {
			continue
		}
		note := decode[struct {
			Method string
			Params struct {
				ProgressToken   any
				Progress, Total float64
				Message         string
			}
		}](t, []byte(data))
		if end != nil {
			t.Errorf("after the answer: %s", data)
		}
		if note.Method == "" {
			m := decode[message](t, []byte(data))
			end = &m
			continue
		}
		told = append(told, fmt.Sprint(note.Method, note.Params))
	}
	want := []string{"notifications/progress{p1 0 100 0 of 100}", "notifications/progress{p1 50 100 50 of 100}", "notifications/progress{p1 100 100 100 of 100}"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
	if end == nil || end.ID != 7.0 || end.tool(t).Structured["text"] != "true" {
		t.Errorf("%s", a.body)
	}

	// nobody asked, or nobody reads a stream: one document
	for _, a := range []answer{call(nil, both), call(asked, "application/json"), call(asked, ""), call(asked, "application/json, text/event-stream;q=0"), call(asked, "*/*")} {
		if got := a.message(t).tool(t).Structured["text"]; got != "false" {
			t.Errorf("%s", a.body)
		}
	}
}
