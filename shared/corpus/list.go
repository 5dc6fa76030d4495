package corpus

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// Filter narrows a list of notes; zero fields don't.
type Filter struct {
	Genre Genre
	// Tag also admits the tags nested in it.
	Tag string
	// Visibility admits one; Seen, when not nil, those that a visitor may see, and
	// no raw note.
	Visibility Visibility
	Seen       []Visibility
	// Root admits notes without a parent, ParentID those right under one.
	Root     bool
	ParentID *uuid.UUID
}

// Position is where a page of notes begins: behind a note. The zero position is
// the beginning.
type Position struct {
	UpdatedAt time.Time `json:"t"`
	ID        uuid.UUID `json:"i"`
}

const filterSQL = `n.owner_id = $1 AND n.deleted_at IS NULL
	AND ($2 = '' OR n.genre = $2) AND ($3 = '' OR n.tag_keys @> ARRAY[$3]) AND ($4 = '' OR n.visibility = $4)
	AND ($5::text[] IS NULL OR n.genre <> 'raw' AND n.visibility = ANY ($5))
	AND CASE WHEN $6 THEN n.parent_id IS NULL ELSE $7::uuid IS NULL OR n.parent_id = $7 END`

// List lists living notes without their bodies, last changed first, at most
// limit behind a position, and counts all that match. more tells that the list
// goes on.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, f Filter, after Position, limit int) (items []Note, more bool, total int, err error) {
	args := []any{owner, f.Genre, tagKey(f.Tag), f.Visibility, f.Seen, f.Root, f.ParentID}
	rows, err := q.Query(ctx, `
		SELECT `+withoutBody+` FROM notes n
		WHERE `+filterSQL+` AND ($8 OR (n.updated_at, n.id) < ($9, $10))
		ORDER BY n.updated_at DESC, n.id DESC LIMIT $11`, append(args, after == Position{}, after.UpdatedAt, after.ID, limit+1)...)
	if err != nil {
		return nil, false, 0, err
	}
	if items, err = pgx.CollectRows(rows, collectNote); err != nil {
		return nil, false, 0, pg.Fault(err)
	}
	if more = len(items) > limit; more {
		items = items[:limit]
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM notes n WHERE `+filterSQL, args...).Scan(&total)
	return items, more, total, pg.Fault(err)
}
