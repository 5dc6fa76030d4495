package corpus

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// subtreeSQL are the living notes of owner $2 and genre $3 below the path $5:
// '0' is the byte after '/'.
const subtreeSQL = `n.owner_id = $2 AND n.genre = $3 AND n.deleted_at IS NULL AND n.path >= $5 || '/' AND n.path < $5 || '0'`

// takenSQL are the notes that the deletion of note $1 took besides it.
const takenSQL = `n.owner_id = $2 AND n.genre = $3 AND n.deleted_with = $1 AND n.path IS DISTINCT FROM $5
	AND n.deleted_at = (SELECT r.deleted_at FROM notes r WHERE r.id = $1)`

// settle finds the place of n under its ParentID, by its Title: slug and path.
// The caller holds the tree lock. below says in SQL which notes come along.
// slug and hashed are the slugs that it may have, in that order.
func (n *Note) settle(ctx context.Context, tx *pg.Tx, owner uuid.UUID, below, slug, hashed string) error {
	var prefix string
	var taken, hashTaken bool
	var namesake []string
	var depth, longest int
	old := n.Path
	err := tx.QueryRow(ctx, `
		WITH `+placeSQL+`
		SELECT prefix, (`+namesakeSQL+`),
			EXISTS (SELECT FROM notes n WHERE n.owner_id = $2 AND n.genre = $3 AND n.path = prefix || $7 AND n.deleted_at IS NULL AND n.id <> $1),
			EXISTS (SELECT FROM notes n WHERE n.owner_id = $2 AND n.genre = $3 AND n.path = prefix || $8 AND n.deleted_at IS NULL AND n.id <> $1),
			below.depth, below.longest
		FROM place, (
			SELECT coalesce(max(length(n.path) - length(replace(n.path, '/', ''))), 0), coalesce(max(octet_length(n.path)), 0)
			FROM notes n WHERE `+below+`
		) AS below (depth, longest)`,
		n.ID, owner, n.Genre, n.ParentID, old, text.TitleKey(n.Title), slug, hashed,
	).Scan(&prefix, &namesake, &taken, &hashTaken, &depth, &longest)
	switch {
	case pg.IsNoRows(err):
		return parentMissing()
	case err != nil:
		return err
	case n.ParentID != nil && (*n.ParentID == n.ID || strings.HasPrefix(prefix, old+"/")):
		return fault.New(fault.Conflict, "cycle", "A note can't be moved under itself.")
	case namesake != nil, taken && hashTaken:
		return siblingNameTaken(n.Title, namesake)
	case taken:
		slug = hashed
	}
	n.slug, n.Path = slug, prefix+slug
	n.URI = uri(n.Genre, n.Path, n.ID)
	parts := strings.Count(n.Path, "/") + 1
	deepest, bytes := parts, len(n.Path)
	if longest > 0 {
		deepest, bytes = parts+depth-strings.Count(old, "/"), max(bytes, bytes+longest-len(old))
	}
	return fits(deepest, bytes)
}

// placed reads the error of a statement that gave notes a place. Notes at the
// root are created without the tree lock, so a place that was free when it was
// looked for may be taken now.
func placed(err error, title string) error {
	switch {
	case pg.Violates(err, "notes_sibling_title_key"):
		return siblingNameTaken(title, nil)
	case pg.Violates(err, "notes_path_key"):
		// another title has just got the slug: looked for again, it is seen
		return &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "corpus: the path was taken meanwhile"}
	}
	return err
}

// send runs a batch in the transaction, which goes on after it.
func send(ctx context.Context, tx *pg.Tx, b *pgx.Batch) error {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	return raw.SendBatch(ctx, b).Close()
}
