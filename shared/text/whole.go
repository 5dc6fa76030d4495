package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// WholeWords answers the query with its last word as a whole word only. Where
// the word is a frequent one that is several times cheaper to look up, since an
// index has to gather all words that begin with another before it can tell which
// notes hold the rest.
func (q Query) WholeWords() Query {
	q.clauses = slices.Clone(q.clauses)
	for i := range q.clauses {
		c := &q.clauses[i]
		// A single character of a text without spaces is always a beginning.
		r, _ := utf8.DecodeRuneInString(strings.TrimPrefix(c.any[0][0], "#"))
		if class := classOf(r); class != dense && class != abugida {
			c.prefix = false
		}
	}
	return q.render()
}

// Beginnings answers the query with each unquoted word of 3 letters or more also
// as the beginning of one, as the last is anyway.
func (q Query) Beginnings() Query {
	q.clauses = slices.Clone(q.clauses)
	for i := range q.clauses {
		c := &q.clauses[i]
		first := c.any[0][0]
		r, _ := utf8.DecodeRuneInString(first)
		c.prefix = c.prefix || c.word >= 0 && len(c.any[0]) == 1 && classOf(r) == alpha &&
			utf8.RuneCountInString(first) >= 3 && !strings.HasSuffix(first, "+")
	}
	return q.render()
}
