// Package corpus holds an owner's notes: what they are, the rules that they
// obey, and the index that search reads.
//
// Every function is keyed by owner. Another owner's note is fault "not_found",
// as a missing or deleted one is; functions that write take the transaction
// that they belong to, and the id that the event of their change shall have.
package corpus

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Genre is what kind of text a note is. A raw note is as it came in, without a
// place; wiki and output notes form a tree each.
type Genre string

// The genres, in the order that notes are promoted.
const (
	Raw    Genre = "raw"
	Wiki   Genre = "wiki"
	Output Genre = "output"
)

// Visibility says who may read a note besides its owner. Raw notes are always
// private.
type Visibility string

// The visibilities.
const (
	Private Visibility = "private"
	Coded   Visibility = "coded"  // visitors who redeemed an access code
	Public  Visibility = "public" // anybody
)

// Note is a note of an owner.
//
// The address of a note is public when the note is: it holds the slugs of the
// notes above it, also of private ones. Nothing else of them is shown.
type Note struct {
	ID           uuid.UUID  `json:"id"`
	Genre        Genre      `json:"genre" enum:"raw,wiki,output"`
	URI          string     `json:"uri" jsonschema:"its address: wiki://path/of/slugs, output://path/of/slugs or raw://id"`
	Title        string     `json:"title" jsonschema:"empty for a raw note without one"`
	Path         string     `json:"path,omitempty" jsonschema:"slugs from the root to this note; raw notes have none"`
	ParentID     *uuid.UUID `json:"parent_id" jsonschema:"the note that it stands under; null at the root"`
	Body         *string    `json:"body,omitempty" jsonschema:"Markdown; left out of lists"`
	Tags         []string   `json:"tags"`
	Aliases      []string   `json:"aliases" jsonschema:"other names that links may use"`
	Visibility   Visibility `json:"visibility" enum:"private,coded,public"`
	ShowAsSource bool       `json:"show_as_source" jsonschema:"whether visitors are shown the source"`
	Source       string     `json:"source" jsonschema:"where the text comes from"`
	PromotedFrom *uuid.UUID `json:"promoted_from,omitempty" jsonschema:"the note that it was made of"`
	PromotedTo   *uuid.UUID `json:"promoted_to,omitempty" jsonschema:"the note that was made of it last"`
	Version      int64      `json:"version" jsonschema:"rises with each change"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	DeletedAt    *time.Time `json:"deleted_at,omitempty"`

	slug        string
	deletedWith *uuid.UUID
}

const (
	noteColumns = `n.id, n.genre, coalesce(n.title, ''), coalesce(n.slug, ''), coalesce(n.path, ''), n.parent_id, n.tags, n.aliases,
		n.visibility, n.show_as_source, coalesce(n.source, ''), n.promoted_from, n.promoted_to, n.version, n.created_at, n.updated_at,
		n.deleted_at, n.deleted_with`
	withBody    = noteColumns + `, n.body`
	withoutBody = noteColumns + `, NULL::text`
)

// scan reads the columns above, and more behind them.
func (n *Note) scan(row pgx.Row, more ...any) error {
	err := row.Scan(append([]any{
		&n.ID, &n.Genre, &n.Title, &n.slug, &n.Path, &n.ParentID, &n.Tags, &n.Aliases,
		&n.Visibility, &n.ShowAsSource, &n.Source, &n.PromotedFrom, &n.PromotedTo, &n.Version, &n.CreatedAt, &n.UpdatedAt,
		&n.DeletedAt, &n.deletedWith, &n.Body}, more...)...)
	if pg.IsNoRows(err) {
		return fault.NotFound("note")
	}
	n.URI = uri(n.Genre, n.Path, n.ID)
	return pg.Fault(err)
}

func collectNote(row pgx.CollectableRow) (n Note, err error) {
	err = n.scan(row)
	return n, err
}

func uri(g Genre, path string, id uuid.UUID) string {
	if g == Raw {
		return "raw://" + id.String()
	}
	return string(g) + "://" + path
}

// Get reads a living note, with its body.
func Get(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (n Note, err error) {
	err = n.scan(q.QueryRow(ctx, `SELECT `+withBody+` FROM notes n WHERE n.id = $1 AND n.owner_id = $2 AND n.deleted_at IS NULL`, id, owner))
	return n, err
}

// Find is Get for a note that may lie in the trash.
func Find(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (n Note, err error) {
	err = n.scan(q.QueryRow(ctx, `SELECT `+withBody+` FROM notes n WHERE n.id = $1 AND n.owner_id = $2`, id, owner))
	return n, err
}

// GetPublic reads a note by its path as a visitor may: of the given
// visibilities, and never a raw one. An empty genre is any; wiki comes first.
func GetPublic(ctx context.Context, q pg.Querier, owner uuid.UUID, genre Genre, path string, seen []Visibility) (n Note, err error) {
	err = n.scan(q.QueryRow(ctx, `
		SELECT `+withBody+` FROM notes n
		WHERE n.owner_id = $1 AND n.genre IN ('wiki', 'output') AND ($2 = '' OR n.genre = $2) AND n.path = $3
			AND n.visibility = ANY ($4) AND n.deleted_at IS NULL
		ORDER BY n.genre DESC LIMIT 1`, owner, genre, strings.Trim(path, "/"), seen))
	return n, err
}

// OwnerOf finds the owner whose public name is handle.
func OwnerOf(ctx context.Context, q pg.Querier, handle string) (id uuid.UUID, err error) {
	err = q.QueryRow(ctx, `SELECT id FROM owners WHERE handle = $1`, handle).Scan(&id)
	if pg.IsNoRows(err) {
		return id, fault.NotFound("owner")
	}
	return id, pg.Fault(err)
}
