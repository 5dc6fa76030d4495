package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"standmeet/functions/mcp"
	"standmeet/shared/auth"
	"standmeet/shared/golden"
	"standmeet/shared/op"
)

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The public surface changes on purpose or not at all.
func TestGoldenCatalog(t *testing.T) {
	golden.Check(t, "testdata/catalog.json", indented(t, Catalog(Deps{}).Manifest()))
}

func TestGoldenOpenAPI(t *testing.T) {
	doc, err := Document(Catalog(Deps{}))
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/openapi.json", append(doc, '\n'))
}

// tools lists the MCP endpoint's tools, as a client with every scope sees them.
func tools(t *testing.T, address string) (list []json.RawMessage) {
	t.Helper()
	h := mcp.New(Catalog(Deps{}), mcp.Options{Version: Version, Server: &op.Server{
		Authenticate: func(context.Context, auth.Credentials) (auth.Caller, error) {
			return auth.Caller{Kind: auth.Owner, Scopes: []string{auth.AllScopes}}, nil
		},
	}})
	for cursor := ""; ; {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		body := indented(t, map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer struct {
			Result struct {
				Tools      []json.RawMessage `json:"tools"`
				NextCursor string            `json:"nextCursor"`
			} `json:"result"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Result.Tools) == 0 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		list = append(list, answer.Result.Tools...)
		if cursor = answer.Result.NextCursor; cursor == "" {
			return list
		}
	}
}

func TestGoldenTools(t *testing.T) {
	golden.Check(t, "testdata/tools.json", indented(t, map[string]any{"tools": tools(t, "/mcp")}))
	var names [2][]string
	for i, address := range []string{"/mcp", "/mcp?names=dotted"} {
		for _, raw := range tools(t, address) {
			var tool struct{ Name string }
			if err := json.Unmarshal(raw, &tool); err != nil {
				t.Fatal(err)
			}
			names[i] = append(names[i], strings.ReplaceAll(tool.Name, ".", "_"))
		}
		slices.Sort(names[i])
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("the two spellings list different tools: %v, %v", names[0], names[1])
	}
}

// What a listing tells a client of other tools, it calls as the client sees them.
func TestTextsNameToolsAsListed(t *testing.T) {
	dotted := regexp.MustCompile(`[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+`)
	underscored := regexp.MustCompile(`[a-z][a-z0-9]*(_[a-z0-9]+)+`)
	cat := Catalog(Deps{})
	for address, wrong := range map[string]*regexp.Regexp{"/mcp": dotted, "/mcp?names=dotted": underscored} {
		seen := 0
		for _, raw := range tools(t, address) {
			var tool any
			if err := json.Unmarshal(raw, &tool); err != nil {
				t.Fatal(err)
			}
			var walk func(v any)
			walk = func(v any) {
				switch v := v.(type) {
				case []any:
					for _, in := range v {
						walk(in)
					}
				case map[string]any:
					for key, in := range v {
						text, ok := in.(string)
						if !ok || key != "description" {
							walk(in)
							continue
						}
						seen++
						for _, name := range wrong.FindAllString(text, -1) {
							if o := cat.ByTool(name); o != nil && o.Spec().Tool != nil {
								t.Errorf("%s: a text calls a tool %s: %s", address, name, text)
							}
						}
					}
				}
			}
			walk(tool)
		}
		if seen == 0 {
			t.Errorf("%s: no texts", address)
		}
	}
}

// Every scope that an operation wants can be given to a token.
func TestScopesCanBeGranted(t *testing.T) {
	cat := Catalog(Deps{})
	scopes := cat.ByName("tokens.create").InputSchema().Properties["scopes"].Items
	var grantable []string
	for _, s := range scopes.Enum {
		grantable = append(grantable, s.(string))
	}
	used := map[string]bool{auth.AllScopes: true}
	for _, o := range cat.Ops() {
		if s := o.Spec().Scope; s != "" {
			used[s] = true
			if !slices.Contains(grantable, s) {
				t.Errorf("%s wants %s, which tokens.create does not offer", o.Spec().Name, s)
			}
		}
	}
	for _, s := range grantable {
		family, _, _ := strings.Cut(s, ":")
		if !used[s] && !used[family+":read"] && !used[family+":write"] {
			t.Errorf("tokens.create offers %s, which no operation wants", s)
		}
	}
}

// Owner operations are MCP tools, except those that are another's second route.
func TestOwnerOperationsAreTools(t *testing.T) {
	cat := Catalog(Deps{})
	for _, o := range cat.Ops() {
		s := o.Spec()
		if s.Name == "account.set_password" || s.Name == "account.sign_out" {
			continue // a transcript is no place for a password, and a tool has no session to end
		}
		if s.Produces != "" {
			continue // a tool can't answer with a file
		}
		base, _ := strings.CutSuffix(s.Name, "_one")
		if first := cat.ByName(base); s.Access == op.Owner && s.Tool == nil && (first == nil || first == o) {
			t.Errorf("%s is no tool", s.Name)
		}
	}
}

func TestEndpoint(t *testing.T) {
	f := New(Deps{Auth: &auth.Store{}})
	names := []string{MCP, OpenAPI, Pages, Any}
	for _, o := range f.Catalog.Ops() {
		names = append(names, o.Spec().Name)
	}
	for _, name := range names {
		if h, err := f.Endpoint(name); err != nil || h == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "corpus", "tokens-create", "tokens_create"} {
		if _, err := f.Endpoint(name); err == nil {
			t.Errorf("there is a function %q", name)
		}
	}
	// one operation's function serves nothing else
	h, err := f.Endpoint("tokens.list")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/account", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("tokens.list answers /v1/account with %d", w.Code)
	}
}
