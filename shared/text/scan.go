package text

import (
	"hash/fnv"
	"strconv"
	"unicode/utf8"
)

// piece is a stretch of text that the scanner found: for alpha a chain of words
// and connectors ("node.js", "snake_case", "c++"), for dense and abugida a run,
// for symbol one rune or a flag.
type piece struct {
	class      class
	start, end int
	// compound: connectors or inner capitals make it more than one word.
	compound bool
	// ascii: only ASCII bytes.
	ascii bool
	// digits: at least one digit.
	digits bool
}

// scanner parts normalized text into pieces.
type scanner struct {
	s string
	i int
}

const (
	bLower = 1 + iota
	bUpper
	bDigit
	bConnector
)

var byteTable = func() (t [256]uint8) {
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-0x20] = bLower, bUpper
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = bDigit
	}
	for _, c := range ".-_'@&" {
		t[c] = bConnector
	}
	return t
}()

func (sc *scanner) next(p *piece) bool {
	s, i := sc.s, sc.i
	for i < len(s) {
		c := s[i]
		if c < utf8.RuneSelf {
			if k := byteTable[c]; k != 0 && k != bConnector {
				sc.word(p, i)
				return true
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch k := classOf(r); k {
		case alpha:
			sc.word(p, i)
			return true
		case dense, abugida:
			end := i + n
			for end < len(s) && s[end] >= utf8.RuneSelf {
				r, n := utf8.DecodeRuneInString(s[end:])
				if classOf(r) != k {
					break
				}
				end += n
			}
			*p = piece{class: k, start: i, end: end}
			sc.i = end
			return true
		case symbol:
			end := i + n
			if regional(r) {
				if r, n := utf8.DecodeRuneInString(s[end:]); regional(r) {
					end += n
				}
			}
			*p = piece{class: symbol, start: i, end: end}
			sc.i = end
			return true
		}
		i += n
	}
	sc.i = i
	return false
}

func regional(r rune) bool { return 0x1F1E6 <= r && r <= 0x1F1FF }

// word reads a chain from i on.
func (sc *scanner) word(p *piece, start int) {
	s, i := sc.s, start
	*p = piece{class: alpha, start: start, ascii: true}
	var last uint8
	for i < len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			switch k := classOf(r); {
			case k == alpha, k == invisible && wordAt(s, i+n):
			case (r == '’' || r == '‐' || r == '‑') && wordAt(s, i+n):
				p.compound = true
			default:
				goto end
			}
			p.ascii = false
			last = bLower
			i += n
			continue
		}
		k := byteTable[c]
		switch k {
		case bLower:
			if last == bUpper && i-start >= 2 && byteTable[s[i-2]] == bUpper && (c != 's' || lowerAt(s, i+1)) {
				p.compound = true // HTTPServer, but not URLs
			}
		case bUpper:
			if last == bLower {
				p.compound = true
			}
		case bDigit:
			p.digits = true
		case bConnector:
			j := i + 1
			if c == '_' {
				for j < len(s) && s[j] == '_' {
					j++
				}
			}
			if !wordAt(s, j) || c == '&' && (last != bUpper || byteTable[s[j]] != bUpper) {
				goto end
			}
			p.compound = true
			i = j
			last = 0
			continue
		default:
			goto end
		}
		last = k
		i++
	}
end:
	// c++, c#
	if i < len(s) {
		switch {
		case s[i] == '+' && i+1 < len(s) && s[i+1] == '+' && (i+2 == len(s) || s[i+2] != '+'):
			i += 2
			p.compound = true
		case s[i] == '#' && i-start <= 2 && p.ascii && !p.digits && !wordAt(s, i+1):
			i++
			p.compound = true
		}
	}
	p.end = i
	sc.i = i
}

func wordAt(s string, i int) bool {
	if i >= len(s) {
		return false
	}
	if s[i] < utf8.RuneSelf {
		k := byteTable[s[i]]
		return k != 0 && k != bConnector
	}
	r, _ := utf8.DecodeRuneInString(s[i:])
	return classOf(r) == alpha
}

func lowerAt(s string, i int) bool { return i < len(s) && byteTable[s[i]] == bLower }

// lex is one lexeme of a chain, by its place in the text.
type lex struct {
	start, end int
	kind       lexKind
}

type lexKind uint8

const (
	// plainWord is a word as such: stemmed, and a term of the vocabulary.
	plainWord lexKind = iota
	// joined is words written together without their connectors: e-mail is also
	// email, dog's also dogs. Stemmed, no term.
	joined
	// whole keeps its connectors (node.js) or stands for code (fooBar,
	// snake_case): not stemmed.
	whole
)

// maxParts bounds the words of a chain that also stand as one.
const maxParts = 8

// chain is a compound piece taken apart.
type chain struct {
	// lexemes start with the chain as one, unless it has more than maxParts
	// words; dotted stretches, words and the words within fooBar follow.
	lexemes []lex
	// words are the chain's words proper, without those within fooBar.
	words []lex
	// code: a connector or spelling of programs, addresses and names, whose
	// words do not stand for the whole.
	code bool
	// hyphens: hyphens or apostrophes, and no dots.
	hyphens bool
}

func (ch *chain) split(s string, p *piece) {
	out, words := append(ch.lexemes[:0], lex{p.start, p.end, whole}), ch.words[:0]
	*ch = chain{}
	end, dots, parts := p.end, false, 0
	switch s[end-1] {
	case '+':
		end -= 2
		ch.code = true
	case '#':
		end--
		ch.code = true
	}
	segment, inSegment := p.start, 0
	closeSegment := func(at int) {
		if inSegment > 1 && (segment > p.start || at < p.end) {
			out = append(out, lex{segment, at, whole})
		}
		if inSegment > 1 && s[segment]|0x20 == 'v' && byteTable[s[segment+1]] == bDigit {
			out = append(out, lex{segment + 1, at, whole})
		}
		inSegment = 0
	}
	afterApostrophe := false
	for i := p.start; i < end; {
		j, camel := i, false
		for j < end && !connects(s, j) {
			if j > i && byteTable[s[j]] == bUpper && byteTable[s[j-1]] == bLower ||
				j > i+1 && byteTable[s[j]] == bLower && byteTable[s[j-1]] == bUpper && byteTable[s[j-2]] == bUpper {
				camel = true
			}
			j++
		}
		parts++
		inSegment++
		apostrophe := j < end && (s[j] == '\'' || s[j] == 0xE2 && s[j+2] == 0x99)
		switch {
		case camel && j-i <= 48:
			ch.code = true
			if i > p.start || j < p.end {
				out = append(out, lex{i, j, whole})
			}
			out = splitCamel(s, i, j, out)
		case j-i == 1 && (apostrophe || afterApostrophe):
			// The l of l'eau, the s of dog's.
		case apostrophe && j+2 == end && s[end-1]|0x20 == 't':
			// The don of don't is no word.
		default:
			words = append(words, lex{i, j, plainWord})
		}
		afterApostrophe = apostrophe
		i = j
		if i >= end {
			break
		}
		switch c := s[i]; {
		case c == '.':
			dots = true
			i++
			continue
		case c == '@' || c == '&':
			ch.code = true
			i++
		case c == '_':
			ch.code = true
			for s[i] == '_' {
				i++
			}
		case c < utf8.RuneSelf:
			ch.hyphens = true
			i++
		default:
			ch.hyphens = true
			i += 3
		}
		closeSegment(j)
		segment = i
	}
	closeSegment(end)
	ch.hyphens = ch.hyphens && !dots
	if parts > maxParts {
		out = append(out[:0], out[1:]...)
	} else if ch.hyphens && !ch.code {
		out[0].kind = joined
	}
	ch.lexemes, ch.words = append(out, words...), words
}

// connects reports whether s[i] starts a connector of a chain.
func connects(s string, i int) bool {
	c := s[i]
	if c == 0xE2 {
		// ’ ‐ ‑
		return s[i+1] == 0x80 && (s[i+2] == 0x99 || s[i+2] == 0x90 || s[i+2] == 0x91)
	}
	return byteTable[c] == bConnector
}

// splitCamel appends the words of fooBar and HTTPServer.
func splitCamel(s string, i, j int, out []lex) []lex {
	for start := i; start < j; {
		k := start + 1
		for k < j {
			if byteTable[s[k]] == bUpper && byteTable[s[k-1]] == bLower {
				break
			}
			if k+1 < j && byteTable[s[k]] == bUpper && byteTable[s[k-1]] == bUpper && byteTable[s[k+1]] == bLower && (s[k+1] != 's' || k+2 < j && byteTable[s[k+2]] == bLower) {
				break
			}
			k++
		}
		if k-start > 1 && k-start < j-i {
			out = append(out, lex{start, k, plainWord})
		}
		start = k
	}
	return out
}

// maxLexeme is the length in bytes above which a lexeme is cut and told apart
// by a hash; PostgreSQL takes 2046.
const maxLexeme = 128

// appendLexeme appends the lexeme of s: folded, without the connectors that
// people also leave out.
func appendLexeme(dst []byte, s string) []byte {
	start := len(dst)
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case 'A' <= c && c <= 'Z':
				dst = append(dst, c|0x20)
			case c != '-' && c != '_' && c != '\'':
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		dst = appendFold(dst, r)
		i += n
	}
	if len(dst)-start > maxLexeme {
		dst = shorten(dst, start)
	}
	return dst
}

func shorten(dst []byte, start int) []byte {
	h := fnv.New64a()
	h.Write(dst[start:])
	cut := start + maxLexeme - 17
	for !utf8.RuneStart(dst[cut]) {
		cut--
	}
	dst = append(dst[:cut], '.')
	return strconv.AppendUint(dst, h.Sum64(), 16)
}
