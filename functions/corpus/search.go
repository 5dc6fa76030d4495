package corpus

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
)

// Searching is the input of every search.
type Searching struct {
	Q      string      `json:"q" maxLength:"1000" jsonschema:"Words that must all occur. \"quoted words\" must follow one another, -word must not occur, #tag must be a tag of the note."`
	Genre  notes.Genre `json:"genre,omitempty" enum:"raw,wiki,output" jsonschema:"Only notes of this genre."`
	Tag    string      `json:"tag,omitempty" maxLength:"100" jsonschema:"Only notes with this tag or one nested in it."`
	Limit  int         `json:"limit,omitempty" default:"20" minimum:"1" maximum:"50" jsonschema:"How many results to answer at most."`
	Cursor string      `json:"cursor,omitempty" maxLength:"1024" jsonschema:"next_cursor of the page before; leave it out for the first page."`
}

// Found is a page of search results.
type Found[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty" jsonschema:"Pass it as cursor to get the next page; absent on the last page."`
	Total      int    `json:"total" jsonschema:"How many results there are on all pages; at least so many when total_at_least is true."`
	AtLeast    bool   `json:"total_at_least,omitempty" jsonschema:"true: there are more than total, too many to count. Behind the best ones the others follow, last indexed first."`
}

// Search declares corpus.search.
func Search(d Deps) *op.Operation {
	return op.New(op.Spec{
		Name: "corpus.search", Method: "GET", Path: "/v1/corpus/search", Scope: "corpus:read",
		Summary: "Search notes",
		Description: `Finds notes of every genre by their words, best first: title, tags, path, then body. Example: {"q": "solar panels", "genre": "wiki"}. ` +
			`Each result has a snippet; read the note itself with corpus.get. Word forms are found too and, where few notes hold the words themselves, words that begin with them (kube finds Kubernetes) and slight misspellings (similar: true). ` +
			`A note whose write answered indexed: false may not be found, or by its old text, until its index job has completed.`,
		Tool: &op.Tool{ReadOnly: true, Idempotent: true},
	}, func(ctx context.Context, c auth.Caller, in Searching) (Found[notes.Hit], error) {
		return search(ctx, d, c.OwnerID, in, nil)
	})
}

func search(ctx context.Context, d Deps, owner uuid.UUID, in Searching, seen []notes.Visibility) (page Found[notes.Hit], err error) {
	o := notes.SearchOptions{Query: in.Q, Genre: in.Genre, Tag: in.Tag, Seen: seen, Limit: in.Limit}
	if err := op.DecodeCursor(in.Cursor, &o.From); err != nil {
		return page, err
	}
	r, err := notes.Search(ctx, d.DB, owner, o)
	page.Items, page.Total, page.AtLeast = r.Hits, r.Total, r.AtLeast
	if r.Next != nil {
		page.NextCursor = op.EncodeCursor(r.Next)
	}
	return page, err
}
