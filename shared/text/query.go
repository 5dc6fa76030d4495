package text

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
)

// Limits of a Query: what is beyond them is not searched for.
const (
	// MaxQueryWords counts words, quoted, excluded and tag words too.
	MaxQueryWords = 32
	// maxQueryBytes bounds what is read of a query, maxRun the characters of a
	// run without spaces, which ask for a two-character word each.
	maxQueryBytes = 4096
	maxRun        = 64
)

// ParseQuery reads what a person typed. All words must occur, each as it is
// written or by a stem of any language: 部署 deployment finds no note with only
// one of them. A text without spaces must occur by all its two-character words.
// The last word, unless quoted, may be the beginning of one. "quoted words"
// must follow one another (MatchesPhrases), -word must not occur, and #tag must
// be one of the note's tags. Everything else is no syntax: no input is an error.
func ParseQuery(q string) Query {
	if len(q) > maxQueryBytes {
		q = q[:maxQueryBytes]
	}
	p := queryParser{env: snowballstem.NewEnv("")}
	rest := strings.ReplaceAll(valid(q), "\x00", " ")
	for rest != "" {
		open, size, closing := quotation(rest)
		if open < 0 {
			p.unquoted(rest, true)
			break
		}
		length := strings.Index(rest[open+size:], closing)
		if length < 0 {
			// A quotation mark without its like quotes nothing.
			p.unquoted(rest[:open+size], strings.TrimSpace(rest[open+size:]) == "")
			rest = rest[open+size:]
			continue
		}
		p.unquoted(rest[:open], false)
		p.quoted(rest[open+size : open+size+length])
		rest = rest[open+size+length+len(closing):]
	}
	return p.query.render()
}

// quotation finds the first opening quotation mark.
func quotation(s string) (at, size int, closing string) {
	for i, r := range s {
		switch r {
		case '"':
			return i, 1, `"`
		case '“', '„', '”':
			if j := strings.IndexAny(s[i+3:], "“”"); j >= 0 {
				r, _ := utf8.DecodeRuneInString(s[i+3+j:])
				return i, 3, string(r)
			}
		case '«':
			return i, 2, "»"
		case '「':
			return i, 3, "」"
		case '『':
			return i, 3, "』"
		}
	}
	return -1, 0, ""
}

// clause is one condition of a query.
type clause struct {
	// any are the ways to meet it; the lexemes of one way must all occur.
	any [][]string
	// prefix: the first lexeme of the first way may be the beginning of one.
	prefix bool
	not    bool
	// word is the index in Words, -1 for a clause that is none.
	word int
}

type queryParser struct {
	query Query
	count int
	env   *snowballstem.Env
	chain chain
}

func (p *queryParser) unquoted(s string, last bool) {
	fields := strings.Fields(normalize(s))
	for i, f := range fields {
		word, not := strings.CutPrefix(f, "-")
		if strings.HasPrefix(word, "-") {
			// An option: --flag.
			word, not = f, false
		}
		prefix := last && i == len(fields)-1 && !not
		if tag := appendTag(nil, word); word[:min(1, len(word))] == "#" && strings.Trim(string(tag), "#0123456789") != "" {
			if p.room() {
				p.query.clauses = append(p.query.clauses, clause{any: [][]string{{string(tag)}}, prefix: prefix, not: not, word: -1})
			}
		} else if not {
			p.exclude(word)
		} else {
			p.words(word, prefix)
		}
	}
}

func (p *queryParser) room() bool {
	p.count++
	return p.count <= MaxQueryWords
}

func (p *queryParser) words(s string, last bool) {
	p.pieces(s, func(pc *piece) {
		c := p.clause(s, pc, true)
		if len(c.any) == 0 {
			return
		}
		if last && pc.end == len(s) && pc.class == alpha && !strings.HasSuffix(c.any[0][0], "+") {
			c.prefix = utf8.RuneCountInString(c.any[0][0]) >= 2
		}
		c.word = len(p.query.Words)
		word := Word{Folded: c.any[0][0]}
		if pc.class == dense || pc.class == abugida {
			word.Folded = s[pc.start:pc.end]
		} else {
			for _, way := range c.any[1:] {
				if len(way) == 1 {
					word.Alternatives = append(word.Alternatives, way[0])
				}
			}
		}
		p.query.Words = append(p.query.Words, word)
		p.query.clauses = append(p.query.clauses, c)
	})
}

func (p *queryParser) exclude(s string) {
	p.pieces(s, func(pc *piece) {
		if c := p.clause(s, pc, false); len(c.any) > 0 {
			c.any = c.any[:1]
			c.not, c.word = true, -1
			p.query.clauses = append(p.query.clauses, c)
		}
	})
}

func (p *queryParser) quoted(s string) {
	phrase := foldPhrase(s)
	if phrase == "" {
		return
	}
	p.query.Phrases = append(p.query.Phrases, phrase)
	s = normalize(s)
	p.pieces(s, func(pc *piece) {
		c := p.clause(s, pc, false)
		if len(c.any) == 0 {
			return
		}
		if pc.compound && len(c.any[0]) == 1 {
			// A quotation may start or end within a chain; MatchesPhrases decides.
			c.any = append(c.any, p.chainWords(s)...)
		}
		c.word = -1
		p.query.clauses = append(p.query.clauses, c)
	})
}

// pieces calls f for each piece of normalized text, within the query's limit.
func (p *queryParser) pieces(s string, f func(*piece)) {
	sc := scanner{s: s}
	var pc piece
	for sc.next(&pc) {
		if !p.room() {
			return
		}
		f(&pc)
	}
}

// clause answers how a piece is met: stems asks for what is looser than the
// piece itself.
func (p *queryParser) clause(text string, pc *piece, stems bool) clause {
	s := text[pc.start:pc.end]
	var c clause
	switch {
	case pc.class == symbol:
		c.any = [][]string{{s}}
	case pc.class != alpha:
		c.any = [][]string{runLexemes(s)}
		// A single character stands in the index as the beginning of words.
		c.prefix = len(c.any[0]) == 1 && utf8.RuneCountInString(s) == 1
	case !pc.compound:
		c.any = p.alternatives(s, stems && !pc.digits)
	default:
		p.chain.split(text, pc)
		ch := &p.chain
		first := ch.lexemes[0]
		if first.start != pc.start || first.end != pc.end {
			// Too long to stand as one.
			c.any = p.chainWords(text)
			break
		}
		c.any = p.alternatives(s, stems && first.kind == joined)
		if v := ch.lexemes[1:]; len(v) > 0 && v[0].kind == whole && v[0].start == pc.start+1 {
			c.any = append(c.any, []string{string(appendLexeme(nil, text[v[0].start:v[0].end]))})
		}
		if stems && !ch.code {
			if all := p.parts(text); all != nil && !slices.ContainsFunc(c.any, func(way []string) bool { return slices.Equal(way, all) }) {
				c.any = append(c.any, all)
			}
		}
	}
	return c
}

// chainWords answers the words of the chain, all of them, as the one way.
func (p *queryParser) chainWords(text string) [][]string {
	var all []string
	for _, l := range p.chain.words {
		if w := string(appendLexeme(nil, text[l.start:l.end])); w != "" {
			all = append(all, w)
		}
	}
	if all == nil {
		return nil
	}
	return [][]string{all}
}

// parts answers the words that together stand for a chain (long-term, node.js),
// nil where one of them is a number or a letter and says nothing.
func (p *queryParser) parts(text string) []string {
	var all []string
	for _, l := range p.chain.words {
		w := appendLexeme(nil, text[l.start:l.end])
		if utf8.RuneCount(w) < 2 || strings.Trim(string(w), "0123456789") == "" {
			return nil
		}
		all = append(all, string(w))
	}
	return all
}

// alternatives answers a word's folded form and, if asked for, its stems in
// every language of its script.
func (p *queryParser) alternatives(s string, stems bool) [][]string {
	folded := appendLexeme(nil, s)
	if len(folded) == 0 {
		return nil
	}
	ways := [][]string{{string(folded)}}
	if !stems || !stemmable(folded) {
		return ways
	}
	r, _ := utf8.DecodeRune(folded)
	script := scriptOf(r)
	for i := range languages {
		l := &languages[i]
		if l.script != script {
			continue
		}
		stem := l.stemOf(p.env, lowerNFC(s))
		if len(stem) >= 2 && !slices.ContainsFunc(ways, func(a []string) bool { return a[0] == stem }) {
			ways = append(ways, []string{stem})
		}
	}
	return ways
}

// runLexemes answers the two-character words of a run, or its one character.
func runLexemes(s string) []string {
	var all []string
	prev := -1
	for i, r := range s {
		if prev >= 0 {
			if all = append(all, s[prev:i+utf8.RuneLen(r)]); len(all) == maxRun {
				break
			}
		}
		prev = i
	}
	if all == nil {
		return []string{s}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Expand answers the query with further spellings of a word: terms of the
// vocabulary that resemble it, each also by its stems.
func (q Query) Expand(word int, alternatives []string) Query {
	p := queryParser{env: snowballstem.NewEnv("")}
	p.query = Query{Words: slices.Clone(q.Words), Phrases: q.Phrases, clauses: slices.Clone(q.clauses)}
	for i := range p.query.clauses {
		c := &p.query.clauses[i]
		if c.word != word || word < 0 {
			continue
		}
		c.any = slices.Clone(c.any)
		w := &p.query.Words[word]
		w.Alternatives = slices.Clone(w.Alternatives)
		for _, a := range alternatives {
			if !stemmable(appendLexeme(nil, normalize(valid(a)))) {
				continue
			}
			for _, way := range p.alternatives(normalize(valid(a)), true) {
				if !slices.ContainsFunc(c.any, func(have []string) bool { return slices.Equal(have, way) }) {
					c.any = append(c.any, way)
					w.Alternatives = append(w.Alternatives, way[0])
				}
			}
		}
	}
	return p.query.render()
}

// IsTerm reports whether the word could be one of an Index's Terms, and so
// whether it makes sense to look for terms that resemble it.
func (w Word) IsTerm() bool {
	folded := []byte(w.Folded)
	if !stemmable(folded) || !termLength(folded) {
		return false
	}
	r, _ := utf8.DecodeRune(folded)
	return classOf(r) == alpha
}

// render writes the literal. A query that only excludes is none: it would have
// to read the whole index.
func (q Query) render() Query {
	slices.SortStableFunc(q.clauses, func(a, b clause) int {
		switch {
		case a.not == b.not:
			return 0
		case a.not:
			return 1
		}
		return -1
	})
	var b []byte
	for _, c := range q.clauses {
		if c.not && len(b) == 0 {
			break
		}
		if len(b) > 0 {
			b = append(b, " & "...)
		}
		if c.not {
			b = append(b, '!')
		}
		group := len(c.any) > 1 || c.not && len(c.any[0]) > 1
		if group {
			b = append(b, '(')
		}
		for i, way := range c.any {
			if i > 0 {
				b = append(b, " | "...)
			}
			inner := len(way) > 1 && len(c.any) > 1
			if inner {
				b = append(b, '(')
			}
			for j, lexeme := range way {
				if j > 0 {
					b = append(b, " & "...)
				}
				b = appendQuoted(b, lexeme)
				if c.prefix && i == 0 && j == 0 {
					b = append(b, ":*"...)
				}
			}
			if inner {
				b = append(b, ')')
			}
		}
		if group {
			b = append(b, ')')
		}
	}
	q.TSQuery = string(b)
	return q
}

// MatchesPhrases reports whether plain holds every quoted part of the query,
// word by word: case, diacritics, width, punctuation and line breaks aside.
func (q Query) MatchesPhrases(plain string) bool {
	if len(q.Phrases) == 0 {
		return true
	}
	folded := foldPhrase(plain)
	for _, phrase := range q.Phrases {
		if !containsPhrase(folded, phrase) {
			return false
		}
	}
	return true
}

// containsPhrase finds a folded phrase between borders of words; a text without
// spaces has them everywhere.
func containsPhrase(folded, phrase string) bool {
	for at := 0; ; {
		i := strings.Index(folded[at:], phrase)
		if i < 0 {
			return false
		}
		i += at
		end := i + len(phrase)
		if border(folded, i) && border(folded, end) {
			return true
		}
		_, n := utf8.DecodeRuneInString(folded[i:])
		at = i + n
	}
}

func border(s string, i int) bool {
	if i == 0 || i == len(s) {
		return true
	}
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	after, _ := utf8.DecodeRuneInString(s[i:])
	return before == ' ' || after == ' ' || classOf(before) != alpha || classOf(after) != alpha
}

// foldPhrase folds words and turns what lies between them, and between scripts,
// into single spaces.
func foldPhrase(s string) string {
	s = normalize(valid(s))
	out := make([]byte, 0, len(s)+len(s)/8)
	last, gap := separator, false
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch k := byteTable[c]; {
			case k == bUpper:
				c |= 0x20
			case k == bLower, k == bDigit, c == '+', c == '#':
			default:
				gap = gap || c != '\''
				continue
			}
			if gap || last != alpha {
				out = appendGap(out)
				last, gap = alpha, false
			}
			out = append(out, c)
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		k := classOf(r)
		if k == separator || k == invisible {
			gap = gap || k == separator && r != '’'
			continue
		}
		if gap || last != k {
			out = appendGap(out)
			last, gap = k, false
		}
		if k == alpha {
			out = appendFold(out, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

func appendGap(out []byte) []byte {
	if n := len(out); n > 0 && out[n-1] != ' ' {
		out = append(out, ' ')
	}
	return out
}

// appendQuoted appends a lexeme as a literal has it.
func appendQuoted(out []byte, lexeme string) []byte {
	out = append(out, '\'')
	for i := range len(lexeme) {
		c := lexeme[i]
		if c == '\'' || c == '\\' {
			out = append(out, c)
		}
		out = append(out, c)
	}
	return append(out, '\'')
}
