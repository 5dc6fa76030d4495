package corpus

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// world is an owner with a database of their own.
type world struct {
	t     testing.TB
	db    *pg.DB
	owner uuid.UUID
}

func newWorld(t testing.TB) *world {
	return &world{t, pgtest.DB(t), uuid.Must(uuid.NewV7())}
}

func (w *world) as(owner uuid.UUID) *world { return &world{w.t, w.db, owner} }

func (w *world) tx(f func(tx *pg.Tx) error) error { return w.db.InTx(w.t.Context(), f) }

func (w *world) create(d Draft) (n Note, err error) {
	err = w.tx(func(tx *pg.Tx) (err error) {
		n, err = Create(w.t.Context(), tx, w.owner, outbox.NewID(), d)
		return err
	})
	return n, err
}

func (w *world) update(id uuid.UUID, ch Change) (n Note, changed int64, err error) {
	err = w.tx(func(tx *pg.Tx) (err error) {
		n, changed, err = Update(w.t.Context(), tx, w.owner, id, outbox.NewID(), ch)
		return err
	})
	return n, changed, err
}

func (w *world) promote(id uuid.UUID, p Promotion) (n Note, made bool, err error) {
	err = w.tx(func(tx *pg.Tx) (err error) {
		n, made, err = Promote(w.t.Context(), tx, w.owner, id, outbox.NewID(), p)
		return err
	})
	return n, made, err
}

func (w *world) delete(id uuid.UUID) (count int64, err error) {
	err = w.tx(func(tx *pg.Tx) (err error) {
		_, count, err = Delete(w.t.Context(), tx, w.owner, id, outbox.NewID(), nil)
		return err
	})
	return count, err
}

func (w *world) restore(id uuid.UUID) (n Note, count int64, err error) {
	err = w.tx(func(tx *pg.Tx) (err error) {
		n, count, err = Restore(w.t.Context(), tx, w.owner, id, outbox.NewID(), nil)
		return err
	})
	return n, count, err
}

// must fails the test on an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *world) wiki(title string, parent *Note) Note {
	w.t.Helper()
	d := Draft{Genre: Wiki, Title: title}
	if parent != nil {
		d.ParentID = &parent.ID
	}
	return must[Note](w.t)(w.create(d))
}

func (w *world) get(id uuid.UUID) Note {
	w.t.Helper()
	return must[Note](w.t)(Get(w.t.Context(), w.db, w.owner, id))
}

// index does what the worker does.
func (w *world) index(ids ...uuid.UUID) {
	w.t.Helper()
	sources, err := ReadForIndex(w.t.Context(), w.db, ids, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(sources...)
}

func (w *world) write(sources ...Source) {
	w.t.Helper()
	var rows []IndexRow
	var terms []Term
	for _, s := range sources {
		r := BuildIndexRow(s)
		rows = append(rows, r)
		for _, word := range r.Terms {
			terms = append(terms, Term{r.OwnerID, word})
		}
	}
	if err := w.tx(func(tx *pg.Tx) error {
		return WriteIndex(w.t.Context(), tx, terms, rows)
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) indexAll() {
	w.t.Helper()
	w.index(w.ids(`SELECT id FROM notes WHERE owner_id = $1`)...)
}

func (w *world) ids(sql string) []uuid.UUID {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), sql, w.owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return must[[]uuid.UUID](w.t)(pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]))
}

func (w *world) search(o SearchOptions) []Hit {
	w.t.Helper()
	r := must[Results](w.t)(Search(w.t.Context(), w.db, w.owner, o))
	if r.Total < len(r.Hits) {
		w.t.Errorf("total %d of %d hits", r.Total, len(r.Hits))
	}
	return r.Hits
}

func (w *world) found(query string) (titles []string) {
	w.t.Helper()
	for _, h := range w.search(SearchOptions{Query: query}) {
		titles = append(titles, h.Note.Title)
	}
	return titles
}

// events counts the events about a note.
func (w *world) events(id uuid.UUID) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), `SELECT count(*) FROM events WHERE subject = $1`, id.String()).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) count(table string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func code(err error) string {
	if f := fault.From(err); f != nil {
		return f.Code
	}
	return ""
}

func wantCode(t testing.TB, err error, want string) {
	t.Helper()
	if got := code(err); got != want {
		t.Errorf("code %q, want %q (%v)", got, want, err)
	}
}

func TestCreateRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := func(n int) string { return strings.Repeat("å", n) }
	many := func(n int) (s []string) {
		for i := range n {
			s = append(s, fmt.Sprint("x", i))
		}
		return s
	}
	id := uuid.New()
	for name, c := range map[string]struct {
		d           Draft
		field, code string
	}{
		"wiki without title":   {Draft{Genre: Wiki}, "title", "missing_field"},
		"output without title": {Draft{Genre: Output, Title: " \t"}, "title", "missing_field"},
		"raw without anything": {Draft{Genre: Raw, Body: " \n"}, "body", "missing_field"},
		"invisible title":      {Draft{Genre: Wiki, Title: "\u200b"}, "title", "missing_field"},
		"genre":                {Draft{Genre: "poem", Title: "x"}, "genre", "not_allowed"},
		"visibility":           {Draft{Genre: Wiki, Title: "x", Visibility: "all"}, "visibility", "not_allowed"},
		"title too long":       {Draft{Genre: Wiki, Title: long(MaxTitle + 1)}, "title", "too_long"},
		"title of two lines":   {Draft{Genre: Wiki, Title: "a\nb"}, "title", "invalid_format"},
		"title with U+2028":    {Draft{Genre: Wiki, Title: "a\u2028b"}, "title", "invalid_format"},
		"title not UTF-8":      {Draft{Genre: Wiki, Title: "a\xff"}, "title", "invalid_text"},
		"body with NUL":        {Draft{Genre: Raw, Body: "a\x00b"}, "body", "invalid_text"},
		"body not UTF-8":       {Draft{Genre: Raw, Body: "a\xc3"}, "body", "invalid_text"},
		"body too long":        {Draft{Genre: Raw, Body: strings.Repeat("x", MaxBody+1)}, "body", "too_long"},
		"source too long":      {Draft{Genre: Raw, Body: "x", Source: long(MaxSource + 1)}, "source", "too_long"},
		"too many tags":        {Draft{Genre: Raw, Body: "x", Tags: many(MaxTags + 1)}, "tags", "too_many"},
		"tag too long":         {Draft{Genre: Raw, Body: "x", Tags: []string{"a", long(MaxTag + 1)}}, "tags[1]", "too_long"},
		"too many aliases":     {Draft{Genre: Raw, Body: "x", Aliases: many(MaxAliases + 1)}, "aliases", "too_many"},
		"alias of two lines":   {Draft{Genre: Raw, Body: "x", Aliases: []string{"a\rb"}}, "aliases[0]", "invalid_format"},
		"raw with parent":      {Draft{Genre: Raw, Body: "x", ParentID: &id}, "parent_id", "not_allowed"},
		"no such parent":       {Draft{Genre: Wiki, Title: "x", ParentID: &id}, "parent_id", "parent_missing"},
	} {
		_, err := w.create(c.d)
		f := fault.From(err)
		if f == nil || f.Code != c.code || len(f.Fields) != 1 || f.Fields[0].Name != c.field || f.Fields[0].Code != c.code {
			t.Errorf("%s: %+v", name, f)
		}
	}
	_, err := w.create(Draft{Genre: Wiki, Body: "a\x00b"})
	if f := fault.From(err); f == nil || f.Code != "invalid_request" || len(f.Fields) != 2 {
		t.Errorf("two faults: %+v", f)
	}
	if n := w.count("notes") + w.count("events") + w.count("event_queue"); n != 0 {
		t.Errorf("refused notes left %d rows", n)
	}

	for name, d := range map[string]Draft{
		"empty wiki body":  {Genre: Wiki, Title: "x"},
		"raw title":        {Genre: Raw, Title: "x"},
		"raw body":         {Genre: Raw, Body: "x"},
		"longest title":    {Genre: Wiki, Title: long(MaxTitle)},
		"longest body":     {Genre: Raw, Body: strings.Repeat("x", MaxBody)},
		"most tags":        {Genre: Raw, Body: "x", Tags: many(MaxTags)},
		"control in body":  {Genre: Raw, Body: "a\x01\r\n\tb\u2028"},
		"surrounding":      {Genre: Output, Title: "  x \n"},
		"title of numbers": {Genre: Wiki, Title: "00713"},
	} {
		n, err := w.create(d)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := w.get(n.ID)
		if *got.Body != d.Body || got.Title != strings.TrimSpace(d.Title) || got.Version != 1 || got.Visibility != Private {
			t.Errorf("%s: %+v", name, got)
		}
	}

	n := must[Note](t)(w.create(Draft{Genre: Wiki, Title: "tagged", Tags: []string{" #Go ", "go", "", "Reading/Books", "ｇｏ2", "#"}, Aliases: []string{"B", "a", "b"}, Source: " s "}))
	got := w.get(n.ID)
	if !slices.Equal(got.Tags, []string{"Go", "Reading/Books", "ｇｏ2"}) || !slices.Equal(got.Aliases, []string{"B", "a"}) || got.Source != "s" {
		t.Errorf("%q %q %q", got.Tags, got.Aliases, got.Source)
	}
	if got.URI != n.URI || got.Path != n.Path || !got.UpdatedAt.Equal(n.UpdatedAt) || !got.CreatedAt.Equal(n.CreatedAt) || got.slug != n.slug {
		t.Errorf("answered %+v, stored %+v", n, got)
	}
	if w.events(n.ID) != 1 {
		t.Errorf("%d events", w.events(n.ID))
	}
}

// TestCreateNamesItsEvent: the trigger's event has the id that the caller
// waits for, in a transaction of one batch and in one that goes on.
func TestCreateNamesItsEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, hold := range []bool{false, true} {
		event := outbox.NewID()
		var n Note
		if err := w.tx(func(tx *pg.Tx) (err error) {
			if hold {
				tx.Hold()
			}
			n, err = Create(t.Context(), tx, w.owner, event, Draft{Genre: Wiki, Title: fmt.Sprint(hold)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		latest, err := outbox.LatestFor(t.Context(), w.db, w.owner, outbox.NoteChanged, n.ID.String())
		if err != nil || latest != event {
			t.Errorf("event %v, want %v (%v)", latest, event, err)
		}
	}
}

func TestAddresses(t *testing.T) { // C5
	t.Parallel()
	w := newWorld(t)
	hundred := strings.Repeat("long title ", 10)
	titles := []string{"认知负荷", "反脆弱", "🔥", "🎉", "C++", "C#", "C", "c", "a/b", "a b", "..", ".", "/", "con", "~", "Ünïcode", "ﾎﾟｽﾀｰ", hundred + "one", hundred + "two", "a\\b", "%2e", "?q#x"}
	paths := map[string]string{}
	for _, title := range titles {
		n, err := w.create(Draft{Genre: Wiki, Title: title})
		if title == "c" {
			wantCode(t, err, "sibling_name_taken")
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", title, err)
			continue
		}
		if n.Path == "" || strings.ContainsAny(n.Path, "/\\?#%. ") || paths[n.Path] != "" {
			t.Errorf("%q: path %q, also of %q", title, n.Path, paths[n.Path])
		}
		paths[n.Path] = title
		if got, err := GetPublic(t.Context(), w.db, w.owner, "", n.Path, []Visibility{Private}); err != nil || got.ID != n.ID {
			t.Errorf("%q does not open at %q: %v", title, n.Path, err)
		}
	}
	// an address that says too little of its title does not depend on who came first
	other := w.as(uuid.New())
	for _, title := range []string{"C#", "C++", "🎉", "🔥"} {
		if n := other.wiki(title, nil); paths[n.Path] != title {
			t.Errorf("%q has path %q", title, n.Path)
		}
	}
}

// wantNamed: the note in the way is named as it is written, with its id.
func wantNamed(t testing.TB, err error, n Note) {
	t.Helper()
	f := fault.From(err)
	if f == nil || len(f.Fields) != 1 || !strings.Contains(f.Fields[0].Detail, n.ID.String()) || !strings.Contains(f.Fields[0].Detail, strconv.Quote(n.Title)) || !strings.Contains(f.Detail, "regardless of case") {
		t.Errorf("%v", err)
	}
}

func TestSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.wiki("Straße  one", nil)
	for i, title := range []string{"Straße one", "STRASSE ONE", "strasse\u00a0one"} {
		_, err := w.create(Draft{Genre: Wiki, Title: title})
		wantCode(t, err, "sibling_name_taken")
		wantNamed(t, err, a)
		other := w.wiki(fmt.Sprint("to be renamed ", i), nil)
		_, _, err = w.update(other.ID, Change{Title: op.Some(title)})
		wantCode(t, err, "sibling_name_taken")
		wantNamed(t, err, a)
	}
	under := w.wiki("Straße one", &a)
	must[Note](t)(w.create(Draft{Genre: Output, Title: "Straße one"}))
	_, err := w.create(Draft{Genre: Wiki, Title: "straße one", ParentID: &a.ID})
	wantCode(t, err, "sibling_name_taken")
	if under.Path != a.Path+"/"+a.Path || under.URI != "wiki://"+under.Path {
		t.Errorf("%q under %q", under.URI, a.URI)
	}
	// the same slug for another title
	b := w.wiki("Straße, one!", nil)
	if b.Path == a.Path || !strings.HasPrefix(b.Path, a.Path+"-") {
		t.Errorf("%q beside %q", b.Path, a.Path)
	}
	// a raw note has no place
	for range 2 {
		if n := must[Note](t)(w.create(Draft{Genre: Raw, Title: "same"})); n.URI != "raw://"+n.ID.String() || n.Path != "" {
			t.Errorf("%q", n.URI)
		}
	}
	raw := must[Note](t)(w.create(Draft{Genre: Raw, Title: "same"}))
	for _, parent := range []Note{raw, w.as(uuid.New()).wiki("other's", nil), must[Note](t)(w.create(Draft{Genre: Output, Title: "x"}))} {
		_, err := w.create(Draft{Genre: Wiki, Title: "child", ParentID: &parent.ID})
		wantCode(t, err, "parent_missing")
	}
	// deleted notes hold no name and are no parents
	if _, err := w.delete(a.ID); err != nil {
		t.Fatal(err)
	}
	w.wiki("Straße one", nil)
	_, err = w.create(Draft{Genre: Wiki, Title: "child", ParentID: &a.ID})
	wantCode(t, err, "parent_missing")
}

func TestDepth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	top := w.wiki("top", nil)
	n := top
	for i := 2; i <= MaxDepth; i++ {
		n = w.wiki(fmt.Sprint("n", i), &n)
	}
	_, err := w.create(Draft{Genre: Wiki, Title: "x", ParentID: &n.ID})
	wantCode(t, err, "too_deep")
	above := w.wiki("above", nil)
	_, _, err = w.update(top.ID, Change{ParentID: op.Some(above.ID)})
	wantCode(t, err, "too_deep")

	// the longest path that fits, then one that does not
	n = w.wiki(strings.Repeat("语", 60), nil)
	for {
		m, err := w.create(Draft{Genre: Wiki, Title: strings.Repeat("语", 60), ParentID: &n.ID})
		if err != nil {
			wantCode(t, err, "path_too_long")
			break
		}
		n = m
	}
	root := w.ids(`SELECT id FROM notes WHERE owner_id = $1 AND path = repeat('语', 60)`)[0]
	_, _, err = w.update(root, Change{ParentID: op.Some(w.wiki(strings.Repeat("b", 80), nil).ID)})
	wantCode(t, err, "path_too_long")
}

func TestParallelSiblings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := w.wiki("parent", nil)
	for _, d := range []Draft{{Genre: Wiki, Title: "same"}, {Genre: Wiki, Title: "same", ParentID: &parent.ID}} {
		codes := map[string]int{}
		w.parallel(16, func(int) {
			_, err := w.create(d)
			w.count1(codes, err)
		})
		if codes[""] != 1 || codes["sibling_name_taken"] != 15 {
			t.Errorf("%v", codes)
		}
	}
	// different titles with one slug all get an address
	codes := map[string]int{}
	w.parallel(8, func(i int) {
		_, err := w.create(Draft{Genre: Wiki, Title: "dash" + strings.Repeat("!", i)})
		w.count1(codes, err)
	})
	if codes[""] != 8 {
		t.Errorf("%v", codes)
	}
}

var counting sync.Mutex

func (w *world) count1(codes map[string]int, err error) {
	counting.Lock()
	defer counting.Unlock()
	codes[code(err)]++
	if code(err) == "internal" {
		w.t.Error(err)
	}
}

func (w *world) parallel(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := w.wiki("parent", nil)
	n := must[Note](t)(w.create(Draft{Genre: Wiki, Title: "Title", Body: "body", Tags: []string{"t"}, Aliases: []string{"a"}, ParentID: &parent.ID, Source: "s", Visibility: Coded}))

	got, changed, err := w.update(n.ID, Change{Genre: op.Some(Wiki), Title: op.Some("Title"), Body: op.Some("body"), ParentID: op.Some(parent.ID), Tags: op.Some([]string{"t", "T"})})
	if err != nil || changed != 0 || got.Version != 1 || w.events(n.ID) != 1 {
		t.Errorf("nothing: changed %v, version %d, %d events, %v", changed, got.Version, w.events(n.ID), err)
	}
	got, changed, err = w.update(n.ID, Change{Body: op.Some("new")})
	if err != nil || changed != 1 || got.Version != 2 || *got.Body != "new" || w.events(n.ID) != 2 {
		t.Errorf("body: %+v %v %v", got, changed, err)
	}
	one, two := int64(1), int64(2)
	_, _, err = w.update(n.ID, Change{Body: op.Some("late"), Version: &one})
	if wantCode(t, err, "version_conflict"); err != nil && !strings.Contains(fault.From(err).Detail, "version 2") {
		t.Error(err)
	}
	if got, _, err = w.update(n.ID, Change{Tags: op.Opt[[]string]{Set: true, Null: true}, Source: op.Some(""), Visibility: op.Opt[Visibility]{Set: true, Null: true}, Version: &two}); err != nil || len(got.Tags) != 0 || got.Source != "" || got.Visibility != Private {
		t.Errorf("cleared: %+v %v", got, err)
	}
	stored := w.get(n.ID)
	if stored.Version != 3 || !stored.UpdatedAt.Equal(got.UpdatedAt) || *stored.Body != "new" || !slices.Equal(stored.Aliases, []string{"a"}) {
		t.Errorf("stored %+v", stored)
	}
	for name, c := range map[string]struct {
		ch   Change
		code string
	}{
		"title cleared": {Change{Title: op.Some("")}, "missing_field"},
		"genre":         {Change{Genre: op.Some(Output)}, "genre_fixed"},
		"parent":        {Change{ParentID: op.Some(uuid.New())}, "parent_missing"},
		"itself":        {Change{ParentID: op.Some(n.ID)}, "cycle"},
		"body":          {Change{Body: op.Some("\x00")}, "invalid_text"},
	} {
		_, _, err := w.update(n.ID, c.ch)
		if code(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	raw := must[Note](t)(w.create(Draft{Genre: Raw, Body: "x"}))
	_, _, err = w.update(raw.ID, Change{Body: op.Some("")})
	wantCode(t, err, "missing_field")
	if got, _, err := w.update(raw.ID, Change{Title: op.Some("now titled"), Body: op.Some("")}); err != nil || got.URI != raw.URI {
		t.Errorf("%+v %v", got, err)
	}
}

func (w *world) paths() (paths []string) {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `SELECT path FROM notes WHERE owner_id = $1 AND genre = 'wiki' AND deleted_at IS NULL ORDER BY path`, w.owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return must[[]string](w.t)(pgx.CollectRows(rows, pgx.RowTo[string]))
}

// sound checks that every living path is its parent's with a slug behind it.
func (w *world) sound() {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `
		SELECT n.path FROM notes n LEFT JOIN notes p ON p.id = n.parent_id
		WHERE n.deleted_at IS NULL AND n.genre <> 'raw'
			AND (n.path <> coalesce(p.path || '/', '') || n.slug OR p.deleted_at IS NOT NULL OR n.owner_id <> coalesce(p.owner_id, n.owner_id))`)
	if err != nil {
		w.t.Fatal(err)
	}
	if bad := must[[]string](w.t)(pgx.CollectRows(rows, pgx.RowTo[string])); len(bad) > 0 {
		w.t.Errorf("paths that are not their parent's: %q", bad)
	}
}

func TestRenameAndMoveSubtree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.wiki("A", nil)
	ab := w.wiki("B", &a)
	abc := w.wiki("C", &ab)
	near := w.wiki("A2", nil) // "a2" sorts beside "a/"
	other := w.as(uuid.New())
	oa := other.wiki("A", nil)
	other.wiki("B", &oa)
	gone := w.wiki("gone", &ab)
	if _, err := w.delete(gone.ID); err != nil {
		t.Fatal(err)
	}

	n, _, err := w.update(a.ID, Change{Title: op.Some("Été")})
	if err != nil || n.Path != "été" {
		t.Fatal(n.Path, err)
	}
	if got, want := w.paths(), []string{"a2", "été", "été/b", "été/b/c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for id, want := range map[uuid.UUID]int{a.ID: 2, ab.ID: 2, abc.ID: 2, near.ID: 1, gone.ID: 2, oa.ID: 1} {
		if got := w.events(id); got != want {
			t.Errorf("%d events of %v, want %d", got, id, want)
		}
	}
	if v := w.get(abc.ID).Version; v != 2 {
		t.Errorf("version %d of a note whose address changed", v)
	}

	for _, under := range []uuid.UUID{ab.ID, abc.ID} {
		_, _, err = w.update(a.ID, Change{ParentID: op.Some(under)})
		wantCode(t, err, "cycle")
	}
	if _, _, err := w.update(ab.ID, Change{ParentID: op.Some(near.ID), Title: op.Some("Bee")}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.paths(), []string{"a2", "a2/bee", "a2/bee/c", "été"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// to where a sibling has the name, then the slug only
	w.wiki("Bee", nil)
	_, _, err = w.update(ab.ID, Change{ParentID: op.Opt[uuid.UUID]{Set: true, Null: true}})
	wantCode(t, err, "sibling_name_taken")
	n, _, err = w.update(ab.ID, Change{ParentID: op.Opt[uuid.UUID]{Set: true, Null: true}, Title: op.Some("Bee.")})
	if err != nil || !strings.HasPrefix(n.Path, "bee-") {
		t.Errorf("%q %v", n.Path, err)
	}
	// a case change keeps the address
	if m, _, err := w.update(ab.ID, Change{Title: op.Some("BEE.")}); err != nil || m.Path != n.Path || m.Title != "BEE." {
		t.Errorf("%q %v", m.Path, err)
	}
	w.sound()
	if got := other.paths(); !slices.Equal(got, []string{"a", "a/b"}) {
		t.Errorf("another owner's %q", got)
	}
}

// TestParallelMoves: whatever moves where at once, the tree stays a tree.
func TestParallelMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var notes []Note
	for i := range 6 {
		notes = append(notes, w.wiki(fmt.Sprint("n", i), nil))
	}
	codes := map[string]int{}
	w.parallel(48, func(i int) {
		var err error
		switch from, to := notes[i%6], notes[(i*5+i/6+1)%6]; i % 8 {
		case 7:
			_, _, err = w.update(from.ID, Change{Title: op.Some(fmt.Sprint("renamed", i))})
		case 5:
			_, err = w.create(Draft{Genre: Wiki, Title: fmt.Sprint("child", i), ParentID: &to.ID})
		case 3:
			_, err = w.create(Draft{Genre: Wiki, Title: fmt.Sprint("renamed", i+4)})
		default:
			_, _, err = w.update(from.ID, Change{ParentID: op.Some(to.ID)})
		}
		w.count1(codes, err)
	})
	t.Log(codes)
	for c := range codes {
		if !slices.Contains([]string{"", "cycle", "sibling_name_taken"}, c) {
			t.Errorf("code %q", c)
		}
	}
	w.sound()
	var loose int
	if err := w.db.QueryRow(t.Context(), `
		WITH RECURSIVE reached AS (
			SELECT id FROM notes WHERE parent_id IS NULL UNION SELECT n.id FROM notes n JOIN reached r ON n.parent_id = r.id
		) SELECT count(*) FROM notes WHERE id NOT IN (SELECT id FROM reached)`).Scan(&loose); err != nil || loose > 0 {
		t.Errorf("%d notes hang in a cycle (%v)", loose, err)
	}
}

func TestPromote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	raw := must[Note](t)(w.create(Draft{Genre: Raw, Body: "some words\n\n# The *Heading*\n\nmore", Tags: []string{"x/y"}, Source: "a book"}))
	n, made, err := w.promote(raw.ID, Promotion{})
	if err != nil || !made {
		t.Fatal(n, made, err)
	}
	if n.Genre != Wiki || n.Title != "The Heading" || *n.Body != *raw.Body || !slices.Equal(n.Tags, raw.Tags) || n.Source != "a book" || *n.PromotedFrom != raw.ID || n.Visibility != Private {
		t.Errorf("%+v", n)
	}
	if r := w.get(raw.ID); r.PromotedTo == nil || *r.PromotedTo != n.ID || r.Version != 2 {
		t.Errorf("%+v", r)
	}
	again, made, err := w.promote(raw.ID, Promotion{Title: "ignored"})
	if err != nil || made || again.ID != n.ID || *again.Body != *n.Body || w.events(n.ID) != 1 {
		t.Errorf("again: %+v %v %v", again, made, err)
	}
	_, _, err = w.promote(raw.ID, Promotion{Genre: Output})
	wantCode(t, err, "already_promoted")
	_, _, err = w.promote(raw.ID, Promotion{Again: true})
	wantCode(t, err, "sibling_name_taken")
	if m, made, err := w.promote(raw.ID, Promotion{Again: true, Title: "Second", ParentID: &n.ID, Visibility: Public}); err != nil || !made || m.ParentID == nil || m.Visibility != Public || m.Path != "the-heading/second" {
		t.Errorf("%+v %v", m, err)
	}
	out, _, err := w.promote(n.ID, Promotion{})
	if err != nil || out.Genre != Output || out.Title != n.Title {
		t.Errorf("%+v %v", out, err)
	}
	_, _, err = w.promote(out.ID, Promotion{})
	wantCode(t, err, "nothing_above")
	_, _, err = w.promote(n.ID, Promotion{Genre: Raw, Again: true})
	wantCode(t, err, "not_allowed")
	_, _, err = w.as(uuid.New()).promote(n.ID, Promotion{})
	wantCode(t, err, "not_found")

	// a promotion that was deleted is none
	if _, err := w.delete(out.ID); err != nil {
		t.Fatal(err)
	}
	if m, made, err := w.promote(n.ID, Promotion{}); err != nil || !made || m.ID == out.ID {
		t.Errorf("%+v %v %v", m, made, err)
	}

	long := must[Note](t)(w.create(Draft{Genre: Raw, Body: strings.Repeat("文字 ", 400)}))
	m, _, err := w.promote(long.ID, Promotion{Genre: Output})
	if err != nil || utf8.RuneCountInString(m.Title) > MaxTitle || !strings.HasPrefix(m.Title, "文字 文字") {
		t.Errorf("%q %v", m.Title, err)
	}
	bare := must[Note](t)(w.create(Draft{Genre: Raw, Body: "---\n"}))
	_, _, err = w.promote(bare.ID, Promotion{})
	wantCode(t, err, "missing_field")
	if _, err := w.delete(bare.ID); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.promote(bare.ID, Promotion{Title: "x"})
	wantCode(t, err, "not_found")
}

func TestParallelPromotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	raw := must[Note](t)(w.create(Draft{Genre: Raw, Title: "idea", Body: "x"}))
	var mu sync.Mutex
	notes, makers := map[uuid.UUID]bool{}, 0
	w.parallel(12, func(i int) {
		n, made, err := w.promote(raw.ID, Promotion{Title: fmt.Sprint("title ", i)})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		notes[n.ID] = true
		if made {
			makers++
		}
	})
	if len(notes) != 1 || makers != 1 || w.count("notes") != 2 {
		t.Errorf("%d notes, %d made, %d rows", len(notes), makers, w.count("notes"))
	}
}

func TestDeleteAndRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.wiki("A", nil)
	b := w.wiki("B", &a)
	c := w.wiki("C", &b)
	first := w.wiki("first", &b)
	keep := w.wiki("keep", nil)
	restore := func(id uuid.UUID, want int64) Note {
		t.Helper()
		n, count, err := w.restore(id)
		if err != nil || count != want {
			t.Fatalf("restored %d, want %d: %v", count, want, err)
		}
		w.sound()
		return n
	}
	if n, err := w.delete(first.ID); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if n, err := w.delete(a.ID); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if got := w.paths(); !slices.Equal(got, []string{"keep"}) {
		t.Errorf("%q", got)
	}
	for _, id := range []uuid.UUID{a.ID, c.ID} {
		_, err := Get(t.Context(), w.db, w.owner, id)
		wantCode(t, err, "not_found")
		_, _, err = w.update(id, Change{Body: op.Some("x")})
		wantCode(t, err, "not_found")
		_, err = w.delete(id)
		wantCode(t, err, "not_found")
		if w.events(id) != 2 {
			t.Errorf("%d events", w.events(id))
		}
	}
	items, more, total, err := Trash(t.Context(), w.db, w.owner, TrashPosition{}, 1)
	if err != nil || !more || total != 2 || items[0].Note.ID != a.ID || items[0].Count != 3 || items[0].Note.Body != nil {
		t.Errorf("%+v %v %d %v", items, more, total, err)
	}
	items, more, _, err = Trash(t.Context(), w.db, w.owner, TrashPosition{*items[0].Note.DeletedAt, items[0].Note.ID}, 1)
	if err != nil || more || items[0].Note.ID != first.ID {
		t.Errorf("%+v %v %v", items, more, err)
	}
	_, _, err = w.restore(b.ID)
	wantCode(t, err, "deleted_with_parent")
	_, _, err = w.restore(keep.ID)
	wantCode(t, err, "not_deleted")
	_, _, err = w.as(uuid.New()).restore(a.ID)
	wantCode(t, err, "not_found")

	// without its parent, at the root
	if n := restore(first.ID, 1); n.ParentID != nil || n.Path != "first" {
		t.Errorf("%+v", n)
	}
	n := restore(a.ID, 3)
	if got := w.paths(); !slices.Equal(got, []string{"a", "a/b", "a/b/c", "first", "keep"}) || n.Version != 3 {
		t.Errorf("%q, version %d", got, n.Version)
	}
	if w.get(c.ID).DeletedAt != nil {
		t.Error("still deleted")
	}

	// the name was given away; then the address only
	if _, err := w.delete(b.ID); err != nil {
		t.Fatal(err)
	}
	thief := w.wiki("b", &a)
	_, _, err = w.restore(b.ID)
	wantCode(t, err, "sibling_name_taken")
	if _, _, err := w.update(thief.ID, Change{Title: op.Some("B!")}); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.restore(b.ID)
	wantCode(t, err, "sibling_name_taken")
	if _, err := w.delete(thief.ID); err != nil {
		t.Fatal(err)
	}
	// the parent was renamed meanwhile
	if _, _, err := w.update(a.ID, Change{Title: op.Some("Z")}); err != nil {
		t.Fatal(err)
	}
	restore(b.ID, 2)
	if got := w.paths(); !slices.Equal(got, []string{"first", "keep", "z", "z/b", "z/b/c"}) {
		t.Errorf("%q", got)
	}

	raw := must[Note](t)(w.create(Draft{Genre: Raw, Body: "x"}))
	if n, err := w.delete(raw.ID); err != nil || n != 1 {
		t.Error(n, err)
	}
	if n := restore(raw.ID, 1); n.URI != raw.URI {
		t.Error(n.URI)
	}
}

// TestParallelTree: deletes, restores, moves and creates under each other leave
// no living note below a deleted one.
func TestParallelTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.wiki("a", nil)
	b := w.wiki("b", &a)
	z := w.wiki("z", nil)
	codes := map[string]int{}
	w.parallel(60, func(i int) {
		var err error
		switch i % 6 {
		case 0:
			_, err = w.delete(a.ID)
		case 1, 2:
			_, _, err = w.restore(a.ID)
		case 3:
			_, err = w.create(Draft{Genre: Wiki, Title: fmt.Sprint("c", i), ParentID: &b.ID})
		case 4:
			to := []uuid.UUID{a.ID, z.ID}[i/6%2]
			_, _, err = w.update(b.ID, Change{ParentID: op.Some(to)})
		case 5:
			_, _, err = w.update(a.ID, Change{Title: op.Some(fmt.Sprint("a", i))})
		}
		w.count1(codes, err)
	})
	t.Log(codes)
	w.sound()
}

func TestAnotherOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.wiki("mine", nil)
	w.index(n.ID)
	before := w.count("events")
	o := w.as(uuid.New())
	_, err := Get(t.Context(), w.db, o.owner, n.ID)
	wantCode(t, err, "not_found")
	_, _, err = o.update(n.ID, Change{Title: op.Some("theirs")})
	wantCode(t, err, "not_found")
	_, err = o.delete(n.ID)
	wantCode(t, err, "not_found")
	if hits := o.search(SearchOptions{Query: "mine"}); len(hits) > 0 {
		t.Errorf("%+v", hits)
	}
	if items, _, total, err := List(t.Context(), w.db, o.owner, Filter{ParentID: &n.ID}, Position{}, 10); len(items)+total > 0 || err != nil {
		t.Error(items, total, err)
	}
	if w.count("events") != before || w.get(n.ID).Version != 1 {
		t.Error("something changed")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []Note
	top := w.wiki("top", nil)
	for i := range 7 {
		d := Draft{Genre: Wiki, Title: fmt.Sprint("n", i), Tags: []string{"Even/Deep"}, Visibility: Public, ParentID: &top.ID}
		if i%2 == 1 {
			d.Tags, d.Visibility = []string{"odd"}, Private
		}
		all = append(all, must[Note](t)(w.create(d)))
	}
	raw := must[Note](t)(w.create(Draft{Genre: Raw, Body: "x"}))
	titles := func(f Filter, limit int) (titles []string) {
		t.Helper()
		var at Position
		for {
			items, more, total, err := List(t.Context(), w.db, w.owner, f, at, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range items {
				titles = append(titles, n.Title)
				if n.Body != nil {
					t.Error("a list has bodies")
				}
			}
			if !more {
				if total != len(titles) {
					t.Errorf("total %d, %d listed", total, len(titles))
				}
				return titles
			}
			if len(items) != limit {
				t.Errorf("%d items on a page", len(items))
			}
			last := items[len(items)-1]
			at = Position{last.UpdatedAt, last.ID}
		}
	}
	for _, c := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, " n6 n5 n4 n3 n2 n1 n0 top"},
		{Filter{Genre: Wiki, Root: true}, "top"},
		{Filter{ParentID: &top.ID, Visibility: Private}, "n5 n3 n1"},
		{Filter{Tag: "#even"}, "n6 n4 n2 n0"},
		{Filter{Tag: "EVEN/deep"}, "n6 n4 n2 n0"},
		{Filter{Tag: "even/dee"}, ""},
		{Filter{Seen: []Visibility{Public}}, "n6 n4 n2 n0"},
		{Filter{Genre: Raw}, ""},
	} {
		for _, limit := range []int{1, 3, 100} {
			if got := strings.Join(titles(c.f, limit), " "); got != c.want {
				t.Errorf("%+v: %q, want %q", c.f, got, c.want)
			}
		}
	}
	if _, _, err := w.update(all[0].ID, Change{Body: op.Some("later")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.delete(raw.ID); err != nil {
		t.Fatal(err)
	}
	if got := titles(Filter{}, 2); got[0] != "n0" || len(got) != 8 {
		t.Errorf("%q", got)
	}
}

func FuzzDraft(f *testing.F) {
	for _, s := range []string{"", "a", "C++", "🔥", "..", "a/b", "ﾎﾟｽﾀｰ", "\u202eabc", "İ", "ǆ", "\U0001d160", strings.Repeat("\U0001d160", 300), "a\xff", "\u0345", "-"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, title, tag string) {
		d := Draft{Genre: Wiki, Title: title, Tags: []string{tag, title}}
		if err := d.check(); err != nil {
			var fa *fault.Fault
			if !errors.As(err, &fa) || fa.Kind != fault.Invalid || len(fa.Fields) == 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		again := d
		again.Tags = slices.Clone(d.Tags)
		if err := again.check(); err != nil || again.Title != d.Title || !slices.Equal(again.Tags, d.Tags) {
			t.Errorf("%q %q become %q %q: %v", d.Title, d.Tags, again.Title, again.Tags, err)
		}
		for _, slug := range slices.Compact(func() []string { a, b := slugs(d.Title); return []string{a, b} }()) {
			if slug == "" || strings.Contains(slug, "/") || !utf8.ValidString(slug) || len(slug) > MaxPath {
				t.Errorf("slug %q of %q", slug, d.Title)
			}
		}
		n := Note{slug: "x"}
		if len(namesOf(d.Title, n.slug, "x", nil)) == 0 {
			t.Error("no names")
		}
		for _, k := range tagKeys(d.Tags) {
			if k == "" || tagKey(k) == "" {
				t.Errorf("tag keys %q of %q", tagKeys(d.Tags), d.Tags)
			}
		}
	})
}
