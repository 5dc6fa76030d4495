package obsidian_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/functions/corpus"
	"standmeet/functions/obsidian"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// house serves the operations on vaults and notes to two owners.
type house struct {
	testing.TB
	db        *pg.DB
	url       string
	blobDir   string
	me, other uuid.UUID
}

func setup(t testing.TB) *house {
	t.Helper()
	h := &house{TB: t, db: pgtest.DB(t), blobDir: filepath.Join(t.TempDir(), "blobs"), me: uuid.New(), other: uuid.New()}
	for id, handle := range map[uuid.UUID]string{h.me: "me", h.other: "other"} {
		if _, err := h.db.Exec(t.Context(), `INSERT INTO owners (id, handle, email) VALUES ($1, $2, $2 || '@example.test')`, id, handle); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := secret.ParseKeys(strings.Repeat("k", 43))
	if err != nil {
		t.Fatal(err)
	}
	w := waiter.New(h.db, waiter.Options{}, task.FinalSource(h.db), outbox.FanoutSource(h.db))
	t.Cleanup(w.Close)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	h.url = server.URL
	blobs := blob.NewDir(h.blobDir, keys, server.URL)
	mux.Handle(blobs.Gate())
	d, c := obsidian.Deps{DB: h.db, Blobs: blobs}, corpus.Deps{DB: h.db, Receipts: task.NewReceipts(h.db, w)}
	mux.Handle("/", op.NewCatalog(obsidian.Import(d), obsidian.UploadURL(d), obsidian.Export(d), obsidian.Asset(d), obsidian.PublicAsset(d),
		corpus.Create(c), corpus.Update(c), corpus.Delete(c), corpus.Restore(c), corpus.Get(c), corpus.List(c), corpus.PublicGet(c)).
		Handler(&op.Server{MaxWait: -1, Authenticate: func(_ context.Context, c auth.Credentials) (auth.Caller, error) {
			owner, err := uuid.Parse(c.Bearer)
			return auth.Caller{Kind: auth.Owner, OwnerID: owner, Scopes: []string{auth.AllScopes}}, err
		}}))
	return h
}

// index does the work of corpus.index for all notes.
func (h *house) index() {
	h.Helper()
	if err := h.db.InTx(h.Context(), func(tx *pg.Tx) error {
		rows, err := tx.Query(h.Context(), `SELECT id FROM notes`)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		sources, err := notes.ReadForIndex(h.Context(), tx, ids, 0)
		if err != nil {
			return err
		}
		var built []notes.IndexRow
		for _, s := range sources {
			built = append(built, notes.BuildIndexRow(s))
		}
		return notes.WriteIndex(h.Context(), tx, nil, built)
	}); err != nil {
		h.Fatal(err)
	}
}

func (h *house) count(sql string, args ...any) (n int) {
	h.Helper()
	if err := h.db.QueryRow(h.Context(), sql, args...).Scan(&n); err != nil {
		h.Fatal(err)
	}
	return n
}

func (h *house) events() int { return h.count(`SELECT count(*) FROM events`) }

func (h *house) send(owner uuid.UUID, method, path, contentType string, body []byte, headers ...string) (int, []byte, http.Header) {
	h.Helper()
	if strings.HasPrefix(path, "/") {
		path = h.url + path
	}
	r, err := http.NewRequestWithContext(h.Context(), method, path, bytes.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	if owner != uuid.Nil {
		r.Header.Set("Authorization", "Bearer "+owner.String())
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		h.Fatal(err)
	}
	return res.StatusCode, raw, res.Header
}

// do sends JSON and reads some.
func (h *house) do(method, path string, in, out any, want int) {
	h.Helper()
	var body []byte
	contentType := ""
	if in != nil {
		body, _ = json.Marshal(in)
		contentType = "application/json"
	}
	status, raw, _ := h.send(h.me, method, path, contentType, body)
	if status != want {
		h.Fatalf("%s %s: %d %s", method, path, status, raw)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			h.Fatalf("%v: %s", err, raw)
		}
	}
}

type object = map[string]any

func file(p, content string) object { return object{"path": p, "content": content} }

// put imports files, given in pairs of path and content.
func (h *house) put(with object, files ...string) (a obsidian.Imported) {
	h.Helper()
	in := object{"files": []object{}}
	for i := 0; i < len(files); i += 2 {
		in["files"] = append(in["files"].([]object), file(files[i], files[i+1]))
	}
	maps.Copy(in, with)
	h.do("POST", "/v1/obsidian/import", in, &a, 200)
	return a
}

func (h *house) importZip(raw []byte) (a obsidian.Imported) {
	h.Helper()
	status, answer, _ := h.send(h.me, "POST", "/v1/obsidian/import", "application/zip", raw)
	if status != 200 {
		h.Fatalf("%d %s", status, answer)
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		h.Fatal(err)
	}
	return a
}

func (h *house) sample(name string) []byte {
	h.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		h.Fatal(err)
	}
	return raw
}

// export gives the files of an export.
func (h *house) export() ([]byte, map[string]string) {
	h.Helper()
	status, raw, _ := h.send(h.me, "GET", "/v1/obsidian/export", "", nil)
	if status != 200 {
		h.Fatalf("%d %s", status, raw)
	}
	return raw, unzip(h, raw)
}

func unzip(t testing.TB, raw []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	folded := map[string]bool{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if folded[strings.ToLower(f.Name)] {
			t.Errorf("two files of an export are %s", f.Name)
		}
		folded[strings.ToLower(f.Name)] = true
		files[f.Name] = string(content)
	}
	return files
}

func (h *house) note(title string) (n notes.Note) {
	h.Helper()
	var id uuid.UUID
	if err := h.db.QueryRow(h.Context(), `SELECT id FROM notes WHERE owner_id = $1 AND title = $2 AND deleted_at IS NULL`, h.me, title).Scan(&id); err != nil {
		h.Fatalf("%s: %v", title, err)
	}
	return h.get(id).Note
}

func (h *house) get(id uuid.UUID) (r corpus.Read) {
	h.Helper()
	h.do("GET", "/v1/corpus/"+id.String(), nil, &r, 200)
	return r
}

func (h *house) counts(a obsidian.Imported, want string) {
	h.Helper()
	if got := fmt.Sprintf("created %d updated %d unchanged %d deleted %d skipped %d errors %d", a.Created, a.Updated, a.Unchanged, a.Deleted, len(a.Skipped), len(a.Errors)); got != want {
		h.Errorf("%s; want %s\nskipped %v\nerrors %v\nwarnings %v", got, want, a.Skipped, a.Errors, a.Warnings)
	}
}

// again exports and imports, which must change nothing and tell nobody.
func (h *house) again() {
	h.Helper()
	raw, files := h.export()
	before := h.events()
	markdown := 0
	for name := range files {
		if strings.HasSuffix(name, ".md") {
			markdown++
		}
	}
	for range 2 {
		a := h.importZip(raw)
		h.counts(a, fmt.Sprintf("created 0 updated 0 unchanged %d deleted 0 skipped 0 errors %d", markdown, len(a.Errors)))
		if a.Folders.Created+a.Folders.Deleted+a.Attachments.Created != 0 {
			h.Errorf("folders or attachments changed: %+v %+v", a.Folders, a.Attachments)
		}
	}
	if after := h.events(); after != before {
		h.Errorf("%d events", after-before)
	}
	if second, later := h.export(); !bytes.Equal(raw, second) {
		for name := range files {
			if files[name] != later[name] {
				h.Errorf("a second export has %s as %q instead of %q", name, later[name], files[name])
			}
		}
		for name := range later {
			if _, known := files[name]; !known {
				h.Errorf("a second export has %s", name)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.importZip(h.sample("names.zip"))
	h.counts(a, "created 6 updated 0 unchanged 0 deleted 0 skipped 0 errors 6")
	var titles []string
	rows, err := h.db.Query(t.Context(), `SELECT title FROM notes ORDER BY title COLLATE "C"`)
	if err != nil {
		t.Fatal(err)
	}
	if titles, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatal(err)
	}
	if want := []string{"dup", "plain", "sub", "windows", "中文笔记", "周报模板", "表計算ソ"}; !slices.Equal(titles, want) {
		t.Errorf("titles: %q", titles)
	}
	for _, e := range a.Errors {
		if !slices.Contains([]string{"wiki/dup.md", "../../outside.md", `wiki/..\..\outside2.md`, "/etc/outside3.md", `C:\outside4.md`, "wiki/link.md"}, e.Path) {
			t.Errorf("%+v", e)
		}
	}
	if n := h.note("windows"); n.Path != "sub/windows" {
		t.Errorf("windows is at %s", n.Path)
	}
	if again := h.importZip(h.sample("names.zip")); again.Unchanged != 6 || again.Created+again.Updated != 0 {
		t.Errorf("again: %+v", again)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.importZip(h.sample("links.zip"))
	h.counts(a, "created 5 updated 0 unchanged 0 deleted 0 skipped 0 errors 0")
	if len(a.Links.Unresolved)+len(a.Links.Ambiguous) != 0 || a.Links.Resolved == 0 {
		t.Errorf("links: %+v", a.Links)
	}
	h.index()
	outbound := func(title string) []string {
		targets := []string{}
		for _, l := range h.get(h.note(title).ID).Links {
			if l.State != notes.Resolved {
				t.Errorf("%s: %+v", title, l)
			} else if !slices.Contains(targets, l.Note.Title) {
				targets = append(targets, l.Note.Title)
			}
		}
		slices.Sort(targets)
		return targets
	}
	for title, want := range map[string][]string{"Table": {"Target"}, "Code": {}, "Loop A": {"Loop B"}, "Loop B": {"Loop A", "Target"}} {
		if got := outbound(title); !slices.Equal(got, want) {
			t.Errorf("%s leads to %v, want %v", title, got, want)
		}
	}
	var back []string
	for _, n := range h.get(h.note("Target").ID).Backlinks {
		back = append(back, n.Title)
	}
	if slices.Sort(back); !slices.Equal(back, []string{"Loop B", "Table"}) {
		t.Errorf("backlinks of Target: %v", back)
	}
	_, exported := h.export()
	for name, content := range unzip(t, h.sample("links.zip")) {
		if exported[name] != content {
			t.Errorf("%s came back as %q", name, exported[name])
		}
	}
	h.again()
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.importZip(h.sample("attachments.zip"))
	h.counts(a, "created 3 updated 0 unchanged 0 deleted 0 skipped 0 errors 0")
	if a.Attachments.Created != 3 || a.Folders.Created != 2 {
		t.Errorf("%+v %+v", a.Attachments, a.Folders)
	}
	if len(a.Links.Ambiguous) != 1 || a.Links.Ambiguous[0] != (obsidian.Dangler{Path: "wiki/note-c.md", Target: "diagram.png"}) || len(a.Links.Unresolved) != 0 {
		t.Errorf("links: %+v", a.Links)
	}
	source := unzip(t, h.sample("attachments.zip"))
	want := map[string]map[string]string{
		"note-a": {"diagram.png": "wiki/a/diagram.png"},
		"note-b": {"b/diagram.png": "wiki/b/diagram.png", "diagram.png": "wiki/b/diagram.png"},
		"note-c": {"diagram.png": "", "A/Diagram.PNG": "wiki/a/diagram.png", "my chart.png": "wiki/my chart.png"},
	}
	shown := map[string]notes.File{}
	for title, targets := range want {
		for _, l := range h.get(h.note(title).ID).Links {
			switch p := targets[l.Target]; {
			case p == "" && l.State == notes.Ambiguous && l.File == nil:
			case l.State != notes.Resolved || l.File == nil || l.File.Path != p:
				t.Errorf("%s: %+v", title, l)
			default:
				shown[title+" "+l.Target] = *l.File
				status, raw, header := h.send(h.me, "GET", l.File.URL, "", nil)
				sum := sha256.Sum256(raw)
				if status != 200 || string(raw) != source[p] || hex.EncodeToString(sum[:]) != l.File.SHA256 || header.Get("Content-Type") != "image/png" {
					t.Errorf("%s: %d, %d bytes, %v", l.File.URL, status, len(raw), header)
				}
				if status, _, _ := h.send(h.other, "GET", l.File.URL, "", nil); status != 404 {
					t.Errorf("another owner got %d", status)
				}
			}
		}
	}
	if len(shown) != 5 {
		t.Errorf("shown: %v", shown)
	}
	// a visitor is given what a note that they may read embeds
	public := func(p, note string) int {
		status, raw, _ := h.send(uuid.Nil, "GET", "/v1/public/me/assets/"+p+"?note="+note, "", nil)
		if status == 200 && string(raw) != source[strings.ReplaceAll(p, "%20", " ")] {
			t.Errorf("%s has %d bytes", p, len(raw))
		}
		return status
	}
	if got := public("wiki/a/diagram.png", "a/note-a"); got != 404 {
		t.Errorf("of a private note: %d", got)
	}
	h.do("PATCH", "/v1/corpus/"+h.note("note-a").ID.String(), object{"visibility": "public"}, nil, 200)
	for path, want := range map[string]int{"wiki/a/diagram.png": 200, "wiki/b/diagram.png": 404, "wiki/my%20chart.png": 404, "wiki/a/note-a.md": 404} {
		if got := public(path, "a/note-a"); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := public("wiki/a/diagram.png", "b/note-b"); got != 404 {
		t.Errorf("of another private note: %d", got)
	}
	var note struct{ Links []notes.Link }
	h.do("GET", "/v1/public/me/notes/a/note-a", nil, &note, 200)
	if len(note.Links) != 1 || note.Links[0].File == nil {
		t.Fatalf("%+v", note)
	}
	if status, raw, _ := h.send(uuid.Nil, "GET", note.Links[0].File.URL, "", nil); status != 200 || string(raw) != source["wiki/a/diagram.png"] {
		t.Errorf("%s: %d", note.Links[0].File.URL, status)
	}
	h.again()
	blobs := 0
	_ = filepath.WalkDir(h.blobDir, func(p string, _ os.DirEntry, _ error) error {
		if strings.HasSuffix(p, ".blob") && strings.Contains(p, "vault") {
			blobs++
		}
		return nil
	})
	if different := len(map[string]bool{source["wiki/a/diagram.png"]: true, source["wiki/b/diagram.png"]: true, source["wiki/my chart.png"]: true}); blobs != different {
		t.Errorf("%d blobs of %d different files", blobs, different)
	}
}

// C5: titles that no file can have.
func TestTitlesAsFiles(t *testing.T) {
	t.Parallel()
	h := setup(t)
	long := strings.Repeat("equal in the first hundred letters ", 3)
	titles := []string{"认知负荷", "反脆弱", "🔥", "C++", "C#", "a/b", "..", long + "one", long + "two", "con", "a:b", "a?b", ".hidden", "end."}
	for _, title := range titles {
		h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": title, "body": "of " + title + " #tag", "visibility": "public"}, nil, 201)
	}
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "below", "body": "", "parent_id": h.note("a/b").ID, "tags": []string{"x y", "z"}, "aliases": []string{"under, it"}, "source": "a book"}, nil, 201)
	h.do("POST", "/v1/corpus", object{"genre": "raw", "body": "---\nno title: here\n"}, nil, 201)
	h.do("POST", "/v1/corpus", object{"genre": "raw", "body": "---\na: b\n---\nlooks like front matter"}, nil, 201)
	h.do("POST", "/v1/corpus", object{"genre": "output", "title": "Coded", "body": "x", "visibility": "coded"}, nil, 201)
	raw, files := h.export()
	if len(files) != len(titles)+4 {
		t.Errorf("%d files: %v", len(files), slices.Sorted(maps.Keys(files)))
	}
	for name := range files {
		if strings.ContainsAny(name, `\:*?"<>|`) || strings.Contains(name, "..") || strings.Count(name, "/") > 2 {
			t.Errorf("a bad name: %s", name)
		}
	}
	h.again()
	// elsewhere the same notes come of it
	h.me, h.other = h.other, h.me
	a := h.importZip(raw)
	h.counts(a, fmt.Sprintf("created %d updated 0 unchanged 0 deleted 0 skipped 0 errors 0", len(titles)+4))
	for _, title := range titles {
		if n := h.note(title); *n.Body != "of "+title+" #tag" || n.Visibility != notes.Public || n.ParentID != nil {
			t.Errorf("%s: %q %+v", title, *n.Body, n)
		}
	}
	if n := h.note("below"); n.ParentID == nil || *n.ParentID != h.note("a/b").ID || !slices.Equal(n.Tags, []string{"x y", "z"}) || n.Aliases[0] != "under, it" {
		t.Errorf("below: %+v", n)
	}
	if n := h.note("Coded"); n.Visibility != notes.Coded {
		t.Errorf("coded: %+v", n)
	}
	h.again()
}

func TestWhatChanges(t *testing.T) {
	t.Parallel()
	h := setup(t)
	first := []string{
		"wiki/A.md", "---\ntags: [one, two/three]\nunknown: {deep: [1, 2]} # kept\npublish: true\n---\ntext #four",
		"wiki/F/B.md", "b", "wiki/F/index.md", "the folder's own", "Elsewhere/C.md", "c", "D.md", "d", "raw/x/E.md", "e", "OUTPUT/G.md", "g",
	}
	h.counts(h.put(nil, first...), "created 7 updated 0 unchanged 0 deleted 0 skipped 0 errors 0")
	for title, want := range map[string]string{"A": "wiki://a", "B": "wiki://f/b", "F": "wiki://f", "C": "wiki://elsewhere/c", "D": "wiki://d", "G": "output://g"} {
		if n := h.note(title); n.URI != want {
			t.Errorf("%s is %s", title, n.URI)
		}
	}
	if n := h.note("A"); n.Visibility != notes.Public || !slices.Equal(n.Tags, []string{"one", "two/three", "four"}) || *n.Body != "text #four" {
		t.Errorf("A: %+v", n)
	}
	if n := h.note("B"); n.Visibility != notes.Private {
		t.Errorf("B: %+v", n)
	}
	h.again()
	before := h.events()
	h.counts(h.put(nil, first...), "created 0 updated 0 unchanged 7 deleted 0 skipped 0 errors 0")
	if h.events() != before {
		t.Error("the same files told of something")
	}
	// one event for each note that changed, and one for the import
	a := h.put(nil, "wiki/A.md", strings.Replace(first[1], "text", "new text", 1))
	h.counts(a, "created 0 updated 1 unchanged 0 deleted 0 skipped 0 errors 0")
	if n := h.events() - before; n != 2 {
		t.Errorf("%d events", n)
	}
	if n := h.note("A"); *n.Body != "new text #four" || n.Visibility != notes.Public {
		t.Errorf("A: %+v", n)
	}
	// made private here, it stays so although its file, changed again, says publish
	h.do("PATCH", "/v1/corpus/"+h.note("A").ID.String(), object{"visibility": "private"}, nil, 200)
	h.counts(h.put(nil, "wiki/A.md", strings.Replace(first[1], "text", "newer text", 1)), "created 0 updated 1 unchanged 0 deleted 0 skipped 0 errors 0")
	if n := h.note("A"); n.Visibility != notes.Private || *n.Body != "newer text #four" {
		t.Errorf("A: %+v", n)
	}
	_, files := h.export()
	if got := files["wiki/A.md"]; !strings.Contains(got, "publish: false") || !strings.Contains(got, "unknown: {deep: [1, 2]} # kept") || !strings.HasSuffix(got, "newer text #four") {
		t.Errorf("A is exported as %q", got)
	}
	h.again()
	// other words of publish win
	h.put(nil, "wiki/A.md", "---\npublish: true\n---\nx")
	if n := h.note("A"); n.Visibility != notes.Public {
		t.Errorf("A: %+v", n)
	}
	h.put(nil, "wiki/A.md", "nothing said")
	if n := h.note("A"); n.Visibility != notes.Public {
		t.Errorf("A: %+v", n)
	}
	// edited in both: neither text is lost
	h.do("PATCH", "/v1/corpus/"+h.note("B").ID.String(), object{"body": "edited here"}, nil, 200)
	a = h.put(nil, "wiki/F/B.md", "edited there", "D.md", "d2")
	h.counts(a, "created 0 updated 1 unchanged 0 deleted 0 skipped 0 errors 1")
	if n := h.note("B"); *n.Body != "edited here" {
		t.Errorf("B: %q", *n.Body)
	}
	h.again()
	h.counts(h.put(object{"overwrite": true}, "wiki/F/B.md", "edited there"), "created 0 updated 1 unchanged 0 deleted 0 skipped 0 errors 0")
	// edited here, and not there
	h.do("PATCH", "/v1/corpus/"+h.note("D").ID.String(), object{"title": "D renamed", "tags": []string{"t"}}, nil, 200)
	h.counts(h.put(nil, "D.md", "d2"), "created 0 updated 0 unchanged 1 deleted 0 skipped 0 errors 0")
	if n := h.note("D renamed"); n.Tags[0] != "t" {
		t.Errorf("D: %+v", n)
	}
	h.again()
	// moved here
	h.do("PATCH", "/v1/corpus/"+h.note("F").ID.String(), object{"parent_id": h.note("C").ID}, nil, 200)
	h.again()
	if n := h.note("B"); n.Path != "elsewhere/c/f/b" {
		t.Errorf("B: %+v", n)
	}
	// deleted here
	h.put(nil, "wiki/Gone.md", "gone")
	h.do("DELETE", "/v1/corpus/"+h.note("Gone").ID.String(), nil, nil, 200)
	h.counts(h.put(nil, "wiki/Gone.md", "gone"), "created 0 updated 0 unchanged 0 deleted 0 skipped 1 errors 0")
	h.counts(h.put(nil, "wiki/Gone.md", "written anew"), "created 1 updated 0 unchanged 0 deleted 0 skipped 0 errors 0")
	h.again()
}

func TestAuthoritative(t *testing.T) {
	t.Parallel()
	h := setup(t)
	all := object{"authoritative": true}
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "Mine", "body": "written here"}, nil, 201)
	h.put(nil, "wiki/A.md", "a", "wiki/F/B.md", "b", "wiki/F/C.md", "c", "wiki/P.md", "p", "wiki/p.png", "png", "wiki/Old.md", "moves")
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "Child", "body": "of P", "parent_id": h.note("P").ID}, nil, 201)
	moved := h.note("Old").ID
	// refused: files in errors, or none
	a := h.put(all, "wiki/A.md", "a", "wiki/../x.md", "x")
	if h.counts(a, "created 0 updated 0 unchanged 1 deleted 0 skipped 0 errors 1"); a.Pruned || len(a.Warnings) != 1 {
		t.Errorf("%+v", a)
	}
	a = h.put(all, "board.canvas", "{}")
	if h.counts(a, "created 0 updated 0 unchanged 0 deleted 0 skipped 1 errors 0"); a.Pruned {
		t.Errorf("%+v", a)
	}
	h.do("PATCH", "/v1/corpus/"+h.note("C").ID.String(), object{"body": "edited here"}, nil, 200)
	a = h.put(all, "wiki/A.md", "a", "wiki/New/Place.md", "moves")
	h.counts(a, "created 0 updated 1 unchanged 1 deleted 1 skipped 2 errors 0")
	if !a.Pruned || a.Attachments.Deleted != 1 || a.Folders != (obsidian.Changed{Created: 1}) {
		t.Errorf("%+v", a)
	}
	if n := h.note("Place"); n.ID != moved || n.Path != "new/place" {
		t.Errorf("%+v", n)
	}
	for _, title := range []string{"Mine", "Child", "P", "C", "F"} {
		h.note(title)
	}
	if n := h.count(`SELECT count(*) FROM notes WHERE deleted_at IS NOT NULL`); n != 1 {
		t.Errorf("%d notes in the trash", n)
	}
	h.counts(h.put(nil, "wiki/F/B.md", "b"), "created 1 updated 0 unchanged 0 deleted 0 skipped 0 errors 0")
	h.again()
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	h := setup(t)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	began := time.Now()
	a := h.put(nil,
		"wiki/broken.md", "---\ntitle: [\npublish: true\n---\nkept text",
		"wiki/bomb.md", "---\n"+bomb+"title: *j\ntags: *b\npublish: true\n---\nbombed",
		"wiki/longkey.md", "---\n"+strings.Repeat("k", 1<<20)+": v\n---\nlong",
		"wiki/list.md", "---\n- a: b\n---\nlisted",
		"wiki/latin.md", "caf\xc3\xa9 ok",
		"wiki/Same.md", "1", "wiki/same.md", "2",
		"wiki/T1.md", "---\ntitle: Twice\n---\n1", "wiki/T2.md", "---\ntitle: twice\n---\n2",
		"wiki/long title.md", "---\ntitle: "+strings.Repeat("t", 301)+"\n---\n",
		"wiki/good.md", "good", "../evil.md", "x", "wiki/a.canvas", "{}", ".obsidian/app.json", "{}", ".obsidian/x/y.json", "{}",
	)
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	h.counts(a, "created 7 updated 0 unchanged 0 deleted 0 skipped 2 errors 7")
	if n := h.note("broken"); n.Visibility != notes.Private || !strings.HasSuffix(*n.Body, "kept text") || !strings.HasPrefix(*n.Body, "---\ntitle: [") {
		t.Errorf("broken: %+v", n)
	}
	if n := h.note("bomb"); n.Visibility != notes.Public || *n.Body != "bombed" {
		t.Errorf("bomb: %+v", n)
	}
	h.again()
	// what others may read is not replaced by a file whose front matter can't be read
	h.do("PATCH", "/v1/corpus/"+h.note("good").ID.String(), object{"visibility": "public"}, nil, 200)
	a = h.put(nil, "wiki/good.md", "---\nsecret: [\npublish: false\n---\ngood")
	if h.counts(a, "created 0 updated 0 unchanged 0 deleted 0 skipped 0 errors 1"); *h.note("good").Body != "good" {
		t.Errorf("%+v", h.note("good"))
	}
}
