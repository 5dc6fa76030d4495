// Package text is the language side of the corpus: it turns a Markdown note
// into plain text and links, plain text into the words that a search index
// holds, and what a person typed into a query over those words. It speaks
// PostgreSQL's types tsvector and tsquery, and knows no database.
//
// Every function is safe for concurrent use, accepts any bytes and answers
// valid UTF-8 without U+0000, which PostgreSQL refuses.
package text

import "github.com/jackc/pgx/v5/pgtype"

// Document is what Extract finds in a Markdown note.
type Document struct {
	// Plain is the text that a reader sees: one line for each block, single
	// spaces within a line, front matter and comments left out.
	Plain    string
	Headings []Heading
	// Links in the order of the note, repetitions included.
	Links []Link
	// Tags are those written in the text, "#like/this", without the '#' and each
	// once; not those of the front matter.
	Tags []string
}

// Heading is a heading of a note; Level is 1 to 6.
type Heading struct {
	Level int
	Text  string
}

// Link is a reference from a note to another note or file: an Obsidian
// wikilink, or a Markdown link whose target is local or a wiki://, output:// or
// raw:// URI. Compare Target by FoldName.
type Link struct {
	// Target is the name, path or URI before any '#', percent-decoded for
	// Markdown links; empty for a link within the note itself.
	Target string
	// Whole is a wikilink's target with what CutFragment takes off it, where it
	// does: it may be a name that holds a '#'.
	Whole string
	// Heading is the last part of the heading path behind '#', if any.
	Heading string
	// Block is the block id behind '^', if any.
	Block string
	// Text is what a reader sees.
	Text  string
	Embed bool
}

// Fields are the parts of a note that are searched, by falling weight.
type Fields struct {
	Title    string
	Aliases  []string
	Tags     []string
	URI      string
	Headings []Heading
	// Plain is Document.Plain.
	Plain string
	// Lang is a BCP 47 tag, or empty to have the language detected.
	Lang string
}

// Index is what the search index stores of a note.
type Index struct {
	// Lang is an ISO 639 code, or empty when the note holds too little to tell.
	Lang string
	// Words are the note's words, within MaxIndexBytes. Send them as
	// they are: in the binary format the server reads them five times as fast as
	// a literal.
	Words pgtype.TSVector
	// Head are the words of title, aliases and tags alone, of those in Words.
	Head pgtype.TSVector
	// Truncated: some words, or the stems of some, were too many for Words.
	Truncated bool
	// Terms are the note's distinct words of 4 to 40 letters, folded, for
	// finding words that resemble a misspelt one.
	Terms []string
}

// Query is a parsed search. The zero Query finds nothing.
type Query struct {
	// TSQuery is a literal of PostgreSQL's type tsquery, or empty when there is
	// nothing to search for.
	TSQuery string
	// Words are the words that must all occur, in the order typed, without
	// quoted, excluded and tag words.
	Words []Word
	// Phrases are the quoted parts, folded as MatchesPhrases compares them.
	Phrases []string

	clauses []clause
}

// Word is one word of a Query.
type Word struct {
	Folded string
	// Alternatives are further lexemes that stand for the word: its stems, and
	// what Expand added.
	Alternatives []string
}
