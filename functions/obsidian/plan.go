package obsidian

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/corpus"
	"standmeet/shared/pg"
	"standmeet/shared/vault"
)

// importing is an import within its transaction: everything is decided in memory,
// and then written in a few statements.
type importing struct {
	prepared
	owner uuid.UUID
	tx    *pg.Tx
	bulk  *corpus.Bulk
	// rows are what earlier imports left, by key of the path; owners of notes by note.
	rows   map[string]vault.Row
	byNote map[uuid.UUID]string
	files  []*file
	byKey  map[string]*file
	// noteOf are the notes of files that were dealt with, and of rows.
	noteOf  map[string]uuid.UUID
	folders map[string]folder
	// claimed are the notes that a file has.
	claimed map[uuid.UUID]bool
	bodies  map[uuid.UUID]string
	// what becomes of vault_files
	gone   map[string]bool
	stored []vault.Row
	out    Imported
}

// file is a note's file with what it is to become.
type file struct {
	*vault.File
	key   string
	place vault.Place
	note  *parsed
	// row is what an earlier import left of it, maybe under another path (moved); note
	// the living note that is its own, if there is one.
	row     *vault.Row
	id      uuid.UUID
	moved   bool
	unknown bool // it has no row, and says itself which note it is
}

type folder struct {
	id  *uuid.UUID
	err error
}

func plan(ctx context.Context, tx *pg.Tx, owner uuid.UUID, p prepared) (*importing, error) {
	im := &importing{
		prepared: p, owner: owner, tx: tx, byNote: map[uuid.UUID]string{}, byKey: map[string]*file{}, noteOf: map[string]uuid.UUID{},
		folders: map[string]folder{}, claimed: map[uuid.UUID]bool{}, gone: map[string]bool{},
	}
	im.out.Skipped, im.out.Errors = slices.Clone(p.upload.Skipped), slices.Clone(p.upload.Failed)
	var err error
	if im.bulk, err = corpus.OpenBulk(ctx, tx, owner); err != nil {
		return nil, err
	}
	if im.rows, err = vault.Rows(ctx, tx, owner); err != nil {
		return nil, err
	}
	for key, r := range im.rows {
		if r.NoteID != uuid.Nil {
			im.byNote[r.NoteID] = key
		}
	}
	for i := range p.upload.Files {
		if f := &p.upload.Files[i]; f.Kind == vault.NoteFile {
			im.files = append(im.files, &file{File: f, key: vault.Key(f.Path), note: p.notes[i]})
			im.byKey[vault.Key(f.Path)] = im.files[len(im.files)-1]
		} else {
			im.asset(f)
		}
	}
	im.match()
	im.settle()
	var changing []uuid.UUID
	for _, f := range im.files {
		if f.id != uuid.Nil && !f.same() {
			changing = append(changing, f.id)
		}
	}
	if im.bodies, err = corpus.Bodies(ctx, tx, owner, changing); err != nil {
		return nil, err
	}
	for i, f := range im.files {
		if err := im.awake(ctx, i); err != nil {
			return nil, err
		}
		if err := im.take(ctx, f); err != nil {
			why, ok := reason(err)
			if !ok {
				return nil, err
			}
			im.fail(f, "%s", why)
		}
	}
	if err := im.prune(ctx); err != nil {
		return nil, err
	}
	return im, im.links(ctx)
}

// awake keeps a transaction that has much to decide from being taken for one that
// was left: it is called for each file.
func (im *importing) awake(ctx context.Context, file int) error {
	if file%500 != 499 {
		return nil
	}
	_, err := im.tx.Exec(ctx, `SELECT 1`)
	return err
}

// same reports whether the file is what it was at the last import.
func (f *file) same() bool {
	return f.row != nil && !f.moved && f.row.Kind == vault.NoteFile && bytes.Equal(f.row.Hash, f.Hash[:])
}

func (f *file) read() *parsed {
	if f.note == nil {
		f.note = parse(f.File)
	}
	return f.note
}

func (im *importing) fail(f *file, format string, args ...any) {
	im.out.Errors = append(im.out.Errors, vault.Entry{Path: f.Path, Reason: fmt.Sprintf(format, args...)})
}

func (im *importing) skip(p, reason string) {
	im.out.Skipped = append(im.out.Skipped, vault.Entry{Path: p, Reason: reason})
}

func (im *importing) asset(f *vault.File) {
	if same(im.rows, f) {
		im.out.Attachments.Unchanged++
		return
	}
	im.out.Attachments.Created++
	im.stored = append(im.stored, vault.Row{Path: f.Path, Kind: vault.Asset, Hash: f.Hash[:], Size: f.Size})
}

// match finds the note that each file is of: by its path; by the id that an export
// wrote into it; or, when all of a vault is there, as a file of the same content
// that has gone from another path.
func (im *importing) match() {
	claimed := im.claimed
	for _, f := range im.files {
		if r, ok := im.rows[f.key]; ok && r.Kind == vault.NoteFile {
			f.row = &r
			if _, alive := im.bulk.Get(r.NoteID); alive {
				f.id, claimed[r.NoteID] = r.NoteID, true
			}
		}
	}
	gone := map[string][]string{} // content → keys
	for key, r := range im.rows {
		if _, here := im.byKey[key]; !here && r.Kind == vault.NoteFile {
			gone[string(r.Hash)] = append(gone[string(r.Hash)], key)
		}
	}
	again := map[string]int{}
	for _, f := range im.files {
		again[string(f.Hash[:])]++
	}
	for _, f := range im.files {
		if f.id != uuid.Nil || f.same() {
			continue
		}
		if id, err := uuid.Parse(f.read().ID); err == nil && !claimed[id] {
			if n, alive := im.bulk.Get(id); alive && string(n.Genre) == vault.PlaceOf(f.Path).Genre {
				f.id, claimed[id] = id, true
				if key, ok := im.byNote[id]; ok && im.rows[key].Kind == vault.NoteFile {
					im.move(f, key)
				} else {
					f.row, f.unknown = nil, true
				}
				continue
			}
		}
		if keys := gone[string(f.Hash[:])]; im.Authoritative && len(keys) == 1 && again[string(f.Hash[:])] == 1 && vault.PlaceOf(im.rows[keys[0]].Path).Genre == vault.PlaceOf(f.Path).Genre {
			if id := im.rows[keys[0]].NoteID; !claimed[id] {
				if _, alive := im.bulk.Get(id); alive {
					f.id, claimed[id] = id, true
					im.move(f, keys[0])
				}
			}
		}
	}
	for key, r := range im.rows {
		if _, alive := im.bulk.Get(r.NoteID); alive && r.Kind == vault.NoteFile && !im.gone[key] {
			im.noteOf[key] = r.NoteID
		}
	}
}

// move gives a file the row that another path had.
func (im *importing) move(f *file, key string) {
	r := im.rows[key]
	f.row, f.moved, im.gone[key] = &r, true, true
}

// settle finds each file's place, and puts those above before those below.
func (im *importing) settle() {
	for _, f := range im.files {
		f.place = vault.PlaceIn(f.Path, func(key string) bool { return im.byKey[key] != nil || im.noteOf[key] != uuid.Nil })
	}
	slices.SortStableFunc(im.files, func(a, b *file) int {
		return cmp.Or(cmp.Compare(len(a.place.Folders), len(b.place.Folders)), strings.Compare(a.Path, b.Path))
	})
}

// parent is the note of the n-th folder of a place, made if there is none; nil at
// the root.
func (im *importing) parent(place vault.Place, n int) (*uuid.UUID, error) {
	if n == 0 {
		return nil, nil
	}
	p, genre := place.Paths[n-1], corpus.Genre(place.Genre)
	key := vault.Key(p)
	if known, ok := im.folders[key]; ok {
		return known.id, known.err
	}
	id, err := im.findFolder(place, n, p, genre)
	im.folders[key] = folder{id, err}
	return id, err
}

func (im *importing) findFolder(place vault.Place, n int, p string, genre corpus.Genre) (*uuid.UUID, error) {
	for _, key := range vault.FolderNotes(p) {
		if id := im.noteOf[key]; id != uuid.Nil {
			if note, alive := im.bulk.Get(id); alive && note.Genre == genre {
				return &id, nil
			}
		}
	}
	if r, ok := im.rows[vault.Key(p)]; ok && r.Kind == vault.Folder {
		if note, alive := im.bulk.Get(r.NoteID); alive && note.Genre == genre {
			return &r.NoteID, nil
		}
	}
	above, err := im.parent(place, n-1)
	if err != nil {
		return nil, err
	}
	name := place.Folders[n-1]
	if note, ok := im.bulk.At(genre, above, name); ok {
		return &note.ID, nil
	}
	note, err := im.bulk.Create(corpus.Draft{Genre: genre, Title: name, ParentID: above}, "")
	if err != nil {
		return nil, err
	}
	im.out.Folders.Created++
	im.stored = append(im.stored, vault.Row{Path: p, Kind: vault.Folder, NoteID: note.ID, NoteHash: vault.NoteHash(note.Title, "", nil, nil)})
	return &note.ID, nil
}

func (im *importing) body(ctx context.Context, id uuid.UUID) (string, error) {
	if body, ok := im.bodies[id]; ok {
		return body, nil
	}
	if n, ok := im.bulk.Get(id); ok && n.Body != nil {
		return *n.Body, nil
	}
	read, err := corpus.Bodies(ctx, im.tx, im.owner, []uuid.UUID{id})
	if err != nil {
		return "", err
	}
	im.bodies[id] = read[id]
	return read[id], nil
}

// take makes of a file what it is to become. The error is the file's, or one of
// the database.
func (im *importing) take(ctx context.Context, f *file) error {
	if f.same() {
		if f.id == uuid.Nil {
			im.skip(f.Path, "Its note was deleted here, and the file is as it was. Restore the note from the trash, or change the file to have a new one.")
			return nil
		}
		im.out.Unchanged++
		return nil
	}
	parsed := f.read()
	var broken *vault.BrokenError
	if parsed.err != nil {
		why, _ := reason(parsed.err)
		if b, ok := parsed.err.(*vault.BrokenError); ok { //nolint:errorlint // as Parse made it
			broken = b
		} else {
			im.fail(f, "%s", why)
			return nil
		}
		if n, ok := im.bulk.Get(f.id); ok && n.Visibility != corpus.Private {
			im.fail(f, "%s The note was kept as it is, since others may read it.", why)
			return nil
		}
	}
	taken, err := im.apply(ctx, f, &parsed.Note)
	if broken != nil && taken {
		im.fail(f, "%s All of the file was taken as the note's text.", broken.Error())
	}
	for _, w := range parsed.Warnings {
		im.warn(f.Path, w)
	}
	return err
}

func (im *importing) warn(p, reason string) {
	im.out.Warnings = append(im.out.Warnings, vault.Entry{Path: p, Reason: reason})
}

// draft is the note that a file asks for. Of a note that is there, was, it leaves
// what a file says nothing about.
func (f *file) draft(n *vault.Note, was corpus.Note) corpus.Draft {
	d := corpus.Draft{
		Genre: corpus.Genre(f.place.Genre), Title: f.place.Name, Body: n.Body, Tags: n.Tags, ParentID: was.ParentID,
		Visibility: cmp.Or(was.Visibility, corpus.Private), ShowAsSource: was.ShowAsSource, Source: was.Source,
	}
	if n.Title != nil && (*n.Title != "" || d.Genre == corpus.Raw && strings.TrimSpace(n.Body) != "") {
		d.Title = *n.Title
	}
	d.Aliases = n.AllAliases(d.Title, f.place.Name)
	if said := n.Publish; d.Genre != corpus.Raw && said != vault.Unsaid && (f.row == nil || f.row.Kind != vault.NoteFile || said != f.row.Publish) {
		d.Visibility = corpus.Visibility(said)
	}
	return d
}

// apply makes the file's note what the file says, and reports whether it is that
// now. If not, it has said why.
func (im *importing) apply(ctx context.Context, f *file, n *vault.Note) (taken bool, err error) {
	if f.place.Genre == "raw" && (n.Publish == vault.Public || n.Publish == vault.Coded) {
		im.warn(f.Path, "A raw note is always private, whatever publish says.")
	}
	was, alive := im.bulk.Get(f.id)
	var parent *uuid.UUID
	if !alive || f.moved || f.unknown {
		if parent, err = im.parent(f.place, len(f.place.Paths)); err != nil {
			return false, err
		}
		was.ParentID = parent
	}
	if !alive {
		f.row = nil // of a note that was deleted
		d := f.draft(n, was)
		there, known := im.bulk.At(d.Genre, parent, d.Title)
		if !known {
			note, err := im.bulk.Create(d, n.Slug)
			if err != nil {
				return false, err
			}
			im.out.Created++
			im.claimed[note.ID] = true
			im.keep(f, n, note, d.Body)
			return true, nil
		}
		key, known := im.byNote[there.ID]
		switch r := im.rows[key]; {
		case known && r.Kind == vault.Folder:
			// the folder has got its own note
			f.row, im.gone[key] = &r, true
		case known || im.claimed[there.ID]:
			im.fail(f, "Another file of the vault is the note %q in the same place.", there.Title)
			return false, nil
		default:
			f.unknown = true
		}
		was, f.id, im.claimed[there.ID] = there, there.ID, true
	}
	body, err := im.body(ctx, was.ID)
	if err != nil {
		return false, err
	}
	d := f.draft(n, was)
	if bytes.Equal(f.Content, im.render(f, was, body)) || n.Slug == "" && says(d, was, body) {
		im.out.Unchanged++
		im.keep(f, n, was, body)
		return true, nil
	}
	edited := f.row != nil && !bytes.Equal(f.row.NoteHash, vault.NoteHash(was.Title, body, was.Tags, was.Aliases))
	switch {
	case im.Overwrite:
	case f.row == nil && n.ID == was.ID.String() && n.Version == was.Version:
		// an export's, and changed in the vault alone
	case f.row == nil:
		im.fail(f, "A note %q is here already and did not come from this file. It was kept; rename one of them, or import with overwrite.", was.Title)
		return false, nil
	case edited:
		im.fail(f, "The note was changed both here and in the vault. It was kept as it is here; import with overwrite to have the vault's text.")
		return false, nil
	}
	changed, err := im.bulk.Change(was.ID, d, n.Slug, body)
	if err != nil {
		return false, err
	}
	if changed {
		im.out.Updated++
	} else {
		im.out.Unchanged++
	}
	note, _ := im.bulk.Get(was.ID)
	im.bodies[was.ID] = d.Body
	im.keep(f, n, note, d.Body)
	return true, nil
}

// says reports whether a note is what a draft asks for.
func says(d corpus.Draft, was corpus.Note, body string) bool {
	return d.Body == body && d.Title == was.Title && d.Visibility == was.Visibility && vault.Same(d.Tags, was.Tags) && vault.Same(d.Aliases, was.Aliases) &&
		(d.ParentID == was.ParentID || d.ParentID != nil && was.ParentID != nil && *d.ParentID == *was.ParentID)
}

// render is the file that an export would make of the note.
func (im *importing) render(f *file, n corpus.Note, body string) []byte {
	head, facts := "", facts(n, f.place.Name, body)
	if f.row != nil && f.row.Kind == vault.NoteFile {
		head = f.row.Head
	}
	if f.unknown || f.moved {
		facts = withID(facts, n)
	}
	return vault.Render(head, facts)
}

func facts(n corpus.Note, fileTitle, body string) vault.Facts {
	f := vault.Facts{Title: n.Title, FileTitle: fileTitle, Tags: n.Tags, Aliases: n.Aliases, Body: body}
	if n.Genre != corpus.Raw {
		f.Publish = vault.Publishing(n.Visibility)
	}
	return f
}

// withID makes a file say which note it is, for one that has no row.
func withID(f vault.Facts, n corpus.Note) vault.Facts {
	f.ID, f.Version, f.Source = n.ID.String(), n.Version, n.Source
	return f
}

// keep writes down what the file was and what the note is now.
func (im *importing) keep(f *file, n *vault.Note, note corpus.Note, body string) {
	im.noteOf[f.key] = note.ID
	if key, ok := im.byNote[note.ID]; ok && key != f.key {
		im.gone[key] = true
	}
	im.stored = append(im.stored, vault.Row{
		Path: f.Path, Kind: vault.NoteFile, Hash: f.Hash[:], Size: f.Size, Head: n.Head, Publish: n.Publish,
		NoteID: note.ID, NoteHash: vault.NoteHash(note.Title, body, note.Tags, note.Aliases),
	})
}

// prune takes away what an authoritative import lacks.
func (im *importing) prune(ctx context.Context) error {
	switch {
	case !im.Authoritative:
		return nil
	case len(im.upload.Files) == 0:
		im.warn("", "Nothing was deleted, since the import has no files.")
		return nil
	case len(im.out.Errors) > 0:
		im.warn("", "Nothing was deleted, since some files are in errors.")
		return nil
	}
	im.out.Pruned = true
	here := map[string]bool{}
	for _, f := range im.upload.Files {
		here[vault.Key(f.Path)] = true
		for i, c := range f.Path {
			if c == '/' {
				here[vault.Key(f.Path[:i+1])] = true
			}
		}
	}
	var ids []uuid.UUID
	for key, r := range im.rows {
		switch _, alive := im.bulk.Get(r.NoteID); {
		case here[key] || im.gone[key]:
		case r.Kind == vault.Asset:
			im.gone[key] = true
			im.out.Attachments.Deleted++
		case !alive:
			im.gone[key] = true
		default:
			ids = append(ids, r.NoteID)
		}
	}
	bodies, err := corpus.Bodies(ctx, im.tx, im.owner, ids)
	if err != nil {
		return err
	}
	edited := func(id uuid.UUID) bool {
		n, _ := im.bulk.Get(id)
		return !bytes.Equal(im.rows[im.byNote[id]].NoteHash, vault.NoteHash(n.Title, bodies[id], n.Tags, n.Aliases))
	}
	ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool {
		if edited(id) {
			im.skip(im.rows[im.byNote[id]].Path, "Not in the vault any more, and kept: the note was changed here since its last import.")
			return true
		}
		return false
	})
	kept := im.bulk.Delete(ids)
	for _, id := range ids {
		key := im.byNote[id]
		r := im.rows[key]
		switch {
		case kept[id] && r.Kind == vault.NoteFile:
			im.skip(r.Path, "Not in the vault any more, and kept: other notes stand under it.")
		case kept[id]:
		case r.Kind == vault.Folder:
			im.gone[key] = true
			im.out.Folders.Deleted++
		default:
			im.gone[key] = true
			im.out.Deleted++
		}
	}
	slices.SortStableFunc(im.out.Skipped, func(a, b vault.Entry) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// links tells where the links of new and changed notes lead.
func (im *importing) links(ctx context.Context) error {
	l := &im.out.Links
	var all []vault.Attachment
	added := map[string]bool{}
	for _, r := range im.stored {
		if r.Kind == vault.Asset {
			all = append(all, vault.Attachment{Path: r.Path, Hash: r.Hash, Size: r.Size})
			added[vault.Key(r.Path)] = true
		}
	}
	for key, r := range im.rows {
		if r.Kind == vault.Asset && !added[key] && !im.gone[key] {
			all = append(all, vault.Attachment{Path: r.Path, Hash: r.Hash, Size: r.Size})
		}
	}
	shelf := vault.NewShelf(all)
	tell := func(list *[]Dangler, f *file, target string) {
		if len(*list) == maxDanglers {
			l.Truncated = true
			return
		}
		*list = append(*list, Dangler{f.Path, target})
	}
	for i, f := range im.files {
		if err := im.awake(ctx, i); err != nil {
			return err
		}
		note, ok := im.bulk.Get(im.noteOf[f.key])
		if f.same() || f.note == nil || !ok {
			continue
		}
		for _, link := range im.bulk.Links(note, f.note.Links) {
			if resolve(&link, shelf, f.Path); link.State == corpus.Resolved {
				l.Resolved++
			} else if link.State == corpus.Ambiguous {
				tell(&l.Ambiguous, f, link.Target)
			} else {
				tell(&l.Unresolved, f, link.Target)
			}
		}
	}
	return nil
}

// resolve looks for an attachment behind a link that leads to no note.
func resolve(l *corpus.Link, shelf vault.Shelf, from string) {
	if l.State != corpus.Unresolved || !vault.IsAttachment(l.Target) {
		return
	}
	switch a, found, ambiguous := shelf.Find(from, l.Target); {
	case found:
		l.State = corpus.Resolved
		l.File = &corpus.File{Path: a.Path, ContentType: vault.ContentType(a.Path), Size: a.Size, SHA256: hex.EncodeToString(a.Hash)}
	case ambiguous:
		l.State = corpus.Ambiguous
	}
}

// Attachments resolves those links of a note that lead to attachments. address
// says where one is read; one that it has none for stays unresolved.
func Attachments(ctx context.Context, q pg.Querier, owner uuid.UUID, n corpus.Note, links []corpus.Link, address func(corpus.Link, string) string) error {
	var targets []string
	for _, l := range links {
		if l.State == corpus.Unresolved && vault.IsAttachment(l.Target) && address(l, "") != "" {
			targets = append(targets, l.Target)
		}
	}
	if len(targets) == 0 {
		return nil
	}
	shelf, err := vault.ShelfFor(ctx, q, owner, targets)
	if err != nil {
		return err
	}
	from, err := vault.PathOf(ctx, q, owner, n.ID)
	if err != nil {
		return err
	}
	for i := range links {
		l := &links[i]
		if address(*l, "") == "" {
			continue
		}
		if resolve(l, shelf, from); l.File != nil {
			l.File.URL = address(*l, l.File.Path)
		}
	}
	return nil
}

func (im *importing) write(ctx context.Context, tx *pg.Tx) error {
	if err := im.event(ctx, tx); err != nil {
		return err
	}
	var batch pgx.Batch
	im.bulk.Queue(ctx, tx, &batch)
	gone := make([]string, 0, len(im.gone))
	for key := range im.gone {
		gone = append(gone, key)
	}
	slices.Sort(gone)
	vault.Queue(&batch, im.owner, gone, im.stored, func(tag pgconn.CommandTag, want int) error {
		if tag.RowsAffected() != int64(want) {
			return fmt.Errorf("obsidian: %d rows of the vault were written instead of %d", tag.RowsAffected(), want)
		}
		return nil
	})
	if batch.Len() == 0 {
		return nil
	}
	return tx.Last(ctx, &batch)
}
