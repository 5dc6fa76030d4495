package op

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
)

type inner struct {
	List []string  `json:"list"`
	At   time.Time `json:"at"`
}

type answer struct {
	Paging
	ID      uuid.UUID         `json:"id"`
	Lists   [][]int           `json:"lists"`
	Inners  []inner           `json:"inners"`
	Points  []*inner          `json:"points"`
	ByName  map[string]inner  `json:"by_name"`
	Plain   map[string]string `json:"plain"`
	One     inner             `json:"one"`
	Maybe   *inner            `json:"maybe"`
	Gone    *inner            `json:"gone,omitempty"`
	Nothing []string          `json:"nothing,omitempty"`
	Zero    time.Time         `json:"zero,omitzero"`
	State   *string           `json:"state,omitempty" enum:"sent,failed"`
	Opt     Opt[[]string]     `json:"opt,omitzero"`
	Raw     json.RawMessage   `json:"raw,omitempty"`
	Text    string            `json:"text"`
}

// Whatever a handler answers fits the schema: no list is null, every time is in
// UTC. And the handler's own values stay as they were.
func TestAnswersFitTheirSchema(t *testing.T) {
	o := New(Spec{Name: "test.answer", Method: "GET", Path: "/v1/answer", Access: Public, Summary: "Answer."},
		func(context.Context, auth.Caller, struct{}) (answer, error) { return answer{}, nil })
	schema, err := o.OutputSchema().Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	berlin := time.Date(2026, 11, 30, 10, 0, 0, 5e8, time.FixedZone("CET", 3600))
	state := "sent"
	for name, in := range map[string]answer{
		"zero": {},
		"nil within": {
			Lists: [][]int{nil, {1}, nil}, Inners: []inner{{At: berlin}, {List: []string{"x"}}}, Points: []*inner{{At: berlin}},
			ByName: map[string]inner{"a": {At: berlin}}, One: inner{At: berlin}, Maybe: &inner{}, Gone: &inner{At: berlin}, State: &state,
			Opt: Some[[]string](nil), Raw: json.RawMessage(`{"a":null}`), Zero: berlin, Text: "<b>&\u2028",
		},
		"all there": {
			Lists: [][]int{{}}, Inners: []inner{}, Points: []*inner{}, ByName: map[string]inner{}, Plain: map[string]string{"k": "v"},
			Nothing: []string{"x"}, Opt: Opt[[]string]{},
		},
	} {
		before, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body, err := o.output.encode(in)
		if err != nil {
			t.Fatal(err)
		}
		var plain any
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(plain); err != nil {
			t.Errorf("%s: %v\n%s", name, err, body)
		}
		if strings.Contains(string(body), "+01:00") {
			t.Errorf("%s: a time is not in UTC: %s", name, body)
		}
		if after, _ := json.Marshal(in); string(after) != string(before) {
			t.Errorf("%s: the handler's value was changed\nfrom %s\nto   %s", name, before, after)
		}
		// but for lists and times it is what encoding/json says
		var got, want answer
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(before, &want); err != nil {
			t.Fatal(err)
		}
		if got.Text != want.Text || got.ID != want.ID || len(got.Lists) != len(want.Lists) || !got.One.At.Equal(want.One.At) || (got.Maybe == nil) != (want.Maybe == nil) ||
			!reflect.DeepEqual(got.Raw, want.Raw) || len(got.Nothing) != len(want.Nothing) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
	}
	body, err := o.output.encode(answer{One: inner{At: berlin}, Text: "<b>"})
	if err != nil || !strings.Contains(string(body), `"one":{"list":[],"at":"2026-11-30T09:00:00.5Z"}`) || !strings.Contains(string(body), `"text":"<b>"`) {
		t.Errorf("%s %v", body, err)
	}
}

func TestOptUpdatesAField(t *testing.T) {
	for text, want := range map[string]string{`{}`: "old", `{"v":null}`: "", `{"v":"new"}`: "new"} {
		var in struct {
			V Opt[string] `json:"v,omitzero"`
		}
		if err := json.Unmarshal([]byte(text), &in); err != nil || in.V.Or("old") != want {
			t.Errorf("%s: %q %v", text, in.V.Or("old"), err)
		}
		if again, err := json.Marshal(in); err != nil || string(again) != text {
			t.Errorf("%s becomes %s %v", text, again, err)
		}
	}
}

type position struct {
	At time.Time `json:"at"`
	ID uuid.UUID `json:"id"`
	S  string    `json:"s,omitempty"`
}

func TestCursors(t *testing.T) {
	want := position{time.Date(2026, 11, 30, 9, 0, 0, 1000, time.UTC), uuid.MustParse(anID), "日<"}
	cursor := EncodeCursor(want)
	var got position
	if err := DecodeCursor(cursor, &got); err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	var kept = want
	if err := DecodeCursor("", &kept); err != nil || kept != want {
		t.Errorf("%+v %v", kept, err)
	}
	for _, bad := range []string{
		"x", "!", cursor + "=", cursor[:len(cursor)-2], cursor + "AA", EncodeCursor(struct{}{}), EncodeCursor("text"), EncodeCursor([]int{1}),
		EncodeCursor(struct {
			ID uuid.UUID `json:"id"`
		}{}),
		EncodeCursor(struct {
			position
			X int `json:"x"`
		}{want, 1}),
		EncodeCursor(position{S: "a\x00"}), "bnVsbA", "e30K", " " + cursor,
	} {
		wantFault(t, DecodeCursor(bad, &position{}), 400, "bad_cursor", "cursor")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(EncodeCursor(position{}))
	f.Add("e30")
	f.Fuzz(func(t *testing.T, cursor string) {
		var p position
		if err := DecodeCursor(cursor, &p); err == nil && cursor != "" && EncodeCursor(p) != cursor {
			t.Errorf("%q is taken as %+v", cursor, p)
		}
	})
}

func BenchmarkEncodePage(b *testing.B) {
	type note struct {
		ID        uuid.UUID `json:"id"`
		Title     string    `json:"title"`
		Tags      []string  `json:"tags"`
		UpdatedAt time.Time `json:"updated_at"`
	}
	s, err := shapeOf(reflect.TypeFor[Page[note]](), "", nil)
	if err != nil {
		b.Fatal(err)
	}
	page := Page[note]{Items: make([]note, 50)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.encode(page); err != nil {
			b.Fatal(err)
		}
	}
}
