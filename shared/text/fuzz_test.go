package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func validText(t *testing.T, what, s string) {
	t.Helper()
	if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		t.Fatalf("%s is not text that PostgreSQL takes: %q", what, s)
	}
}

func FuzzExtract(f *testing.F) {
	for _, body := range hostile(200) {
		f.Add([]byte(body))
	}
	f.Add([]byte("---\na: b\n---\n# H\n\n| a | b |\n|--|--|\n| [[x\\|y]] | `\\|` |\n\n%%c%% ==h== ~~s~~ ![[i.png|20]] [^1]\n\n[^1]: n\n\n> [!n] t\n\n<div>x</div>"))
	f.Fuzz(func(t *testing.T, markdown []byte) {
		d := Extract(markdown)
		validText(t, "plain", d.Plain)
		for _, l := range d.Links {
			validText(t, "link", l.Target+l.Heading+l.Block+l.Text)
			validText(t, "name", FoldName(l.Target))
		}
		for _, h := range d.Headings {
			validText(t, "heading", h.Text)
		}
		for line := range strings.SplitSeq(d.Plain, "\n") {
			if strings.Contains(line, "  ") || d.Plain != "" && line == "" {
				t.Fatalf("white space is not collapsed: %q", d.Plain)
			}
		}
		if again := Extract(markdown); again.Plain != d.Plain || len(again.Links) != len(d.Links) {
			t.Fatal("the same note gives two documents")
		}
	})
}

// Words that stand in a text find it.
func FuzzFinds(f *testing.F) {
	for _, s := range []string{"e-mail node.js v1.2.3 don't c++ fooBar", "ｶﾞｲﾄﾞ と ＡＰＩ設計", "a’b‐c…d", "สวัสดี 👩‍💻🇩🇪", "İstanbul ẞ ǅ ﬁ ½ ℌ ㈱ ㌔", "x\u0301\u0301 \u1100\u1161\u11a8 \ufdfa", "a_b.c-d@e&F AT&T"} {
		f.Add(s, 0, 5)
	}
	f.Fuzz(func(t *testing.T, s string, from, n int) {
		ix := Analyze(Fields{Title: s, Aliases: []string{s}, Tags: []string{s}, URI: s, Plain: s, Lang: s})
		validText(t, "tsvector", ix.Words.String())
		validText(t, "language", ix.Lang)
		words := lexemes(ix.Words.String())
		for w := range words {
			if w == "" || len(w) > 2046 {
				t.Fatalf("lexeme of %d bytes", len(w))
			}
		}
		for _, term := range ix.Terms {
			if _, ok := words[term]; !ok {
				t.Fatalf("term %q is no lexeme", term)
			}
		}
		fields := strings.Fields(strings.ReplaceAll(valid(s), "\x00", " "))
		if len(fields) == 0 {
			return
		}
		from = int(uint(from) % uint(len(fields)))
		n = 1 + int(uint(n)%6)
		part := strings.Join(fields[from:min(len(fields), from+n)], " ")
		if len(part) > maxQueryBytes-2 || strings.ContainsAny(part, "\"“”„«»「」『』") {
			return
		}
		quoted := ParseQuery(`"` + part + `"`)
		if quoted.TSQuery != "" && (!matches(words, quoted) || !quoted.MatchesPhrases(s)) {
			t.Fatalf("%q does not find %q: %s in %s; %q in %q", part, s, quoted.TSQuery, ix.Words.String(), quoted.Phrases, foldPhrase(s))
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{`a "b c" -d #e 部署`, `'\\'':*`, "“x” „y“ «z» 「」", "-#a/b c++:* & | !(", "\x00\xff"} {
		f.Add(s, s, 20)
	}
	f.Fuzz(func(t *testing.T, query, plain string, size int) {
		q := ParseQuery(query)
		validText(t, "tsquery", q.TSQuery)
		if len(q.Words) > MaxQueryWords || len(q.clauses) > MaxQueryWords {
			t.Fatalf("%d words", len(q.Words))
		}
		for i, w := range q.Words {
			validText(t, "word", w.Folded)
			more := q.Expand(i, []string{plain})
			validText(t, "expanded", more.TSQuery)
		}
		q.MatchesPhrases(plain)
		size %= 500
		s := Snippet(plain, q, size)
		if utf8.RuneCountInString(s) > max(0, size) || !utf8.ValidString(s) {
			t.Fatalf("snippet %q of at most %d", s, size)
		}
	})
}

func FuzzSlug(f *testing.F) {
	for _, s := range []string{"C++", "con", "a/b", "é🔥", "..", "\u0301", "İ", "ﬀ", "x\u200Dy"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, title string) {
		slug, lossy := Slug(title)
		if !lossy {
			checkSlug(t, title, slug)
		}
		hashed := SlugWithHash(title)
		checkSlug(t, title, hashed)
		validText(t, "key", TitleKey(title))
		validText(t, "slug", slug)
		if again, _ := Slug(slug); again != slug {
			t.Fatalf("%q: slug %q has slug %q", title, slug, again)
		}
		if TitleKey(TitleKey(title)) != TitleKey(title) {
			t.Fatalf("key of %q is unstable: %q, %q", title, TitleKey(title), TitleKey(TitleKey(title)))
		}
	})
}
