package corpus

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

func (w *world) note(d Draft) Note {
	w.t.Helper()
	if d.Genre == "" {
		d.Genre = Wiki
	}
	n := must[Note](w.t)(w.create(d))
	w.index(n.ID)
	return n
}

func TestSearchFindsShortAndForeignWords(t *testing.T) { // C2
	t.Parallel()
	w := newWorld(t)
	bodies := map[string]string{
		"n1": "系统需要验证用户身份后才能继续",
		"n2": "夜の雨とリンゴを食べます",
		"n3": "ｶﾞｲﾄﾞ と ＡＰＩ設計",
		"n4": "ポスター draft",
		"n5": "见红即止损",
	}
	for title, body := range bodies {
		for _, genre := range []Genre{Raw, Wiki} {
			w.note(Draft{Genre: genre, Title: title, Body: body, Visibility: map[Genre]Visibility{Wiki: Public}[genre]})
		}
	}
	for query, want := range map[string]string{
		"用户": "n1", "身份": "n1", "雨": "n2", "食べ": "n2", "ガイド": "n3", "API": "n3", "ﾎﾟｽﾀｰ": "n4", "ポスター": "n4", "ポスター DRAFT": "n4", "止损": "n5",
	} {
		for name, o := range map[string]SearchOptions{"owner": {}, "visitor": {Seen: []Visibility{Public}}} {
			o.Query = query
			hits := w.search(o)
			if wanted := map[string]int{"owner": 2, "visitor": 1}[name]; len(hits) != wanted || hits[0].Note.Title != want || hits[0].Similar {
				t.Errorf("%s as %s: %+v", query, name, hits)
				continue
			}
			if got := w.get(hits[0].Note.ID); *got.Body != bodies[want] {
				t.Errorf("body became %q", *got.Body)
			}
		}
	}
}

func TestSearchNeedsEveryWord(t *testing.T) { // C3
	t.Parallel()
	w := newWorld(t)
	for title, body := range map[string]string{"m1": "go 部署方案 deployment", "m2": "go deployment checklist", "m3": "部署方案"} {
		w.note(Draft{Title: title, Body: body, Visibility: Coded})
	}
	for query, want := range map[string]string{"部署 deployment": "m1", "go 部署": "m1", "部署方案": "m1 m3", "checklist go": "m2", "deploy 部署": "m1"} {
		for _, seen := range [][]Visibility{nil, {Public, Coded}} {
			var got []string
			for _, h := range w.search(SearchOptions{Query: query, Seen: seen}) {
				got = append(got, h.Note.Title)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	}
}

func TestSearchRanking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parent := w.note(Draft{Title: "Falcon"})
	w.note(Draft{Title: "Under it", ParentID: &parent.ID, Body: "nothing"})
	w.note(Draft{Title: "in the body", Body: strings.Repeat("falcon ", 50)})
	w.note(Draft{Title: "tagged", Tags: []string{"falcon"}})
	w.note(Draft{Title: "The falcon flies", Body: "bird"})
	w.note(Draft{Title: "older body", Body: "a falcon here"})
	w.note(Draft{Title: "newer body", Body: "a falcon here"})
	want := []string{"Falcon", "The falcon flies", "tagged", "Under it", "in the body", "newer body", "older body"}
	if got := w.found("falcon"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	got := w.found("FALCONS")
	if slices.Sort(got[:2]); !slices.Equal(got[:2], want[:2]) || !slices.Equal(got[2:], want[2:]) {
		t.Errorf("by its stem: %q", got)
	}
}

func TestSearchOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 9 {
		d := Draft{Genre: []Genre{Raw, Wiki, Output}[i%3], Title: fmt.Sprint("kettle ", i), Body: "the kettle says \"boil  water,\nnow\" (number " + fmt.Sprint(i) + ")", Tags: []string{"Kitchen/Hot"}}
		if i%2 == 0 {
			d.Tags = []string{"cold"}
		}
		if i%2 == 0 && d.Genre != Raw {
			d.Visibility = Public
		}
		w.note(d)
	}
	sorted := func(o SearchOptions) string {
		t.Helper()
		var got []string
		for _, h := range w.search(o) {
			got = append(got, strings.TrimPrefix(h.Note.Title, "kettle "))
			if h.Snippet == "" || h.Score <= 0 || h.Note.Body != nil {
				t.Errorf("%+v", h)
			}
		}
		slices.Sort(got)
		return strings.Join(got, "")
	}
	for _, c := range []struct {
		o    SearchOptions
		want string
	}{
		{SearchOptions{Query: "kettle"}, "012345678"},
		{SearchOptions{Query: "kettle", Genre: Raw}, "036"},
		{SearchOptions{Query: "kettle", Tag: "#kitchen"}, "1357"},
		{SearchOptions{Query: "kettle", Tag: "kitchen/HOT", Genre: Output}, "5"},
		{SearchOptions{Query: "kettle", Tag: "kit"}, ""},
		{SearchOptions{Query: "kettle #cold"}, "02468"},
		{SearchOptions{Query: "kettle -4"}, "01235678"},
		{SearchOptions{Query: "kettle", Seen: []Visibility{Public}}, "248"},
		{SearchOptions{Query: "kettle", Seen: []Visibility{Coded}}, ""},
		{SearchOptions{Query: "kettle", Seen: []Visibility{}}, ""},
		{SearchOptions{Query: `"boil water now"`}, "012345678"},
		{SearchOptions{Query: `"Boil Water" 3`}, "3"},
		{SearchOptions{Query: `"water boil"`}, ""},
	} {
		if got := sorted(c.o); got != c.want {
			t.Errorf("%+v: %q, want %q", c.o, got, c.want)
		}
	}
	var paged []uuid.UUID
	for skip := 0; skip < 12; skip += 4 {
		r := must[Results](t)(Search(t.Context(), w.db, w.owner, SearchOptions{Query: "kettle", From: SearchPosition{Skip: uint16(skip)}, Limit: 4}))
		if last := skip == 8; r.Total != 9 || r.AtLeast || last != (r.Next == nil) || !last && *r.Next != (SearchPosition{Skip: uint16(skip + 4)}) {
			t.Errorf("%+v", r)
		}
		for _, h := range r.Hits {
			paged = append(paged, h.Note.ID)
		}
	}
	if slices.SortFunc(paged, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }); len(slices.Compact(paged)) != 9 {
		t.Errorf("%d different results on all pages", len(paged))
	}
	for query, want := range map[string]string{
		"": "missing_field", " \n": "missing_field", "!!!": "missing_field", `"`: "missing_field", "#": "missing_field", "%": "missing_field",
		"*": "missing_field", "-kettle": "missing_field", `"..." -kettle`: "missing_field", strings.Repeat("x", MaxQuery+1): "too_long", "\xff": "invalid_text",
	} {
		_, err := Search(t.Context(), w.db, w.owner, SearchOptions{Query: query})
		if f := fault.From(err); f == nil || f.Code != want || f.Fields[0].Name != "q" {
			t.Errorf("%.10q: %v", query, err)
		}
	}
}

// pages reads all pages and answers the title of every result, in order.
func (w *world) pages(o SearchOptions) (titles []string, first Results) {
	w.t.Helper()
	for page := 0; ; page++ {
		r := must[Results](w.t)(Search(w.t.Context(), w.db, w.owner, o))
		if page == 0 {
			first = r
		}
		for _, h := range r.Hits {
			titles = append(titles, h.Note.Title)
		}
		if r.Next == nil {
			return titles, first
		}
		if o.From = *r.Next; page > 2000 {
			w.t.Fatal("the pages don't end")
		}
	}
}

// notes makes n indexed notes in bulk.
func (w *world) notes(n int, title, body string, v Visibility) {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `
		INSERT INTO notes (id, owner_id, genre, title, title_key, slug, path, body, visibility)
		SELECT gen_random_uuid(), $1, 'wiki', t, t, t, t, $3, $4 FROM (SELECT $2 || '-' || i FROM generate_series(1, $5) AS i) AS t (t)
		RETURNING id`, w.owner, title, body, v, n)
	if err != nil {
		w.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		w.t.Fatal(err)
	}
	for part := range slices.Chunk(ids, 1000) {
		w.index(part...)
	}
}

// TestEveryMatchIsReached: R1. Whatever the number of notes with a word, one
// that was just indexed is among the ranked ones, and each is on some page, once.
func TestEveryMatchIsReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := 0
	for i, n := range []int{260, 5500} {
		w.notes(n, fmt.Sprint("old", i), "zorblax `zorblaxian` speaks in riddles", Public)
		w.notes(5, fmt.Sprint("fresh", i), "of zorblax, in riddles too", Public)
		seen += n + 5
		for name, o := range map[string]SearchOptions{
			"word": {Query: "zorblax"}, "words": {Query: "riddles zorblax"}, "beginning": {Query: "zorb"}, "visitor": {Query: "zorblax", Seen: []Visibility{Public}},
			"beginnings": {Query: "zorb riddles"}, "spelling": {Query: "zorblqx riddles"}, "genre": {Query: "zorblax", Genre: Wiki},
			"phrase": {Query: `"in riddles"`}, "rare phrase": {Query: `"speaks in"`},
		} {
			want, fresh := seen, 0
			if name == "rare phrase" {
				want = seen - 5*(i+1)
			}
			o.Limit = 200
			got, first := w.pages(o)
			for at, title := range got {
				if strings.HasPrefix(title, fmt.Sprint("fresh", i)) && at < ranked {
					fresh++
				}
			}
			count := len(got)
			slices.Sort(got)
			if len(slices.Compact(got)) != want || count != want || name != "rare phrase" && name != "phrase" && fresh != 5 {
				t.Errorf("%s of %d: %d results, %d different ones, %d fresh ones among the ranked", name, want, count, len(slices.Compact(got)), fresh)
			}
			if first.AtLeast == (first.Total == want) {
				t.Errorf("%s: total %d, at least: %v", name, first.Total, first.AtLeast)
			}
		}
	}
	// those in whose title the words stand are ranked, however old
	n := w.note(Draft{Title: "About zorblax"})
	w.notes(300, "newer", "zorblax", Private)
	if hits := w.search(SearchOptions{Query: "zorblax"}); hits[0].Note.ID != n.ID {
		t.Errorf("%+v", hits[0])
	}
}

// TestVisitorsCannotProbe: what private notes hold changes nothing in what a
// visitor finds.
func TestVisitorsCannotProbe(t *testing.T) {
	t.Parallel()
	results := func(secret ...string) (out []string) {
		w := newWorld(t)
		w.note(Draft{Title: "Kubernetes running", Body: "about clusters", Visibility: Public})
		for i, s := range secret {
			w.note(Draft{Title: fmt.Sprint("secret ", i), Body: s})
		}
		for _, query := range []string{"kuberntes", "kubernetes clustres", "custers", "runnings", "ruining", "secert", "runing"} {
			for _, h := range w.search(SearchOptions{Query: query, Seen: []Visibility{Public}}) {
				out = append(out, fmt.Sprint(query, ": ", h.Note.Title, h.Similar))
			}
		}
		return out
	}
	nothing := results()
	if !slices.Contains(nothing, "kuberntes: Kubernetes runningtrue") {
		t.Errorf("visitors' misspellings find %q", nothing)
	}
	crowd := ""
	for i := range 300 {
		crowd += "kubernt" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + " "
	}
	for _, secret := range []string{"kuberntes", "custers clustres", "ruining runnings runing", crowd} {
		if got := results(secret); !slices.Equal(got, nothing) {
			t.Errorf("with %.40q in a private note a visitor finds %q, without %q", secret, got, nothing)
		}
	}
}

func TestSearchFindsBeginnings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.note(Draft{Title: "Kubernetes", Body: "deployment of snake_case_name, in principle; Donaudampfschifffahrt und kein Ende"})
	for _, query := range []string{"kube", "depl", "princi", "snake_case", "donaudampf", "kube deployment", "depl kubernetes", "snake_case kubernetes", "princi depl", "Donaudampfschiff ende"} {
		if hits := w.search(SearchOptions{Query: query}); len(hits) != 1 || hits[0].Similar {
			t.Errorf("%s: %+v", query, hits)
		}
	}
	for _, query := range []string{"ku deployment", "etes ment", `"kube" deployment`, "deployment -kube kubernetes -kubernetes"} {
		if hits := w.search(SearchOptions{Query: query}); len(hits) != 0 {
			t.Errorf("%s: %+v", query, hits)
		}
	}
	// what is there whole comes first
	w.note(Draft{Title: "Cube", Body: "a kube of deployment"})
	if got := w.found("kube deployment"); !slices.Equal(got, []string{"Cube", "Kubernetes"}) {
		t.Errorf("%q", got)
	}
}

func TestSearchForgivesSpelling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.note(Draft{Title: "Kubernetes deployment", Body: "notes about the operator"})
	w.note(Draft{Title: "Gardening", Body: "tomatoes need water"})
	for query, want := range map[string]string{
		"kuberntes":            "Kubernetes deployment",
		"kubernets deploymnet": "Kubernetes deployment",
		"tomatoas":             "Gardening",
		"tomatose watr":        "Gardening",
		"naotes oparetor":      "Kubernetes deployment",
		"wtaer":                "Gardening",
		"gardning tomatoes":    "Gardening",
		"submarine":            "",
	} {
		hits := w.search(SearchOptions{Query: query})
		if want == "" && len(hits) == 0 {
			continue
		}
		if len(hits) != 1 || hits[0].Note.Title != want {
			t.Errorf("%s: %+v", query, hits)
		}
	}
	hits := w.search(SearchOptions{Query: "kuberntes operator"})
	if len(hits) != 1 || !hits[0].Similar || !strings.Contains(hits[0].Snippet, "operator") {
		t.Errorf("%+v", hits)
	}
	// another owner's vocabulary is of no use
	if hits := w.as(uuid.New()).search(SearchOptions{Query: "kuberntes"}); len(hits) > 0 {
		t.Errorf("%+v", hits)
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		near bool
	}{
		{"form", "from", true}, {"form", "farm", true}, {"form", "forums", false}, {"cat", "dog", false},
		{"falcon", "faclon", true}, {"receive", "deceives", true}, {"receive", "perceived", false},
		{"kubernetes", "kubrnetse", true}, {"überzeugung", "uberzeugung", true}, {"", "a", true},
	} {
		if near(c.a, c.b) != c.near {
			t.Errorf("%s %s: %v", c.a, c.b, !c.near)
		}
	}
}

// TestIndexIsOnlyReplacedByNewer: R10, through every order of two jobs.
func TestIndexIsOnlyReplacedByNewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.note(Draft{Title: "note", Body: "first words"})
	read := func() []Source { return must[[]Source](t)(ReadForIndex(t.Context(), w.db, []uuid.UUID{n.ID}, 0)) }
	slow := read()
	if _, _, err := w.update(n.ID, Change{Body: op.Some("second words")}); err != nil {
		t.Fatal(err)
	}
	// before its job the index says what it knew, of a note that is still there
	if got := w.found("first"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	middle := read()
	w.write(middle...)
	w.write(slow...)
	if got := w.found("first"); len(got) != 0 {
		t.Errorf("an old job brought back %q", got)
	}
	if got := w.found("second"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if _, err := w.delete(n.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.found("second"); len(got) != 0 {
		t.Errorf("deleted, not indexed yet: %q", got)
	}
	w.index(n.ID)
	w.write(middle...)
	var version int64
	var deleted bool
	var rest string
	if err := w.db.QueryRow(t.Context(), `SELECT version, deleted, words::text || head::text || keys::text || links::text || plain FROM note_search WHERE note_id = $1`, n.ID).
		Scan(&version, &deleted, &rest); err != nil || version != 3 || !deleted || rest != "{}{}" {
		t.Errorf("tombstone %d %v %q %v", version, deleted, rest, err)
	}
	if _, _, err := w.restore(n.ID); err != nil {
		t.Fatal(err)
	}
	w.index(n.ID)
	if got := w.found("second"); len(got) != 1 {
		t.Errorf("restored: %q", got)
	}

	// erased: nothing may follow, whatever the job knew
	late := read()
	if err := w.tx(func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM notes WHERE id = $1`, n.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	gone := read()
	if len(gone) != 1 || !gone[0].Gone || gone[0].Version != math.MaxInt64 {
		t.Errorf("%+v", gone)
	}
	w.write(gone...)
	w.write(late...)
	if err := w.db.QueryRow(t.Context(), `SELECT deleted FROM note_search WHERE note_id = $1`, n.ID).Scan(&deleted); err != nil || !deleted {
		t.Error(deleted, err)
	}
	// also where the index never knew the note
	never := uuid.New()
	w.index(never)
	w.write(Source{NoteID: never, OwnerID: w.owner, Version: 1, Genre: Wiki, Title: "late", Path: "late", Slug: "late"})
	if got := w.found("late"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestVisitorsNeverReadOldText: what was written while a note was private does
// not come out of the index when it is published.
func TestVisitorsNeverReadOldText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.note(Draft{Title: "plan", Body: "the secret number"})
	visitor := SearchOptions{Query: "plan", Seen: []Visibility{Public}}
	if _, _, err := w.update(n.ID, Change{Body: op.Some("nothing to hide"), Visibility: op.Some(Public)}); err != nil {
		t.Fatal(err)
	}
	if hits := w.search(visitor); len(hits) > 0 {
		t.Errorf("%+v", hits)
	}
	w.index(n.ID)
	if hits := w.search(visitor); len(hits) != 1 || strings.Contains(hits[0].Snippet, "secret") {
		t.Errorf("%+v", hits)
	}
	// made private: gone at once, whatever the index says
	if _, _, err := w.update(n.ID, Change{Visibility: op.Some(Private)}); err != nil {
		t.Fatal(err)
	}
	if hits := w.search(visitor); len(hits) > 0 {
		t.Errorf("%+v", hits)
	}
}

// TestSubtreeReindex: after a rename the notes below are found by their new
// address, and no longer by the old one.
func TestSubtreeReindex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	top := w.note(Draft{Title: "Zebra"})
	w.note(Draft{Title: "stripes", ParentID: &top.ID})
	if got := w.found("zebra stripes"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if _, _, err := w.update(top.ID, Change{Title: op.Some("Okapi")}); err != nil {
		t.Fatal(err)
	}
	w.indexAll()
	if got := w.found("zebra"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := w.found("okapi stripes"); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	folder := w.note(Draft{Title: "Deep Work"})
	one := w.note(Draft{Title: "Note One", ParentID: &folder.ID, Aliases: []string{"The First"}})
	twin := w.note(Draft{Title: "Twin", ParentID: &folder.ID})
	other := w.note(Draft{Title: "Elsewhere"})
	w.note(Draft{Title: "Twin", ParentID: &other.ID})
	out := w.note(Draft{Genre: Output, Title: "Note One", Visibility: Public})
	raw := w.note(Draft{Genre: Raw, Title: "Scribble", Body: "x"})
	cpp := w.note(Draft{Title: "C++", Visibility: Public})
	body := strings.Join([]string{
		"[[Note One]]", "[[note one#Part|shown]]", "[[the first]]", "[[Deep Work/Note One]]", "[[deep-work/twin]]", "[[Elsewhere/Note One.md]]",
		"[[Twin]]", "[[Nobody]]", "[[Scribble]]", "[[C++]]", "![[note-one^b1]]", "[text](wiki://deep-work/note-one)", "[raw](raw://" + raw.ID.String() + ")",
		"[out](output://note-one)", "[gone](wiki://note-one)", "[[Note One]]", "[web](https://example.test/Twin)", "[[#here]]",
	}, "\n\n")
	n := w.note(Draft{Title: "Linking", Body: body, Visibility: Public})
	want := []struct {
		target, state string
		to            uuid.UUID
	}{
		{"Note One", Resolved, one.ID}, {"note one", Resolved, one.ID}, {"the first", Resolved, one.ID}, {"Deep Work/Note One", Resolved, one.ID}, {"deep-work/twin", Resolved, twin.ID},
		{"Elsewhere/Note One.md", Resolved, one.ID}, {"Twin", Ambiguous, uuid.Nil}, {"Nobody", Unresolved, uuid.Nil}, {"Scribble", Resolved, raw.ID}, {"C++", Resolved, cpp.ID},
		{"note-one", Resolved, one.ID}, {"wiki://deep-work/note-one", Resolved, one.ID}, {"raw://" + raw.ID.String(), Resolved, raw.ID}, {"output://note-one", Resolved, out.ID}, {"wiki://note-one", Unresolved, uuid.Nil},
	}
	links, err := LinksOf(t.Context(), w.db, w.owner, w.get(n.ID), nil)
	if err != nil || len(links) != len(want) {
		t.Fatalf("%d links, %v: %+v", len(links), err, links)
	}
	for i, l := range links {
		var to uuid.UUID
		if l.Note != nil {
			to = l.Note.ID
		}
		if l.Target != want[i].target || l.State != want[i].state || to != want[i].to {
			t.Errorf("%+v, want %+v", l, want[i])
		}
	}
	if l := links[1]; l.Heading != "Part" || l.Text != "shown" {
		t.Errorf("%+v", l)
	}
	if l := links[10]; !l.Embed || l.Block != "b1" {
		t.Errorf("%+v", l)
	}

	// a visitor's links lead to what they may see: not to private or raw notes
	links, err = LinksOf(t.Context(), w.db, w.owner, w.get(n.ID), []Visibility{Public})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Note != nil && l.Note.ID != out.ID && l.Note.ID != cpp.ID {
			t.Errorf("a visitor is led to %+v", l)
		}
	}

	backlinks := func(n Note, seen []Visibility) (titles string) {
		t.Helper()
		for _, b := range must[[]Named](t)(Backlinks(t.Context(), w.db, w.owner, n, seen)) {
			titles += b.Title + " "
		}
		return titles
	}
	w.note(Draft{Genre: Output, Title: "Also", Body: "[[Note One]]"})
	for _, c := range []struct {
		n    Note
		seen []Visibility
		want string
	}{
		{one, nil, "Linking "}, {twin, nil, "Linking "}, {out, nil, "Also Linking "}, {raw, nil, "Linking "}, {cpp, nil, "Linking "}, {folder, nil, ""},
		{cpp, []Visibility{Public}, "Linking "}, {out, []Visibility{Public}, "Linking "}, {cpp, []Visibility{Coded}, ""},
	} {
		if got := backlinks(c.n, c.seen); got != c.want {
			t.Errorf("backlinks of %s (%s) for %v: %q, want %q", c.n.Title, c.n.Genre, c.seen, got, c.want)
		}
	}

	// a rename is seen by the links at once when they go by title or path
	if _, _, err := w.update(twin.ID, Change{Title: op.Some("Sister")}); err != nil {
		t.Fatal(err)
	}
	links, err = LinksOf(t.Context(), w.db, w.owner, w.get(n.ID), nil)
	if err != nil || links[6].State != Resolved || links[4].State == Resolved && links[4].Note.ID == twin.ID {
		t.Errorf("%+v %+v %v", links[4], links[6], err)
	}
	// nothing of another owner
	links, err = LinksOf(t.Context(), w.db, uuid.New(), w.get(n.ID), nil)
	if err != nil || slices.ContainsFunc(links, func(l Link) bool { return l.State != Unresolved }) {
		t.Errorf("%+v %v", links, err)
	}
}

// TestLinksToNamesWithSigns: C#, and whatever else looks like a fragment.
func TestLinksToNamesWithSigns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lang := w.note(Draft{Title: "Lang"})
	c := w.note(Draft{Title: "C"})
	pods := w.note(Draft{Title: "C Pods"})
	slashed := w.note(Draft{Title: "b"})
	n := w.note(Draft{Title: "Linking", Body: "[[C#]] [[C#|c sharp]] [[Lang/C#]] [[C#Pods]] [[x^2]] [[C#see a/b]] [[Issue #12]] [[C]] [[C#^block]] [x](C%23.md)"})
	links := func() (out []string) {
		t.Helper()
		for _, l := range must[[]Link](t)(LinksOf(t.Context(), w.db, w.owner, w.get(n.ID), nil)) {
			to := l.State
			if l.Note != nil {
				to = l.Note.Title
			}
			out = append(out, strings.Trim(l.Target+"|"+l.Heading+l.Block+"|"+l.Text+"|"+to, " "))
		}
		return out
	}
	backlinks := func(n Note) int {
		t.Helper()
		return len(must[[]Named](t)(Backlinks(t.Context(), w.db, w.owner, n, nil)))
	}
	want := []string{"C||C#|C", "C||c sharp|C", "Lang/C||Lang/C#|C", "C|Pods|C > Pods|C", "x|2|x|unresolved", "C|see a/b|C > see a/b|C", "Issue|12|Issue > 12|unresolved", "C||C|C", "C|block|C|C", "C#.md||x|C"}
	if got := links(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	sharp := w.note(Draft{Title: "c#", ParentID: &lang.ID})
	square := w.note(Draft{Title: "Power", Aliases: []string{"X^2"}})
	issue := w.note(Draft{Title: "Issue #12"})
	want[0], want[1], want[2] = "C#||C#|c#", "C#||c sharp|c#", "Lang/C#||Lang/C#|c#"
	want[4], want[6], want[9] = "x^2||x|Power", "Issue #12||Issue > 12|Issue #12", "C#.md||x|c#"
	if got := links(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		n    Note
		want int
	}{"c#": {sharp, 1}, "x^2": {square, 1}, "issue": {issue, 1}, "c": {c, 1}, "pods": {pods, 0}, "b": {slashed, 0}, "lang": {lang, 0}} {
		if got := backlinks(c.n); got != c.want {
			t.Errorf("%s: %d backlinks, want %d", name, got, c.want)
		}
	}
	w.note(Draft{Title: "Only sharp", Body: "[[C#]]"})
	if got := backlinks(c); got != 1 {
		t.Errorf("[[C#]] leads to C as well: %d", got)
	}
}

func TestIndexSurvivesAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, d := range map[string]Draft{
		"long link":  {Body: "[[" + strings.Repeat("语", 330) + "]] [x](" + strings.Repeat("y", 9000) + ".md)"},
		"many links": {Body: strings.Repeat("[[a]] [[b/c]] ", 20_000)},
		"many words": {Body: func() string {
			var b strings.Builder
			for i := range 100_000 {
				fmt.Fprint(&b, i*7919, " ")
			}
			return b.String()
		}()},
		"too many words": {Body: func() string {
			var b strings.Builder
			for i := 0; b.Len() < MaxBody-20; i++ {
				fmt.Fprintf(&b, "%c%c%c%cing ", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576)
			}
			return b.String()
		}()},
		"one word":    {Body: strings.Repeat("x", MaxBody)},
		"han":         {Body: strings.Repeat("部署方案认知负荷反脆弱", 30_000)},
		"quotes":      {Body: `'"\ '' \\ \' {},{"a",} NULL :1A 'x':2B & | ! ( ) <-> \x00`, Tags: []string{`'a\`, `b"c`, "{d,e}", "NULL"}, Aliases: []string{`\N`, `'`, `a,b`}},
		"front":       {Body: "---\nname: [x\n---\n# h"},
		"line breaks": {Body: "[[a\nb]] [[c\\nd]] <a\nb>"},
	} {
		d.Genre, d.Title = Wiki, name
		n := w.note(d)
		if hits := w.search(SearchOptions{Query: `"` + name + `"`, Tag: strings.Join(d.Tags[:min(1, len(d.Tags))], "")}); len(hits) > 1 {
			t.Errorf("%s: %d hits", name, len(hits))
		}
		if got := w.found(name); !slices.Contains(got, name) {
			t.Errorf("%s not found: %q", name, got)
		}
		if _, err := LinksOf(t.Context(), w.db, w.owner, w.get(n.ID), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
