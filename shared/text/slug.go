package text

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of a slug: a file name takes 255 bytes on most systems, and a hash and
// an extension may follow.
const (
	maxSlugRunes = 80
	maxSlugBytes = 200
)

// Slug answers a title as one segment of an address: its letters, digits and
// marks of any script in lower case and NFC, with '-' for what lies between. It
// is a file name on every system. lossy says that titles that differ in meaning
// have the same slug (C++ and C#), that it is empty, a reserved name, or cut;
// SlugWithHash tells such titles apart. Titles that differ in punctuation only
// may share a slug that is not lossy.
func Slug(title string) (slug string, lossy bool) {
	var b strings.Builder
	gap, runes := false, 0
	for _, r := range norm.NFC.String(strings.ToLower(norm.NFC.String(valid(title)))) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), unicode.Is(unicode.Mn, r) && !variation(r), unicode.Is(unicode.Mc, r):
			if unicode.IsMark(r) && (gap || b.Len() == 0) {
				// Without the base that it belonged to.
				lossy = true
				continue
			}
			dash := 0
			if gap && b.Len() > 0 {
				dash = 1
			}
			if runes += 1 + dash; runes > maxSlugRunes || b.Len()+dash+utf8.RuneLen(r) > maxSlugBytes {
				return b.String(), true
			}
			b.WriteString("-"[:dash])
			b.WriteRune(r)
			gap = false
		case variation(r):
		case punctuation(r):
			gap = true
		default:
			gap, lossy = true, true
		}
	}
	slug = b.String()
	return slug, lossy || slug == "" || reserved(slug)
}

// variation reports whether r only selects how the rune before it looks.
func variation(r rune) bool { return 0xFE00 <= r && r <= 0xFE0F || r == 0xAD || r == 0xFEFF }

// punctuation reports whether r parts words and says nothing else.
func punctuation(r rune) bool {
	if unicode.IsSpace(r) {
		return true
	}
	switch r {
	case '+', '#', '/', '\\', '@', '%', '&', '*', '=', '<', '>', '~', '^', '|', '$':
		return false
	}
	return unicode.IsPunct(r)
}

// reserved reports whether Windows takes the name for a device.
func reserved(slug string) bool {
	switch slug {
	case "con", "prn", "aux", "nul":
		return true
	}
	if port, ok := strings.CutPrefix(slug, "com"); ok || strings.HasPrefix(slug, "lpt") {
		if !ok {
			port = slug[3:]
		}
		r, n := utf8.DecodeRuneInString(port)
		return n == len(port) && (unicode.IsDigit(r) || r == '¹' || r == '²' || r == '³')
	}
	return false
}

// SlugWithHash is Slug with eight characters that tell the title's TitleKey
// apart from others: cpp and c# get c-… with different endings.
func SlugWithHash(title string) string {
	slug, _ := Slug(title)
	sum := sha256.Sum256([]byte(TitleKey(title)))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	if slug == "" {
		return hash
	}
	return slug + "-" + hash
}
