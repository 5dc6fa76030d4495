package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSnippet(t *testing.T) {
	filler := strings.Repeat("Lorem ipsum dolor sit amet. ", 40)
	for _, tc := range []struct {
		name, plain, query string
		size               int
		want               string
	}{
		{"whole text", "a short note", "note", 50, "a short note"},
		{"nothing to find", "The beginning of a note that goes on", "", 20, "The beginning of a…"},
		{"not found", "The beginning of a note that goes on", "missing", 20, "The beginning of a…"},
		{"spelling and stem kept", filler + "We Deployed it twice. " + filler, "deployment", 30, "…We Deployed it twice. Lorem…"},
		{"closest words", "red then nothing then blue. " + filler + "A red and blue flag. " + filler, "red blue", 24, "…A red and blue flag.…"},
		{"compound", filler + "an E-mail arrives " + filler, "email", 24, "…an E-mail arrives…"},
		{"word of a compound", filler + "the snake_case style " + filler, "case", 30, "…snake_case style Lorem…"},
		{"prefix", filler + "a checklist " + filler, "chec", 24, "…a checklist Lorem…"},
		{"prefix is no part", "uncheck " + filler + "check " + filler, "check", 16, "…check Lorem…"},
		{"Chinese", strings.Repeat("系统需要处理很多数据，", 20) + "部署方案在这里。" + strings.Repeat("系统需要处理很多数据，", 20), "部署方案", 14, "…据，部署方案在这里。系统…"},
		{"single character", strings.Repeat("系统数据", 50) + "雨天" + strings.Repeat("系统数据", 50), "雨", 8, "…据雨天系统数…"},
		{"half width", strings.Repeat("word ", 50) + "ﾎﾟｽﾀｰ と " + strings.Repeat("word ", 50), "ポスター", 16, "…ﾎﾟｽﾀｰ と word…"},
		{"diacritics", filler + "bis nach Zürich gefahren " + filler, "zurich", 30, "…nach Zürich gefahren Lorem…"},
		{"lines become one", "first line\nsecond line\nthird", "second", 40, "first line second line third"},
		{"long word", strings.Repeat("x", 100), "y", 10, "xxxxxxxxx…"},
		{"excluded word is none", "bad start of it all " + filler + "good end", "good -bad", 20, "…sit amet. good end"},
		{"tag", filler + "about cooking today " + filler, "#cooking", 30, "…about cooking today Lorem…"},
		{"family stays together", "xx 👩‍👩‍👧‍👦👩‍👩‍👧‍👦", "", 12, "xx 👩‍👩‍👧‍👦…"},
		{"marks stay with their letter", "e\u0301e\u0301e\u0301e\u0301", "", 4, "e\u0301…"},
		{"no room", "text", "text", 0, ""},
		{"room for the ellipsis", "text and more", "", 1, "…"},
	} {
		got := Snippet(tc.plain, ParseQuery(tc.query), tc.size)
		if got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", tc.name, got, tc.want)
		}
		if n := utf8.RuneCountInString(got); n > tc.size {
			t.Errorf("%s: %d runes, at most %d wanted", tc.name, n, tc.size)
		}
	}
}
