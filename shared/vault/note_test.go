package vault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	title := func(s string) *string { return &s }
	for source, want := range map[string]Note{
		"text":                                           {Body: "text"},
		"\uFEFFtext\r\n":                                 {Head: "\uFEFF", Body: "text\r\n"},
		"---\ntitle: T\n---\nb":                          {Head: "---\ntitle: T\n---\n", Body: "b", Title: title("T")},
		"---\r\ntitle: T\r\n---\r\nb":                    {Head: "---\r\ntitle: T\r\n---\r\n", Body: "b", Title: title("T")},
		"---\n---\nb":                                    {Head: "---\n---\n", Body: "b"},
		"---\ntitle: 2026\nslug: A b\n---\n":             {Head: "---\ntitle: 2026\nslug: A b\n---\n", Title: title("2026"), Slug: "A b"},
		"---\ntags: a, b c,#d\n---\n#e #a":               {Head: "---\ntags: a, b c,#d\n---\n", Body: "#e #a", Tags: []string{"a", "b", "c", "#d", "e"}},
		"---\ntags:\n  - a/b\n  - \"c d\"\n  -\n---\n":   {Head: "---\ntags:\n  - a/b\n  - \"c d\"\n  -\n---\n", Tags: []string{"a/b", "c d"}},
		"---\naliases: [x, y z]\nalias: w, v u\n---\n":   {Head: "---\naliases: [x, y z]\nalias: w, v u\n---\n", Aliases: []string{"x", "y z", "w", "v u"}},
		"---\ncssclasses: wide\nlang: de\nTitle:\n---\n": {Head: "---\ncssclasses: wide\nlang: de\nTitle:\n---\n"},
		"---\nx: &x [p, q]\ntags: *x\n---\n":             {Head: "---\nx: &x [p, q]\ntags: *x\n---\n", Tags: []string{"p", "q"}},
		"---\na break\n---\n":                            {Body: "---\na break\n---\n"},
	} {
		n, err := Parse([]byte(source))
		if err != nil || n.Head != want.Head || n.Body != want.Body || (n.Title == nil) != (want.Title == nil) || n.Title != nil && *n.Title != *want.Title ||
			n.Slug != want.Slug || !slices.Equal(n.Tags, want.Tags) || !slices.Equal(n.Aliases, want.Aliases) || len(n.Warnings) > 0 {
			t.Errorf("%q: %v %+v", source, err, n)
		}
	}
	for value, want := range map[string]Publishing{"true": Public, "Yes": Public, "\"true\"": Public, "false": Private, "off": Private, "coded": Coded, "": Unsaid, "~": Unsaid, "maybe": Unsaid, "[true]": Unsaid} {
		if n, err := Parse([]byte("---\npublish: " + value + "\n---\n")); err != nil || n.Publish != want {
			t.Errorf("publish %s: %v %q", value, err, n.Publish)
		}
	}
	for _, source := range []string{"---\ntitle: [\n---\ntext", "---\n- a: b\n---\ntext", "---\na: *none\n---\ntext", "---\nk: v\n" + strings.Repeat("x", MaxFrontMatter) + ": 1\n---\ntext", "---\na:\n\t- b: c\n---\ntext", "---\n" + strings.Repeat("a: {", 20_000) + "\n---\ntext"} {
		var broken *BrokenError
		if n, err := Parse([]byte(source)); !errors.As(err, &broken) || n.Body != source || n.Head != "" || n.Publish != Unsaid || strings.Contains(broken.Reason, "\n") {
			t.Errorf("%.40q: %v %.40q", source, err, n.Body)
		}
	}
	for _, source := range []string{"\xff", "a\x00b"} {
		if _, err := Parse([]byte(source)); !errors.Is(err, ErrText) {
			t.Errorf("%q: %v", source, err)
		}
	}
	many := "---\ntags: ["
	for i := range 60 {
		many += fmt.Sprintf("t%d,", i)
	}
	if n, err := Parse([]byte(many + "]\n---\n#inline")); err != nil || len(n.Tags) != MaxTags || len(n.Warnings) != 1 {
		t.Errorf("%v %d %v", err, len(n.Tags), n.Warnings)
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	// what is as the file says comes back byte by byte
	for _, source := range []string{
		"text #a", "---\ntitle:   T\ntags: [ x,y ] # why\nunknown: {a: [1,  2]}\n---\nbody\r\n", "---\n---\n", "---\ntitle: [\n---\nbroken", "\uFEFF---\npublish: yes\n---\nx",
	} {
		n, err := Parse([]byte(source))
		var broken *BrokenError
		if err != nil && !errors.As(err, &broken) {
			t.Fatal(err)
		}
		f := Facts{Title: "File", FileTitle: "File", Tags: n.Tags, Publish: n.Publish, Body: n.Body}
		if n.Title != nil {
			f.Title = *n.Title
		}
		f.Aliases = n.AllAliases(f.Title, "File")
		if f.Publish == Unsaid {
			f.Publish = Private
		}
		if got := string(Render(n.Head, f)); got != source {
			t.Errorf("%q came back as %q", source, got)
		}
	}
	head := "---\nunknown: {a: [1, 2]} # kept\ntag: a\nnested:\n  - b: c\npublish: true\n---\n"
	got := string(Render(head, Facts{Title: "C#: a \"title\"", FileTitle: "C-", Tags: []string{"x y", "true", "inline"}, Aliases: []string{"C-", "12"}, Publish: Private, Body: "#inline"}))
	for _, want := range []string{"unknown: {a: [1, 2]} # kept\n", "nested:\n", "- b: c\n", "publish: false\n", `tag: ["x y", "true"]`, `title: "C#: a \"title\""`} {
		if want == `tag: ["x y", "true"]` {
			want = "tag: ["
		}
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	n, err := Parse([]byte(got))
	if err != nil || *n.Title != "C#: a \"title\"" || !slices.Equal(n.Tags, []string{"x y", "true", "inline"}) || !slices.Equal(n.AllAliases(*n.Title, "C-"), []string{"12", "C-"}) || n.Publish != Private || n.Body != "#inline" {
		t.Errorf("%v %+v\n%s", err, n, got)
	}
	// a text that begins like front matter is none
	for _, body := range []string{"---\na: b\n---\nx", "---\n---\n", "\uFEFFx"} {
		got := Render("", Facts{Title: "T", FileTitle: "T", Body: body, Publish: Private})
		if n, err := Parse(got); err != nil || n.Body != body {
			t.Errorf("%q: %v %q", body, err, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := NewShelf([]Attachment{{Path: "a/x.png"}, {Path: "b/x.png"}, {Path: "b/c/y.png"}, {Path: "wiki/Bild Ü.png"}, {Path: "z.pdf"}})
	for _, c := range []struct{ from, target, want string }{
		{"a/n.md", "x.png", "a/x.png"}, {"b/n.md", "x.png", "b/x.png"}, {"n.md", "x.png", "?"}, {"n.md", "b/x.png", "b/x.png"}, {"a/n.md", "../b/x.png", "b/x.png"},
		{"a/n.md", "./x.png", "a/x.png"}, {"a/n.md", `..\b\x.png`, "b/x.png"}, {"n.md", "c/Y.PNG", "b/c/y.png"}, {"n.md", "bild u\u0308.png", "wiki/Bild Ü.png"}, {"", "z.pdf", "z.pdf"},
		{"a/n.md", "/z.pdf", "z.pdf"}, {"a/n.md", "../../../z.pdf", "z.pdf"}, {"n.md", "q.png", ""}, {"n.md", "y/x.png", ""}, {"n.md", "", ""}, {"n.md", "..", ""},
	} {
		a, found, ambiguous := s.Find(c.from, c.target)
		if got := a.Path; got != strings.Trim(c.want, "?") || found != (got != "") || ambiguous != (c.want == "?") {
			t.Errorf("%s in %s: %q %v %v", c.target, c.from, got, found, ambiguous)
		}
	}
}

// What is parsed and rendered says the same again, whatever it was.
func FuzzNote(f *testing.F) {
	for _, s := range []string{
		"text", "---\ntitle: T\ntags: [a, b/c]\naliases: x, y\npublish: true\nk: &a [1]\nl: *a\n---\n#d [[a|b]] ![[c.png|20]] %%x%%", "---\n? [a]\n: b\n---\n", "---\na: |\n  x\n---\n",
		"---\n---\n---\n", "---\ntitle: [\n---\n", "\uFEFF---\ntag: a\r\n---\r\n", "---\n{tags: [a], title: !!str x}\n---\nb", "---\nstandmeet: 01a2/3\n---\n", "---\n<<: {title: x}\n---\n",
	} {
		f.Add([]byte(s), "Title: x", "t u,v")
	}
	f.Fuzz(func(t *testing.T, source []byte, title, tag string) {
		n, err := Parse(source)
		var broken *BrokenError
		if errors.Is(err, ErrText) {
			return
		}
		if err != nil && !errors.As(err, &broken) || n.Head+n.Body != string(source) {
			t.Fatalf("%v: %q and %q", err, n.Head, n.Body)
		}
		if again, err := Parse([]byte(title)); err != nil || strings.ContainsAny(title, "\n\r") || again.Head != "" {
			title = "T"
		}
		if keyOf(tag) == "" || strings.TrimSpace(tag) != tag || strings.ContainsFunc(tag+title, func(r rune) bool {
			return r < ' ' || r == '\uFEFF' || r >= 0x7F && r < 0xA0 || r == 0x2028 || r == 0x2029 || r > 0xFFFF || r == 0xFFFE || r == 0xFFFF || r == 0xFFFD
		}) || len(tag) > MaxTag {
			tag, title = "t", "T"
		}
		facts := Facts{Title: strings.TrimSpace(title), FileTitle: "File", Tags: append([]string{tag}, n.inline...), Aliases: []string{"File", "other"}, Publish: Public, Body: n.Body}
		if facts.Title == "" {
			facts.Title = "T"
		}
		if len(n.inline) >= MaxTags {
			return
		}
		out := Render(n.Head, facts)
		m, err := Parse(out)
		if err != nil || m.Body != n.Body || m.Title == nil && facts.Title != "File" || m.Title != nil && *m.Title != facts.Title || m.Publish != Public || !Same(m.Tags, facts.Tags) {
			t.Fatalf("%v: rendered %q gives %+v of %+v", err, out, m, facts)
		}
		if twice := Render(m.Head, facts); string(twice) != string(out) {
			t.Fatalf("rendered again: %q, before %q", twice, out)
		}
	})
}
