package text

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestExtractPlain(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"blocks are lines", "# Title\n\nA *b* __c__\n   d\\\ne\n***\n> quote\n", "Title\nA b c d e\nquote"},
		{"white space", "a \t b&nbsp;c\u3000d\u2003e", "a b c d e"},
		{"front matter", "---\ntitle: hidden\ntags: [x]\n---\nbody", "body"},
		{"front matter with dots and BOM", "\uFEFF---\r\ntitle: hidden\r\n...\r\nbody", "body"},
		{"empty front matter", "---\n---\nbody", "body"},
		{"thematic break is no front matter", "---\nwords of the note\n\n---\nrest", "words of the note\nrest"},
		{"front matter that never ends", "---\ntitle: x\nbody", "title: x body"},
		{"table", "| a | b |\n|---|:-:|\n| c \\| d | `e\\|f` |\n", "a b\nc | d e|f"},
		{"table with wikilink", "|a|b|\n|-|-|\n|[[x\\|y]]|z|\n", "a b\ny z"},
		{"strikethrough and highlight", "~~gone~~ ==marked== a == b", "gone marked a == b"},
		{"tasks", "- [ ] open\n- [x] done\n- [link](http://a.b)", "open\ndone\nlink\nhttp://a.b"},
		{"bracketed text in a list is no task", "- [y] a", "[y] a"},
		{"footnotes", "word[^1] next[^none]\n\n[^1]: The note\n", "word next[^none]\nThe note"},
		{"code", "`a  b`\n\n```go\nfunc  main() {\n\n}\n```\n\n    indented  code\n", "a b\nfunc main() {\n}\nindented code"},
		{"html", "<div class=\"x>y\">a<b>b</b><br>c &lt;d&gt;</div>\n<script>no()</script>\n\ninline <i>e</i> <!-- gone --> f", "ab c <d>\ninline e f"},
		{"html image", "<p><img src=x alt=\"the &amp; picture\"></p>", "the & picture"},
		{"html comment unclosed", "<!-- [[a]] never closed", ""},
		{"entities and escapes", "&amp; &copy; &#65; \\*a\\* &notanentity; AT&T \\x", "& © A *a* &notanentity; AT&T \\x"},
		{"nul and surrogates", "a\x00b &#0; &#xD800;", "a b \uFFFD \uFFFD"},
		{"invalid utf-8", "a\xff\xfeb", "a\uFFFDb"},
		{"links keep their text, addresses come last", "See [the docs](https://x.org/a?q=1#f) for more.\n\nEnd", "See the docs for more.\nEnd\nhttps://x.org/a"},
		{"bare and automatic links", "https://x.org/a_b_c <https://y.org> [https://z.org](https://z.org)", "https://x.org/a_b_c https://y.org https://z.org"},
		{"reference links", "[text][ref] and [ref]\n\n[ref]: https://x.org 'title'\n", "text and ref\nhttps://x.org"},
		{"images", "![alt text](a.png) ![x](https://img.org/b.svg)", "alt text x"},
		{"wikilinks", "[[a]] [[a|b c]] [[a#h]] [[#h]] [[a#^id]] ![[img.png|200]] [[ a | b ]]", "a b c a > h h a img.png b"},
		{"not wikilinks", "[[]] [[ ]] [[a\nb]] \\[[c]] [[a[b]]", "[[]] [[ ]] [[a b]] [[c]] [[a[b]]"},
		{"comments", "a %%b%% c\n\n%%\nd\n\n- e\n%%\nf %% g", "a c\nf %% g"},
		{"callout", "> [!note]+ Title\n> text\n\n> [not a callout]", "Title text\n[not a callout]"},
		{"Chinese lines join", "部署\n方案 a\nb\n\n한국어\n문장", "部署方案 a b\n한국어 문장"},
		{"windows line ends", "a\r\nb\r\n\r\nc\r\n", "a b\nc"},
	} {
		if got := Extract([]byte(tc.in)).Plain; got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
	}
}

func TestExtractHeadings(t *testing.T) {
	got := Extract([]byte("# A *b* [[c|d]] #\n\nSetext\n---\n\n> ### In [e](f)\n\n#\n")).Headings
	want := []Heading{{1, "A b d"}, {2, "Setext"}, {3, "In e"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExtractLinks(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []Link
	}{
		{"[[a]]", []Link{{Target: "a", Text: "a"}}},
		{"[[a|b]] [[a |b]] [[a\\|b]] [[ a | b ]]", slices.Repeat([]Link{{Target: "a", Text: "b"}}, 4)},
		{"[[a|]]", []Link{{Target: "a", Text: "a"}}},
		{"[[a#h]] [[a#h1#h2]]", []Link{{Target: "a", Whole: "a#h", Heading: "h", Text: "a > h"}, {Target: "a", Whole: "a#h1#h2", Heading: "h2", Text: "a > h2"}}},
		{"[[a^id]] [[a#^id]]", []Link{{Target: "a", Whole: "a^id", Block: "id", Text: "a"}, {Target: "a", Whole: "a#^id", Block: "id", Text: "a"}}},
		{"[[C#]] [[ C# |c sharp]] [[C # x]]", []Link{{Target: "C", Whole: "C#", Text: "C#"}, {Target: "C", Whole: "C#", Text: "c sharp"}, {Target: "C", Whole: "C # x", Heading: "x", Text: "C > x"}}},
		{"[[#h]] [[#^id]] [[##h]]", []Link{{Heading: "h", Text: "h"}, {Block: "id", Text: "id"}, {Heading: "h", Text: "h"}}},
		{"![[img.png|200]] ![[dir/Note#h]]", []Link{{Target: "img.png", Text: "200", Embed: true}, {Target: "dir/Note", Whole: "dir/Note#h", Heading: "h", Text: "dir/Note > h", Embed: true}}},
		{`[[wiki\sub\a]] [[日本 語]]`, []Link{{Target: `wiki\sub\a`, Text: `wiki\sub\a`}, {Target: "日本 語", Text: "日本 語"}}},
		{"`[[a]]` \\[\\[a]] %%[[a]]%% <!-- [[a]] -->\n\n    [[a]]\n\n```\n[[a]]\n```\n", nil},
		{"[a](b.md) [c](d%20e.md#f%20g) ![i](x.png) [s](#h)", []Link{
			{Target: "b.md", Text: "a"}, {Target: "d e.md", Heading: "f g", Text: "c"}, {Target: "x.png", Text: "i", Embed: true}, {Heading: "h", Text: "s"}}},
		{"[a](wiki://x/y#z) [b](OUTPUT://x) [c](raw://1)", []Link{{Target: "wiki://x/y", Heading: "z", Text: "a"}, {Target: "OUTPUT://x", Text: "b"}, {Target: "raw://1", Text: "c"}}},
		{"[a](https://x.org) [b](mailto:a@b.c) [c](//x.org/y) [d](data:text/plain,x) <https://x.org>", nil},
		{"[a](<b c.md>) [d](x\\_y.md) [e](f&amp;g.md) [h](100%.md)", []Link{{Target: "b c.md", Text: "a"}, {Target: "x_y.md", Text: "d"}, {Target: "f&g.md", Text: "e"}, {Target: "100%.md", Text: "h"}}},
		{"[a [[b]] c](d.md)", []Link{{Target: "b", Text: "b"}, {Target: "d.md", Text: "a b c"}}},
		{"[[a]]]] [[[b]]]", []Link{{Target: "a", Text: "a"}, {Target: "b", Text: "b"}}},
	} {
		if got := Extract([]byte(tc.in)).Links; !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.in, got, tc.want)
		}
	}
}

// The vault of case O3: links in tables, with spaces, in code and comments.
func TestExtractVault(t *testing.T) {
	var vault struct {
		Files []struct{ Path, Content string }
	}
	var want struct{ Outbound map[string][]string }
	readJSON(t, "vault-links.json", &vault)
	readJSON(t, "vault-links.expected.json", &want)
	names := map[string]string{}
	for _, f := range vault.Files {
		name := strings.TrimSuffix(f.Path[strings.LastIndexByte(f.Path, '/')+1:], ".md")
		names[FoldName(name)] = name
	}
	for _, f := range vault.Files {
		name := strings.TrimSuffix(f.Path[strings.LastIndexByte(f.Path, '/')+1:], ".md")
		got := map[string]bool{}
		for _, l := range Extract([]byte(f.Content)).Links {
			to, ok := names[FoldName(l.Target)]
			if !ok {
				t.Errorf("%s: link to %q resolves to nothing", name, l.Target)
			}
			got[to] = true
		}
		if targets := slices.Sorted(maps.Keys(got)); !slices.Equal(targets, want.Outbound[name]) {
			t.Errorf("%s links to %v, want %v", name, targets, want.Outbound[name])
		}
	}
}

func TestFoldName(t *testing.T) {
	for _, names := range [][]string{
		{"Target", "target", " target.md ", "TARGET.MD", "./Target"},
		{"Zoë", "Zoe\u0308", "ZOË"},
		{`wiki\Sub\A`, "wiki/sub/a.md"},
		{"two  words", "Two words", "two\twords"},
		{"straße", "STRASSE"},
	} {
		for _, n := range names[1:] {
			if FoldName(n) != FoldName(names[0]) {
				t.Errorf("%q and %q differ: %q, %q", n, names[0], FoldName(n), FoldName(names[0]))
			}
		}
	}
	if FoldName("cafe") == FoldName("café") {
		t.Error("names that differ in an accent are one")
	}
}

// hostile are bodies that make a careless parser slow.
func hostile(n int) map[string]string {
	r := strings.Repeat
	rising := func(f func(i int) string) string {
		var b strings.Builder
		for i := 1; b.Len() < n; i++ {
			b.WriteString(f(i))
		}
		return b.String()
	}
	return map[string]string{
		"[":           r("[", n),
		"[]":          r("[", n/2) + r("]", n/2),
		"[a":          r("[a", n/2),
		"[a](b":       r("[a](b", n/5),
		"[a](":        r("[a](", n/4),
		"![":          r("![", n/2),
		"[[a":         r("[[a ", n/4),
		"[^a":         r("[^a ", n/4),
		"*":           r("*", n),
		"*a":          r("*a ", n/3),
		"a**b c*":     r("a**b", n/8) + r("c* ", n/6),
		"_a":          r("_a ", n/3),
		"*a_b~~":      r("*a_b~~ ", n/7),
		"==a":         r("==a ", n/4),
		"%%":          r("%%", n/2),
		"*a **a":      r("*a **a ", n/7),
		">":           r(">", n),
		"> >":         r("> > > > a\n", n/10),
		"- - ":        r("- ", n/2),
		"1. 1.":       r("1. ", n/3),
		"> -":         r("> - ", n/4),
		"*\t":         r("*\t", n/2),
		"stairs":      rising(func(i int) string { return r(" ", 2*i) + "- a\n" }),
		"items":       r("- a\n", n/4),
		"tasks":       r("- [ ] a\n", n/8),
		"backticks":   rising(func(i int) string { return "e" + r("`", i) }),
		"`a``b":       r("`a``b", n/5),
		"<":           r("<", n),
		"<a":          r("<a ", n/3),
		"<div quotes": "<div>" + r("<a \"", n/4),
		"a <!--":      r("a <!-- ", n/7),
		"a <?":        r("a <? ", n/5),
		"a <![CDATA[": r("a <![CDATA[ ", n/12),
		"-|-":         "a|b\n" + r("-|-\n", n/4),
		"wide table":  r("a|", n/4) + "\n" + r("-|", n/4) + "\n",
		"tall table":  r("a|", 200) + "\n" + r("-|", 200) + "\n" + r("a\n", n/2),
		"pipes":       "a|b\n-|-\n" + r("`\\|`|b\n", n/7),
		"references":  r("[a]: b\n", n/7),
		"shortcuts":   "[a]: " + r("b", n/2) + "\n\n" + r("[a] ", n/8),
		"[a\\n":       r("[a\n", n/3),
		"footnotes":   r("[^a]: b\n", n/8),
		"footnote":    "[^a]: b\n\n" + r("[^a] ", n/5),
		"&":           r("&", n),
		"nul":         r("\x00", n),
		"\\":          r("\\", n),
		"fences":      r("```\n", n/4),
		"quoted":      r("> ```\n", n/6),
		"(":           "[a](" + r("(", n),
		"nested":      r("[", n/4) + "a" + r("](b)", n/4),
		"links":       r("[a](b) ", n/7),
		"setext":      r("a\n-\n", n/4),
		"a":           r("a", n),
		"lines":       r("abc def\n", n/8),
		"spaces":      r(" ", n) + "a",
		"tabs":        "- a\n" + r("\t", n),
		"blank":       r("- ", 20) + "a\n" + r("\n", n),
		"blank quote": r("> ", 20) + "a\n" + r(">\n", n/2),
		"#":           r("#", n),
		"<http:":      r("<http://a", n/9),
		"<a@":         r("<a@b", n/4),
		"a.b.c":       r("a.", n/2),
		"a-b-c":       r("a-", n/2),
		"aBcD":        r("aB", n/2),
		"emoji":       r("👩‍", n/7),
		"marks":       "a" + r("\u0301", n/2),
		"han":         r("部署", n/6),
	}
}

func TestHostileBodies(t *testing.T) {
	const n = 1 << 18
	q := ParseQuery("deployment 部署 foo")
	for name, body := range hostile(n) {
		start := time.Now()
		d := Extract([]byte(body))
		extracted := time.Now()
		ix := Analyze(Fields{Plain: d.Plain})
		analyzed := time.Now()
		Snippet(d.Plain, q, 200)
		q.MatchesPhrases(d.Plain)
		t.Logf("%-12s extract %4d ms, analyze %4d ms, snippet %4d ms", name, extracted.Sub(start).Milliseconds(), analyzed.Sub(extracted).Milliseconds(), time.Since(analyzed).Milliseconds())
		// Far above linear time, also under the race detector; quadratic time is
		// far above this.
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s: 256 KiB take %v", name, d)
		}
		if !utf8.ValidString(d.Plain) || strings.Contains(d.Plain, "\x00") {
			t.Errorf("%s: text is not valid", name)
		}
		if len(ix.Words.Lexemes) > 1<<18 {
			t.Errorf("%s: literal of %d bytes", name, len(ix.Words.String()))
		}
	}
}

// What guard changes may cost markup, never words.
func TestGuardKeepsWords(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		b.WriteString([]string{"- [ ] *item* ", "| cell [[link]] | ", "> > > ", "1. 2. 3. ", "_a_ "}[i%5])
		b.WriteString("word" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
		b.WriteString([]string{"\n", " ", "\n\n\n\n", "\n"}[i%4])
	}
	plain := Extract([]byte(b.String())).Plain
	for i := range 3000 {
		if w := "word" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)); !strings.Contains(plain, w) {
			t.Fatalf("%s is lost", w)
		}
	}
}

func TestGuardLeavesNotesAlone(t *testing.T) {
	for _, in := range []string{"", "a\n\nb\n", "- a\n  - b\n    - c\n      1. d\n\n> > quote\n", "| a | b |\n|---|---|\n" + strings.Repeat("| [[a]] | *b* |\n", 500), strings.Repeat("**a** [b](c) ", 60)} {
		if got := string(guard([]byte(in))); got != in {
			t.Errorf("%.40q changed to %.80q", in, got)
		}
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"#a and #b/c, #d. (#no) x#no #1 #1a #_x-y":                                                "a b/c d 1a _x-y",
		"---\ntags: [front]\n---\n#读书 #思考/深 #Ünï #🔥 #a":                                           "读书 思考/深 Ünï 🔥 a",
		"# Heading #h\n> #q\n> more\n\n- [ ] #t\n\n| #c | x |\n|--|--|":                           "h q t c",
		"`#no` \\#no\n\n```\n#no\n```\n\n%% #no %% ==#m== **#no** http://x/#no [#no](y) [[a#no]]": "",
		"#foo_bar_ #a//b #//z/ #tag#no":                                                           "foo_bar_ a//b z tag",
	} {
		if source[0] == '`' {
			want = ""
		}
		if got := strings.Join(Extract([]byte(source)).Tags, " "); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}
