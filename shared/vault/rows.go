package vault

import (
	"context"
	"path"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/pg"
)

// Row is what is kept of a vault's file.
type Row struct {
	Path    string
	Kind    Kind
	Hash    []byte
	Size    int64
	Head    string
	Publish Publishing
	// NoteID is zero for an attachment; NoteHash is NoteHash of what the import
	// made of the note.
	NoteID   uuid.UUID
	NoteHash []byte
}

// Rows reads all rows of an owner, by Key of their paths.
func Rows(ctx context.Context, q pg.Querier, owner uuid.UUID) (map[string]Row, error) {
	rows, err := q.Query(ctx, `
		SELECT path_key, path, kind, sha256, size, head, publish, coalesce(note_id, $2), coalesce(note_hash, '')
		FROM vault_files WHERE owner_id = $1`, owner, uuid.Nil)
	if err != nil {
		return nil, err
	}
	all := map[string]Row{}
	var key string
	var r Row
	_, err = pgx.ForEachRow(rows, []any{&key, &r.Path, &r.Kind, &r.Hash, &r.Size, &r.Head, &r.Publish, &r.NoteID, &r.NoteHash}, func() error {
		all[key] = r
		r = Row{}
		return nil
	})
	return all, pg.Fault(err)
}

// rowsAtOnce is how many rows one statement writes.
const rowsAtOnce = 2_000

// Queue queues the statements that drop rows by key and store others. A row of a
// note takes the place of the one that the note had.
func Queue(b *pgx.Batch, owner uuid.UUID, gone []string, stored []Row, checked func(pgconn.CommandTag, int) error) {
	if len(gone) > 0 {
		b.Queue(`DELETE FROM vault_files WHERE owner_id = $1 AND path_key = ANY ($2)`, owner, gone)
	}
	for len(stored) > 0 {
		some := stored[:min(len(stored), rowsAtOnce)]
		stored = stored[len(some):]
		n := len(some)
		paths, keys, names, kinds, heads, publish := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		hashes, sizes, notes, noteHashes := make([][]byte, n), make([]int64, n), make([]*uuid.UUID, n), make([][]byte, n)
		for i, r := range some {
			paths[i], keys[i], kinds[i], heads[i], publish[i] = r.Path, Key(r.Path), string(r.Kind), r.Head, string(r.Publish)
			names[i] = Key(path.Base(strings.TrimSuffix(r.Path, "/")))
			hashes[i], sizes[i] = append([]byte{}, r.Hash...), r.Size
			if r.NoteID != uuid.Nil {
				notes[i], noteHashes[i] = &r.NoteID, r.NoteHash
			}
		}
		b.Queue(`
			INSERT INTO vault_files AS f (owner_id, path, path_key, name_key, kind, sha256, size, head, publish, note_id, note_hash)
			SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::text[], $9::text[], $10::uuid[], $11::bytea[])
			ON CONFLICT (owner_id, path_key) DO UPDATE SET
				path = excluded.path, name_key = excluded.name_key, kind = excluded.kind, sha256 = excluded.sha256, size = excluded.size, head = excluded.head,
				publish = excluded.publish, note_id = excluded.note_id, note_hash = excluded.note_hash, imported_at = now()`,
			owner, paths, keys, names, kinds, hashes, sizes, heads, publish, notes, noteHashes).
			Exec(func(tag pgconn.CommandTag) error { return checked(tag, n) })
	}
}

// NoteIDs lists the notes that came from an owner's vaults.
func NoteIDs(ctx context.Context, q pg.Querier, owner uuid.UUID) ([]uuid.UUID, error) {
	rows, err := q.Query(ctx, `SELECT note_id FROM vault_files WHERE owner_id = $1 AND note_id IS NOT NULL`, owner)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	return ids, pg.Fault(err)
}
