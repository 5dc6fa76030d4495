package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
)

// Snippet answers the part of plain, at most maxRunes long, in which the most
// words of the query stand, and stand closest; without any, the beginning. It
// is cut between words, with '…' where text is missing, and is one line.
func Snippet(plain string, q Query, maxRunes int) string {
	plain = valid(plain)
	if maxRunes <= 0 {
		return ""
	}
	f := newFinder(q)
	f.s, f.size, f.counts = plain, max(1, maxRunes-2), make([]int, len(f.worth))
	f.scan(plain)
	from, to := widen(plain, f.best.start, f.best.end, maxRunes)
	if from == to && plain != "" {
		return "…"
	}
	s := strings.ReplaceAll(strings.TrimSpace(plain[from:to]), "\n", " ")
	if strings.TrimSpace(plain[:from]) != "" {
		s = "…" + s
	}
	if strings.TrimSpace(plain[to:]) != "" {
		s += "…"
	}
	return s
}

// hit is a place of plain where a target stands.
type hit struct{ start, end, target int }

// finder finds a query's words in a text as it is written. Each word or tag is
// worth the same; the two-character words of a run share its worth.
type finder struct {
	exact    map[string]int // lexeme → target
	runs     map[rune][]run
	prefixes []run
	// begins holds the first bytes of the lexemes, pairs the first two, low the
	// low bytes of the runs' first runes.
	begins, low [256]bool
	pairs       [1 << 10]uint64
	heads       map[string]struct{}
	stems       map[string]int
	env         *snowballstem.Env
	buf         []byte

	window
}

// window slides over the hits, and keeps the best place that it came over.
type window struct {
	s           string
	size        int // runes
	hits        []hit
	worth       []int // of the targets
	counts      []int
	first       int
	span, until int // runes from hits[first].start to until
	value, all  int
	best        struct{ value, span, start, end int }
}

func (w *window) hit(start, end, target int) {
	if len(w.hits) == 0 {
		w.until = start
	}
	w.hits = append(w.hits, hit{start, end, target})
	if end > w.until {
		w.span += utf8.RuneCountInString(w.s[w.until:end])
		w.until = end
	}
	if w.counts[target]++; w.counts[target] == 1 {
		w.value += w.worth[target]
	}
	for w.first < len(w.hits)-1 && (w.span > w.size || w.counts[w.hits[w.first].target] > 1) {
		h := w.hits[w.first]
		if w.counts[h.target]--; w.counts[h.target] == 0 {
			w.value -= w.worth[h.target]
		}
		w.first++
		w.span -= utf8.RuneCountInString(w.s[h.start:w.hits[w.first].start])
	}
	if b := &w.best; w.value > b.value || w.value == b.value && w.span < b.span {
		b.value, b.span, b.start, b.end = w.value, w.span, w.hits[w.first].start, w.until
	}
}

// full reports whether no later place can hold more.
func (w *window) full() bool { return w.best.value == w.all && w.best.span <= w.size }

type run struct {
	s      string
	target int
}

const wholeWorth = 64

func newFinder(q Query) *finder {
	f := &finder{exact: map[string]int{}, runs: map[rune][]run{}, heads: map[string]struct{}{}, stems: map[string]int{}, env: snowballstem.NewEnv("")}
	for _, c := range q.clauses {
		if c.not {
			continue
		}
		first := strings.TrimPrefix(c.any[0][0], "#")
		if r, _ := utf8.DecodeRuneInString(first); classOf(r) != alpha {
			for _, s := range c.any[0] {
				f.runs[r1(s)] = append(f.runs[r1(s)], run{s, len(f.worth)})
				f.low[byte(r1(s))] = true
				w := max(1, wholeWorth/len(c.any[0]))
				f.worth = append(f.worth, w)
				f.all += w
			}
			continue
		}
		target := len(f.worth)
		f.worth = append(f.worth, wholeWorth)
		f.all += wholeWorth
		for i, way := range c.any {
			for j, s := range way {
				s = strings.TrimPrefix(s, "#")
				f.exact[s] = target
				f.begin(s)
				if c.prefix && i == 0 && j == 0 {
					f.prefixes = append(f.prefixes, run{s, target})
				}
				if len(s) >= 3 {
					f.heads[s[:3]] = struct{}{}
				}
			}
		}
	}
	return f
}

// begin records how a lexeme starts.
func (f *finder) begin(s string) {
	f.begins[s[0]] = true
	for second := range 256 {
		// A connector that the lexeme leaves out may follow its first letter.
		if len(s) == 1 || s[1] == byte(second) || second >= utf8.RuneSelf || byteTable[second] == bConnector {
			pair := int(s[0])<<8 | second
			f.pairs[pair>>6] |= 1 << (pair & 63)
		}
	}
}

// may reports whether a lexeme may start at the ASCII letter s[i].
func (f *finder) may(s string, i int) bool {
	first := lower(s[i])
	if i+1 == len(s) {
		return f.begins[first]
	}
	pair := int(first)<<8 | int(lower(s[i+1]))
	return f.pairs[pair>>6]&(1<<(pair&63)) != 0
}

func lower(c byte) byte {
	if byteTable[c] == bUpper {
		c |= 0x20
	}
	return c
}

func r1(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// scan finds the hits in the order of the text, until one place holds all.
func (f *finder) scan(s string) {
	inWord := false
	for i := 0; i < len(s) && !f.full(); {
		c := s[i]
		if c < utf8.RuneSelf {
			k := byteTable[c]
			switch {
			case k == 0 || k == bConnector:
				inWord = false
			case !inWord || k == bUpper && byteTable[s[i-1]] == bLower:
				inWord = true
				if f.may(s, i) {
					f.word(s, i)
				}
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if 0x4E00 <= r && r <= 0x9FFF && !f.low[byte(r)] {
			i, inWord = i+n, false
			continue
		}
		if composes(r) || i+n < len(s) && s[i+n] == 0xE3 && composes(r1(s[i+n:])) {
			end := i + n
			for end < len(s) && s[end] >= utf8.RuneSelf {
				end++
			}
			f.strange(s, i, end)
			i, inWord = end, false
			continue
		}
		switch classOf(r) {
		case alpha:
			if !inWord {
				f.buf = appendFold(f.buf[:0], r)
				if len(f.buf) > 0 && f.begins[f.buf[0]] {
					f.word(s, i)
				}
			}
			inWord = true
		case invisible:
		case separator:
			inWord = false
		default:
			inWord = false
			if f.low[byte(r)] {
				for _, t := range f.runs[r] {
					if strings.HasPrefix(s[i:], t.s) {
						f.hit(i, i+len(t.s), t.target)
					}
				}
			}
		}
		i += n
	}
}

// word checks the word that starts at i, alone and with what is joined to it.
func (f *finder) word(s string, i int) {
	sc := scanner{s: s}
	var p piece
	sc.word(&p, i)
	end := p.end
	if p.compound {
		f.buf = appendLexeme(f.buf[:0], s[i:end])
		if f.match(i, end) {
			return
		}
		end = i
		for end < p.end && !connects(s, end) && (end == i || byteTable[s[end]] != bUpper || byteTable[s[end-1]] != bLower) {
			end++
		}
	}
	f.buf = appendLexeme(f.buf[:0], s[i:end])
	if !f.match(i, end) {
		f.stem(s, i, end)
	}
}

func (f *finder) match(start, end int) bool {
	if t, ok := f.exact[string(f.buf)]; ok {
		f.hit(start, end, t)
		return true
	}
	for _, p := range f.prefixes {
		if strings.HasPrefix(string(f.buf), p.s) {
			f.hit(start, end, p.target)
			return true
		}
	}
	return false
}

// stem checks whether the word in f.buf shares a stem with the query, in any
// language.
func (f *finder) stem(s string, start, end int) {
	if len(f.buf) < 3 {
		return
	}
	if _, ok := f.heads[string(f.buf[:3])]; !ok || !stemmable(f.buf) {
		return
	}
	target, known := f.stems[string(f.buf)]
	if !known {
		target = -1
		script := scriptOf(r1(string(f.buf)))
		written := lowerNFC(s[start:end])
		for i := range languages {
			if l := &languages[i]; l.script == script {
				if t, ok := f.exact[l.stemOf(f.env, written)]; ok {
					target = t
					break
				}
			}
		}
		f.stems[string(f.buf)] = target
	}
	if target >= 0 {
		f.hit(start, end, target)
	}
}

// strange checks a stretch whose characters only match when normalized, as
// half-width kana do; all of it counts as the hit.
func (f *finder) strange(s string, start, end int) {
	if end-start > 1024 {
		end = start + 1024
	}
	folded := normalize(s[start:end])
	for _, runs := range f.runs {
		for _, t := range runs {
			if strings.Contains(folded, t.s) {
				f.hit(start, end, t.target)
			}
		}
	}
	sc := scanner{s: folded}
	var p piece
	for sc.next(&p) {
		if p.class == alpha {
			f.buf = appendLexeme(f.buf[:0], folded[p.start:p.end])
			f.match(start, end)
		}
	}
}

// widen stretches or shrinks s[start:end] to what fits into size runes with its
// ellipses, and moves the cuts between words.
func widen(s string, start, end, size int) (from, to int) {
	room := size - 2 - utf8.RuneCountInString(s[start:min(end, start+4*size)])
	from = start
	after := 0
	for i := end; i < len(s) && after < room; after++ {
		i += runeLen(s, i)
	}
	// A third of the room goes before, more where the text ends.
	for n := max(room/3, room-after); n > 0 && from > 0; n-- {
		_, w := utf8.DecodeLastRuneInString(s[:from])
		from -= w
	}
	left := size
	if from > 0 {
		left--
		for from < start && !cuttable(s, from) {
			from += runeLen(s, from)
		}
		for from == start && from > 0 && !grapheme(s, from) {
			_, w := utf8.DecodeLastRuneInString(s[:from])
			from -= w
		}
	}
	to = from
	for ; left > 0 && to < len(s); left-- {
		to += runeLen(s, to)
	}
	if to == len(s) {
		return from, to
	}
	// The last rune is the ellipsis.
	limit := max(from, min(end, to))
	_, w := utf8.DecodeLastRuneInString(s[from:to])
	to -= w
	cut := to
	for cut > limit && !cuttable(s, cut) {
		_, w := utf8.DecodeLastRuneInString(s[:cut])
		cut -= w
	}
	if cut > from && cuttable(s, cut) {
		return from, cut
	}
	for to > from && !grapheme(s, to) {
		_, w := utf8.DecodeLastRuneInString(s[:to])
		to -= w
	}
	return from, to
}

func runeLen(s string, i int) int {
	_, n := utf8.DecodeRuneInString(s[i:])
	return n
}

// cuttable reports whether s may be cut at i without splitting a word.
func cuttable(s string, i int) bool {
	if !grapheme(s, i) {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	after, _ := utf8.DecodeRuneInString(s[i:])
	if after == ' ' || before == ' ' || before == '\n' || after == '\n' {
		return true
	}
	b, a := classOf(before), classOf(after)
	return b != a && b != separator && a != separator || b == dense && a == dense || b == abugida && a == abugida || b == symbol || a == symbol ||
		spaceless(before) && a != separator
}

// grapheme reports whether s may be cut at i without splitting what is seen as
// one character: the rules of Unicode's UAX 29 that matter to text people write.
func grapheme(s string, i int) bool {
	if i == 0 || i == len(s) {
		return true
	}
	after, _ := utf8.DecodeRuneInString(s[i:])
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	switch {
	case before == '\u200D', unicode.IsMark(after), classOf(after) == invisible, after == 'ำ', after == 'ຳ', after == 0xFF9E, after == 0xFF9F,
		regional(before) && regional(after), 0x1160 <= after && after <= 0x11FF, before == '\r' && after == '\n':
		return false
	}
	return true
}
