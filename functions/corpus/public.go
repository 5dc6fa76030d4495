package corpus

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/obsidian"
	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
)

// PublicNote is what visitors are shown of a note.
//
// Its address holds the slugs of the notes above it, also of private ones: an
// address that hid them would change whenever one of them is published, and
// would not be the one that the owner sees. Nothing else of them is shown.
type PublicNote struct {
	Genre     notes.Genre `json:"genre" enum:"wiki,output"`
	URI       string      `json:"uri"`
	Path      string      `json:"path" jsonschema:"where it is read: /v1/public/{handle}/notes/{path}"`
	Title     string      `json:"title"`
	Tags      []string    `json:"tags"`
	Aliases   []string    `json:"aliases"`
	Source    string      `json:"source,omitempty" jsonschema:"where the text comes from, if the owner shows it"`
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
}

func published(n notes.Note) PublicNote {
	p := PublicNote{
		Genre: n.Genre, URI: n.URI, Path: n.Path, Title: n.Title, Tags: n.Tags, Aliases: n.Aliases,
		CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
	if n.ShowAsSource {
		p.Source = n.Source
	}
	return p
}

// readers finds whose notes are read, and which of them the caller may see. The
// owner sees here what visitors with a code do.
func (d Deps) readers(ctx context.Context, c auth.Caller, handle string) (owner uuid.UUID, seen []notes.Visibility, err error) {
	owner, err = notes.OwnerOf(ctx, d.DB, handle)
	seen = []notes.Visibility{notes.Public}
	if c.Reads(owner) {
		seen = append(seen, notes.Coded)
	}
	return owner, seen, err
}

// PublicList declares public.notes, the index of what visitors may read.
func PublicList(d Deps) *op.Operation {
	type in struct {
		Handle string      `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Genre  notes.Genre `json:"genre,omitempty" enum:"wiki,output" jsonschema:"Only notes of this genre."`
		Tag    string      `json:"tag,omitempty" maxLength:"100" jsonschema:"Only notes with this tag or one nested in it."`
		op.Paging
	}
	return op.New(op.Spec{
		Name: "public.notes", Method: "GET", Path: "/v1/public/{handle}/notes", Access: op.Public,
		Summary:     "List the notes that visitors may read",
		Description: `Lists the public notes of an owner, last changed first and without their bodies; for a visitor with an access code, those shared by code too. Raw notes are never among them.`,
	}, func(ctx context.Context, c auth.Caller, in in) (out op.Page[PublicNote], err error) {
		owner, seen, err := d.readers(ctx, c, in.Handle)
		if err != nil {
			return out, err
		}
		page, err := list(ctx, d, owner, notes.Filter{Genre: in.Genre, Tag: in.Tag, Seen: seen}, in.Paging)
		out.NextCursor, out.Total = page.NextCursor, page.Total
		for _, n := range page.Items {
			out.Items = append(out.Items, published(n))
		}
		return out, err
	})
}

// PublicGet declares public.note.
func PublicGet(d Deps) *op.Operation {
	type in struct {
		Handle string      `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Path   string      `json:"path" path:"path" jsonschema:"the note's path"`
		Genre  notes.Genre `json:"genre,omitempty" enum:"wiki,output" jsonschema:"Which note, when one of each genre has the path; wiki if left out."`
	}
	type out struct {
		Note      PublicNote    `json:"note"`
		Body      string        `json:"body" jsonschema:"Markdown"`
		Links     []notes.Link  `json:"links" jsonschema:"where the note's links lead, as far as the reader may follow"`
		Backlinks []notes.Named `json:"backlinks" jsonschema:"notes that link to this one, as far as the reader may see"`
	}
	return op.New(op.Spec{
		Name: "public.note", Method: "GET", Path: "/v1/public/{handle}/notes/{path...}", Access: op.Public,
		Summary:     "Read a note as a visitor",
		Description: `Reads one of the notes that public.notes lists, by its path, with where its links lead and which notes link to it: as far as the reader may see. A note that they may not see is not_found.`,
	}, func(ctx context.Context, c auth.Caller, in in) (o out, err error) {
		owner, seen, err := d.readers(ctx, c, in.Handle)
		if err != nil {
			return o, err
		}
		n, err := notes.GetPublic(ctx, d.DB, owner, in.Genre, in.Path, seen)
		if err != nil {
			return o, err
		}
		o.Note, o.Body = published(n), *n.Body
		if o.Links, err = notes.LinksOf(ctx, d.DB, owner, n, seen); err != nil {
			return o, err
		}
		if err = obsidian.Attachments(ctx, d.DB, owner, n, o.Links, obsidian.PublicAssetURL(in.Handle, n)); err != nil {
			return o, err
		}
		o.Backlinks, err = notes.Backlinks(ctx, d.DB, owner, n, seen)
		return o, err
	})
}

// PublicSearch declares public.search.
func PublicSearch(d Deps) *op.Operation {
	type in struct {
		Handle string `json:"handle" path:"handle" jsonschema:"the owner's public name"`
		Searching
	}
	type hit struct {
		Note    PublicNote `json:"note"`
		Snippet string     `json:"snippet"`
		Score   float64    `json:"score"`
		Similar bool       `json:"similar,omitempty"`
	}
	return op.New(op.Spec{
		Name: "public.search", Method: "GET", Path: "/v1/public/{handle}/search", Access: op.Public,
		Summary:     "Search the notes that visitors may read",
		Description: `Finds notes among those that public.notes lists by their words, best first, and tells nothing of others. A note that has just been changed is found once its new text is indexed.`,
	}, func(ctx context.Context, c auth.Caller, in in) (out Found[hit], err error) {
		owner, seen, err := d.readers(ctx, c, in.Handle)
		if err != nil {
			return out, err
		}
		page, err := search(ctx, d, owner, in.Searching, seen)
		out.NextCursor, out.Total, out.AtLeast = page.NextCursor, page.Total, page.AtLeast
		for _, h := range page.Items {
			out.Items = append(out.Items, hit{published(h.Note), h.Snippet, h.Score, h.Similar})
		}
		return out, err
	})
}
