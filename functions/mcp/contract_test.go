package mcp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"standmeet/shared/auth"
)

// listing walks all pages of tools/list.
func (e *endpoint) listing(query, token string) []map[string]any {
	e.t.Helper()
	var tools []map[string]any
	cursor, seen := "", map[string]bool{}
	for {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		m := e.rpc(query, "tools/list", params, header{"Authorization": "Bearer " + token})
		if m.Error != nil {
			e.t.Fatal(m.Error)
		}
		page := decode[map[string]json.RawMessage](e.t, m.Result)
		tools = append(tools, decode[[]map[string]any](e.t, page["tools"])...)
		raw, more := page["nextCursor"]
		if !more {
			return tools
		}
		if cursor = decode[string](e.t, raw); cursor == "" || seen[cursor] {
			e.t.Fatalf("cursor %q is empty or does not advance", cursor)
		}
		seen[cursor] = true
	}
}

// faultsOf finds what hides a tool, or all of them, from some client (case P1).
func faultsOf(tools []map[string]any, name *regexp.Regexp) []string {
	var bad []string
	seen := map[string]bool{}
	for _, tool := range tools {
		n, _ := tool["name"].(string)
		fault := func(format string, args ...any) { bad = append(bad, n+": "+fmt.Sprintf(format, args...)) }
		if seen[n] {
			fault("listed twice")
		}
		seen[n] = true
		if !name.MatchString(n) {
			fault("name not in %s", name)
		}
		for _, key := range []string{"inputSchema", "outputSchema"} {
			s, ok := tool[key].(map[string]any)
			if !ok || s["type"] != "object" {
				fault("%s: top type is not object", key)
				continue
			}
			for _, k := range []string{"anyOf", "oneOf", "allOf", "$ref"} {
				if s[k] != nil {
					fault("%s: %s at top level", key, k)
				}
			}
			var walk func(s any, where string)
			walk = func(s any, where string) {
				switch s := s.(type) {
				case []any:
					for i, v := range s {
						walk(v, fmt.Sprintf("%s[%d]", where, i))
					}
				case map[string]any:
					inProperties := strings.HasSuffix(where, ".properties")
					for _, k := range []string{"required", "enum", "anyOf", "oneOf", "allOf"} {
						if v, ok := s[k]; ok && !inProperties {
							if _, ok := v.([]any); !ok {
								fault("%s.%s is %T", where, k, v)
							}
						}
					}
					if v, ok := s["properties"]; ok && !inProperties {
						if _, ok := v.(map[string]any); !ok {
							fault("%s.properties is %T", where, v)
						}
					}
					for k, v := range s {
						if inProperties {
							if m, ok := v.(map[string]any); !ok || len(m) == 0 {
								fault("%s.%s is an empty schema", where, k)
							}
						}
						walk(v, where+"."+k)
					}
				}
			}
			walk(s, key)
		}
	}
	return bad
}

var (
	safeName   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	dottedWord = regexp.MustCompile(`[a-z0-9_]+(\.[a-z0-9_]+)+`)
	dottedName = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)
)

func TestListing(t *testing.T) { // P1, P2
	e := endpointOf(t)
	for query, name := range map[string]*regexp.Regexp{"": safeName, "?names=dotted": dottedName} {
		for token, want := range map[string]int{owner: 14, "reader": 2, "writer": 5, "none": 0} {
			tools := e.listing(query, token)
			if len(tools) != want {
				t.Errorf("%s %s: %d tools, want %d", query, token, len(tools), want)
			}
			for _, f := range faultsOf(tools, name) {
				t.Errorf("%s %s: %s", query, token, f)
			}
		}
	}
	for _, tool := range e.listing("", owner) {
		a, _ := tool["annotations"].(map[string]any)
		for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			if _, ok := a[hint].(bool); !ok {
				t.Errorf("%s: %s is %v", tool["name"], hint, a[hint])
			}
		}
		if tool["title"] == "" || tool["description"] == "" {
			t.Errorf("%s has no title or description", tool["name"])
		}
		if want := tool["name"] == "corpus_delete" || tool["name"] == "tasks_cancel"; a["destructiveHint"] != want {
			t.Errorf("%s: destructiveHint is %v", tool["name"], a["destructiveHint"])
		}
	}
	if m := e.rpc("", "tools/list", map[string]any{"cursor": "nonsense"}, nil); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("a cursor of nobody's: %+v", m)
	}
}

// The checker itself has to find what it looks for.
func TestFaultsAreFound(t *testing.T) {
	tools := decode[[]map[string]any](t, []byte(`[
		{"name": "a.b", "inputSchema": {"type": "object", "properties": {"x": {}}}, "outputSchema": {"type": "object", "anyOf": []}},
		{"name": "ok", "inputSchema": {"type": "object", "properties": {"required": {"type": "string"}}}, "outputSchema": {"type": "object"}},
		{"name": "ok", "inputSchema": {"type": "object", "required": "x", "properties": []}}]`))
	if bad := faultsOf(tools, safeName); len(bad) != 7 {
		t.Errorf("%d faults: %q", len(bad), bad)
	}
}

func TestBothSpellingsCallOneOperation(t *testing.T) { // P2
	e := endpointOf(t)
	for _, query := range []string{"", "?names=dotted"} {
		for _, name := range []string{"tasks_overview", "tasks.overview"} {
			r := e.rpc(query, "tools/call", map[string]any{"name": name, "arguments": map[string]any{"kind": "x"}}, nil).tool(t)
			if r.IsError || r.Structured["kind"] != "x" {
				t.Errorf("%s%s: %+v", name, query, r)
			}
			h := header{"Mcp-Name": name}
			a, m := e.modern("tools/call", name, map[string]any{"name": name}, map[string]any{}, h)
			if a.status != 200 || m.tool(t).ResultType != "complete" {
				t.Errorf("2026-07-28 %s: %d %s", name, a.status, a.body)
			}
		}
	}
}

func TestLenientArguments(t *testing.T) { // P4
	e := endpointOf(t)
	bare := e.rpc("", "tools/call", map[string]any{"name": "tasks.overview", "arguments": map[string]any{}}, nil).tool(t)
	for _, params := range []string{
		`{"name":"tasks.overview"}`,
		`{"name":"tasks.overview","arguments":null}`,
		`{"name":"tasks.overview","arguments":{"kind":null}}`,
	} {
		got := e.rpc("", "tools/call", json.RawMessage(params), nil).tool(t)
		if got.IsError || encode(t, got) != encode(t, bare) {
			t.Errorf("%s: %+v, want %+v", params, got, bare)
		}
	}

	for range 7 {
		e.call("corpus.create", map[string]any{"genre": "wiki", "title": "one of many"})
	}
	list := e.call("corpus.list", map[string]any{"genre": "wiki", "limit": "5"})
	if items, _ := list.Structured["items"].([]any); list.IsError || len(items) != 5 {
		t.Errorf("limit as text: %+v", list)
	}

	made := e.call("corpus.create", map[string]any{"genre": "wiki", "title": "00713", "body": "x", "tags": `["a","b"]`})
	n := made.Structured["note"].(map[string]any)
	if n["title"] != "00713" || encode(t, n["tags"]) != `["a","b"]` {
		t.Errorf("note %v", n)
	}

	parent := e.call("corpus.update", map[string]any{"id": n["id"], "parent_id": "p"})
	kept := e.call("corpus.update", map[string]any{"genre": "wiki", "id": n["id"], "title": "t", "body": "b", "parent_id": nil})
	if p := kept.Structured["note"].(map[string]any); parent.IsError || p["parent_id"] != "p" || p["title"] != "t" {
		t.Errorf("after parent_id null: %v", p)
	}
}

func TestRefusalNamesTheField(t *testing.T) { // P4
	e := endpointOf(t)
	r := e.call("corpus.create", map[string]any{"genre": "wiki", "title": "", "body": ""})
	if !r.IsError || len(r.Content) != 2 || r.Content[0].Text != "title: A note of this genre needs a title." {
		t.Fatalf("%+v", r)
	}
	if r.Structured != nil {
		t.Error("structuredContent that is not of the output schema makes the TypeScript client throw")
	}
	problem := decode[struct {
		Code     string
		Status   int
		Instance string
		Errors   []struct{ Field, Code string }
	}](t, []byte(r.Content[1].Text))
	if problem.Status != 400 || problem.Code == "" || !strings.HasPrefix(problem.Instance, "/requests/") ||
		len(problem.Errors) != 1 || problem.Errors[0].Field != "title" {
		t.Errorf("problem %+v", problem)
	}

	unknown := e.rpc("", "tools/call", map[string]any{"name": "no_such_tool", "arguments": map[string]any{}}, nil)
	if unknown.Error == nil || unknown.Error.Code != -32602 || unknown.Result != nil {
		t.Errorf("unknown tool: %+v", unknown)
	}
	if m := e.rpc("", "tools/call", map[string]any{"name": "account_get"}, nil); m.Error == nil || m.Error.Code != -32602 {
		t.Errorf("an operation that is no tool: %+v", m)
	}

	scope := e.rpc("", "tools/call", map[string]any{"name": "corpus_delete", "arguments": map[string]any{"id": "x"}},
		header{"Authorization": "Bearer reader"}).tool(t)
	if !scope.IsError || !strings.Contains(scope.Content[1].Text, `"status":403`) {
		t.Errorf("without the scope: %+v", scope)
	}

	big := e.call("corpus_create", map[string]any{"genre": "raw", "body": strings.Repeat("x", 1<<20+64<<10)})
	if !big.IsError || !strings.Contains(big.Content[1].Text, "body_too_large") {
		t.Errorf("arguments above the operation's limit: %.200v", big)
	}
}

func TestResultIsSentenceAndJSON(t *testing.T) {
	e := endpointOf(t)
	r := e.call("corpus_create", map[string]any{"genre": "wiki", "title": "A <b> & ü"})
	if len(r.Content) != 2 || r.Content[0].Text != "Saved and indexed." || r.Structured["indexed"] != true {
		t.Fatalf("%+v", r)
	}
	if encode(t, decode[map[string]any](t, []byte(r.Content[1].Text))) != encode(t, r.Structured) || strings.Contains(r.Content[1].Text, "\n") {
		t.Errorf("text %s is not the structured content, compact", r.Content[1].Text)
	}
	if n := e.call("corpus_list", nil); len(n.Content) != 1 {
		t.Errorf("an operation with nothing to say: %+v", n.Content)
	}
}

// goType finds what a client can make nothing of.
var goType = regexp.MustCompile(`\*?\bmcp\.\w+|Go (struct|value)|json: |\w+ParamsRaw`)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestHTTP(t *testing.T) { // P5
	e := endpointOf(t)
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		began := time.Now()
		a := e.send(method, "", "", header{"Accept": "text/event-stream"})
		if a.status != 405 || a.header.Get("Allow") != "POST" || time.Since(began) > time.Second {
			t.Errorf("%s: %d Allow %q after %v", method, a.status, a.header.Get("Allow"), time.Since(began))
		}
	}

	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/no_such"}`,
		`{"jsonrpc":"2.0","id":3,"result":{}}`,
		`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`,
	} {
		if a := e.send("POST", "", body, nil); a.status != 202 || a.body != "" || a.header.Get("Content-Type") != "" {
			t.Errorf("%s: %d %q %q", body, a.status, a.header.Get("Content-Type"), a.body)
		}
	}

	for _, accept := range []string{"application/json", "", "*/*", "text/event-stream"} {
		a := e.send("POST", "", initialize, header{"Accept": accept})
		if m := a.message(t); a.status != 200 || m.Error != nil {
			t.Errorf("Accept %q: %d %s", accept, a.status, a.body)
		}
	}

	for body, code := range map[string]int{
		`[]`:                       -32600,
		`null`:                     -32600,
		`7`:                        -32600,
		`{}`:                       -32600,
		`{"jsonrpc":"1.0","id":1}`: -32600,
		`{"jsonrpc":"2.0","id":1}`: -32600,
		`{"jsonrpc":"2.0"}`:        -32600,
		`[null]`:                   -32600,
		``:                         -32700,
		`{"jsonrpc":`:              -32700,
		`[{`:                       -32700,
		`{"jsonrpc":"2.0","id":1,"method":"no/such"}`:                                  -32601,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`:                             -32601,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}`:               -32601,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`:         -32601,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`:                          -32601,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:                               -32600,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`:           -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}`:     -32602,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}`:                   0, // any
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"corpus_list"}`:        -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}`:                   -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`:                   -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[]}`:                    -32602,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`:                 -32600,
		`{"jsonrpc":"2.0","id":{},"method":"ping"}`:                                    -32600,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":{"a":"b"}}}`: -32602,
	} {
		a := e.send("POST", "", body, nil)
		if strings.HasPrefix(body, `[n`) {
			a.body = strings.Trim(strings.TrimSpace(a.body), "[]") // a batch answers with a batch
		}
		m := a.message(t)
		if a.status >= 500 || m.Error == nil || code != 0 && m.Error.Code != code || m.Error.Message == "" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
		if leak := goType.FindString(m.Error.Message); leak != "" {
			t.Errorf("%s: the message tells of Go's %s: %s", body, leak, m.Error.Message)
		}
		if strings.Contains(body, `"id":1,"method"`) && m.ID != 1.0 {
			t.Errorf("%s: answered id %v", body, m.ID)
		}
	}
	if a := e.send("POST", "", initialize, header{"Mcp-Protocol-Version": "1999-01-01"}); a.status != 400 || a.message(t).Error.Code != -32600 {
		t.Errorf("a version header from before the protocol: %d %s", a.status, a.body)
	}
	if a := e.send("POST", "", initialize, header{"Content-Type": "text/plain"}); a.status != 415 || a.message(t).Error == nil {
		t.Errorf("text/plain: %d %s", a.status, a.body)
	}
	if a := e.send("POST", "", `"`+strings.Repeat("x", 3<<20)+`"`, nil); a.status != 413 || !strings.Contains(a.body, "body_too_large") {
		t.Errorf("3 MiB: %d %.200s", a.status, a.body)
	}
}

func TestBatch(t *testing.T) {
	e := endpointOf(t)
	body := `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},
		{"jsonrpc":"2.0","id":"b","method":"no/such"},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"tasks_overview"}}]`
	a := e.send("POST", "", body, nil)
	if a.status != 200 || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	got := decode[[]message](t, []byte(a.body))
	if len(got) != 3 || got[0].ID != 1.0 || got[0].Error != nil || got[1].ID != "b" || got[1].Error.Code != -32601 || got[2].tool(t).IsError {
		t.Errorf("%s", a.body)
	}
	if a := e.send("POST", "", body, header{"Mcp-Protocol-Version": "2025-06-18"}); a.status != 400 || a.message(t).Error.Code != -32600 {
		t.Errorf("a batch in a revision without batches: %d %s", a.status, a.body)
	}
}

func TestProtocolVersions(t *testing.T) {
	e := endpointOf(t)
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2099-01-01": "2025-11-25", "2026-07-28": "2025-11-25", "": "2025-11-25",
	} {
		m := e.rpc("", "initialize", map[string]any{"protocolVersion": asked, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"}}, nil)
		if m.Error != nil {
			t.Fatalf("%s: %+v", asked, m.Error)
		}
		got := decode[struct {
			ProtocolVersion, Instructions string
			Capabilities                  map[string]any
		}](t, m.Result)
		if got.ProtocolVersion != want || len(got.Capabilities) != 2 || got.Capabilities["tools"] == nil {
			t.Errorf("%s: %+v", asked, got)
		}
		for _, name := range dottedWord.FindAllString(got.Instructions, -1) {
			if e.world.catalog().ByName(name) != nil {
				t.Errorf("the instructions call a tool %s, the listing doesn't", name)
			}
		}
		if !strings.Contains(got.Instructions, "indexed: false") || !strings.Contains(got.Instructions, "tasks_get") || strings.Contains(got.Instructions, "tasks.get") {
			t.Errorf("instructions: %s", got.Instructions)
		}
		if want == asked {
			if m := e.rpc("", "tools/list", nil, header{"Mcp-Protocol-Version": asked}); m.Error != nil {
				t.Errorf("%s: %+v", asked, m.Error)
			}
		}
	}
	_, m := e.modern("server/discover", "", nil, map[string]any{}, nil)
	got := decode[struct {
		SupportedVersions []string
		Capabilities      struct{ Extensions map[string]any }
	}](t, m.Result)
	if !slices.Equal(got.SupportedVersions, sdk.SupportedProtocolVersions()) || got.Capabilities.Extensions["io.modelcontextprotocol/tasks"] == nil {
		t.Errorf("discover: %+v", got)
	}
	if dotted := e.rpc("?names=dotted", "initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}}, nil); !strings.Contains(string(dotted.Result), "tasks.get") {
		t.Errorf("dotted instructions: %s", dotted.Result)
	}
}

// The SDK's own client negotiates the newest revision.
func TestGoClient(t *testing.T) {
	e := endpointOf(t)
	token := roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Authorization", "Bearer "+owner)
		return e.Client().Transport.RoundTrip(r)
	})
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: e.URL + "/mcp", HTTPClient: &http.Client{Transport: token}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	tools := 0
	for _, err := range session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		tools++
	}
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "corpus_create", Arguments: map[string]any{"genre": "wiki", "title": "x"}})
	if err != nil || res.IsError || tools != 14 {
		t.Fatalf("%d tools, %+v, %v", tools, res, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTokens(t *testing.T) {
	e := endpointOf(t)
	for token, want := range map[string]int{"": 401, "Bearer": 401, "Bearer ": 401, "Bearer unknown": 401, "Basic b3duZXI6": 401, "Bearer down": 503, "bearer " + owner: 200} {
		a := e.send("POST", "", initialize, header{"Authorization": token})
		if a.status != want {
			t.Errorf("%q: %d %s", token, a.status, a.body)
		}
		if (want == 401) != strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") || (want == 503) != (a.header.Get("Retry-After") != "") {
			t.Errorf("%q: %v", token, a.header)
		}
		if want != 200 && a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%q: %s", token, a.header.Get("Content-Type"))
		}
	}
	if a := e.send("POST", "", initialize, header{"Authorization": "", "Cookie": auth.SessionCookie + "=" + owner}); a.status != 401 {
		t.Errorf("a session cookie: %d", a.status)
	}
}

func TestOrigin(t *testing.T) { // P5
	e := endpointOf(t)
	home := strings.TrimPrefix(e.URL, "http://")
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"", "", 200},
		{"", "https://evil.example.test", 403},
		{"", "null", 403},
		{"", "http://" + home, 200},
		{"", "https://app.example.test", 200},
		{"", "https://app.example.test.evil.test", 403},
		{"", "http://app.example.test", 403},
		{"evil.example.test", "http://evil.example.test", 403}, // a stranger's name for this machine
		{"localhost:9", "http://localhost:9", 200},
		{"localhost:9", "http://localhost:10", 403},
	} {
		a := e.send("POST", "", initialize, header{"Host": c.host, "Origin": c.origin})
		if c.host == "" {
			a = e.send("POST", "", initialize, header{"Origin": c.origin})
		}
		if a.status != c.want {
			t.Errorf("%+v: %d %s", c, a.status, a.body)
		}
	}
	// Deployed, the host is the API's own name and the caller is somewhere else.
	far := endpointOf(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = "203.0.113.9:4711"
			next.ServeHTTP(w, r)
		})
	})
	if a := far.send("POST", "", initialize, header{"Host": "api.example.test", "Origin": "https://api.example.test"}); a.status != 200 {
		t.Errorf("a page of the API's own host: %d %s", a.status, a.body)
	}
}
