package sitebuild

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

func TestIsolated(t *testing.T) {
	t.Parallel()
	in := site("index.tsx", `export default () => <p>x</p>`, "a.md", "[[Ants]]")
	in.Notes = map[string]Note{"Ants": {Title: "Ants"}}
	out, err := Isolated(t.Context(), in, Limits{time.Minute, 512 << 20})
	if err != nil || !reflect.DeepEqual(out, Build(in)) {
		t.Errorf("%v %+v", err, out)
	}
	failed := site("index.tsx", `export default () => <p>`)
	if out, err = Isolated(t.Context(), failed, Limits{time.Minute, 512 << 20}); err != nil || !reflect.DeepEqual(out, Build(failed)) {
		t.Errorf("%v %+v", err, out)
	}
}

// Files that make a build endless, huge or break down fail their own build alone.
func TestLimits(t *testing.T) {
	t.Parallel()
	small := site("index.tsx", `export default () => <p>x</p>`)
	deep := strings.Repeat("[", 60<<10)
	var pairs []string
	for i := range 60 {
		pairs = append(pairs, string(rune('a'+i%26))+strings.Repeat("x", i)+".md", strings.Repeat("[", 60<<10))
	}
	for name, c := range map[string]struct {
		in   Input
		l    Limits
		want string
	}{
		"time":   {small, Limits{time.Millisecond, 512 << 20}, "took longer"},
		"memory": {small, Limits{time.Minute, 1 << 20}, "more memory"},
		"deep":   {site("index.html", "<script src=a.js></script>", "a.js", deep), DefaultLimits(), ""},
		"slow":   {site(pairs...), Limits{2 * time.Second, 512 << 20}, ""},
	} {
		out, err := Isolated(t.Context(), c.in, c.l)
		if err != nil || c.want != "" && (!out.Failed() || !strings.Contains(out.Log[0].Text, c.want)) {
			t.Errorf("%s: %v %+v", name, err, out.Log)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Isolated(ended, small, DefaultLimits()); !errors.Is(err, context.Canceled) {
		t.Errorf("a worker that stops: %v", err)
	}
}
