package vault

import (
	"context"
	"encoding/hex"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// Attachment is a file of a vault that notes show or link to.
type Attachment struct {
	Path string
	Hash []byte
	Size int64
}

// BlobKey is the key of an owner's blob with that hash.
func BlobKey(owner uuid.UUID, hash []byte) string {
	return "vault/" + owner.String() + "/" + hex.EncodeToString(hash)
}

// Shelf finds attachments by what notes call them.
type Shelf struct{ byName map[string][]Attachment }

// NewShelf holds these attachments.
func NewShelf(all []Attachment) Shelf {
	s := Shelf{map[string][]Attachment{}}
	for _, a := range all {
		name := Key(path.Base(a.Path))
		s.byName[name] = append(s.byName[name], a)
	}
	return s
}

// Find resolves a target in the note that lies at from (empty: nowhere): as a
// path from the note's folder, or from the root; else as the end of a path, where
// the note's own folder comes first. Several that are as near are ambiguous, and
// none is chosen.
func (s Shelf) Find(from, target string) (a Attachment, found, ambiguous bool) {
	target = strings.ReplaceAll(target, `\`, "/")
	folder := path.Dir(from)
	near, whole := Key(path.Join(folder, target)), Key(strings.TrimLeft(path.Clean("/"+target), "/"))
	var ends []Attachment
	named := s.byName[Key(path.Base(target))]
	for _, wanted := range []string{near, whole} {
		for _, a := range named {
			if Key(a.Path) == wanted {
				return a, true, false
			}
		}
	}
	for _, a := range named {
		if strings.HasSuffix("/"+Key(a.Path), "/"+whole) {
			ends = append(ends, a)
		}
	}
	switch len(ends) {
	case 0:
		return a, false, false
	case 1:
		return ends[0], true, false
	}
	return a, false, true
}

// IsAttachment reports whether a link's target names a file that may be one.
func IsAttachment(target string) bool { return ContentType(target) != "" }

// ShelfFor reads the attachments of an owner that any of the targets may name.
func ShelfFor(ctx context.Context, q pg.Querier, owner uuid.UUID, targets []string) (Shelf, error) {
	var names []string
	for _, t := range targets {
		if IsAttachment(t) {
			names = append(names, Key(path.Base(strings.ReplaceAll(t, `\`, "/"))))
		}
	}
	if len(names) == 0 {
		return NewShelf(nil), nil
	}
	slices.Sort(names)
	rows, err := q.Query(ctx, `
		SELECT path, sha256, size FROM vault_files WHERE owner_id = $1 AND kind = 'asset' AND name_key = ANY ($2)`, owner, slices.Compact(names))
	if err != nil {
		return Shelf{}, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Attachment])
	return NewShelf(all), pg.Fault(err)
}

// PathOf is where the file of a note lies; empty for a note that has none.
func PathOf(ctx context.Context, q pg.Querier, owner, note uuid.UUID) (p string, err error) {
	err = q.QueryRow(ctx, `SELECT path FROM vault_files WHERE owner_id = $1 AND note_id = $2 AND kind = 'note'`, owner, note).Scan(&p)
	if pg.IsNoRows(err) {
		return "", nil
	}
	return p, pg.Fault(err)
}

// AssetAt reads an attachment by its path. Fault "not_found".
func AssetAt(ctx context.Context, q pg.Querier, owner uuid.UUID, p string) (a Attachment, err error) {
	err = q.QueryRow(ctx, `SELECT path, sha256, size FROM vault_files WHERE owner_id = $1 AND path_key = $2 AND kind = 'asset'`, owner, Key(p)).
		Scan(&a.Path, &a.Hash, &a.Size)
	if pg.IsNoRows(err) {
		return a, fault.NotFound("attachment")
	}
	return a, pg.Fault(err)
}
