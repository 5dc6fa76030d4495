package text

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// class says how the scanner takes a rune.
type class uint8

const (
	separator class = iota
	// alpha: letters, digits and marks of scripts that part words by spaces.
	alpha
	// dense: Han, kana, Bopomofo and Hangul, found by two-character words.
	dense
	// abugida: Thai, Lao, Khmer and Myanmar, written without spaces.
	abugida
	// symbol: a word of one rune, such as an emoji.
	symbol
	// invisible: joiners, soft hyphens and variation selectors.
	invisible
)

// The fold table reaches over Latin, Greek, Cyrillic, Hebrew and Arabic, and
// over the additions to Latin and Greek from U+1E00.
const (
	foldLow  = 0x0700
	foldHigh = 0x1E00
	foldEnd  = 0x2000
)

type foldTable struct {
	low  [foldLow]folding
	high [foldEnd - foldHigh]folding
}

type folding struct {
	to    string
	class class
}

// folds is built at the first use, so that processes that never search never
// pay for it.
var folds = sync.OnceValue(func() *foldTable {
	t := new(foldTable)
	for r := range rune(foldLow) {
		t.low[r] = newFolding(r)
	}
	for r := rune(foldHigh); r < foldEnd; r++ {
		t.high[r-foldHigh] = newFolding(r)
	}
	return t
})

// Letters that Unicode does not decompose, by the spelling that people fall
// back to.
var spellings = map[rune]string{
	'ß': "ss", 'ẞ': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'đ': "d", 'ð': "d", 'þ': "th", 'ł': "l", 'ı': "i", 'ħ': "h", 'ŧ': "t", 'ς': "σ",
	// A letter of its own to its readers, though it decomposes.
	'й': "й",
}

func newFolding(r rune) folding {
	if r < 0x80 {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return folding{string(unicode.ToLower(r)), alpha}
		}
		return folding{}
	}
	c := rangeClass(r)
	if c != alpha {
		return folding{"", c}
	}
	lower := unicode.ToLower(r)
	if s, ok := spellings[lower]; ok {
		return folding{s, alpha}
	}
	var to []rune
	for _, d := range norm.NFKD.String(string(lower)) {
		d = unicode.ToLower(d)
		if s, ok := spellings[d]; ok {
			to = append(to, []rune(s)...)
		} else if unicode.IsLetter(d) && d != 'ـ' || unicode.IsDigit(d) {
			to = append(to, d)
		}
	}
	return folding{string(to), alpha}
}

func classOf(r rune) class {
	switch {
	case r < foldLow:
		return folds().low[r].class
	case foldHigh <= r && r < foldEnd:
		return folds().high[r-foldHigh].class
	case 0x4E00 <= r && r <= 0x9FFF, 0x3041 <= r && r <= 0x3096, 0x30A1 <= r && r <= 0x30FA, 0x30FC <= r && r <= 0x30FF, 0xAC00 <= r && r <= 0xD7A3:
		return dense
	case 0x3001 <= r && r <= 0x3004:
		return separator
	}
	return rangeClass(r)
}

func rangeClass(r rune) class {
	switch {
	case r == 0xAD, r == 0x200C, r == 0x200D, r == 0x2060, r == 0xFEFF, 0xFE00 <= r && r <= 0xFE0F, 0x1F3FB <= r && r <= 0x1F3FF, 0xE0000 <= r && r <= 0xE01FF:
		return invisible
	case r < 0x0E00:
	case r <= 0x0EFF, 0x1000 <= r && r <= 0x109F, 0x1780 <= r && r <= 0x17FF, 0xA9E0 <= r && r <= 0xA9FF, 0xAA60 <= r && r <= 0xAA7F:
		if unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) {
			return abugida
		}
		return separator
	case r == '々', r == '〇', r == '〻', 0x3021 <= r && r <= 0x3029, 0x3099 <= r && r <= 0x309A:
		return dense
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo):
		if unicode.IsLetter(r) {
			return dense
		}
	}
	switch {
	case unicode.IsLetter(r), unicode.IsMark(r), unicode.IsDigit(r), r == '²', r == '³', r == '¹':
		return alpha
	case r < 0x100 && !unicode.Is(unicode.Sc, r), 0xFF01 <= r && r <= 0xFF65, r == '™', r == '℠', r == 0xFFFC, r == 0xFFFD,
		0x2400 <= r && r <= 0x243F, 0x2500 <= r && r <= 0x259F, 0x2800 <= r && r <= 0x28FF:
		// Drawn lines, trade marks and place holders are no words.
		return separator
	case unicode.In(r, unicode.So, unicode.Sm, unicode.Sc), unicode.Is(unicode.No, r), unicode.Is(unicode.Nl, r):
		return symbol
	}
	return separator
}

// spaceless reports whether a line break after r means no space.
func spaceless(r rune) bool {
	if r < 0x0E00 || 0xAC00 <= r && r <= 0xD7A3 {
		return false
	}
	if c := classOf(r); c == dense || c == abugida {
		return true
	}
	// CJK and full-width punctuation.
	return 0x3001 <= r && r <= 0x301F || r == 0x30FB || 0xFF01 <= r && r <= 0xFF65
}

// appendFold appends the folded form of a word's rune: lower case, without the
// diacritics of Latin, Greek, Cyrillic, Hebrew and Arabic.
func appendFold(dst []byte, r rune) []byte {
	switch {
	case r < foldLow:
		return append(dst, folds().low[r].to...)
	case foldHigh <= r && r < foldEnd:
		return append(dst, folds().high[r-foldHigh].to...)
	case classOf(r) == invisible, r == '’', r == '‐', r == '‑':
		return dst
	}
	return utf8.AppendRune(dst, unicode.ToLower(r))
}

// normalize is NFKC where a rune-by-rune fold cannot do: half-width and
// decomposed kana, composed Hangul, compatibility forms, combining marks.
func normalize(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	for i < len(s) {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if composes(r) {
			return norm.NFKC.String(strings.Map(dropSeparators, s))
		}
		i += n
	}
	return s
}

// composes reports whether NFKC may change r or what precedes it in a way that
// the fold table does not know.
func composes(r rune) bool {
	switch r {
	case 0x013F, 0x0140, 0x037A, 0x222C, 0x222D, 0x222F, 0x2230, 0x2A0C, 0x2A74, 0x2A75, 0x2A76, 0x2ADC, 0x3036, 0x3038, 0x3039, 0x303A, 0x309F, 0x30FF:
		return true
	}
	switch {
	case r < 0x0300, 0x3001 <= r && r < 0x3099, 0x309B <= r && r < 0x3131, 0x4E00 <= r && r < 0xA500, 0xAC00 <= r && r < 0xD7A4:
		return false
	case r < 0x0370:
		return true
	case r < 0x0700, 0x1E00 <= r && r < 0x2070, 0x2190 <= r && r < 0x2460, 0x2500 <= r && r < 0x2C60:
		return false
	case r == '™', r == '℠', 0xFE00 <= r && r <= 0xFE0F, r == 0xFEFF, 0x1F000 <= r && r < 0x1F100, 0x1F300 <= r && r < 0x1FB00, 0x1F1E6 <= r && r <= 0x1F1FF:
		return false
	case 0x3400 <= r && r < 0x4E00, 0x20000 <= r && r < 0x2F800:
		return false
	case 0xFF01 <= r && r <= 0xFF65:
		// Full-width letters, digits, connectors and signs, not punctuation.
		return fullWidth(r - 0xFEE0)
	}
	return true
}

func fullWidth(ascii rune) bool {
	return ascii < utf8.RuneSelf && (byteTable[ascii] != 0 || ascii == '+' || ascii == '#')
}

// dropSeparators keeps NFKC from making letters of what parts words, where a
// text goes through it (Foo™ to FooTM, ½ to 1⁄2), and removes ideographic
// variation selectors.
func dropSeparators(r rune) rune {
	switch {
	case r < utf8.RuneSelf, r == '’', r == '‐', r == '‑':
		return r
	case 0xE0100 <= r && r <= 0xE01EF:
		return -1
	case !composes(r) && classOf(r) == separator:
		return ' '
	}
	return r
}

// FoldName is the key by which names compare: link targets, titles, aliases.
// It is TitleKey with '\' as '/', without a leading "./" and a final ".md".
func FoldName(s string) string {
	s = TitleKey(strings.ReplaceAll(s, `\`, "/"))
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(s, "./"), ".md"))
}

// TitleKey is the key that no two siblings' titles may share: NFC, case folded,
// white space collapsed.
func TitleKey(title string) string {
	title = string(clean([]byte(title)))
	// Folding takes Cherokee to upper case one way and to lower case the other.
	return norm.NFC.String(strings.ToLower(cases.Fold().String(norm.NFC.String(collapse(title)))))
}
