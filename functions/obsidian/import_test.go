package obsidian_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"standmeet/functions/obsidian"
	notes "standmeet/shared/corpus"
	"standmeet/shared/op/apigw"
)

func pack(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		method := zip.Deflate
		if len(files[i+1]) > 1<<20 {
			method = zip.Store // the race detector makes packing slow
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: files[i], Method: method})
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The ways in come to the same, also through the event and answer of a function.
func TestWaysIn(t *testing.T) {
	t.Parallel()
	h := setup(t)
	picture := "\x89PNG\r\n\x1a\n\x00\xff\xfe"
	files := []string{"wiki/Ä.md", "![[p.png]]", "p.png", picture}
	direct := h.url
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body, header := h.send(uuid.MustParse(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")), r.Method, direct+r.URL.RequestURI(), r.Header.Get("Content-Type"), readAll(t, r))
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	gateway := httptest.NewServer(apigw.InProcess(upstream))
	t.Cleanup(gateway.Close)

	form := func(parts ...string) (string, []byte) {
		var b bytes.Buffer
		m := multipart.NewWriter(&b)
		for i := 0; i < len(parts); i += 2 {
			w, err := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="f"; filename="` + parts[i] + `"`}})
			if err == nil {
				_, err = w.Write([]byte(parts[i+1]))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := m.WriteField("authoritative", "true"); err != nil {
			t.Fatal(err)
		}
		m.Close()
		return m.FormDataContentType(), b.Bytes()
	}
	filesType, filesBody := form(files...)
	zipType, zipBody := form("vault.zip", string(pack(t, files...)))
	asJSON, _ := json.Marshal(object{"authoritative": true, "files": []object{file(files[0], files[1]), {"path": "p.png", "encoding": "base64", "content": []byte(picture)}}})
	for face, base := range map[string]string{"straight": direct, "as a function": gateway.URL} {
		for name, c := range map[string]struct {
			contentType string
			body        []byte
		}{"files": {filesType, filesBody}, "zip in a form": {zipType, zipBody}, "zip": {"application/zip", pack(t, files...)}, "JSON": {"application/json", asJSON}} {
			path := base + "/v1/obsidian/import"
			if name == "zip" {
				path += "?authoritative=true"
			}
			status, raw, _ := h.send(h.me, "POST", path, c.contentType, c.body)
			var a obsidian.Imported
			if err := json.Unmarshal(raw, &a); err != nil || status != 200 || a.Created+a.Unchanged != 1 || a.Attachments.Created+a.Attachments.Unchanged != 1 || !a.Pruned {
				t.Errorf("%s, %s: %d %s", name, face, status, raw)
			}
		}
		for path, want := range map[string]string{"/v1/obsidian/assets/p.png": picture, "/v1/obsidian/export": ""} {
			status, raw, header := h.send(h.me, "GET", base+path, "", nil)
			if status != 200 || want != "" && string(raw) != want || want == "" && unzip(t, raw)["p.png"] != picture {
				t.Errorf("%s %s: %d %v", path, face, status, header)
			}
			if status, _, _ := h.send(h.me, "GET", base+path, "", nil, "If-None-Match", header.Get("ETag")); status != 304 && face == "straight" {
				t.Errorf("%s again: %d", path, status)
			}
		}
	}
	for name, c := range map[string]struct{ contentType, body, code string }{
		"nothing": {"application/json", `{}`, "missing_field"}, "no zip": {"application/zip", "x", "not_a_zip"}, "both": {"application/json", `{"files":[{"path":"a.md","content":""}],"upload_key":"x"}`, "ambiguous_upload"},
		"no base64": {"application/json", `{"files":[{"path":"a.png","content":"*","encoding":"base64"}]}`, "malformed_base64"}, "no upload": {"application/json", `{"upload_key":"` + uuid.NewString() + `"}`, "not_found"},
		"no key": {"application/json", `{"upload_key":"../x"}`, "not_found"},
	} {
		if _, raw, _ := h.send(h.me, "POST", "/v1/obsidian/import", c.contentType, []byte(c.body)); !strings.Contains(string(raw), `"code":"`+c.code+`"`) {
			t.Errorf("%s: %s", name, raw)
		}
	}
}

func readAll(t testing.TB, r *http.Request) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

func TestUploadKey(t *testing.T) {
	t.Parallel()
	h := setup(t)
	// above what a function answers with
	noise := make([]byte, 4<<20+1)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	raw := pack(t, "wiki/a.md", "![[noise.mp4]]", "noise.mp4", string(noise))
	var u struct {
		UploadKey string `json:"upload_key"`
		URL       string
		Method    string
		Headers   map[string]string
	}
	h.do("POST", "/v1/obsidian/upload-url", object{"size": len(raw)}, &u, 200)
	if status, body, _ := h.send(uuid.Nil, u.Method, u.URL, u.Headers["Content-Type"], raw); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	body, _ := json.Marshal(object{"upload_key": u.UploadKey})
	if status, answer, _ := h.send(h.other, "POST", "/v1/obsidian/import", "application/json", body); status != 404 {
		t.Errorf("another owner's upload: %d %s", status, answer)
	}
	var first []byte
	for range 2 { // the upload is gone by then, the answer is not
		status, answer, _ := h.send(h.me, "POST", "/v1/obsidian/import", "application/json", body, "Idempotency-Key", "k")
		if status != 200 || first != nil && !bytes.Equal(first, answer) {
			t.Errorf("%d %s, first %s", status, answer, first)
		}
		first = answer
	}
	if n := h.count(`SELECT count(*) FROM notes`); n != 1 {
		t.Errorf("%d notes", n)
	}
	if status, answer, _ := h.send(h.me, "POST", "/v1/obsidian/import", "application/json", body); status != 404 {
		t.Errorf("used up: %d %s", status, answer)
	}
	// both are too large for an answer, and read where it says
	if status, got, _ := h.send(h.me, "GET", "/v1/obsidian/assets/noise.mp4", "", nil); status != 200 || !bytes.Equal(got, noise) {
		t.Errorf("%d, %d bytes", status, len(got))
	}
	if _, files := h.export(); files["noise.mp4"] != string(noise) {
		t.Error("the export is damaged")
	}
}

func TestKeyOfAnImport(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ask := func(key string, files ...string) (int, string) {
		status, raw, _ := h.send(h.me, "POST", "/v1/obsidian/import", "application/zip", pack(t, files...), "Idempotency-Key", key)
		return status, string(raw)
	}
	status, first := ask("k", "a.md", "a")
	again, same := ask("k", "a.md", "a")
	if status != 200 || again != 200 || first != same || !strings.Contains(first, `"created":1`) {
		t.Errorf("%d %s; %d %s", status, first, again, same)
	}
	if status, raw := ask("k", "a.md", "b"); status != 422 {
		t.Errorf("another file under the key: %d %s", status, raw)
	}
	if n := h.events(); n != 2 {
		t.Errorf("%d events", n)
	}
}

// vaultOf makes a vault of n notes with every syntax, and n/10 attachments.
func vaultOf(n int) (files []string) {
	folder := func(i int) string {
		return []string{"", "Ordner Ü", "Ordner Ü/tief/er", "数学", "a.b c", "F"}[i%6]
	}
	genre := func(i int) string { return []string{"wiki", "wiki", "wiki", "raw", "output", "Top"}[i/6%6] }
	name := func(i int) string {
		return fmt.Sprintf([]string{"Note %d", "笔记 %d", "C++ %d", "e\u0301te\u0301 %d", "N(%d)", "v1.%d"}[i%6], i)
	}
	for i := range n {
		to := (i*7 + 1) % n
		front := ""
		if i%3 == 0 {
			front = fmt.Sprintf("---\ntags: [t%d, nested/deep/t%d]\naliases: [Alias %d]\npublish: %v\nlang: de\ncssclasses: [wide]\ncustom: {k: [%d]}\n---\n", i%9, i%5, i, i%2 == 0, i)
		}
		body := fmt.Sprintf(strings.Join([]string{
			"# Heading %[1]d", "text #inline/t%[1]d ==highlight== %%%%comment [[Nowhere]]%%%% [[%[2]s]] [[%[2]s|shown]] [[%[2]s#Heading]] [[%[2]s#^b]] [[#Heading %[1]d]]",
			"![[%[2]s]] ![[pic %[3]d.png|200]] ![x](pic%%20%[3]d.png) [md](%[2]s.md)", "> [!note]+ A callout with [[Missing %[1]d]]", "> more", "",
			"| a | b |", "|---|---|", "| [[%[2]s\\|in a table]] | `[[code]]` |", "", "```", "[[in code]] #nocode", "```", "", "- [ ] task ^b", ""}, "\n"),
			i, name(to), i/10)
		files = append(files, strings.Trim(genre(i)+"/"+folder(i), "/")+"/"+name(i)+".md", front+body)
	}
	for i := range n / 10 {
		files = append(files, fmt.Sprintf("files/pic %d.png", i), fmt.Sprintf("picture %d", i%17))
	}
	return append(files, "board.canvas", "{}", ".obsidian/app.json", "{}")
}

func TestALargeVault(t *testing.T) {
	t.Parallel()
	h := setup(t)
	const n = 2_000
	raw := pack(t, vaultOf(n)...)
	a := h.importZip(raw)
	h.counts(a, fmt.Sprintf("created %d updated 0 unchanged 0 deleted 0 skipped 2 errors 0", n))
	if a.Attachments.Created != n/10 || len(a.Links.Ambiguous) != 0 || a.Index.Pending != int64(n+a.Folders.Created) {
		t.Errorf("%+v %+v, %d ambiguous", a.Attachments, a.Index, len(a.Links.Ambiguous))
	}
	// each note has one link to a note that is not there, and no other is lost
	if !a.Links.Truncated || len(a.Links.Unresolved) != 1000 {
		t.Errorf("%d unresolved", len(a.Links.Unresolved))
	}
	for _, d := range a.Links.Unresolved {
		if !strings.HasPrefix(d.Target, "Missing ") {
			t.Errorf("%+v", d)
		}
	}
	if got := h.count(`SELECT count(*) FROM events WHERE type = 'corpus.note.changed'`); got != n+a.Folders.Created || a.Folders.Created > 20 {
		t.Errorf("%d events, %+v", got, a.Folders)
	}
	if got := h.count(`SELECT count(*) FROM notes WHERE visibility = 'public'`); got == 0 || got != h.count(`SELECT count(*) FROM vault_files WHERE publish = 'public' AND path NOT ILIKE 'raw/%'`) {
		t.Errorf("%d public notes", got)
	}
	before := h.events()
	again := h.importZip(raw)
	if h.counts(again, fmt.Sprintf("created 0 updated 0 unchanged %d deleted 0 skipped 2 errors 0", n)); h.events() != before {
		t.Errorf("%d events", h.events()-before)
	}
	_, exported := h.export()
	files := vaultOf(n)
	for i := 0; i < len(files); i += 2 {
		if got, ok := exported[strings.NewReplacer("e\u0301", "é").Replace(files[i])]; (!ok || got != files[i+1]) && !strings.Contains(files[i], "board") && files[i][0] != '.' {
			t.Fatalf("%s came back as %q of %q", files[i], got, files[i+1])
		}
	}
}

// An import whose backend is killed leaves nothing, and one that got through
// leaves all.
func TestKilled(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.put(nil, "wiki/before.md", "b")
	const n = 300
	raw := pack(t, vaultOf(n)...)
	notesBefore, events, rows := h.count(`SELECT count(*) FROM notes`), h.events(), h.count(`SELECT count(*) FROM vault_files`)
	ctx, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	killed := 0
	killer.Go(func() {
		for ctx.Err() == nil {
			var hit int
			// one that has begun to write
			err := h.db.QueryRow(ctx, `
				SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL AND backend_type = 'client backend'`).Scan(&hit)
			if err == nil && hit > 0 {
				killed += hit
				stop()
			}
		}
	})
	status, answer, _ := h.send(h.me, "POST", "/v1/obsidian/import", "application/zip", raw)
	for tries := 0; status == 200 && tries < 20; tries++ { // it was through before it was hit
		raw = pack(t, append(vaultOf(n), fmt.Sprintf("wiki/again %d.md", tries), strings.Repeat("long ", 100_000))...)
		notesBefore, events, rows = h.count(`SELECT count(*) FROM notes`), h.events(), h.count(`SELECT count(*) FROM vault_files`)
		status, answer, _ = h.send(h.me, "POST", "/v1/obsidian/import", "application/zip", raw)
	}
	stop()
	killer.Wait()
	if killed == 0 || status != 503 {
		t.Fatalf("killed %d, answered %d %s", killed, status, answer)
	}
	// whether it got through may be unknown to whoever asked, but nothing is in between
	same := h.count(`SELECT count(*) FROM notes`) == notesBefore && h.events() == events && h.count(`SELECT count(*) FROM vault_files`) == rows
	if !same && !strings.Contains(string(answer), "commit_unknown") {
		t.Errorf("something is left: %s", answer)
	}
	a := h.importZip(raw)
	if h.counts(a, fmt.Sprintf("created %d updated 0 unchanged %d deleted 0 skipped 2 errors 0", a.Created, a.Unchanged)); !same && a.Created+a.Folders.Created+a.Attachments.Created > 0 {
		t.Errorf("a part is left: %+v", a)
	}
}

// A note that is edited while an import of it is under way is not overwritten.
func TestEditedMeanwhile(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.put(nil, "wiki/a.md", "first")
	id := h.note("a").ID
	var both sync.WaitGroup
	for i := range 8 {
		both.Go(func() { h.put(nil, "wiki/a.md", fmt.Sprintf("vault %d", i)) })
		both.Go(func() {
			body, _ := json.Marshal(object{"body": fmt.Sprintf("here %d", i)})
			if status, raw, _ := h.send(h.me, "PATCH", "/v1/corpus/"+id.String(), "application/json", body); status != 200 {
				t.Errorf("%d %s", status, raw)
			}
		})
	}
	both.Wait()
	// every edit here that followed an import stays: the last text is one of both
	n := h.note("a")
	if !strings.HasPrefix(*n.Body, "here ") && !strings.HasPrefix(*n.Body, "vault ") {
		t.Errorf("%q", *n.Body)
	}
	if versions := h.count(`SELECT count(*) FROM events WHERE type = 'corpus.note.changed' AND subject = $1`, id.String()); int64(versions) != n.Version {
		t.Errorf("%d events for version %d", versions, n.Version)
	}
}

// A note that is here already and came from elsewhere is nobody's to replace.
func TestNotesFromElsewhere(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "A", "body": "mine"}, nil, 201)
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "Same", "body": "same"}, nil, 201)
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "Folder", "body": "mine too", "visibility": "public"}, nil, 201)
	a := h.put(object{"authoritative": true}, "wiki/A.md", "the vault's", "wiki/B.md", "b", "wiki/Same.md", "same", "wiki/Folder/C.md", "c")
	h.counts(a, "created 2 updated 0 unchanged 1 deleted 0 skipped 0 errors 1")
	if n := h.note("A"); *n.Body != "mine" {
		t.Errorf("%q", *n.Body)
	}
	if n := h.note("C"); n.Path != "folder/c" || a.Folders.Created != 0 {
		t.Errorf("%+v %+v", n, a.Folders)
	}
	if n := h.note("Folder"); *n.Body != "mine too" || n.Visibility != notes.Public || n.Version != 1 {
		t.Errorf("%+v", n)
	}
	h.counts(h.put(object{"overwrite": true}, "wiki/A.md", "the vault's"), "created 0 updated 1 unchanged 0 deleted 0 skipped 0 errors 0")
	h.again()
	// the file of an export says which note it is, wherever it is moved to
	h.do("POST", "/v1/corpus", object{"genre": "wiki", "title": "New", "body": "n"}, nil, 201)
	_, files := h.export()
	id := h.note("New").ID
	a = h.put(nil, "wiki/Folder/Moved.md", files["wiki/New.md"]+" changed", "wiki/Copy.md", files["wiki/New.md"])
	if h.counts(a, "created 1 updated 1 unchanged 0 deleted 0 skipped 0 errors 0"); h.note("Moved").ID != id || h.note("Moved").Path != "folder/moved" {
		t.Errorf("%+v", h.note("Moved"))
	}
	h.again()
	// an attachment with the bytes of a note has its own blob
	h.put(nil, "wiki/bytes.md", "the same", "bytes.png", "the same")
	if status, raw, _ := h.send(h.me, "GET", "/v1/obsidian/assets/bytes.png", "", nil); status != 200 || string(raw) != "the same" {
		t.Errorf("%d %s", status, raw)
	}
	h.put(nil, "more.png", "another")
	h.put(nil, "wiki/more.md", "another", "bytes2.png", "another")
	if status, raw, _ := h.send(h.me, "GET", "/v1/obsidian/assets/bytes2.png", "", nil); status != 200 || string(raw) != "another" {
		t.Errorf("%d %s", status, raw)
	}
}
