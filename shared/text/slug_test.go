package text

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestSlug(t *testing.T) {
	for _, tc := range []struct {
		title, slug string
		lossy       bool
	}{
		{"Hello, World!", "hello-world", false},
		{"  A  —  b_c  ", "a-b-c", false},
		{"认知负荷", "认知负荷", false},
		{"部署（方案）：二", "部署-方案-二", false},
		{"ÄÖ ü ß", "äö-ü-ß", false},
		{"हिन्दी भाषा", "हिन्दी-भाषा", false},
		{"m² v1.2", "m²-v1-2", false},
		{"C++", "c", true},
		{"a/b", "a-b", true},
		{`a\b`, "a-b", true},
		{"50% & more", "50-more", true},
		{"🔥", "", true},
		{"❤️ love", "love", true},
		{"..", "", true},
		{"", "", true},
		{"\u0301x", "x", true},
		{"con", "con", true},
		{"NUL.", "nul", true},
		{"com1", "com1", true},
		{"LPT²", "lpt²", true},
		{"Conn", "conn", false},
		{"com10", "com10", false},
		{"com", "com", false},
		{"a\x00b\xffc", "a-b-c", true},
		{strings.Repeat("x", 80), strings.Repeat("x", 80), false},
		{strings.Repeat("x", 81), strings.Repeat("x", 80), true},
		{strings.Repeat("日", 70), strings.Repeat("日", 66), true},
		{strings.Repeat("x", 79) + " y", strings.Repeat("x", 79) + "", true},
	} {
		slug, lossy := Slug(tc.title)
		if slug != tc.slug || lossy != tc.lossy {
			t.Errorf("%q: %q %v, want %q %v", tc.title, slug, lossy, tc.slug, tc.lossy)
		}
	}
}

// The siblings of case C5: each has an address of its own, which survives in a
// URL and in any file system.
func TestSlugsOfSiblings(t *testing.T) {
	long := strings.Repeat("a long title ", 8)
	titles := []string{"认知负荷", "反脆弱", "🔥", "🚀", "C", "C++", "C#", "a/b", "a b", `a\b`, "..", ".", "...", "con", "CON.", "nul", long + "one", long + "two", "50%", "50", "x", "x?#", "<x>", "é", "e"}
	seen := map[string]string{}
	for _, title := range titles {
		slug, lossy := Slug(title)
		if lossy {
			slug = SlugWithHash(title)
		}
		if other, taken := seen[slug]; taken {
			t.Errorf("%q and %q are both %q", title, other, slug)
		}
		seen[slug] = title
		checkSlug(t, title, slug)
		for _, form := range []norm.Form{norm.NFC, norm.NFD} {
			again, _ := Slug(form.String(title))
			first, _ := Slug(title)
			if again != first || SlugWithHash(form.String(title)) != SlugWithHash(title) {
				t.Errorf("%q: %q in another normal form", title, again)
			}
		}
	}
}

func checkSlug(t *testing.T, title, slug string) {
	t.Helper()
	if slug == "" || !utf8.ValidString(slug) || len(slug) > 240 || strings.ContainsAny(slug, "/\\:*?\"<>|%#&. ") || strings.Trim(slug, "-") != slug || reserved(slug) {
		t.Errorf("%q: %q is no slug", title, slug)
	}
	if u, err := url.Parse("https://x.org/p/" + url.PathEscape(slug) + "/q"); err != nil || u.Path != "/p/"+slug+"/q" || u.JoinPath().Path != u.Path {
		t.Errorf("%q: %q does not survive in a URL", title, slug)
	}
}

func TestTitleKey(t *testing.T) {
	for _, pair := range [][2]string{{"Zoë", "ZOE\u0308"}, {" two  words ", "Two\twords"}, {"straße", "STRASSE"}, {"ὈΔΥΣΣΕΎΣ", "ὀδυσσεύς"}} {
		if TitleKey(pair[0]) != TitleKey(pair[1]) {
			t.Errorf("%q and %q: %q, %q", pair[0], pair[1], TitleKey(pair[0]), TitleKey(pair[1]))
		}
	}
	for _, pair := range [][2]string{{"C++", "C#"}, {"cafe", "café"}, {"a.md", "a"}, {"a/b", "a b"}} {
		if TitleKey(pair[0]) == TitleKey(pair[1]) {
			t.Errorf("%q and %q are one title", pair[0], pair[1])
		}
	}
	if got := TitleKey("a\x00\xffb"); !utf8.ValidString(got) || strings.Contains(got, "\x00") {
		t.Errorf("%q", got)
	}
}
