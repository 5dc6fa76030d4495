package text

import (
	"hash/maphash"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/jackc/pgx/v5/pgtype"
)

// Limits of an Index.
const (
	// MaxIndexBytes is PostgreSQL's limit of what a tsvector's words and their
	// positions take. A note beyond it loses the positions of body words, which
	// only the ranking misses; where that is not enough it is truncated, and loses
	// stems, then the body's last words.
	MaxIndexBytes = 1<<20 - 1

	// A lexeme keeps its first positions only: ts_rank hardly gains by more.
	maxPositions = 4
	maxPosition  = 16383

	// stemCacheWords bounds the stems that an analyzer remembers of a language.
	stemCacheWords = 1 << 14
)

type weight uint16

const (
	weightD weight = iota << 14
	weightC
	weightB
	weightA
)

// Analyze turns a note into its index.
//
// Each word stands as it was written, folded (lower case, full width, without
// Latin, Greek, Cyrillic, Hebrew and Arabic diacritics), and by its stem in the
// note's language. Stems are not marked: a query asks for its word or any of
// its stems, and a word that equals another's stem is that word or its kin.
// Chains such as node.js, snake_case, fooBar, c++ and e-mail stand whole and by
// their words. Text without spaces stands by its two-character words and each
// run's last character; a single character is asked for as a prefix. A tag also
// stands as "#tag", and "#a" for "#a/b".
//
// Weights: title and aliases A, tags B, URI and headings C, the rest D.
func Analyze(f Fields) Index {
	a := analyzers.Get().(*analyzer)
	defer analyzers.Put(a)
	a.reset()
	a.field(f.Title, weightA)
	for _, s := range f.Aliases {
		a.field(s, weightA)
	}
	// Tags and addresses say nothing about the language.
	seen := a.seen
	for _, s := range f.Tags {
		a.field(s, weightB)
		a.tag(s)
	}
	a.field(f.URI, weightC)
	for _, h := range f.Headings {
		a.field(h.Text, weightC)
	}
	a.seen = seen
	a.field(f.Plain, weightD)

	lang, latinLang := a.detect(f.Lang)
	surfaces := len(a.entries)
	a.stemAll(surfaces, latinLang)
	terms := a.terms(surfaces)
	words, head, truncated := a.vectors()
	return Index{Lang: lang, Words: words, Head: head, Truncated: truncated, Terms: terms}
}

var analyzers = sync.Pool{New: func() any {
	return &analyzer{
		seed:  maphash.MakeSeed(),
		table: make([]uint32, 1<<10),
		env:   snowballstem.NewEnv(""),
	}
}}

// entry is a lexeme of the note.
type entry struct {
	off, hash, count uint32
	len              uint16
	positions        uint8
	flags            uint8
	at               [maxPositions]uint16
	// source is a word with other than ASCII letters as it was written.
	source string
}

const (
	isWord = 1 << iota // gets a stem
	isTerm             // belongs to the vocabulary
)

type analyzer struct {
	seed    maphash.Seed
	arena   []byte
	entries []entry
	// table is an open hash table of indexes into entries, plus one.
	table []uint32
	chain chain
	out   []byte
	pos   int
	seen  writing
	env   *snowballstem.Env
	stems [len(languages)]map[string]string
}

// maxIdle is the buffer size above which an analyzer is not kept for the next
// note.
const maxIdle = 1 << 20

func (a *analyzer) reset() {
	if len(a.table) > 1<<13 {
		a.table = make([]uint32, 1<<10)
	} else {
		clear(a.table)
	}
	if cap(a.arena) > maxIdle || cap(a.out) > maxIdle {
		a.arena, a.out, a.entries = nil, nil, nil
	}
	a.arena, a.entries, a.pos, a.seen = a.arena[:0], a.entries[:0], 1, writing{}
}

// field adds the words of a text.
func (a *analyzer) field(s string, w weight) {
	sc := scanner{s: normalize(valid(s))}
	var p piece
	for sc.next(&p) {
		s := sc.s[p.start:p.end]
		switch {
		case p.class == symbol:
			a.add(append(a.arena, s...), w, a.pos)
			a.pos++
		case p.class != alpha:
			a.run(s, p.class, w)
		case p.compound:
			a.chain.split(sc.s, &p)
			pos := a.pos
			for _, l := range a.chain.lexemes {
				if l.kind == plainWord {
					pos = a.pos
					a.pos++
				}
				a.word(sc.s[l.start:l.end], p.ascii && l.kind == plainWord, l.kind, w, pos)
			}
		default:
			kind := plainWord
			if p.digits {
				kind = whole
			}
			a.word(s, p.ascii, kind, w, a.pos)
			a.pos++
		}
	}
	// The next field's words are no neighbours of this one's.
	a.pos += 8
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, " ")
}

func (a *analyzer) word(s string, ascii bool, kind lexKind, w weight, pos int) {
	arena := a.arena
	if ascii && len(s) <= maxLexeme {
		for i := range len(s) {
			c := s[i]
			if c-'A' < 26 {
				c |= 0x20
			}
			arena = append(arena, c)
		}
		a.seen.words[latin]++
	} else {
		arena = appendLexeme(arena, s)
		a.seen.word(s)
	}
	i := a.add(arena, w, pos)
	if i < 0 || kind == whole {
		return
	}
	e := &a.entries[i]
	if e.flags&isWord == 0 && stemmable(a.lexeme(e)) {
		e.flags |= isWord
		if !ascii {
			e.source = s
		}
	}
	if kind == plainWord && e.flags&(isWord|isTerm) == isWord && termLength(a.lexeme(e)) {
		e.flags |= isTerm
	}
}

// termLength reports whether a word has the 4 to 40 letters of a Term.
func termLength(folded []byte) bool {
	n := utf8.RuneCount(folded)
	return 4 <= n && n <= 40
}

// run adds the two-character words of a text without spaces, and its last
// character.
func (a *analyzer) run(s string, c class, w weight) {
	prev := -1
	for i, r := range s {
		if prev >= 0 {
			a.add(append(a.arena, s[prev:i+utf8.RuneLen(r)]...), w, a.pos)
			a.pos++
		}
		a.seen.rune(r, c)
		prev = i
	}
	a.add(append(a.arena, s[prev:]...), w, a.pos)
	a.pos++
}

// tag adds "#tag", for nested tags also the tags that hold it.
func (a *analyzer) tag(s string) {
	a.out = appendTag(a.out[:0], s)
	for i := 2; i <= len(a.out); i++ {
		if i == len(a.out) || a.out[i] == '/' {
			a.add(append(a.arena, a.out[:i]...), weightB, a.pos)
		}
	}
	a.pos++
}

// appendTag appends '#' and a tag's letters, digits and symbols; "a b", "a-b"
// and "a_b" are one tag.
func appendTag(dst []byte, s string) []byte {
	dst = append(dst, '#')
	for _, r := range strings.TrimLeft(normalize(valid(s)), "# ") {
		switch classOf(r) {
		case alpha:
			dst = appendFold(dst, r)
		case dense, abugida, symbol:
			dst = utf8.AppendRune(dst, r)
		default:
			if last := dst[len(dst)-1]; r == '/' && last != '/' && last != '#' || r == '+' {
				dst = append(dst, byte(r))
			}
		}
	}
	if last := len(dst) - 1; dst[last] == '/' {
		dst = dst[:last]
	}
	if len(dst) > maxLexeme {
		dst = shorten(dst, 0)
	}
	return dst
}

func (a *analyzer) lexeme(e *entry) []byte { return a.arena[e.off : e.off+uint32(e.len)] }

// add records the lexeme that follows a.arena in arena, and answers its index
// in entries, -1 for an empty one.
func (a *analyzer) add(arena []byte, w weight, pos int) int {
	old := len(a.arena)
	a.arena = arena[:old]
	lexeme := arena[old:]
	if len(lexeme) == 0 {
		return -1
	}
	hash := uint32(maphash.Bytes(a.seed, lexeme))
	mask := uint32(len(a.table) - 1)
	slot := hash & mask
	for ; a.table[slot] != 0; slot = (slot + 1) & mask {
		i := a.table[slot] - 1
		if e := &a.entries[i]; e.hash == hash && string(a.lexeme(e)) == string(lexeme) {
			e.count++
			e.place(w, pos)
			return int(i)
		}
	}
	a.arena = arena
	a.entries = append(a.entries, entry{off: uint32(old), len: uint16(len(lexeme)), hash: hash, count: 1})
	n := len(a.entries)
	a.entries[n-1].place(w, pos)
	a.table[slot] = uint32(n)
	if 2*n > len(a.table) {
		a.grow()
	}
	return n - 1
}

func (a *analyzer) grow() {
	a.table = make([]uint32, 4*len(a.table))
	mask := uint32(len(a.table) - 1)
	for i := range a.entries {
		slot := a.entries[i].hash & mask
		for a.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		a.table[slot] = uint32(i + 1)
	}
}

func (e *entry) place(w weight, pos int) {
	if e.positions == maxPositions || pos > maxPosition && e.positions > 0 {
		return
	}
	e.at[e.positions] = uint16(w) | uint16(min(pos, maxPosition))
	e.positions++
}

// stemAll adds the stems of the first n entries.
func (a *analyzer) stemAll(n int, latinLang int) {
	for i := range n {
		e := &a.entries[i]
		if e.flags&isWord == 0 {
			continue
		}
		word := a.lexeme(e)
		l := latinLang
		if e.source != "" {
			r, _ := utf8.DecodeRune(word)
			if l = stemmerOf(scriptOf(r), latinLang); l < 0 {
				continue
			}
		}
		stem := a.stem(l, word, e.source)
		if len(stem) < 2 || stem == string(word) {
			continue
		}
		at, count := e.at, e.positions
		j := a.add(append(a.arena, stem...), weight(at[0])&^maxPosition, int(at[0]&maxPosition))
		for _, p := range at[1:count] {
			a.entries[j].place(weight(p)&^maxPosition, int(p&maxPosition))
		}
	}
}

// stemmerOf is the index in languages of a script's stemmer, or -1.
func stemmerOf(s script, latinLang int) int {
	if s == latin {
		return latinLang
	}
	for i := range languages {
		if languages[i].script == s {
			return i
		}
	}
	return -1
}

func (a *analyzer) stem(l int, folded []byte, source string) string {
	cache := a.stems[l]
	var written string
	if source != "" {
		written = lowerNFC(source)
		if s, ok := cache[written]; ok {
			return s
		}
	} else {
		if s, ok := cache[string(folded)]; ok {
			return s
		}
		written = string(folded)
	}
	if cache == nil || len(cache) >= stemCacheWords {
		cache = map[string]string{}
		a.stems[l] = cache
	}
	stem := languages[l].stemOf(a.env, written)
	// The key must not keep the note that it was read from.
	cache[strings.Clone(written)] = stem
	return stem
}

// size is what an entry takes of MaxIndexBytes at most: its bytes, and with
// positions a byte that aligns them, their count and two for each.
func (e *entry) size() int {
	if e.positions == 0 {
		return int(e.len)
	}
	return int(e.len) + 3 + 2*int(e.positions)
}

// vectors answers the entries as a tsvector, and those of title, aliases and
// tags alone as another.
func (a *analyzer) vectors() (words, head pgtype.TSVector, truncated bool) {
	total := 0
	for i := range a.entries {
		total += a.entries[i].size()
	}
	if total > MaxIndexBytes {
		truncated = a.shed()
	}
	heads, places := 0, 0
	for i := range a.entries {
		e := &a.entries[i]
		e.order()
		places += int(e.positions)
		if e.heads() > 0 {
			heads++
		}
	}
	arena := string(a.arena)
	positions := make([]pgtype.TSVectorPosition, 0, places)
	words = pgtype.TSVector{Lexemes: make([]pgtype.TSVectorLexeme, 0, len(a.entries)), Valid: true}
	head = pgtype.TSVector{Lexemes: make([]pgtype.TSVectorLexeme, 0, heads), Valid: true}
	for i := range a.entries {
		e := &a.entries[i]
		if e.len == 0 {
			continue
		}
		start := len(positions)
		for _, p := range e.at[:e.positions] {
			positions = append(positions, pgtype.TSVectorPosition{Position: p & maxPosition, Weight: 'D' - pgtype.TSVectorWeight(p>>14)})
		}
		lexeme := pgtype.TSVectorLexeme{Word: arena[e.off : e.off+uint32(e.len)], Positions: positions[start:]}
		words.Lexemes = append(words.Lexemes, lexeme)
		// The fields of the head come first, and so do their positions.
		if n := e.heads(); n > 0 {
			lexeme.Positions = lexeme.Positions[:n:n]
			head.Lexemes = append(head.Lexemes, lexeme)
		}
	}
	return words, head, truncated
}

// order sorts the positions, each once and by its highest weight, as
// PostgreSQL's binary format wants them.
func (e *entry) order() {
	at := e.at[:e.positions]
	for i := 1; i < len(at); i++ {
		for j := i; j > 0 && (at[j]&maxPosition < at[j-1]&maxPosition || at[j]&maxPosition == at[j-1]&maxPosition && at[j] > at[j-1]); j-- {
			at[j], at[j-1] = at[j-1], at[j]
		}
	}
	n := 0
	for _, p := range at {
		if n == 0 || p&maxPosition != at[n-1]&maxPosition {
			at[n] = p
			n++
		}
	}
	e.positions = uint8(n)
}

// heads is how many of the positions stand in title, aliases and tags.
func (e *entry) heads() int {
	n := 0
	for n < int(e.positions) && weight(e.at[n]) >= weightB {
		n++
	}
	return n
}

// shed brings the entries to MaxIndexBytes and reports whether any was dropped
// for it; a dropped one has length 0.
func (a *analyzer) shed() (dropped bool) {
	for i := range a.entries {
		if e := &a.entries[i]; e.bodyOnly() {
			e.positions = 0
		}
	}
	room := MaxIndexBytes
	for i := range a.entries {
		e := &a.entries[i]
		if size := e.size(); size <= room {
			room -= size
		} else {
			e.len, dropped = 0, true
		}
	}
	return dropped
}

func (e *entry) bodyOnly() bool {
	for _, p := range e.at[:e.positions] {
		if weight(p) >= weightC {
			return false
		}
	}
	return true
}

// terms answers the vocabulary among the first n entries.
func (a *analyzer) terms(n int) []string {
	count := 0
	out := a.out[:0]
	for i := range a.entries[:n] {
		if e := &a.entries[i]; e.flags&isTerm != 0 {
			count++
			out = append(out, a.lexeme(e)...)
		}
	}
	a.out = out
	if count == 0 {
		return nil
	}
	all := string(out)
	terms := make([]string, 0, count)
	for i := range a.entries[:n] {
		if e := &a.entries[i]; e.flags&isTerm != 0 {
			terms = append(terms, all[:e.len])
			all = all[e.len:]
		}
	}
	return terms
}
