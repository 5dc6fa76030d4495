package corpus

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// Bulk is many changes of an owner's notes in one transaction. They are made in
// memory, by the rules of the single ones and with their faults, and written by
// Queue in a few statements. It holds the owner's tree lock.
type Bulk struct {
	owner    uuid.UUID
	notes    map[uuid.UUID]*bulkNote
	titles   map[sibling]*bulkNote
	slugs    map[sibling]*bulkNote
	children map[uuid.UUID]map[*bulkNote]bool
	found    directory
}

type bulkNote struct {
	Note
	was *Note // nil for one that is made here
	// gone with the deletion of this note
	goneWith uuid.UUID
}

// sibling names a note among those under one parent, by its title's key or its
// slug.
type sibling struct {
	genre  Genre
	parent uuid.UUID
	name   string
}

func parentOf(n *Note) uuid.UUID {
	if n.ParentID == nil {
		return uuid.Nil
	}
	return *n.ParentID
}

// OpenBulk reads all living notes of an owner, without their bodies.
func OpenBulk(ctx context.Context, tx *pg.Tx, owner uuid.UUID) (*Bulk, error) {
	b := &Bulk{owner: owner, notes: map[uuid.UUID]*bulkNote{}, titles: map[sibling]*bulkNote{}, slugs: map[sibling]*bulkNote{}, children: map[uuid.UUID]map[*bulkNote]bool{}}
	var read pgx.Batch
	lockTree(&read, owner)
	read.Queue(`SELECT `+withoutBody+` FROM notes n WHERE n.owner_id = $1 AND n.deleted_at IS NULL`, owner).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			n := &bulkNote{was: new(Note)}
			if err := n.scan(rows); err != nil {
				return err
			}
			*n.was = n.Note
			b.put(n)
		}
		return rows.Err()
	})
	return b, send(ctx, tx, &read)
}

func (b *Bulk) put(n *bulkNote) {
	b.notes[n.ID] = n
	if n.Genre == Raw {
		return
	}
	parent := parentOf(&n.Note)
	b.titles[sibling{n.Genre, parent, text.TitleKey(n.Title)}] = n
	b.slugs[sibling{n.Genre, parent, n.slug}] = n
	if b.children[parent] == nil {
		b.children[parent] = map[*bulkNote]bool{}
	}
	b.children[parent][n] = true
}

func (b *Bulk) take(n *bulkNote) {
	delete(b.notes, n.ID)
	if n.Genre == Raw {
		return
	}
	parent := parentOf(&n.Note)
	delete(b.titles, sibling{n.Genre, parent, text.TitleKey(n.Title)})
	delete(b.slugs, sibling{n.Genre, parent, n.slug})
	delete(b.children[parent], n)
}

// Get gives a living note, without its body unless it was changed.
func (b *Bulk) Get(id uuid.UUID) (Note, bool) {
	n, ok := b.notes[id]
	if !ok || n.goneWith != uuid.Nil {
		return Note{}, false
	}
	return n.Note, true
}

// At gives the note of that title under a parent.
func (b *Bulk) At(g Genre, parent *uuid.UUID, title string) (Note, bool) {
	n, ok := b.titles[sibling{g, parentOf(&Note{ParentID: parent}), text.TitleKey(title)}]
	if !ok || g == Raw {
		return Note{}, false
	}
	return n.Note, true
}

// Children counts the living notes directly below one.
func (b *Bulk) Children(id uuid.UUID) int { return len(b.children[id]) }

// Create makes a note. slug is what its author wants for one; empty is the
// title's. It may get another where that is taken.
func (b *Bulk) Create(d Draft, slug string) (Note, error) {
	if err := d.check(); err != nil {
		return Note{}, err
	}
	n := &bulkNote{Note: d.note()}
	if err := b.place(n, slug); err != nil {
		return Note{}, err
	}
	b.put(n)
	return n.Note, nil
}

// Change makes a note what d says; it keeps its genre. It answers false when
// that changes nothing. was is the body as it is, which Bodies reads.
func (b *Bulk) Change(id uuid.UUID, d Draft, slug, was string) (changed bool, err error) {
	n, ok := b.notes[id]
	if !ok {
		return false, fault.NotFound("note")
	}
	d.Genre = n.Genre
	if err := d.check(); err != nil {
		return false, err
	}
	old := *n
	b.take(n)
	n.Title, n.ParentID, n.Tags, n.Aliases, n.Visibility, n.ShowAsSource, n.Source = d.Title, d.ParentID, d.Tags, d.Aliases, d.Visibility, d.ShowAsSource, d.Source
	if d.Body != was || n.was == nil {
		n.Body = &d.Body
	}
	if slug == "" && same(n.ParentID, old.ParentID) && text.TitleKey(n.Title) == text.TitleKey(old.Title) {
		// it keeps its place
	} else if err = b.place(n, slug); err != nil {
		*n = old
	}
	b.put(n)
	return err == nil && (n.was == nil || n.Body != nil || !n.same(*n.was)), err
}

// same is equal for notes whose bodies are.
func (n *bulkNote) same(was Note) bool {
	was.Body = new(string)
	now := n.Note
	now.Body = was.Body
	return now.equal(was)
}

// place finds slug and path of n, which is not put, and moves what is below it.
func (b *Bulk) place(n *bulkNote, wanted string) error {
	if n.Genre == Raw {
		n.URI = uri(Raw, "", n.ID)
		return nil
	}
	prefix, parent := "", parentOf(&n.Note)
	if n.ParentID != nil {
		above, ok := b.notes[parent]
		if !ok || above.Genre != n.Genre {
			return parentMissing()
		}
		for up := above; up != nil; up = b.notes[parentOf(&up.Note)] {
			if up.ID == n.ID {
				return fault.New(fault.Conflict, "cycle", "A note can't be moved under itself.")
			}
		}
		prefix = above.Path + "/"
	}
	if other := b.titles[sibling{n.Genre, parent, text.TitleKey(n.Title)}]; other != nil {
		return siblingNameTaken(n.Title, []string{other.ID.String(), other.Title})
	}
	slug, hashed := slugs(n.Title)
	if wanted, _ = text.Slug(wanted); wanted == "" {
		wanted = slug
	}
	for _, s := range []string{wanted, slug, hashed} {
		if b.slugs[sibling{n.Genre, parent, s}] == nil {
			return b.move(n, prefix, s)
		}
	}
	return siblingNameTaken(n.Title, nil)
}

func (b *Bulk) move(n *bulkNote, prefix, slug string) error {
	path, old := prefix+slug, n.Path
	if err := fits(strings.Count(path, "/")+1, len(path)); err != nil {
		return err
	}
	below := b.below(n)
	for _, c := range below {
		if err := fits(strings.Count(path, "/")+strings.Count(c.Path, "/")-strings.Count(old, "/")+1, len(path)+len(c.Path)-len(old)); err != nil {
			return err
		}
	}
	for _, c := range below {
		c.Path = path + c.Path[len(old):]
		c.URI = uri(c.Genre, c.Path, c.ID)
	}
	n.slug, n.Path = slug, path
	n.URI = uri(n.Genre, path, n.ID)
	return nil
}

func (b *Bulk) below(n *bulkNote) (all []*bulkNote) {
	for c := range b.children[n.ID] {
		all = append(append(all, c), b.below(c)...)
	}
	return all
}

// Delete puts notes into the trash, except those that others stand under which
// stay: those are answered. Notes that stood under one another come back together.
func (b *Bulk) Delete(ids []uuid.UUID) (kept map[uuid.UUID]bool) {
	kept = map[uuid.UUID]bool{}
	going := map[uuid.UUID]bool{}
	for _, id := range ids {
		if b.notes[id] != nil {
			going[id] = true
		}
	}
	for again := true; again; {
		again = false
		for id := range going {
			for c := range b.children[id] {
				if !going[c.ID] {
					delete(going, id)
					kept[id], again = true, true
					break
				}
			}
		}
	}
	for id := range going {
		n := b.notes[id]
		n.goneWith = id
		for up := n; up != nil && going[up.ID]; up = b.notes[parentOf(&up.Note)] {
			n.goneWith = up.ID
		}
	}
	for id := range going {
		n := b.notes[id]
		b.take(n)
		b.notes[id] = n // still to be written
	}
	return kept
}

// Bodies reads the bodies of notes.
func Bodies(ctx context.Context, q pg.Querier, owner uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	bodies := map[uuid.UUID]string{}
	if len(ids) == 0 {
		return bodies, nil
	}
	rows, err := q.Query(ctx, `SELECT id, body FROM notes WHERE owner_id = $1 AND id = ANY ($2)`, owner, ids)
	if err != nil {
		return nil, err
	}
	var id uuid.UUID
	var body string
	_, err = pgx.ForEachRow(rows, []any{&id, &body}, func() error { bodies[id] = body; return nil })
	return bodies, pg.Fault(err)
}

// Links resolves links as LinksOf does, among the notes as they will be. One that
// leads to a note of neither name nor path is unresolved.
func (b *Bulk) Links(n Note, links []text.Link) []Link {
	if b.found == nil {
		b.found = directory{}
		for _, o := range b.notes {
			if o.goneWith == uuid.Nil {
				b.found.add(candidate{Named: Named{ID: o.ID, Genre: o.Genre, Title: o.Title}, path: o.Path, slug: o.slug, aliases: o.Aliases})
			}
		}
	}
	return readLinks(links).resolve(b.found, standOf(n.Genre, n.Path))
}

const (
	// how many notes, and bytes of their bodies, one statement writes
	bulkRows  = 1_000
	bulkBytes = 8 << 20
)

// Queue queues the statements that write what was changed, each note's event with
// it. They fail with an error that makes InTx run anew when a note was changed by
// somebody else meanwhile.
func (b *Bulk) Queue(ctx context.Context, tx *pg.Tx, batch *pgx.Batch) {
	var gone, changed, made []*bulkNote
	for _, n := range b.notes {
		switch {
		case n.goneWith != uuid.Nil:
			gone = append(gone, n)
		case n.was == nil:
			made = append(made, n)
		case n.Body != nil || !n.same(*n.was):
			changed = append(changed, n)
		}
	}
	if len(gone)+len(changed)+len(made) == 0 {
		return
	}
	outbox.NameIn(ctx, tx, batch, outbox.NewID())
	byID := func(x, y *bulkNote) int { return slices.Compare(x.ID[:], y.ID[:]) }
	slices.SortFunc(gone, byID)
	slices.SortFunc(changed, byID)
	// those above before those below
	slices.SortFunc(made, func(x, y *bulkNote) int {
		return cmp.Or(cmp.Compare(strings.Count(x.Path, "/"), strings.Count(y.Path, "/")), byID(x, y))
	})
	for some := range slices.Chunk(gone, bulkRows) {
		ids, versions, with := make([]uuid.UUID, len(some)), make([]int64, len(some)), make([]uuid.UUID, len(some))
		for i, n := range some {
			ids[i], versions[i], with[i] = n.ID, n.Version, n.goneWith
		}
		batch.Queue(`
			UPDATE notes n SET deleted_at = now(), deleted_with = u.gone_with
			FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS u (id, version, gone_with)
			WHERE n.id = u.id AND n.version = u.version AND n.deleted_at IS NULL`, ids, versions, with).Exec(expect(len(some)))
	}
	write := func(all []*bulkNote, statement string) {
		for len(all) > 0 {
			n, size := 0, 0
			for n < len(all) && n < bulkRows && (n == 0 || size < bulkBytes) {
				if all[n].Body != nil {
					size += len(*all[n].Body)
				}
				n++
			}
			batch.Queue(statement, b.columns(all[:n])...).Exec(expect(n))
			all = all[n:]
		}
	}
	insert := func(some []*bulkNote) { write(some, insertSQL) }
	// those that changed ones come to stand under are there before these
	first := map[*bulkNote]bool{}
	for _, n := range changed {
		for up := b.notes[parentOf(&n.Note)]; up != nil && up.was == nil && !first[up]; up = b.notes[parentOf(&up.Note)] {
			first[up] = true
		}
	}
	insert(slices.DeleteFunc(slices.Clone(made), func(n *bulkNote) bool { return !first[n] }))
	write(changed, updateSQL)
	insert(slices.DeleteFunc(made, func(n *bulkNote) bool { return first[n] }))
}

const (
	insertSQL = `
		INSERT INTO notes (id, owner_id, genre, title, title_key, slug, path, parent_id, body, tags, tag_keys, aliases, visibility, show_as_source, source)
		SELECT u.id, $1, u.genre, nullif(u.title, ''), nullif(u.title_key, ''), nullif(u.slug, ''), nullif(u.path, ''), u.parent_id, u.body,
			string_to_array(u.tags, E'\n'), string_to_array(u.tag_keys, E'\n'), string_to_array(u.aliases, E'\n'), u.visibility, u.show_as_source, nullif(u.source, '')
		FROM ` + bulkColumns
	updateSQL = `
		UPDATE notes n SET title = nullif(u.title, ''), title_key = nullif(u.title_key, ''), slug = nullif(u.slug, ''), path = nullif(u.path, ''), parent_id = u.parent_id,
			body = coalesce(u.body, n.body), tags = string_to_array(u.tags, E'\n'), tag_keys = string_to_array(u.tag_keys, E'\n'),
			aliases = string_to_array(u.aliases, E'\n'), visibility = u.visibility
		FROM ` + bulkColumns + `
		WHERE n.id = u.id AND n.owner_id = $1 AND n.version = u.version AND n.deleted_at IS NULL`
)

const bulkColumns = `unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::uuid[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::text[])
			AS u (id, version, genre, title, title_key, slug, path, parent_id, body, tags, tag_keys, aliases, visibility, show_as_source, source)`

// columns are the parameters of bulkColumns, and the owner before them. A list
// goes as lines, since no name holds a line's end.
func (b *Bulk) columns(some []*bulkNote) []any {
	n := len(some)
	ids, versions, parents, bodies, shown := make([]uuid.UUID, n), make([]int64, n), make([]*uuid.UUID, n), make([]*string, n), make([]bool, n)
	texts := make([][]string, 10)
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i, o := range some {
		ids[i], versions[i], parents[i], bodies[i], shown[i] = o.ID, o.Version, o.ParentID, o.Body, o.ShowAsSource
		for at, s := range []string{
			string(o.Genre), o.Title, text.TitleKey(o.Title), o.slug, o.Path,
			strings.Join(o.Tags, "\n"), strings.Join(tagKeys(o.Tags), "\n"), strings.Join(o.Aliases, "\n"), string(o.Visibility), o.Source,
		} {
			texts[at][i] = s
		}
	}
	return []any{b.owner, ids, versions, texts[0], texts[1], texts[2], texts[3], texts[4], parents, bodies, texts[5], texts[6], texts[7], texts[8], shown, texts[9]}
}

// expect makes sure that a statement wrote n rows.
func expect(n int) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "corpus: a note was changed meanwhile"}
		}
		return nil
	}
}

// Again makes of an error of what Queue queued one that has InTx look anew: a
// note at the root is made without the tree lock, so a place that was free may be
// taken now.
func Again(err error) error {
	if pg.Violates(err, "notes_sibling_title_key") || pg.Violates(err, "notes_path_key") {
		return &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "corpus: a place was taken meanwhile"}
	}
	return err
}

// Unindexed counts those of the notes that live and of which the index doesn't
// know the present version.
func Unindexed(ctx context.Context, q pg.Querier, ids []uuid.UUID) (n int64, err error) {
	err = q.QueryRow(ctx, `
		SELECT count(*) FROM notes n LEFT JOIN note_search s ON s.note_id = n.id
		WHERE n.id = ANY ($1) AND n.deleted_at IS NULL AND (s.version IS NULL OR s.version < n.version)`, ids).Scan(&n)
	return n, pg.Fault(err)
}

// All reads all living notes of an owner, with their bodies.
func All(ctx context.Context, q pg.Querier, owner uuid.UUID) ([]Note, error) {
	rows, err := q.Query(ctx, `SELECT `+withBody+` FROM notes n WHERE n.owner_id = $1 AND n.deleted_at IS NULL`, owner)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, collectNote)
	return all, pg.Fault(err)
}
