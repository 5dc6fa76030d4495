package microsite

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Publish has visitors served a build of the site, whatever they were served
// before; changed is false where they are served it already. Faults: "not_found";
// "build_not_built" (409).
func Publish(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string, build uuid.UUID) (s Site, changed bool, err error) {
	if s, err = lock(ctx, tx, owner, slug); err != nil {
		return s, false, err
	}
	b, err := GetBuild(ctx, tx, owner, build)
	switch {
	case err != nil:
		return s, false, err
	case b.siteID != s.ID:
		return s, false, fault.NotFound("build")
	case b.Status == Failed:
		return s, false, fault.New(fault.Conflict, "build_not_built", "This build failed, so it can't be published. Its log says why.")
	case b.Status != Built:
		return s, false, fault.New(fault.Conflict, "build_not_built", "This build has not settled, so it can't be published yet.")
	case b.Live:
		return s, false, nil
	}
	history := s.history
	if s.Live != nil {
		history = append(history, s.Live.BuildID)
	}
	return s.goLive(ctx, tx, owner, outbox.MicrositePublished, &Ref{b.BuildID, b.Number, b.Status}, history)
}

// Rollback has visitors served what they were served before the last change.
// Faults: "not_found"; "nothing_to_roll_back" (409).
func Rollback(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string) (s Site, changed bool, err error) {
	if s, err = lock(ctx, tx, owner, slug); err != nil {
		return s, false, err
	}
	if len(s.history) == 0 {
		return s, false, fault.New(fault.Conflict, "nothing_to_roll_back", "No other build of this site was live before.")
	}
	last := len(s.history) - 1
	b, err := GetBuild(ctx, tx, owner, s.history[last])
	if err != nil {
		return s, false, err
	}
	return s.goLive(ctx, tx, owner, outbox.MicrositeRolledBack, &Ref{b.BuildID, b.Number, b.Status}, s.history[:last])
}

// Unpublish has visitors served nothing; a rollback brings back what they were
// served. Fault "not_found".
func Unpublish(ctx context.Context, tx *pg.Tx, owner uuid.UUID, slug string) (s Site, changed bool, err error) {
	if s, err = lock(ctx, tx, owner, slug); err != nil || s.Live == nil {
		return s, false, err
	}
	return s.goLive(ctx, tx, owner, outbox.MicrositeUnpublished, nil, append(s.history, s.Live.BuildID))
}

// goLive is the switch: one change of one row.
func (s Site) goLive(ctx context.Context, tx *pg.Tx, owner uuid.UUID, kind string, b *Ref, history []uuid.UUID) (Site, bool, error) {
	var id *uuid.UUID
	if b != nil {
		id = &b.BuildID
		// the latest time keeps it from being forgotten
		tag, err := tx.Exec(ctx, `UPDATE microsite_builds SET published_at = clock_timestamp() WHERE id = $1`, id)
		if err != nil {
			return s, false, err
		}
		if tag.RowsAffected() == 0 {
			return s, false, fault.NotFound("build")
		}
	}
	if history == nil {
		history = []uuid.UUID{}
	}
	history = history[max(len(history)-maxHistory, 0):]
	if _, err := tx.Exec(ctx, `UPDATE microsites SET live_build = $2, history = $3, updated_at = clock_timestamp() WHERE id = $1`, s.ID, id, history); err != nil {
		return s, false, err
	}
	if err := record(ctx, tx, kind, owner, s, b); err != nil {
		return s, false, err
	}
	now, err := Get(ctx, tx, owner, s.Slug)
	return now, true, err
}

// Served is what a request for a page may be answered with.
type Served struct {
	SiteID uuid.UUID
	// Files are those of the paths that were asked for which are there.
	Files map[string]Output
}

const outputSQL = `coalesce(o.path, ''), coalesce(o.blob, ''), coalesce(o.sha256, ''), coalesce(o.size, 0), coalesce(o.content_type, '')`

// Live finds files of what is live at an address, all of one build; fault
// "not_found" when nothing is.
func Live(ctx context.Context, q pg.Querier, handle, slug string, paths []string) (Served, error) {
	return served(ctx, q, `
		SELECT s.id, `+outputSQL+`
		FROM owners w JOIN microsites s ON s.owner_id = w.id AND s.deleted_at IS NULL AND s.live_build IS NOT NULL
			LEFT JOIN microsite_outputs o ON o.build_id = s.live_build AND o.path = ANY ($3)
		WHERE w.handle = $1 AND s.slug = $2`, handle, slug, paths)
}

// Preview is Live for a build, live or not.
func Preview(ctx context.Context, q pg.Querier, build uuid.UUID, paths []string) (Served, error) {
	return served(ctx, q, `
		SELECT s.id, `+outputSQL+`
		FROM microsite_builds b JOIN microsites s ON s.id = b.site_id AND s.deleted_at IS NULL
			LEFT JOIN microsite_outputs o ON o.build_id = b.id AND o.path = ANY ($2)
		WHERE b.id = $1 AND b.state = 'built'`, build, paths)
}

// Formerly finds a file that an earlier live build of the site made and named by
// its content: pages of that build are still open somewhere. Fault "not_found".
func Formerly(ctx context.Context, q pg.Querier, site uuid.UUID, path string) (Output, error) {
	s, err := served(ctx, q, `
		(SELECT b.site_id, `+outputSQL+`
		FROM microsite_builds b JOIN microsite_outputs o ON o.build_id = b.id
		WHERE b.site_id = $1 AND b.published_at IS NOT NULL AND o.path = $2 LIMIT 1)`, site, path)
	return s.Files[path], err
}

func served(ctx context.Context, q pg.Querier, sql string, args ...any) (s Served, err error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return s, pg.Fault(err)
	}
	s.Files = map[string]Output{}
	var o Output
	tag, err := pgx.ForEachRow(rows, []any{&s.SiteID, &o.Path, &o.Blob, &o.SHA256, &o.Size, &o.ContentType}, func() error {
		if o.Path != "" {
			s.Files[o.Path] = o
		}
		o = Output{}
		return nil
	})
	if err != nil {
		return s, pg.Fault(err)
	}
	if tag.RowsAffected() == 0 {
		return s, fault.NotFound("page")
	}
	return s, nil
}
