// Package microsite holds an owner's small sites: their files, the builds that are
// made of them, and which build visitors are served.
package microsite

import (
	"context"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

const (
	// MaxSites is how many sites an owner may have.
	MaxSites = 50
	// MaxOpen is how many builds of an owner may be unsettled at a time.
	MaxOpen = 20
	// maxHistory is how often a site can be rolled back at most.
	maxHistory = 20
	// keepBuilds is how many builds of a site are kept besides those that can go live
	// by a rollback.
	keepBuilds = 20
)

var slugSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Site is a site as its owner sees it.
type Site struct {
	ID    uuid.UUID `json:"id"`
	Slug  string    `json:"slug"`
	Title string    `json:"title"`
	// URL is filled in by whoever knows the owner's handle.
	URL       string    `json:"url" jsonschema:"where it is served while it is live"`
	Live      *Ref      `json:"live,omitempty" jsonschema:"the build that visitors are served; absent while the site is not live"`
	Latest    *Ref      `json:"latest,omitempty" jsonschema:"the last build that was asked for"`
	Changed   bool      `json:"changed" jsonschema:"whether there are files that the last build doesn't have as they are now"`
	Rollbacks int       `json:"rollbacks" jsonschema:"how many earlier builds a rollback can go back to"`
	FileCount int       `json:"file_count"`
	Bytes     int64     `json:"bytes" jsonschema:"of all files together"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`

	version int64
	history []uuid.UUID
}

// Ref names a build.
type Ref struct {
	BuildID uuid.UUID `json:"build_id"`
	Number  int       `json:"number" jsonschema:"counts the builds of the site"`
	Status  Status    `json:"status" enum:"queued,building,built,failed"`
}

const siteSQL = `
	SELECT s.id, s.slug, s.title, s.version, s.history, s.created_at, s.updated_at,
		coalesce(f.n, 0), coalesce(f.bytes, 0), live.id, live.number, live.state, last.id, last.number, last.state, coalesce(last.version <> s.version, true)
	FROM microsites s
		LEFT JOIN LATERAL (SELECT count(*) AS n, sum(octet_length(content)) AS bytes FROM microsite_files f WHERE f.site_id = s.id AND f.removed IS NULL) f ON true
		LEFT JOIN microsite_builds live ON live.id = s.live_build
		LEFT JOIN microsite_builds last ON last.site_id = s.id AND last.number = s.builds
	WHERE s.deleted_at IS NULL AND `

func scanSite(row pgx.CollectableRow) (s Site, err error) {
	var live, last struct {
		id     *uuid.UUID
		number *int
		status *Status
	}
	err = row.Scan(&s.ID, &s.Slug, &s.Title, &s.version, &s.history, &s.CreatedAt, &s.UpdatedAt,
		&s.FileCount, &s.Bytes, &live.id, &live.number, &live.status, &last.id, &last.number, &last.status, &s.Changed)
	s.Rollbacks = len(s.history)
	if live.id != nil {
		s.Live = &Ref{*live.id, *live.number, *live.status}
	}
	if last.id != nil {
		s.Latest = &Ref{*last.id, *last.number, *last.status}
	}
	return s, err
}

// Get reads a site; fault "not_found".
func Get(ctx context.Context, q pg.Querier, owner uuid.UUID, slug string) (Site, error) {
	rows, err := q.Query(ctx, siteSQL+`s.owner_id = $1 AND s.slug = $2`, owner, slug)
	if err != nil {
		return Site{}, pg.Fault(err)
	}
	s, err := pgx.CollectExactlyOneRow(rows, scanSite)
	if pg.IsNoRows(err) {
		return s, notFound()
	}
	return s, pg.Fault(err)
}

func notFound() error { return fault.NotFound("microsite") }

// lock reads a site and holds its row to the end of tx: what changes a site goes one
// after the other.
func lock(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string) (Site, error) {
	if _, err := tx.Exec(ctx, `SELECT FROM microsites WHERE owner_id = $1 AND slug = $2 AND deleted_at IS NULL FOR NO KEY UPDATE`, owner, slug); err != nil {
		return Site{}, err
	}
	return Get(ctx, tx, owner, slug)
}

// Cursor is a place in a list of sites: the last one seen.
type Cursor struct {
	CreatedAt time.Time `json:"c"`
	ID        uuid.UUID `json:"i"`
}

// List reads an owner's sites, newest first, after the cursor (nil: from the
// newest). next is nil on the last page; total counts all.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, after *Cursor, limit int) (items []Site, next *Cursor, total int, err error) {
	upto := Cursor{CreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
	if after != nil {
		upto = *after
	}
	rows, err := q.Query(ctx, siteSQL+`s.owner_id = $1 AND (s.created_at, s.id) < ($2, $3) ORDER BY s.created_at DESC, s.id DESC LIMIT $4`,
		owner, upto.CreatedAt, upto.ID, limit+1)
	if err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanSite); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = &Cursor{CreatedAt: items[limit-1].CreatedAt, ID: items[limit-1].ID}
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM microsites WHERE owner_id = $1 AND deleted_at IS NULL`, owner).Scan(&total)
	return items, next, total, pg.Fault(err)
}

// Create makes a site with its first files. Faults: a slug of another form (400);
// "slug_taken", "too_many_microsites" (409); those of [Put].
func Create(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug, title string, files []File) (Site, error) {
	if !slugSyntax.MatchString(slug) {
		return Site{}, fault.InvalidField("slug", "invalid_format", "slug must be 1 to 63 of a-z, 0-9 and hyphens, and not begin with a hyphen.")
	}
	if _, err := tx.Exec(ctx, `SELECT FROM owners WHERE id = $1 FOR NO KEY UPDATE`, owner); err != nil {
		return Site{}, err
	}
	var n int
	var taken bool
	if err := tx.QueryRow(ctx, `SELECT count(*), coalesce(bool_or(slug = $2), false) FROM microsites WHERE owner_id = $1 AND deleted_at IS NULL`, owner, slug).Scan(&n, &taken); err != nil {
		return Site{}, err
	}
	switch {
	case taken:
		return Site{}, fault.New(fault.Conflict, "slug_taken", "You have a microsite of this slug already.")
	case n >= MaxSites:
		return Site{}, fault.New(fault.Conflict, "too_many_microsites", "You have 50 microsites, and there can be no more. Delete one first.")
	}
	id := outbox.NewID()
	if _, err := tx.Exec(ctx, `INSERT INTO microsites (id, owner_id, slug, title) VALUES ($1, $2, $3, $4)`, id, owner, slug, title); err != nil {
		return Site{}, err
	}
	s := Site{ID: id, Slug: slug, version: 1}
	if _, err := put(ctx, tx, s, Change{Files: files}); err != nil {
		return s, err
	}
	if err := record(ctx, tx, outbox.MicrositeCreated, owner, s, nil); err != nil {
		return s, err
	}
	return Get(ctx, tx, owner, slug)
}

// Delete removes a site with its files; nothing of it is served from then on. Its
// builds can be read until they are forgotten. Fault "not_found".
func Delete(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string) error {
	s, err := lock(ctx, tx, owner, slug)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE microsites SET deleted_at = now(), live_build = NULL, history = '{}' WHERE id = $1`, s.ID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM microsite_files WHERE site_id = $1`, s.ID); err != nil {
		return err
	}
	return record(ctx, tx, outbox.MicrositeDeleted, owner, s, nil)
}

// record records an event about a site, and a build of it unless b is nil.
func record(ctx context.Context, tx *pg.Tx, kind string, owner uuid.UUID, s Site, b *Ref) error {
	data := map[string]any{"site_id": s.ID, "slug": s.Slug}
	if b != nil {
		data["build_id"], data["number"] = b.BuildID, b.Number
	}
	return outbox.Record(ctx, tx, outbox.NewID(), kind, owner, s.ID.String(), data)
}
