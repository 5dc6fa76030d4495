// Package jobfeed keeps an owner's job listings: the sources that they come from,
// the pool of all that was ever found, and what each fetch of a source gave.
package jobfeed

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

// MaxSources is how many an owner may have.
const MaxSources = 200

// IsFeed reports whether a kind is one of feeds, which have an address and no
// board.
func IsFeed(kind string) bool {
	return kind == "rss" || kind == "atom" || kind == "json_feed"
}

// Source is where listings come from, as its owner reads it.
type Source struct {
	ID           uuid.UUID  `json:"id"`
	Kind         string     `json:"kind" enum:"greenhouse,lever,ashby,workable,smartrecruiters,remoteok,rss,atom,json_feed"`
	Board        string     `json:"board,omitempty" jsonschema:"the company's name in the board's addresses; feeds have none"`
	URL          string     `json:"url,omitempty" jsonschema:"the feed's address; boards have none"`
	Name         string     `json:"name" jsonschema:"what the owner calls it; may be empty"`
	LastSeen     int        `json:"last_seen" jsonschema:"how many listings its last answer had"`
	FetchedAt    *time.Time `json:"fetched_at,omitempty" jsonschema:"when it was last read; absent: never"`
	FailedReason string     `json:"failed_reason,omitempty" jsonschema:"why the last fetch failed; absent after one that did not"`
	FailedAt     *time.Time `json:"failed_at,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
}

const sourceSQL = `id, kind, board, url, name, last_seen, fetched_at, coalesce(failed_reason, ''), failed_at, created_at`

func scanSource(row pgx.CollectableRow) (s Source, err error) {
	err = row.Scan(&s.ID, &s.Kind, &s.Board, &s.URL, &s.Name, &s.LastSeen, &s.FetchedAt, &s.FailedReason, &s.FailedAt, &s.CreatedAt)
	return s, err
}

var boardSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,99}$`)

// Draft is a new source. URL has been checked by egress.
type Draft struct{ Kind, Board, URL, Name string }

// check refuses what is no source: a board without its company, a feed without
// its address, or either with the other's.
func (d Draft) check() error {
	wants := map[bool]string{true: "This kind of source is a feed: give its url, and no board.", false: "This kind of source is a board: give the company's name in the board's addresses as board, and no url."}[IsFeed(d.Kind)]
	switch {
	case d.Kind == "remoteok":
		if d.Board != "" || d.URL != "" {
			return fault.InvalidField("board", "not_allowed", "Remote OK is one list for everybody: leave board and url out.")
		}
	case IsFeed(d.Kind) && d.Board != "":
		return fault.InvalidField("board", "not_allowed", wants)
	case IsFeed(d.Kind) && d.URL == "":
		return fault.InvalidField("url", "missing_field", wants)
	case !IsFeed(d.Kind) && d.URL != "":
		return fault.InvalidField("url", "not_allowed", wants)
	case !IsFeed(d.Kind) && d.Board == "":
		return fault.InvalidField("board", "missing_field", wants)
	case !IsFeed(d.Kind) && !boardSyntax.MatchString(d.Board):
		return fault.InvalidField("board", "invalid_format", "A board's name has letters, digits, dots, hyphens and underscores, as in the address of the company's page.")
	}
	return nil
}

// Create makes a source. Faults: those of a draft that is none (400),
// "source_exists" and "too_many_sources" (409).
func Create(ctx context.Context, tx *pg.Tx, owner uuid.UUID, d Draft) (s Source, err error) {
	if err := d.check(); err != nil {
		return s, err
	}
	if _, err := tx.Exec(ctx, `SELECT FROM owners WHERE id = $1 FOR NO KEY UPDATE`, owner); err != nil {
		return s, err
	}
	var n int
	var exists bool
	if err := tx.QueryRow(ctx, `
		SELECT count(*), coalesce(bool_or(kind = $2 AND lower(board) = lower($3) AND url = $4), false)
		FROM job_sources WHERE owner_id = $1 AND deleted_at IS NULL`, owner, d.Kind, d.Board, d.URL).Scan(&n, &exists); err != nil {
		return s, err
	}
	switch {
	case exists:
		return s, fault.New(fault.Conflict, "source_exists", "You have this source already.")
	case n >= MaxSources:
		return s, fault.New(fault.Conflict, "too_many_sources", "You have 200 sources, and there can be no more. Delete one first.")
	}
	id := outbox.NewID()
	rows, err := tx.Query(ctx, `
		INSERT INTO job_sources (id, owner_id, kind, board, url, name) VALUES ($1, $2, $3, $4, $5, $6) RETURNING `+sourceSQL, id, owner, d.Kind, d.Board, d.URL, d.Name)
	if err != nil {
		return s, err
	}
	if s, err = pgx.CollectExactlyOneRow(rows, scanSource); err != nil {
		return s, err
	}
	return s, outbox.Record(ctx, tx, outbox.NewID(), outbox.JobSourceCreated, owner, id.String(), map[string]string{"kind": d.Kind})
}

// Delete ends a source. Its listings stay in the pool. Fault "not_found".
func Delete(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) error {
	var kind string
	err := tx.QueryRow(ctx, `UPDATE job_sources SET deleted_at = clock_timestamp() WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL RETURNING kind`, id, owner).Scan(&kind)
	if pg.IsNoRows(err) {
		return fault.NotFound("job source")
	}
	if err != nil {
		return err
	}
	return outbox.Record(ctx, tx, outbox.NewID(), outbox.JobSourceDeleted, owner, id.String(), map[string]string{"kind": kind})
}

// Cursor is a place in a list of sources: the last one seen.
type Cursor struct {
	CreatedAt time.Time `json:"c"`
	ID        uuid.UUID `json:"i"`
}

// List reads an owner's sources, newest first, after the cursor (nil: from the
// newest). next is nil on the last page; total counts all.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, after *Cursor, limit int) (items []Source, next *Cursor, total int, err error) {
	upto := Cursor{CreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
	if after != nil {
		upto = *after
	}
	rows, err := q.Query(ctx, `
		SELECT `+sourceSQL+` FROM job_sources WHERE owner_id = $1 AND deleted_at IS NULL AND (created_at, id) < ($2, $3)
		ORDER BY created_at DESC, id DESC LIMIT $4`, owner, upto.CreatedAt, upto.ID, limit+1)
	if err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanSource); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = &Cursor{CreatedAt: items[limit-1].CreatedAt, ID: items[limit-1].ID}
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM job_sources WHERE owner_id = $1 AND deleted_at IS NULL`, owner).Scan(&total)
	return items, next, total, pg.Fault(err)
}

// Ask asks for sources to be fetched: the one, or all (zero). It gives the event
// of each, which is the fetch's name from now on. Fault "not_found".
func Ask(ctx context.Context, tx *pg.Tx, owner, source uuid.UUID, newID func() uuid.UUID) (events []uuid.UUID, err error) {
	rows, err := tx.Query(ctx, `
		SELECT id FROM job_sources WHERE owner_id = $1 AND deleted_at IS NULL AND ($2 = '00000000-0000-0000-0000-000000000000'::uuid OR id = $2)
		ORDER BY created_at, id`, owner, source)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 && source != (uuid.UUID{}) {
		return nil, fault.NotFound("job source")
	}
	for _, id := range ids {
		event := newID()
		if err := outbox.Record(ctx, tx, event, outbox.JobsFetchRequested, owner, id.String(), struct{}{}); err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}
