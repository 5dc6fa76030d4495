package text

import (
	"math/bits"
	"strings"
	"unicode"
	"unicode/utf8"
)

// writing counts what a note is written in: words of scripts with spaces,
// characters of the others.
type writing struct {
	words                      [scripts]int
	han, kana, hangul, abugida int
	// other is the last rune of a script that is told by itself.
	other rune
}

func (w *writing) word(s string) {
	r, _ := utf8.DecodeRuneInString(s)
	k := scriptOf(r)
	w.words[k]++
	if k == otherScript {
		w.other = r
	}
}

func (w *writing) rune(r rune, c class) {
	switch {
	case c == abugida:
		w.abugida++
		w.other = r
	case 0xAC00 <= r && r <= 0xD7A3:
		w.hangul++
	case 0x3041 <= r && r < 0x3100:
		w.kana++
	default:
		w.han++
	}
}

// Scripts of one language each, or of one that stands for all.
var scriptLanguages = []struct {
	table *unicode.RangeTable
	code  string
}{
	{unicode.Greek, "el"}, {unicode.Hebrew, "he"}, {unicode.Thai, "th"}, {unicode.Devanagari, "hi"}, {unicode.Armenian, "hy"},
	{unicode.Georgian, "ka"}, {unicode.Bengali, "bn"}, {unicode.Lao, "lo"}, {unicode.Myanmar, "my"}, {unicode.Khmer, "km"},
	{unicode.Gujarati, "gu"}, {unicode.Gurmukhi, "pa"}, {unicode.Telugu, "te"}, {unicode.Kannada, "kn"}, {unicode.Malayalam, "ml"},
	{unicode.Sinhala, "si"}, {unicode.Ethiopic, "am"},
}

// detect answers the note's language, ” when it cannot tell, and the index in
// languages by which its Latin words are stemmed. The script that most is
// written in decides; between the languages of the Latin script, the function
// words do.
func (a *analyzer) detect(tag string) (code string, latinLang int) {
	tag, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
	tag, _, _ = strings.Cut(tag, "_")
	switch tag {
	case "nb", "nn":
		tag = "no"
	}
	for i := range languages {
		if l := &languages[i]; l.code == tag {
			if l.script == latin {
				return tag, i
			}
			break
		}
	}
	latinLang, votes := a.vote()
	if isLanguage(tag) {
		return tag, latinLang
	}
	w := &a.seen
	most, best := 0, ""
	for _, c := range []struct {
		n    int
		code string
	}{
		{w.words[latin], "latin"}, {w.words[cyrillic], "ru"}, {w.words[arabicScript], "ar"}, {w.words[tamilScript], "ta"},
		// About four characters to a word, or two.
		{w.words[otherScript] + (w.abugida+3)/4, "other"}, {(w.hangul + 1) / 2, "ko"}, {(w.han + w.kana + 1) / 2, "zh"},
	} {
		if c.n > most {
			most, best = c.n, c.code
		}
	}
	switch best {
	case "latin":
		if votes == 0 {
			return "", latinLang
		}
		return languages[latinLang].code, latinLang
	case "zh":
		if w.kana*20 >= w.han {
			return "ja", latinLang
		}
	case "other":
		for _, s := range scriptLanguages {
			if unicode.Is(s.table, w.other) {
				return s.code, latinLang
			}
		}
		return "", latinLang
	}
	return best, latinLang
}

// maxVoters bounds the lexemes that are looked up for their language.
const maxVoters = 1000

func (a *analyzer) vote() (winner, votes int) {
	var counts [len(languages)]int
	words := functionWords()
	for i := range a.entries[:min(len(a.entries), maxVoters)] {
		e := &a.entries[i]
		// Single letters are variables and list markers in every language.
		if e.len < 2 || e.len > 8 {
			continue
		}
		for set := words[string(a.lexeme(e))]; set != 0; set &= set - 1 {
			counts[bits.TrailingZeros32(set)] += min(int(e.count), 8)
		}
	}
	for i, n := range counts {
		if n > votes {
			winner, votes = i, n
		}
	}
	if votes < 2 {
		// One word may be a loan, or a name.
		return englishIndex, 0
	}
	return winner, votes
}

// isLanguage reports whether tag has the form of an ISO 639 code.
func isLanguage(tag string) bool {
	if len(tag) != 2 && len(tag) != 3 {
		return false
	}
	for i := range len(tag) {
		if tag[i] < 'a' || tag[i] > 'z' {
			return false
		}
	}
	return true
}
