package corpus

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Delete puts a living note and all living notes below it into the trash, in
// one round trip. It answers the note as it was last and how many notes went.
// The event is the note's own. version is the one that the caller has read; nil
// doesn't care. Faults: not_found, version_conflict (409).
func Delete(ctx context.Context, tx *pg.Tx, owner, id, event uuid.UUID, version *int64) (n Note, count int64, err error) {
	found, now := false, int64(0)
	var b pgx.Batch
	lockTree(&b, owner)
	outbox.NameIn(ctx, tx, &b, event)
	b.Queue(`
		UPDATE notes n SET deleted_at = now(), deleted_with = n.id
		WHERE n.id = $1 AND n.owner_id = $2 AND n.deleted_at IS NULL AND ($3::bigint IS NULL OR n.version = $3) RETURNING `+withoutBody, id, owner, version).
		Query(func(rows pgx.Rows) error {
			if found = rows.Next(); found {
				return n.scan(rows)
			}
			return rows.Err()
		})
	b.Queue(`
		UPDATE notes n SET deleted_at = now(), deleted_with = $1
		FROM notes r
		WHERE r.id = $1 AND r.owner_id = $2 AND r.deleted_with = $1 AND r.deleted_at = now()
			AND n.owner_id = $2 AND n.genre = r.genre AND n.genre <> 'raw' AND n.deleted_at IS NULL AND n.path >= r.path || '/' AND n.path < r.path || '0'`, id, owner).
		Exec(func(tag pgconn.CommandTag) error { count = tag.RowsAffected(); return nil })
	if version != nil {
		b.Queue(`SELECT version FROM notes WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL`, id, owner).
			Query(func(rows pgx.Rows) error {
				if rows.Next() {
					return rows.Scan(&now)
				}
				return rows.Err()
			})
	}
	if err := tx.Last(ctx, &b); err != nil {
		return n, 0, err
	}
	switch {
	case found:
		return n, count + 1, nil
	case now > 0:
		return n, 0, expected(version, now)
	}
	return n, 0, fault.NotFound("note")
}

// Restore brings back a deleted note, and with it exactly what its deletion
// took. When the note that it stood under is gone, it comes back at the root.
// It answers how many notes came back. The event is the note's own.
//
// version is the one that the caller has read; nil doesn't care.
//
// Faults: not_found; version_conflict (409); not_deleted (409);
// deleted_with_parent (409) when the note went with another one;
// sibling_name_taken (409) when its name or address was given to another note;
// too_deep and path_too_long (400).
func Restore(ctx context.Context, tx *pg.Tx, owner, id, event uuid.UUID, version *int64) (n Note, count int64, err error) {
	var parent bool
	var b pgx.Batch
	lockTree(&b, owner)
	n.queueLocked(&b, owner, id, "true")
	b.Queue(`
		SELECT EXISTS (SELECT FROM notes p JOIN notes n ON p.id = n.parent_id
			WHERE n.id = $1 AND p.owner_id = $2 AND p.genre = n.genre AND p.deleted_at IS NULL)`, id, owner).
		QueryRow(func(row pgx.Row) error { return row.Scan(&parent) })
	if err := send(ctx, tx, &b); err != nil {
		return n, 0, err
	}
	if err := expected(version, n.Version); err != nil {
		return n, 0, err
	}
	switch {
	case n.DeletedAt == nil:
		return n, 0, fault.New(fault.Conflict, "not_deleted", "This note is not in the trash.")
	case *n.deletedWith != n.ID:
		return n, 0, fault.New(fault.Conflict, "deleted_with_parent", "This note was deleted together with "+n.deletedWith.String()+". Restore that one.")
	case !parent:
		n.ParentID = nil
	}
	old := n.Path
	if n.Genre != Raw {
		if err := n.settle(ctx, tx, owner, takenSQL, n.slug, n.slug); err != nil {
			return n, 0, err
		}
	}
	b = pgx.Batch{}
	outbox.NameIn(ctx, tx, &b, event)
	b.Queue(`UPDATE notes SET deleted_at = NULL, deleted_with = NULL, parent_id = $2, path = nullif($3, '') WHERE id = $1 RETURNING version, updated_at`,
		n.ID, n.ParentID, n.Path).QueryRow(func(row pgx.Row) error { return row.Scan(&n.Version, &n.UpdatedAt) })
	b.Queue(`
		UPDATE notes n SET deleted_at = NULL, deleted_with = NULL, path = $4 || substr(n.path, length($5) + 1)
		WHERE n.owner_id = $1 AND n.deleted_with = $2 AND n.deleted_at = $3`, owner, n.ID, n.DeletedAt, n.Path, old).
		Exec(func(tag pgconn.CommandTag) error { count = tag.RowsAffected(); return nil })
	n.DeletedAt, n.deletedWith = nil, nil
	return n, count + 1, placed(tx.Last(ctx, &b), n.Title)
}

// Trashed is an entry of the trash: a note that was deleted, with what it took.
type Trashed struct {
	Note  Note `json:"note"`
	Count int  `json:"count" jsonschema:"how many notes its deletion took, itself included"`
}

// TrashPosition is where a page of the trash begins: behind an entry. The zero
// position is the beginning.
type TrashPosition struct {
	DeletedAt time.Time `json:"t"`
	ID        uuid.UUID `json:"i"`
}

// Trash lists what was deleted, last first, at most limit entries behind a
// position, and how many there are in all. more tells that the list goes on.
func Trash(ctx context.Context, q pg.Querier, owner uuid.UUID, after TrashPosition, limit int) (items []Trashed, more bool, total int, err error) {
	rows, err := q.Query(ctx, `
		SELECT `+withoutBody+`, (SELECT count(*) FROM notes t WHERE t.owner_id = $1 AND t.deleted_at = n.deleted_at AND t.deleted_with = n.id)
		FROM notes n
		WHERE n.owner_id = $1 AND n.deleted_at IS NOT NULL AND n.deleted_with = n.id AND ($2 OR (n.deleted_at, n.id) < ($3, $4))
		ORDER BY n.deleted_at DESC, n.id DESC LIMIT $5`, owner, after == TrashPosition{}, after.DeletedAt, after.ID, limit+1)
	if err != nil {
		return nil, false, 0, err
	}
	items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Trashed, err error) {
		err = t.Note.scan(row, &t.Count)
		return t, err
	})
	if err != nil {
		return nil, false, 0, pg.Fault(err)
	}
	if more = len(items) > limit; more {
		items = items[:limit]
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM notes WHERE owner_id = $1 AND deleted_at IS NOT NULL AND deleted_with = id`, owner).Scan(&total)
	return items, more, total, pg.Fault(err)
}
