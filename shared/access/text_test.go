package access

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"standmeet/shared/email"
)

// Whatever a visitor types, what is kept of it is one line where a line is
// wanted, one plain address, and nothing that controls a terminal, a header or
// the direction of the text around it.
func FuzzAsk(f *testing.F) {
	for _, s := range [][4]string{
		{"Eve", "Acme", "eve@visitor.test", "Hello"},
		{`Eve, "F" <x@b.test>`, "", "x@evil.test> <y", "<a href=https://b.test>Reset</a>"},
		{"Eve\r\nBcc: you@a.test", "\u202eemca", "you@a.test>, <evil@b.test", "a\r\n.\r\nQUIT\r\n"},
		{"山田 太郎 – 東京オフィス 応募について", "株式会社", "Eve <x@b.test>", strings.Repeat("x", 5000)},
		{"\u200b", "\u2028", " x@bücher.test ", "\u0085\u2029\t\v\f"},
		{"\u00a0", "\u00ad", "\"a b\"@c.test", "\x1b[2J"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, name, org, address, message string) {
		for _, s := range []string{name, org, address, message} {
			if !utf8.ValidString(s) {
				t.Skip("the edge refuses what is not UTF-8")
			}
		}
		a, err := Ask{name, org, address, message}.clean()
		for _, line := range []string{a.Name, a.Org} {
			if i := strings.IndexFunc(line, func(r rune) bool {
				return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
			}); i >= 0 || strings.TrimSpace(line) != line {
				t.Errorf("%q", line)
			}
		}
		if strings.IndexFunc(a.Message, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) >= 0 {
			t.Errorf("%q", a.Message)
		}
		if utf8.RuneCountInString(a.Name) > utf8.RuneCountInString(name) || utf8.RuneCountInString(a.Message) > utf8.RuneCountInString(message) {
			t.Errorf("longer than it was: %q, %q", a.Name, a.Message)
		}
		if err != nil {
			return
		}
		if blank(a.Name) || blank(a.Message) {
			t.Errorf("nothing to see: %q, %q", a.Name, a.Message)
		}
		if again, err := email.Parse(a.Email); err != nil || again != a.Email || strings.Count(a.Email, "@") != 1 || strings.ContainsAny(a.Email, "<>, \r\n\"") {
			t.Errorf("%q: %q, %v", address, a.Email, err)
		}
		// what is kept is kept as it is
		if again, err := a.clean(); err != nil || again != a {
			t.Errorf("%+v, and then %+v, %v", a, again, err)
		}
	})
}
