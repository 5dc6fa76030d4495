package corpus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// Create makes a note in one round trip. Faults: one that names the fields at
// fault (400), parent_missing, sibling_name_taken (409), too_deep,
// path_too_long (400).
func Create(ctx context.Context, tx *pg.Tx, owner, event uuid.UUID, d Draft) (Note, error) {
	if err := d.check(); err != nil {
		return Note{}, err
	}
	n := d.note()
	var b pgx.Batch
	outbox.NameIn(ctx, tx, &b, event)
	if n.ParentID != nil {
		lockTreeShared(&b, owner)
	}
	placed := n.insert(&b, owner)
	if err := tx.Last(ctx, &b); err != nil {
		return Note{}, err
	}
	return n, placed()
}

func (d Draft) note() Note {
	return Note{
		ID: uuid.Must(uuid.NewV7()), Genre: d.Genre, Title: d.Title, ParentID: d.ParentID, Body: &d.Body, Tags: d.Tags, Aliases: d.Aliases,
		Visibility: d.Visibility, ShowAsSource: d.ShowAsSource, Source: d.Source, Version: 1,
	}
}

// insert queues the row of a new note. The function that it returns completes n
// from what the database answered, or says why there is no row.
func (n *Note) insert(b *pgx.Batch, owner uuid.UUID) (placed func() error) {
	if n.Genre == Raw {
		b.Queue(`
			INSERT INTO notes (id, owner_id, genre, title, title_key, body, tags, tag_keys, aliases, visibility, show_as_source, source, promoted_from)
			VALUES ($1, $2, 'raw', nullif($3, ''), nullif($4, ''), $5, $6, $7, $8, $9, $10, nullif($11, ''), $12)
			RETURNING created_at, updated_at`,
			n.ID, owner, n.Title, text.TitleKey(n.Title), n.Body, n.Tags, tagKeys(n.Tags), n.Aliases, n.Visibility, n.ShowAsSource, n.Source, n.PromotedFrom,
		).QueryRow(func(row pgx.Row) error { return row.Scan(&n.CreatedAt, &n.UpdatedAt) })
		return func() error { n.URI = uri(n.Genre, "", n.ID); return nil }
	}
	slug, hashed := slugs(n.Title)
	found, prefix := false, ""
	var path *string
	var clash []string
	var made, changed *time.Time
	// The second insert runs only when the first met a row with its path or its
	// title; in the latter case it meets that row too. Unlike a check before the
	// insert, this also holds against writers that have not committed yet.
	b.Queue(`
		WITH `+placeSQL+`, fit AS (
			SELECT * FROM place
			WHERE length(prefix) - length(replace(prefix, '/', '')) < $17 AND octet_length(prefix) + octet_length($16::text) <= $18
		), plain AS (
			INSERT INTO notes (id, owner_id, genre, title, title_key, slug, path, parent_id, body, tags, tag_keys, aliases, visibility, show_as_source, source, promoted_from)
			SELECT $1, $2, $3, $5, $6, $15, prefix || $15, parent_id, $7, $8, $9, $10, $11, $12, nullif($13, ''), $14::uuid FROM fit
			ON CONFLICT DO NOTHING RETURNING path, created_at, updated_at
		), hashed AS (
			INSERT INTO notes (id, owner_id, genre, title, title_key, slug, path, parent_id, body, tags, tag_keys, aliases, visibility, show_as_source, source, promoted_from)
			SELECT $1, $2, $3, $5, $6, $16, prefix || $16, parent_id, $7, $8, $9, $10, $11, $12, nullif($13, ''), $14::uuid FROM fit
			WHERE NOT EXISTS (SELECT FROM plain)
			ON CONFLICT DO NOTHING RETURNING path, created_at, updated_at
		)
		SELECT place.prefix, made.*, CASE WHEN made.path IS NULL THEN (`+namesakeSQL+`) END
		FROM place LEFT JOIN (SELECT * FROM plain UNION ALL SELECT * FROM hashed) AS made ON true`,
		n.ID, owner, n.Genre, n.ParentID, n.Title, text.TitleKey(n.Title), n.Body, n.Tags, tagKeys(n.Tags), n.Aliases, n.Visibility, n.ShowAsSource, n.Source, n.PromotedFrom,
		slug, hashed, MaxDepth, MaxPath,
	).Query(func(rows pgx.Rows) error {
		found = rows.Next()
		if !found {
			return rows.Err()
		}
		return rows.Scan(&prefix, &path, &made, &changed, &clash)
	})
	return func() error {
		switch {
		case !found:
			return parentMissing()
		case path == nil:
			if err := fits(strings.Count(prefix, "/")+1, len(prefix)+len(hashed)); err != nil {
				return err
			}
			return siblingNameTaken(n.Title, clash)
		}
		n.Path, n.CreatedAt, n.UpdatedAt = *path, *made, *changed
		n.slug = strings.TrimPrefix(*path, prefix)
		n.URI = uri(n.Genre, n.Path, n.ID)
		return nil
	}
}

// slugs answers the slug that a title gets, and the one that it gets when
// another title has the first. A slug that tells too little of its title has
// the hash from the start, so that an address does not depend on who came first.
func slugs(title string) (slug, hashed string) {
	return slugOf(title), text.SlugWithHash(title)
}

// slugOf is the first of slugs.
func slugOf(title string) string {
	slug, lossy := text.Slug(title)
	if lossy {
		slug = text.SlugWithHash(title)
	}
	return slug
}

// placeSQL is where a note of genre $3 of owner $2 stands when $4 is its parent:
// no row when the parent is missing.
const placeSQL = `place AS (
			SELECT NULL::uuid AS parent_id, '' AS prefix WHERE $4::uuid IS NULL
			UNION ALL
			SELECT id, path || '/' FROM notes WHERE id = $4 AND owner_id = $2 AND genre = $3 AND deleted_at IS NULL
		)`

// namesakeSQL is id and title of the note of genre $3 of owner $2 under $4 whose
// title has the key $6, other than $1.
const namesakeSQL = `SELECT ARRAY[n.id::text, n.title] FROM notes n WHERE n.owner_id = $2 AND n.genre = $3 AND n.title_key = $6 AND n.deleted_at IS NULL AND n.id <> $1
				AND coalesce(n.parent_id, '00000000-0000-0000-0000-000000000000') = coalesce($4, '00000000-0000-0000-0000-000000000000'::uuid)`

// Notes that get a parent hold the owner's tree lock together; whoever changes
// paths or takes subtrees away holds it alone. It is taken before any row, so
// that nobody holds a row while waiting for it. A note at the root needs no
// lock: the unique indexes are enough.
func lockTree(b *pgx.Batch, owner uuid.UUID) {
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, treeLock(owner))
}

func lockTreeShared(b *pgx.Batch, owner uuid.UUID) {
	b.Queue(`SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 0))`, treeLock(owner))
}

func treeLock(owner uuid.UUID) string { return "corpus.tree " + owner.String() }

func parentMissing() error {
	const detail = "There is no such parent: it must be a living note of the same genre."
	return &fault.Fault{Kind: fault.Conflict, Code: "parent_missing", Detail: detail,
		Fields: []fault.Field{{Name: "parent_id", Code: "parent_missing", Detail: detail}}}
}

// siblingNameTaken names the note that has the title already, by id and title,
// where it is known: one that is written at the same moment can't be seen yet.
func siblingNameTaken(title string, namesake []string) error {
	detail := fmt.Sprintf("Another note in the same place is named %q: titles there must differ, regardless of case.", title)
	if namesake != nil {
		detail = fmt.Sprintf("The note %s in the same place is named %q: titles there must differ, regardless of case.", namesake[0], namesake[1])
	}
	return &fault.Fault{Kind: fault.Conflict, Code: "sibling_name_taken", Detail: detail,
		Fields: []fault.Field{{Name: "title", Code: "sibling_name_taken", Detail: detail}}}
}

func fits(depth, bytes int) error {
	switch {
	case depth > MaxDepth:
		return invalid("parent_id", "too_deep", fmt.Sprintf("Notes may stand %d deep at most.", MaxDepth))
	case bytes > MaxPath:
		return invalid("parent_id", "path_too_long", fmt.Sprintf("The path would be longer than %d bytes.", MaxPath))
	}
	return nil
}
