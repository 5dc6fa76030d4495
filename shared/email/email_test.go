package email

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"ada@example.test":                  "ada@example.test",
		"Ada.L+x_y-z@Example.Test":          "Ada.L+x_y-z@example.test",
		"me@localhost":                      "me@localhost",
		"o'neil@b.test":                     "o'neil@b.test",
		"info@bücher.test":                  "info@xn--bcher-kva.test",
		"a@b.test ":                         "",
		"":                                  "",
		"@b.test":                           "",
		"a@":                                "",
		"a":                                 "",
		"a@b@c.test":                        "",
		"x@evil.test> <y":                   "",
		"you@a.test>, <evil@b.test":         "",
		"Eve <x@b.test>":                    "",
		"<x@b.test>":                        "",
		"a@b.test,c@d.test":                 "",
		"a@b.test (comment)":                "",
		"\"a b\"@b.test":                    "",
		"a..b@b.test":                       "",
		".a@b.test":                         "",
		"a@b..test":                         "",
		"a@-b.test":                         "",
		"a@[127.0.0.1]":                     "",
		"a@b.test\r\nBcc: evil@c.test":      "",
		"a\x00@b.test":                      "",
		"山田@b.test":                         "",
		strings.Repeat("a", 65) + "@b.test": "",
		"a@" + strings.Repeat("b.", 130) + "test": "",
	} {
		got, err := Parse(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Parse(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
