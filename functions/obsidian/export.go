package obsidian

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/vault"
)

// Export declares obsidian.export.
func Export(d Deps) *op.Operation {
	return op.New(op.Spec{
		Name: "obsidian.export", Method: "GET", Path: "/v1/obsidian/export", Scope: "obsidian:read",
		Summary:     "Export all notes as a vault",
		Description: "A zip with a Markdown file for each note, in the folders raw, wiki and output or where the vault had it, and all attachments. Importing it again changes nothing. One above 4 MiB answers with the address that has it (307).",
		Produces:    "application/zip", Timeout: timeout, Memory: 3008,
	}, func(ctx context.Context, c auth.Caller, _ struct{}) (f op.File, err error) {
		f.Download = "vault.zip"
		if f.Body, err = d.pack(ctx, c.OwnerID); err != nil {
			return op.File{}, err
		}
		f.ETag = fmt.Sprintf(`"%x"`, sha256.Sum256(f.Body))
		if len(f.Body) <= maxAnswer {
			return f, nil
		}
		// one for each owner: the next one takes its place
		key := "exports/" + c.OwnerID.String() + "/vault.zip"
		if err := d.Blobs.Put(ctx, key, f.Body, blob.Meta{ContentType: "application/zip"}); err != nil {
			return op.File{}, err
		}
		f.Redirect, err = d.Blobs.PresignGet(ctx, key, f.Download, addressLife)
		return f, err
	})
}

// exported is a note with where its file goes.
type exported struct {
	corpus.Note
	path  string
	place vault.Place
	row   *vault.Row
}

// pack makes the zip; the same notes are the same bytes.
func (d Deps) pack(ctx context.Context, owner uuid.UUID) ([]byte, error) {
	rows, err := vault.Rows(ctx, d.DB, owner)
	if err != nil {
		return nil, err
	}
	all, err := corpus.All(ctx, d.DB, owner)
	if err != nil {
		return nil, err
	}
	files := layOut(all, rows)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	size := 0
	for _, f := range files {
		head, facts := "", facts(f.Note, f.place.Name, *f.Body)
		if f.row != nil {
			head = f.row.Head
		}
		if f.row == nil || f.path != f.row.Path {
			facts = withID(facts, f.Note)
		}
		content := vault.Render(head, facts)
		if size += len(content); size > vault.MaxUnpacked {
			return nil, exportTooLarge()
		}
		if err := add(z, f.path, content, zip.Deflate); err != nil {
			return nil, err
		}
	}
	keys := make([]string, 0, len(rows))
	for key, r := range rows {
		if r.Kind == vault.Asset {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if size += int(rows[key].Size); size > vault.MaxUnpacked {
			return nil, exportTooLarge()
		}
		content, err := d.read(ctx, vault.BlobKey(owner, rows[key].Hash))
		if err != nil {
			return nil, err
		}
		if err := add(z, rows[key].Path, content, zip.Store); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func exportTooLarge() error {
	return fault.New(fault.Conflict, "vault_too_large", fmt.Sprintf("The notes and attachments have more than %d MiB together, which no import would take.", vault.MaxUnpacked>>20))
}

func add(z *zip.Writer, p string, content []byte, method uint16) error {
	// a fixed time: the same notes are the same zip
	w, err := z.CreateHeader(&zip.FileHeader{Name: p, Method: method, Modified: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// layOut gives each note a file: the one that it came from if it still stands
// there, or else one in the folder of the note that it stands under. A note that
// was made for a folder and says nothing has none.
func layOut(all []corpus.Note, rows map[string]vault.Row) []*exported {
	byNote, living := map[uuid.UUID]*vault.Row{}, map[string]bool{}
	for _, r := range rows {
		if r.NoteID != uuid.Nil {
			byNote[r.NoteID] = &r
		}
	}
	var taken []string
	above := map[uuid.UUID]bool{}
	for _, n := range all {
		if r := byNote[n.ID]; r != nil && r.Kind == vault.NoteFile {
			living[vault.Key(r.Path)] = true
			taken = append(taken, r.Path)
		}
		if n.ParentID != nil {
			above[*n.ParentID] = true
		}
	}
	names := vault.NewNames(taken)
	slices.SortFunc(all, func(a, b corpus.Note) int {
		return cmp.Or(cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/")), slices.Compare(a.ID[:], b.ID[:]))
	})
	folders := map[uuid.UUID]string{} // each with a final '/'
	var files []*exported
	for _, n := range all {
		f := &exported{Note: n, row: byNote[n.ID]}
		in := string(n.Genre) + "/"
		if n.ParentID != nil {
			in = folders[*n.ParentID]
		}
		has := func(key string) bool { return living[key] }
		switch {
		case f.row == nil:
			f.path = names.Path(in, n.Title, n.ID.String())
		case f.row.Kind == vault.Folder && stands(vault.PlaceOf(beside(f.row.Path)), n, in):
			if *n.Body == "" && len(n.Tags) == 0 && len(n.Aliases) == 0 && n.Visibility == corpus.Private && above[n.ID] {
				folders[n.ID] = f.row.Path
				continue
			}
			p := beside(f.row.Path)
			f.path = names.Path(p[:strings.LastIndexByte(p, '/')+1], vault.Name(p), n.ID.String())
		case f.row.Kind == vault.NoteFile && stands(vault.PlaceIn(f.row.Path, has), n, in):
			f.path = f.row.Path
		default:
			f.path = names.Path(in, n.Title, n.ID.String())
		}
		if f.row != nil && f.row.Kind == vault.Folder {
			f.row = nil
		}
		files = append(files, f)
		folders[n.ID] = folderFor(f.path, has)
	}
	exists := map[string]bool{}
	for _, f := range files {
		exists[vault.Key(f.path)] = true
	}
	for _, f := range files {
		f.place = vault.PlaceIn(f.path, func(key string) bool { return exists[key] })
	}
	slices.SortFunc(files, func(a, b *exported) int { return strings.Compare(a.path, b.path) })
	return files
}

// beside is the path of a folder's note beside it.
func beside(folder string) string { return strings.TrimSuffix(folder, "/") + ".md" }

// stands reports whether a file's place is where its note stands, below what has
// the folder in.
func stands(p vault.Place, n corpus.Note, in string) bool {
	switch {
	case p.Genre != string(n.Genre):
		return false
	case n.ParentID == nil:
		return len(p.Paths) == 0
	}
	return len(p.Paths) > 0 && vault.Key(p.Paths[len(p.Paths)-1]) == vault.Key(in)
}

// folderFor is the folder of what stands under a note with a file at p.
func folderFor(p string, has func(string) bool) string {
	place, within := vault.PlaceOf(p), vault.PlaceIn(p, has)
	if n := len(place.Paths); n > len(within.Paths) {
		return place.Paths[n-1]
	}
	return strings.TrimSuffix(p, path.Ext(p)) + "/"
}
