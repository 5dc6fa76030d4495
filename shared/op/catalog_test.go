package op

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"standmeet/shared/auth"
)

func named(name, method, path string) *Operation {
	return New(Spec{Name: name, Method: method, Path: path, Access: Public, Summary: "Test.", Description: "Test.", Tool: &Tool{}},
		func(context.Context, auth.Caller, struct{}) (done, error) { return done{}, nil })
}

func TestProjectedNamesCantCollide(t *testing.T) {
	one := named("a_b.c", "POST", "/v1/one")
	for name, other := range map[string]*Operation{
		"name":           named("a_b.c", "POST", "/v1/two"),
		"tool name":      named("a.b_c", "POST", "/v1/two"),
		"function name":  named("a_b.c", "GET", "/v1/two"),
		"route":          named("x.y", "POST", "/v1/one"),
		"the same again": one,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: both are in the catalog", name)
				}
			}()
			NewCatalog(one, other)
		}()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("patterns that conflict are in the catalog")
			}
		}()
		type a struct {
			A string `json:"a" path:"a"`
		}
		spec := func(name, path string) *Operation {
			return New(Spec{Name: name, Method: "GET", Path: path, Access: Public, Summary: "Test."}, func(context.Context, auth.Caller, a) (done, error) { return done{}, nil })
		}
		NewCatalog(spec("a.a", "/v1/{a}/x"), spec("a.b", "/v1/y/{a}"))
	}()
	c := NewCatalog(one, named("x.y", "GET", "/v1/one"))
	if got := c.ByTool("a_b_c"); got != one || c.ByTool("a_b.c") != one || c.ByName("a_b.c") != one || c.ByName("a_b_c") != nil || c.ByTool("nope") != nil {
		t.Errorf("ByTool %v", got)
	}
	if got := NewCatalog(New(Spec{Name: "a.b", Method: "GET", Path: "/", Access: Public, Summary: "No tool."},
		func(context.Context, auth.Caller, struct{}) (done, error) { return done{}, nil })).ByTool("a_b"); got != nil {
		t.Error("what is no tool is found as one")
	}
}

func TestManifest(t *testing.T) {
	got := echoCatalog().Manifest()
	want := Function{
		Operation: "echo.update", Name: "echo-update", Method: "PATCH", Path: "/v1/echo/{id}/{rest+}", Access: "owner", Scope: "echo:write",
		WaitMS: 2000, TimeoutS: 4, MemoryMB: 256,
	}
	if !slices.Contains(got, want) || len(got) != len(echoCatalog().Ops()) {
		t.Errorf("%+v lacks %+v", got, want)
	}
	if !slices.IsSortedFunc(got, func(a, b Function) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("not sorted: %+v", got)
	}
}

func TestTimeoutIsSpent(t *testing.T) {
	o := New(Spec{Name: "test.slow", Method: "GET", Path: "/v1/slow", Access: Public, Summary: "Slow.", MaxWait: 20 * time.Second},
		func(ctx context.Context, _ auth.Caller, _ struct{}) (done, error) {
			at, ok := ctx.Deadline()
			if left := time.Until(at); !ok || left > maxTimeout || left < maxTimeout-time.Second {
				return done{}, fmt.Errorf("deadline in %v", left)
			}
			return done{true}, nil
		})
	if _, err := o.Call(t.Context(), auth.Caller{}, nil, CallInfo{}); err != nil {
		t.Error(err)
	}
}

func TestCallTellsTheHandler(t *testing.T) {
	var got Call
	o := New(Spec{Name: "test.call", Method: "POST", Path: "/v1/call", Access: Public, Summary: "Call.", MaxWait: 2 * time.Second},
		func(ctx context.Context, _ auth.Caller, _ struct{}) (done, error) {
			got = *CallFrom(ctx)
			got.Progress(1, 2, "half")
			return done{true}, nil
		})
	second, zero := time.Second, time.Duration(0)
	for name, c := range map[string]struct {
		args  string
		info  CallInfo
		wait  time.Duration
		asked bool
	}{
		"default":          {`{}`, CallInfo{}, 2 * time.Second, false},
		"bounded":          {`{}`, CallInfo{MaxWait: second}, second, false},
		"transport":        {`{}`, CallInfo{Wait: &second}, second, true},
		"transport's zero": {`{}`, CallInfo{Wait: &zero}, 0, true},
		"argument wins":    {`{"wait_seconds":0.5}`, CallInfo{Wait: &second}, second / 2, true},
		"as text":          {`{"wait_seconds":"0"}`, CallInfo{}, 0, true},
		"null":             {`{"wait_seconds":null}`, CallInfo{Wait: &zero}, 0, true},
		"too much":         {`{"wait_seconds":9}`, CallInfo{MaxWait: second}, second, true},
	} {
		var heard string
		c.info.Progress = func(done, total float64, note string) { heard = fmt.Sprintln(done, total, note) }
		c.info.Face, c.info.RequestID = "mcp", "r"
		if _, err := o.Call(t.Context(), auth.Caller{}, json.RawMessage(c.args), c.info); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Wait != c.wait || got.WaitAsked != c.asked || got.Face != "mcp" || got.RequestID != "r" || got.Operation != "test.call" || heard != "1 2 half\n" {
			t.Errorf("%s: %+v, heard %q", name, got, heard)
		}
	}
	CallFrom(t.Context()).Progress(1, 1, "nobody listens")
}

// The document is checked against what OpenAPI 3.1 asks of its parts; every
// schema in it is resolved as JSON Schema 2020-12.
func TestOpenAPI(t *testing.T) {
	c := NewCatalog(append(echoCatalog().Ops(), everythingOp(t, nil))...)
	info := Info{Title: "Test", Version: "1", Description: "A test.", Server: "https://example.test"}
	doc, err := c.OpenAPI(info)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if again, _ := c.OpenAPI(info); !bytes.Equal(doc, again) {
			t.Fatal("the document differs from one call to the next")
		}
	}
	type parameter struct {
		Name, In string
		Required bool
		Schema   json.RawMessage
	}
	type media map[string]struct{ Schema json.RawMessage }
	var d struct {
		OpenAPI string
		Info    Info
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []parameter
			RequestBody struct {
				Required bool
				Content  media
			}
			Responses map[string]struct {
				Ref         string `json:"$ref"`
				Description string
				Content     media
			}
			Security []map[string][]string
		}
		Components struct {
			SecuritySchemes, Responses map[string]any
			Schemas                    map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	if d.OpenAPI != "3.1.0" || d.Info.Title != "Test" || d.Components.Responses["Problem"] == nil {
		t.Errorf("%s", doc)
	}
	resolve := func(where string, raw json.RawMessage) {
		t.Helper()
		var s jsonschema.Schema
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Errorf("%s: %v in %s", where, err, raw)
		} else if _, err := s.Resolve(nil); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
	resolve("Problem", d.Components.Schemas["Problem"])
	found := map[string]bool{}
	for path, item := range d.Paths {
		var inPath []string
		for _, m := range regexp.MustCompile(`\{([a-z_]+)\}`).FindAllStringSubmatch(path, -1) {
			inPath = append(inPath, m[1])
		}
		if strings.Contains(path, "...") {
			t.Errorf("%s is no OpenAPI path", path)
		}
		for method, o := range item {
			where := method + " " + path
			if found[o.OperationID] {
				t.Errorf("%s twice", o.OperationID)
			}
			found[o.OperationID] = true
			spec := c.ByName(o.OperationID).Spec()
			names := map[string]bool{}
			var params []string
			for _, p := range o.Parameters {
				if names[p.In+p.Name] || p.In == "path" && !p.Required {
					t.Errorf("%s: parameter %s", where, p.Name)
				}
				names[p.In+p.Name] = true
				if p.In == "path" {
					params = append(params, p.Name)
				}
				resolve(where+" "+p.Name, p.Schema)
			}
			if !slices.Equal(params, inPath) {
				t.Errorf("%s: path parameters %v", where, params)
			}
			if names["headerPrefer"] != (spec.MaxWait > 0) || names["querywait_seconds"] != (spec.MaxWait > 0) {
				t.Errorf("%s: how to wait isn't told: %v", where, names)
			}
			if (len(o.Security) > 0) != (spec.Access == Owner) {
				t.Errorf("%s: security %v", where, o.Security)
			}
			for name, m := range o.RequestBody.Content {
				resolve(where+" "+name, m.Schema)
			}
			success := o.Responses[fmt.Sprint(spec.Status)]
			if success.Description == "" || o.Responses["default"].Ref != "#/components/responses/Problem" || (len(success.Content) == 0) != (spec.Status == 204) {
				t.Errorf("%s: responses %+v", where, o.Responses)
			}
			for name, m := range success.Content {
				resolve(where+" "+name, m.Schema)
			}
		}
	}
	if len(found) != len(c.Ops()) {
		t.Errorf("%d of %d operations", len(found), len(c.Ops()))
	}
	body := d.Paths["/v1/everything"]["post"].RequestBody
	if schema := string(body.Content["application/json"].Schema); !body.Required || !strings.Contains(strings.Join(strings.Fields(schema), ""), `"label":{"type":["string","null"],"maxLength":4}`) {
		t.Errorf("null doesn't clear: %s", schema)
	}
}

// Tools: what clients trip over, as cases/tools/check_mcp_tools.py lists it.
func TestToolSchemas(t *testing.T) {
	type list struct {
		Paging
		Genre string `json:"genre,omitempty" enum:"raw,wiki"`
	}
	for _, o := range []*Operation{
		everythingOp(t, nil), named("a.b", "GET", "/v1/x"),
		New(Spec{Name: "x.list", Method: "GET", Path: "/v1/list", Access: Public, Summary: "List.", MaxWait: time.Second},
			func(context.Context, auth.Caller, list) (Page[answer], error) { return Page[answer]{}, nil }),
	} {
		for _, s := range []*jsonschema.Schema{o.InputSchema(), o.OutputSchema()} {
			if s.Type != "object" || s.Ref != "" || s.AnyOf != nil || s.OneOf != nil || s.AllOf != nil || s.Properties == nil {
				t.Errorf("%s: the top is no plain object", o.Spec().Name)
			}
			walkSchema(s, func(s *jsonschema.Schema) {
				text, err := json.Marshal(s)
				if err != nil || string(text) == "{}" || string(text) == "true" {
					t.Errorf("%s: an empty schema: %v", o.Spec().Name, err)
				}
				if slices.Contains(s.Types, "array") && len(s.Types) == 2 {
					t.Errorf("%s: a list may be null: %s", o.Spec().Name, text)
				}
				if strings.Contains(string(text), "$ref") {
					t.Errorf("%s: a reference: %s", o.Spec().Name, text)
				}
			})
		}
		walkSchema(o.InputSchema(), func(s *jsonschema.Schema) {
			if slices.Contains(s.Types, "null") && len(s.Types) == 2 {
				t.Errorf("%s: a tool is offered null", o.Spec().Name)
			}
		})
	}
	if got := everythingOp(t, nil).ToolName(false); got != "test_everything" || everythingOp(t, nil).ToolName(true) != "test.everything" {
		t.Errorf("tool name %s", got)
	}
}

func walkSchema(s *jsonschema.Schema, f func(*jsonschema.Schema)) {
	f(s)
	for _, p := range s.Properties {
		walkSchema(p, f)
	}
	if s.Items != nil {
		walkSchema(s.Items, f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		walkSchema(s.AdditionalProperties, f)
	}
}

func TestSay(t *testing.T) {
	o := New(Spec{Name: "test.say", Method: "GET", Path: "/v1/say", Access: Public, Summary: "Say.", Say: func(out any) string {
		return fmt.Sprintf("ok is %v", out.(done).OK)
	}}, func(context.Context, auth.Caller, struct{}) (done, error) { return done{true}, nil })
	res, err := (&Server{Logger: testServer(io.Discard).Logger}).Call(t.Context(), o, auth.Caller{}, nil, CallInfo{})
	if err != nil || res.Say != "ok is true" || string(res.JSON) != `{"ok":true}` || res.Value != (done{true}) {
		t.Errorf("%+v %v", res, err)
	}
}
