// Package corpus holds an owner's notes: what they are, the rules that they
// obey, and the index that search reads.
//
// Every function is keyed by owner. Another owner's note is fault "not_found",
// as a missing one is; functions that write take the transaction that they
// belong to.
package corpus

// Genre is what kind of text a note is. A raw note is as it came in, without a
// place; wiki and output notes form a tree each.
type Genre string

// The genres, in the order that notes are promoted.
const (
	Raw    Genre = "raw"
	Wiki   Genre = "wiki"
	Output Genre = "output"
)
