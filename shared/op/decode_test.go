package op

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
)

var owner = auth.Caller{Kind: auth.Owner, OwnerID: uuid.MustParse("018f0000-0000-7000-8000-000000000001"), Scopes: []string{auth.AllScopes}}

type file struct {
	Path string `json:"path" minLength:"1" maxLength:"20"`
	Size int32  `json:"size,omitempty" minimum:"-5"`
}

// everything holds each kind of field with each rule.
type everything struct {
	Genre   string           `json:"genre" enum:"raw,wiki,output" jsonschema:"Which kind of note."`
	Title   string           `json:"title" minLength:"1" maxLength:"5"`
	Count   int              `json:"count,omitempty" minimum:"-3" maximum:"7"`
	Small   uint8            `json:"small,omitempty"`
	Ratio   float64          `json:"ratio,omitempty" minimum:"0.5" maximum:"2"`
	Flag    bool             `json:"flag,omitempty"`
	Tags    []string         `json:"tags,omitempty" maxItems:"3" maxLength:"4"`
	Numbers []int            `json:"numbers,omitempty" minimum:"0"`
	Files   []file           `json:"files,omitempty" maxItems:"2"`
	Extra   map[string]int   `json:"extra,omitempty" maxItems:"2" maximum:"9"`
	One     *file            `json:"one,omitempty"`
	Label   Opt[string]      `json:"label,omitzero" maxLength:"4"`
	Grade   Opt[string]      `json:"grade,omitzero" enum:"a,b"`
	Level   Opt[int]         `json:"level,omitzero" maximum:"3"`
	Parent  Opt[uuid.UUID]   `json:"parent,omitzero"`
	At      *time.Time       `json:"at,omitempty"`
	Names   Opt[[]string]    `json:"names,omitzero" maxItems:"1"`
	Any     *json.RawMessage `json:"any,omitempty"`
	Limit   int              `json:"limit,omitempty" default:"50" minimum:"1" maximum:"200"`
}

type done struct {
	OK bool `json:"ok"`
}

func everythingOp(t testing.TB, see func(everything)) *Operation {
	t.Helper()
	return New(Spec{
		Name: "test.everything", Method: "POST", Path: "/v1/everything", Scope: "test:write", Summary: "Take everything.",
	}, func(_ context.Context, _ auth.Caller, in everything) (done, error) {
		if see != nil {
			see(in)
		}
		return done{true}, nil
	})
}

// strict decodes body as the HTTP face does.
func strict(o *Operation, body string) (everything, error) {
	in, _, err := o.decodeHTTP(httptest.NewRequest(http.MethodPost, "/v1/everything", nil), []byte(body), nil)
	if err != nil {
		return everything{}, err
	}
	return *in.(*everything), nil
}

func lenient(o *Operation, args string) (everything, error) {
	in, _, err := o.decodeArgs([]byte(args))
	if err != nil {
		return everything{}, err
	}
	return *in.(*everything), nil
}

// wantFault checks err's code, and the field it names unless that is empty.
func wantFault(t *testing.T, err error, status int, code, name string) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) {
		t.Fatalf("error %v, want %s", err, code)
	}
	if f.Status() != status || f.Code != code {
		t.Fatalf("%d %s (%v), want %d %s", f.Status(), f.Code, f, status, code)
	}
	if name != "" && (len(f.Fields) != 1 || f.Fields[0].Name != name || f.Fields[0].Code != code) {
		t.Fatalf("fields %+v, want %s at %s", f.Fields, code, name)
	}
}

func TestEveryRuleIsEnforced(t *testing.T) {
	o := everythingOp(t, nil)
	with := func(member string) string {
		parts := []string{`"genre":"wiki"`, `"title":"t"`}
		name, _, _ := strings.Cut(member, ":")
		parts = slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, name+":") })
		return "{" + strings.Join(append(parts, member), ",") + "}"
	}
	for _, c := range []struct{ member, code, field string }{
		{`"genre":"Wiki"`, "not_allowed", "genre"},
		{`"genre":""`, "not_allowed", "genre"},
		{`"genre":null`, "wrong_type", "genre"},
		{`"title":""`, "too_short", "title"},
		{`"title":"123456"`, "too_long", "title"},
		{`"title":"日本語日本語"`, "too_long", "title"},
		{`"title":7`, "wrong_type", "title"},
		{`"title":"\u0000"`, "invalid_text", "title"},
		{`"title":"\ud83d"`, "invalid_text", "title"},
		{`"title":"\ude00"`, "invalid_text", "title"},
		{`"title":"\ud83dx"`, "invalid_text", "title"},
		{`"title":"\ud83d\u0041"`, "invalid_text", "title"},
		{`"Title":"t"`, "unknown_field", "Title"},
		{`"":"t"`, "unknown_field", `""`},
		{`"count":-4`, "too_small", "count"},
		{`"count":8`, "too_large", "count"},
		{`"count":1.5`, "wrong_type", "count"},
		{`"count":"5"`, "wrong_type", "count"},
		{`"count":true`, "wrong_type", "count"},
		{`"count":null`, "wrong_type", "count"},
		{`"small":256`, "too_large", "small"},
		{`"small":-1`, "too_small", "small"},
		{`"ratio":0.4`, "too_small", "ratio"},
		{`"ratio":1e400`, "too_large", "ratio"},
		{`"flag":"true"`, "wrong_type", "flag"},
		{`"flag":1`, "wrong_type", "flag"},
		{`"tags":["a","b","c","d"]`, "too_many", "tags"},
		{`"tags":["a","abcde"]`, "too_long", "tags[1]"},
		{`"tags":["a",null]`, "wrong_type", "tags[1]"},
		{`"tags":"[\"a\"]"`, "wrong_type", "tags"},
		{`"tags":{}`, "wrong_type", "tags"},
		{`"numbers":[1,-1]`, "too_small", "numbers[1]"},
		{`"files":[{"path":"p","oops":1}]`, "unknown_field", "files[0].oops"},
		{`"files":[{"path":"p"},{"size":1}]`, "missing_field", "files[1].path"},
		{`"files":[{"path":"p","path":"q"}]`, "duplicate_field", "files[0].path"},
		{`"files":[{"path":"p","size":2147483648}]`, "too_large", "files[0].size"},
		{`"extra":{"a":1,"b":2,"c":3}`, "too_many", "extra"},
		{`"extra":{"a":10}`, "too_large", "extra.a"},
		{`"extra":{"a":1,"a":2}`, "duplicate_field", "extra.a"},
		{`"one":{"path":""}`, "too_short", "one.path"},
		{`"label":"12345"`, "too_long", "label"},
		{`"grade":""`, "not_allowed", "grade"},
		{`"grade":"c"`, "not_allowed", "grade"},
		{`"level":4`, "too_large", "level"},
		{`"parent":"nope"`, "invalid_format", "parent"},
		{`"parent":"018f000000007000800000000000000a"`, "invalid_format", "parent"},
		{`"at":"2026-11-30"`, "invalid_format", "at"},
		{`"at":"2026-02-30T09:00:00Z"`, "invalid_format", "at"},
		{`"names":["a","b"]`, "too_many", "names"},
		{`"any":{"a":"\u0000"}`, "invalid_text", "any"},
		{`"limit":0`, "too_small", "limit"},
		{`"limit":201`, "too_large", "limit"},
		{`"wait_seconds":1`, "unknown_field", "wait_seconds"},
		{`"idempotency_key":"k"`, "unknown_field", "idempotency_key"},
		{`"title":"a","title":"b"`, "duplicate_field", "title"},
		{`"title":"a","\u0074itle":"b"`, "duplicate_field", "title"},
	} {
		t.Run(c.member, func(t *testing.T) {
			_, err := strict(o, with(c.member))
			wantFault(t, err, 400, c.code, c.field)
		})
	}
	_, err := strict(o, `{"genre":"wiki"}`)
	wantFault(t, err, 400, "missing_field", "title")
	_, err = strict(o, `{"genre":"x","oops":1}`)
	wantFault(t, err, 400, "invalid_request", "")
	if f := fault.From(err); len(f.Fields) != 3 {
		t.Errorf("not every fault is told: %+v", f.Fields)
	}
	_, err = strict(o, `{"genre":"wiki","title":"t"`+strings.Repeat(`,"x":1`, 1000)+"}")
	if f := fault.From(err); len(f.Fields) != maxFaults {
		t.Errorf("%d faults are told", len(f.Fields))
	}
}

func TestMalformedBodies(t *testing.T) {
	o := everythingOp(t, nil)
	for _, body := range []string{
		`{`, `{"genre":"wiki","title":"t"} x`, `{"genre":"wiki","title":"t"}{}`, `{"genre":"wiki",}`, `{genre:"wiki"}`,
		`{'genre':'wiki'}`, `{"title":"` + "\x01" + `"}`, "{\"title\":\"\xff\"}", `{"count":01}`, `{"count":+1}`, `{"count":NaN}`,
		`{"title":"\x41"}`, "\ufeff{}", strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
	} {
		_, err := strict(o, body)
		wantFault(t, err, 400, "malformed_json", "")
		_, err = lenient(o, body)
		wantFault(t, err, 400, "malformed_json", "")
	}
	for _, body := range []string{`[]`, `"x"`, `1`, `true`} {
		_, err := strict(o, body)
		wantFault(t, err, 400, "wrong_type", "")
		_, err = lenient(o, body)
		wantFault(t, err, 400, "wrong_type", "")
	}
	_, err := strict(o, `null`)
	wantFault(t, err, 400, "wrong_type", "")
}

func TestDecodedValues(t *testing.T) {
	o := everythingOp(t, nil)
	got, err := strict(o, ` { "genre" : "wiki", "title":"\"\\\n\u00e9😀"
		, "count":5.0, "small":255, "ratio":1e0, "flag":true, "tags":[ "a" , "b" ], "numbers":[], "files":[{"path":"p","size":-5}],
		"extra":{"\u0061":1}, "one":{"path":"x"}, "label":null, "level":2, "parent":"018F0000-0000-7000-8000-00000000000a",
		"at":"2026-11-30T10:00:00+01:00", "names":[], "any":{"z":[1, 2]} }`)
	if err != nil {
		t.Fatal(err)
	}
	raw := json.RawMessage(`{"z":[1, 2]}`)
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	if got.At == nil || !got.At.Equal(at) {
		t.Errorf("at %v", got.At)
	}
	got.At = &at
	want := everything{
		Genre: "wiki", Title: "\"\\\né😀", Count: 5, Small: 255, Ratio: 1, Flag: true, Tags: []string{"a", "b"}, Numbers: []int{},
		Files: []file{{"p", -5}}, Extra: map[string]int{"a": 1}, One: &file{Path: "x"},
		Label: Opt[string]{Set: true, Null: true}, Level: Some(2), Parent: Some(uuid.MustParse("018f0000-0000-7000-8000-00000000000a")),
		At: &at, Names: Some([]string{}), Any: &raw, Limit: 50,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %+v\nwant %+v", got, want)
	}
	for text, want := range map[string]Opt[string]{
		`{"genre":"wiki","title":"t"}`:               {},
		`{"genre":"wiki","title":"t","label":null}`:  {Set: true, Null: true},
		`{"genre":"wiki","title":"t","label":""}`:    {Set: true, Null: true},
		`{"genre":"wiki","title":"t","label":"new"}`: {Set: true, Value: "new"},
	} {
		if got, err := strict(o, text); err != nil || got.Label != want {
			t.Errorf("%s: label %+v, %v", text, got.Label, err)
		}
	}
}

// What MCP clients send although the schema says otherwise (case P4).
func TestLenientArguments(t *testing.T) {
	o := everythingOp(t, nil)
	base := everything{Genre: "wiki", Title: "t", Limit: 50}
	with := func(change func(*everything)) everything {
		e := base
		change(&e)
		return e
	}
	for args, want := range map[string]everything{
		`{"genre":"wiki","title":"t","tags":null,"count":null,"label":null,"one":null,"limit":null,"names":null}`: base,
		`{"genre":"wiki","title":"t","label":""}`:                         with(func(e *everything) { e.Label = Opt[string]{Set: true, Null: true} }),
		`{"genre":"wiki","title":"00713"}`:                                with(func(e *everything) { e.Title = "00713" }),
		`{"genre":"wiki","title":713}`:                                    with(func(e *everything) { e.Title = "713" }),
		`{"genre":"wiki","title":"[1]"}`:                                  with(func(e *everything) { e.Title = "[1]" }),
		`{"genre":"wiki","title":"true"}`:                                 with(func(e *everything) { e.Title = "true" }),
		`{"genre":"wiki","title":"t","limit":"5"}`:                        with(func(e *everything) { e.Limit = 5 }),
		`{"genre":"wiki","title":"t","flag":"true"}`:                      with(func(e *everything) { e.Flag = true }),
		`{"genre":"wiki","title":"t","ratio":"1.5"}`:                      with(func(e *everything) { e.Ratio = 1.5 }),
		`{"genre":"wiki","title":"t","tags":"[\"a\",\"b\"]"}`:             with(func(e *everything) { e.Tags = []string{"a", "b"} }),
		`{"genre":"wiki","title":"t","numbers":["1",2]}`:                  with(func(e *everything) { e.Numbers = []int{1, 2} }),
		`{"genre":"wiki","title":"t","files":"[{\"path\":\"p\"}]"}`:       with(func(e *everything) { e.Files = []file{{Path: "p"}} }),
		`{"genre":"wiki","title":"t","one":"{\"path\":7}"}`:               with(func(e *everything) { e.One = &file{Path: "7"} }),
		`{"genre":"wiki","title":"t","level":"2"}`:                        with(func(e *everything) { e.Level = Some(2) }),
		`{"genre":"wiki","title":"t","names":"[\"x\"]","extra":"{}"}`:     with(func(e *everything) { e.Names = Some([]string{"x"}); e.Extra = map[string]int{} }),
		`{"genre":"wiki","title":"t","files":[{"path":"p","size":null}]}`: with(func(e *everything) { e.Files = []file{{Path: "p"}} }),
	} {
		if got, err := lenient(o, args); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %+v %v\nwant %+v", args, got, err, want)
		}
	}
	for _, c := range []struct{ args, code, field string }{
		{`{"genre":"wiki","title":"t","limit":" 5"}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","limit":"5 "}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","limit":"05"}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","limit":"five"}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","limit":""}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","limit":"\"5\""}`, "wrong_type", "limit"},
		{`{"genre":"wiki","title":"t","flag":"True"}`, "wrong_type", "flag"},
		{`{"genre":"wiki","title":"t","flag":"1"}`, "wrong_type", "flag"},
		{`{"genre":"wiki","title":"t","tags":"a,b"}`, "wrong_type", "tags"},
		{`{"genre":"wiki","title":"t","tags":"[\"a\""}`, "wrong_type", "tags"},
		{`{"genre":"wiki","title":"t","tags":["a",null]}`, "wrong_type", "tags[1]"},
		{`{"genre":"wiki","title":1.5}`, "wrong_type", "title"},
		{`{"genre":"wiki","title":true}`, "wrong_type", "title"},
		{`{"genre":"wiki","title":null}`, "missing_field", "title"},
		{`{"genre":"wiki","title":""}`, "too_short", "title"},
		{`{"genre":"wiki","title":"t","files":"[{}]"}`, "missing_field", "files[0].path"},
	} {
		_, err := lenient(o, c.args)
		wantFault(t, err, 400, c.code, c.field)
	}
	for _, args := range []string{"", "null", " null ", "{}"} {
		_, err := lenient(o, args)
		wantFault(t, err, 400, "missing_field", "")
	}
	id, err := lenient(o, `{"genre":"wiki","title":"t","files":[{"path":9007199254740993}]}`)
	if err != nil || id.Files[0].Path != "9007199254740993" {
		t.Errorf("an id's digits are lost: %+v %v", id.Files, err)
	}
}

// The decoder accepts what the schema accepts, and nothing else: the schema is
// judged by another implementation.
func TestSchemaSaysWhatIsEnforced(t *testing.T) {
	o := everythingOp(t, nil)
	body, err := o.body.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	args, err := o.InputSchema().Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	const rounds = 10000
	for range rounds {
		value := randomObject(rng, o.input)
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			t.Fatal(err)
		}
		valid := body.Validate(plain)
		_, refused := strict(o, string(text))
		if (valid == nil) != (refused == nil) {
			t.Fatalf("%s\nschema:  %v\ndecoder: %v", text, valid, refused)
		}
		if refused == nil {
			accepted++
		}
		if args.Validate(plain) == nil {
			if _, err := lenient(o, string(text)); err != nil {
				t.Fatalf("%s\nthe tool's schema allows it, but: %v", text, err)
			}
		}
	}
	if accepted < rounds/20 || accepted > rounds*19/20 {
		t.Errorf("%d of %d were accepted: the values are no test", accepted, rounds)
	}
}

// randomObject makes an object near the table's: most of it right.
func randomObject(rng *rand.Rand, tb *table) map[string]any {
	out := map[string]any{}
	for _, f := range tb.fields {
		if f.required && rng.IntN(100) > 0 || !f.required && rng.IntN(4) == 0 {
			out[f.name] = randomValue(rng, f.shape)
		}
	}
	if rng.IntN(60) == 0 {
		out["unknown"] = 1
	}
	return out
}

func randomValue(rng *rand.Rand, s *shape) any {
	if rng.IntN(40) == 0 {
		wrong := []any{nil, 1, 1.5, true, []any{}, map[string]any{}, "", "x"}
		if s.format != "" { // to a schema a format is a note
			wrong = wrong[:6]
		}
		return wrong[rng.IntN(len(wrong))]
	}
	if s.wrap != plain && rng.IntN(5) == 0 {
		return nil
	}
	switch s.kind {
	case kindString:
		switch {
		case s.format == "uuid":
			return uuid.NewString()
		case s.format == "date-time":
			return time.Unix(rng.Int64N(1e9), 0).UTC().Format(time.RFC3339)
		case s.rules.enum != nil && rng.IntN(30) > 0:
			return s.rules.enum[rng.IntN(len(s.rules.enum))]
		}
		text := []rune("aé日😀\n\"\\<")
		var b strings.Builder
		least := s.rules.minLength
		for range least + rng.IntN(5) {
			b.WriteRune(text[rng.IntN(len(text))])
		}
		if b.Len() == 0 {
			return "a"
		}
		return b.String()
	case kindInteger:
		return rng.IntN(14) - 3
	case kindNumber:
		return float64(rng.IntN(40)) / 16
	case kindBoolean:
		return rng.IntN(2) == 0
	case kindArray:
		list := []any{}
		for range rng.IntN(4) {
			list = append(list, randomValue(rng, s.elem))
		}
		return list
	case kindMap:
		m := map[string]any{}
		for i := range rng.IntN(4) {
			m[string(rune('a'+i))] = randomValue(rng, s.elem)
		}
		return m
	case kindObject:
		return randomObject(rng, s.fields)
	}
	return map[string]any{"k": rng.IntN(3)}
}

func FuzzDecode(f *testing.F) {
	o := everythingOp(f, nil)
	for _, seed := range []string{
		`{}`, ``, `null`, `[1,{"a":[]}]`, `{"genre":"wiki","title":"t"}`, `{"genre":"wiki","title":"\ud83d\ude00"}`, `{"title":"\\\"","x":{"y":"]}"}}`,
		`{"genre":"wiki","title":"t","tags":["a","\u00e9"],"files":[{"path":"p","size":1}],"extra":{"a":1},"any":[1,2],"at":"2026-11-30T10:00:00Z"}`,
		`{"genre":"wiki","title":"t","tags":"[\"a\"]","limit":"5","one":"{}"}`, `{"a":-1.5e+3 , "b":[ ] }`, "{\"\\u0061\":\"\\ud800\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if (checkJSON(b) == nil) != (json.Valid(b) && utf8.Valid(b)) {
			t.Fatalf("%q: validity", b)
		}
		_, lenientErr := lenient(o, string(b))
		got, err := strict(o, string(b))
		for _, err := range []error{err, lenientErr} {
			if err != nil && fault.From(err).Status() >= 500 {
				t.Fatalf("%q: %v", b, err)
			}
		}
		if err != nil || len(bytes.TrimSpace(b)) == 0 {
			return
		}
		if lenientErr != nil && !bytes.Contains(b, []byte("null")) {
			t.Fatalf("%q: strict takes what lenient refuses: %v", b, lenientErr)
		}
		// what is accepted means what encoding/json says it means
		want := everything{Limit: 50}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			if bytes.ContainsAny(b, ".eE") { // 5.0 is a whole number in JSON Schema
				return
			}
			t.Fatalf("%q: encoding/json refuses it: %v", b, err)
		}
		if want.Label.Set && want.Label.Value == "" {
			want.Label.Null = true
		}
		if want.Parent.Set && want.Parent.Value == uuid.Nil && got.Parent.Null {
			want.Parent.Null = true
		}
		if want.Any != nil && string(*want.Any) == "null" {
			want.Any = nil
		}
		if (got.At == nil) != (want.At == nil) || got.At != nil && !got.At.Equal(*want.At) {
			t.Fatalf("%q: at %v, want %v", b, got.At, want.At)
		}
		got.At, want.At = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\ngot  %+v\nwant %+v", b, got, want)
		}
	})
}

func FuzzUnquote(f *testing.F) {
	for _, seed := range []string{`""`, `"a\"b"`, `"\\"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\u0000"`, `"\/\b\f\n\r\t"`, `"日本"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != '"' || checkJSON(b) != nil || space(b, stringEnd(b, 0)) != len(b) {
			return
		}
		b = b[:stringEnd(b, 0)]
		var want string
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		got, ok := unquote(b)
		broken := strings.ContainsRune(want, 0) || strings.Count(want, "\ufffd") > strings.Count(string(b), "\ufffd")+strings.Count(strings.ToLower(string(b)), `\ufffd`)
		switch {
		case ok && broken && !bytes.Contains(b, []byte(`\\u`)):
			t.Fatalf("%q is accepted as %q", b, got)
		case ok && got != want:
			t.Fatalf("%q is %q, want %q", b, got, want)
		case !ok && !broken:
			t.Fatalf("%q is refused", b)
		}
	})
}

func TestPathIDs(t *testing.T) {
	type in struct {
		ID    uuid.UUID `json:"id" path:"id"`
		Slug  string    `json:"slug" path:"slug" maxLength:"5"`
		Again bool      `json:"again,omitempty"`
	}
	o := New(Spec{Name: "test.path", Method: "POST", Path: "/v1/x/{id}/{slug}", Scope: "test:read", Summary: "Path."},
		func(context.Context, auth.Caller, in) (done, error) { return done{true}, nil })
	for args, code := range map[string]string{
		`{"id":"018f0000-0000-7000-8000-000000000001","slug":"a"}`:       "",
		`{"id":"nope","slug":"a"}`:                                       "not_found",
		`{"id":7,"slug":"a"}`:                                            "not_found",
		`{"id":"018f0000-0000-7000-8000-000000000001","slug":"toolong"}`: "not_found",
		`{"id":"nope","slug":"a","oops":1}`:                              "not_found",
		`{"id":["a"],"slug":"a"}`:                                        "wrong_type",
		`{"slug":"a"}`:                                                   "missing_field",
	} {
		_, err := o.Call(t.Context(), owner, json.RawMessage(args), CallInfo{})
		if got := fault.From(err); (got == nil) != (code == "") || got != nil && got.Code != code {
			t.Errorf("%s: %v, want %q", args, err, code)
		}
	}
}

// A declaration that can't work is refused when it is made.
func TestBadDeclarations(t *testing.T) {
	good := Spec{Name: "test.op", Method: "POST", Path: "/v1/op", Scope: "test:write", Summary: "Do it."}
	spec := func(change func(*Spec)) Spec {
		s := good
		change(&s)
		return s
	}
	type loop struct {
		Next []struct {
			Deep *struct{} `json:"deep"`
		} `json:"next"`
	}
	for name, declare := range map[string]func(){
		"name":              func() { declareAs[struct{}](spec(func(s *Spec) { s.Name = "Test" })) },
		"no dot":            func() { declareAs[struct{}](spec(func(s *Spec) { s.Name = "test" })) },
		"no scope":          func() { declareAs[struct{}](spec(func(s *Spec) { s.Scope = "" })) },
		"public with scope": func() { declareAs[struct{}](spec(func(s *Spec) { s.Access = Public })) },
		"no summary":        func() { declareAs[struct{}](spec(func(s *Spec) { s.Summary = "" })) },
		"tool, no text":     func() { declareAs[struct{}](spec(func(s *Spec) { s.Tool = &Tool{} })) },
		"no path":           func() { declareAs[struct{}](spec(func(s *Spec) { s.Path = "" })) },
		"param not in":      func() { declareAs[struct{}](spec(func(s *Spec) { s.Path = "/v1/{id}" })) },
		"param not path": func() {
			declareAs[struct {
				ID string `json:"id" path:"id"`
			}](good)
		},
		"wait over timeout": func() { declareAs[struct{}](spec(func(s *Spec) { s.MaxWait = time.Minute })) },
		"no json name":      func() { declareAs[struct{ ID string }](good) },
		"opt, no omitzero": func() {
			declareAs[struct {
				ID Opt[string] `json:"id"`
			}](good)
		},
		"taken": func() {
			declareAs[struct {
				Paging
				Most int `json:"limit"`
			}](good)
		},
		"control taken": func() {
			declareAs[struct {
				W int `json:"wait_seconds"`
			}](spec(func(s *Spec) { s.MaxWait = time.Second }))
		},
		"rule of another kind": func() {
			declareAs[struct {
				N int `json:"n" maxLength:"3"`
			}](good)
		},
		"bad number": func() {
			declareAs[struct {
				N int `json:"n" maximum:"x"`
			}](good)
		},
		"bad default": func() {
			declareAs[struct {
				N int `json:"n" default:"9" maximum:"3"`
			}](good)
		},
		"default of no JSON": func() {
			declareAs[struct {
				N int `json:"n" default:"x"`
			}](good)
		},
		"any": func() {
			declareAs[struct {
				N any `json:"n"`
			}](good)
		},
		"bytes": func() {
			declareAs[struct {
				N []byte `json:"n"`
			}](good)
		},
		"own JSON": func() {
			declareAs[struct {
				N *jsonschema.Schema `json:"n"`
			}](good)
		},
		"list in a header": func() {
			declareAs[struct {
				N []string `json:"n" header:"X"`
			}](good)
		},
		"object in a query": func() {
			declareAs[struct {
				N file `json:"n" query:"x"`
			}](good)
		},
		"holds itself": func() { declareAs[recursive](good) },
		"not a struct": func() { declareAs[string](good) },
	} {
		func() {
			defer func() {
				if v := recover(); v == nil {
					t.Errorf("%s is accepted", name)
				} else if !strings.Contains(fmt.Sprint(v), "op: ") {
					t.Errorf("%s: %v", name, v)
				}
			}()
			declare()
		}()
	}
	declareAs[loop](good)
}

type recursive struct {
	Children []recursive `json:"children"`
}

func declareAs[In any](s Spec) *Operation {
	return New(s, func(context.Context, auth.Caller, In) (done, error) { return done{}, nil })
}

func createBody() []byte {
	body, _ := json.Marshal(map[string]any{
		"genre": "wiki", "title": "A note", "tags": []string{"one", "two"}, "aliases": []string{}, "visibility": "private",
		"body": strings.Repeat("A line of **Markdown** text, with words.\n", 48),
	})
	return body
}

type createIn struct {
	Genre      string      `json:"genre" enum:"raw,wiki,output"`
	Title      string      `json:"title,omitempty" maxLength:"300"`
	Body       string      `json:"body" maxLength:"1048576"`
	ParentID   Opt[string] `json:"parent_id,omitzero"`
	Tags       []string    `json:"tags,omitempty" maxItems:"50" maxLength:"100"`
	Aliases    []string    `json:"aliases,omitempty" maxItems:"50" maxLength:"300"`
	Visibility string      `json:"visibility,omitempty" enum:"private,coded,public" default:"private"`
}

func BenchmarkDecodeCreate(b *testing.B) {
	o := declareAs[createIn](Spec{Name: "corpus.create", Method: "POST", Path: "/v1/corpus", Scope: "corpus:write", Summary: "Create."})
	body := createBody()
	r := httptest.NewRequest(http.MethodPost, "/v1/corpus", nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := o.decodeHTTP(r, body, nil); err != nil {
			b.Fatal(err)
		}
	}
}
