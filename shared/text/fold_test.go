package text

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A rune that the scanner takes as it is means the same where its text goes
// through NFKC for another's sake.
func TestFoldAgreesWithNFKC(t *testing.T) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) || composes(r) {
			continue
		}
		c := classOf(r)
		if c == separator || c == invisible {
			continue
		}
		composed := norm.NFKC.String(string(r))
		var folded []byte
		for _, n := range composed {
			if c == alpha {
				folded = appendFold(folded, n)
			} else {
				folded = utf8.AppendRune(folded, n)
			}
			if classOf(n) != c {
				t.Errorf("%U %c becomes %U of another class", r, r, n)
			}
		}
		want := string(r)
		if c == alpha {
			want = string(appendFold(nil, r))
		}
		if string(folded) != want {
			t.Errorf("%U %c folds to %q, by NFKC to %q", r, r, want, folded)
		}
	}
}
