package workers

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/microsite"
	"standmeet/shared/op/apigw"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
	"standmeet/workers/internal/sitebuild"
)

// shop is an owner's page with its operations and what is served to visitors.
type shop struct {
	*desk
	dir string
	// cookies that came with requests to operations
	cookies chan string
}

func newShop(t *testing.T) *shop {
	d := &desk{world: newWorldAtRest(t)}
	s := &shop{d, t.TempDir(), make(chan string, 100)}
	d.owner, d.token = s.owns("me")
	d.base = s.serve()
	d.relays()
	return s
}

func (s *shop) owns(handle string) (owner uuid.UUID, token string) {
	s.Helper()
	if err := s.db.InTx(s.Context(), func(tx *pg.Tx) error {
		me, err := auth.EnsureOwner(s.Context(), tx, auth.Profile{Handle: handle, Email: handle + "@owner.test"})
		if err != nil {
			return err
		}
		owner = me.ID
		_, token, err = auth.CreateToken(s.Context(), tx, me.ID, auth.Token{Name: "t", Scopes: []string{"*"}})
		return err
	}); err != nil {
		s.Fatal(err)
	}
	return owner, token
}

func (s *shop) blobs() blob.Store { return blob.NewDir(s.dir, secret.Keys{}, page) }

// serve starts a process that serves, and gives its address.
func (s *shop) serve() string {
	db := pgtest.Open(s, s.url, pg.Options{MaxConns: 16})
	wait := waiter.New(db, waiter.Options{}, task.FinalSource(db), outbox.FanoutSource(db), microsite.SettledSource(db))
	s.Cleanup(wait.Close)
	store := &auth.Store{DB: db}
	s.Cleanup(func() { store.Flush(context.Background()) })
	f := functions.New(functions.Deps{DB: db, Waiter: wait, Receipts: task.NewReceipts(db, wait), Auth: store, PublicURL: page, Blobs: s.blobs()})
	mux := http.NewServeMux()
	for path, name := range map[string]string{"/": functions.Any, "/s/": functions.Site, "/preview/": functions.Site} {
		h, err := f.Endpoint(name)
		if err != nil {
			s.Fatal(err)
		}
		mux.Handle(path, apigw.InProcess(h))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Sec-Fetch-Mode") != "" {
			s.cookies <- r.Method + " " + r.Header.Get("Cookie")
		}
		mux.ServeHTTP(w, r)
	}))
	s.Cleanup(server.Close)
	return server.URL
}

// builds starts workers that build. Each of the given may change the builder.
func (s *shop) builds(change ...func(*builder)) (stop func()) {
	return s.work(building(s.blobs(), change...))
}

func building(blobs blob.Store, change ...func(*builder)) func(*river.Workers, *env) {
	return func(registry *river.Workers, e *env) {
		b := newBuilder(e.db, blobs)
		for _, c := range change {
			c(b)
		}
		river.AddWorker(registry, newWorker(e, task.MicrositeBuild, func(int) time.Duration { return 10 * time.Millisecond }, b.work))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodicWith(e.db, blobs)))
		river.AddWorker(registry, newWorker(e, task.CorpusIndex, quick, func(ctx context.Context, j *river.Job[task.IndexArgs]) error {
			return complete(ctx, e.db, j, nil)
		}))
	}
}

// inProcess builds without a process of its own, which is quicker.
func inProcess(b *builder) {
	b.build = func(_ context.Context, in sitebuild.Input) (sitebuild.Output, error) { return sitebuild.Build(in), nil }
}

func files(pairs ...string) []object {
	var all []object
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, object{"path": pairs[i], "content": pairs[i+1]})
	}
	return all
}

// put makes the site "x" of these files, or gives it them.
func (s *shop) put(pairs ...string) {
	s.Helper()
	if a := s.call("PUT", "/v1/microsites/x/files", object{"files": files(pairs...), "replace_all": true}); a.status == 404 {
		s.ok("POST", "/v1/microsites", object{"slug": "x", "title": "X", "files": files(pairs...)})
	} else if a.status != 200 {
		s.Fatal(a.raw)
	}
}

func (s *shop) asks() string {
	s.Helper()
	a := s.ok("POST", "/v1/microsites/x/build", nil)
	if a.status != 202 || a.text("status") != "queued" || a.text("build_id") == "" {
		s.Fatalf("%d %s", a.status, a.raw)
	}
	return a.text("build_id")
}

func (s *shop) settled(build string) answer {
	s.Helper()
	a := s.ok("GET", "/v1/builds/"+build+"?wait_seconds=20", nil)
	for range 5 {
		if a.text("status") == "built" || a.text("status") == "failed" {
			return a
		}
		a = s.ok("GET", "/v1/builds/"+build+"?wait_seconds=20", nil)
	}
	s.Fatalf("it did not settle: %s", a.raw)
	return a
}

func (s *shop) built() string {
	s.Helper()
	build := s.asks()
	if a := s.settled(build); a.text("status") != "built" {
		s.Fatal(a.raw)
	}
	return build
}

type sight struct {
	status int
	header http.Header
	body   string
}

// looks is a visitor's request, without following redirects.
func (s *shop) looks(method, path string, headers ...string) (v sight) {
	r, err := http.NewRequestWithContext(s.Context(), method, s.base+path, nil)
	if err != nil {
		s.Error(err)
		return v
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.Error(err)
		return v
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		s.Error(err)
	}
	return sight{res.StatusCode, res.Header, string(raw)}
}

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func TestTheLifeOfAMicrosite(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.builds()
	s.put("index.html", `<title>One</title><link rel=stylesheet href=a.css><script src=app.tsx></script><img src="img/p.png">`,
		"about.md", "# About", "docs/index.md", "# Docs", "404.html", "<head></head><link rel=stylesheet href=a.css>not here", "a.css", "b { color: red }", "app.tsx", `document.title = "two"`)
	s.ok("PUT", "/v1/microsites/x/files", object{"files": []object{{"path": "img/p.png", "content": pixel, "encoding": "base64"}}})
	if a := s.ok("GET", "/v1/microsites/x/files/img/p.png", nil); a.text("content") != pixel || a.text("encoding") != "base64" {
		t.Error(a.raw)
	}
	one := s.asks()
	a := s.settled(one)
	if a.text("status") != "built" || a.text("preview_url") != page+"/preview/"+one+"/" || a.at("live") != false || a.at("number") != 1.0 || a.at("position") != 1.0 {
		t.Errorf("%s", a.raw)
	}
	// tasks.get knows the build, by the task and by the build
	for _, id := range []string{a.text("job_id"), one} {
		if got := s.ok("GET", "/v1/tasks/"+id, nil); got.text("task.state") != "completed" || got.text("task.kind") != "microsite.build" {
			t.Error(got.raw)
		}
	}
	if v := s.looks("GET", "/s/me/x/"); v.status != 404 {
		t.Errorf("built is not live: %d %s", v.status, v.body)
	}
	preview := s.looks("GET", "/preview/"+one+"/")
	if preview.status != 200 || preview.header.Get("X-Robots-Tag") != "noindex" || !strings.Contains(preview.body, `src="_a/app-`) {
		t.Errorf("%+v", preview)
	}
	if a := s.ok("POST", "/v1/microsites/x/publish", object{"build_id": one}); a.at("changed") != true || a.text("site.live.build_id") != one || a.text("site.url") != page+"/s/me/x/" {
		t.Error(a.raw)
	}
	if a := s.ok("POST", "/v1/microsites/x/publish", object{"build_id": one}); a.at("changed") != false {
		t.Error(a.raw)
	}
	live := s.looks("GET", "/s/me/x/")
	if live.status != 200 || live.body != preview.body || live.header.Get("Content-Type") != "text/html; charset=utf-8" || live.header.Get("Cache-Control") != "public, no-cache" || live.header.Get("X-Robots-Tag") != "" {
		t.Errorf("%+v", live)
	}
	for _, want := range []string{"sandbox allow-scripts", "script-src 'self';", "style-src 'self';", "default-src 'none'", "frame-ancestors 'self'"} {
		if csp := live.header.Get("Content-Security-Policy"); !strings.Contains(csp, want) || strings.Contains(csp, "unsafe") || strings.Contains(csp, "allow-same-origin") {
			t.Errorf("policy %s", csp)
		}
	}
	for pattern, kind := range map[string]string{`_a/app-[^"]*\.js`: "text/javascript; charset=utf-8", `_a/a-[^"]*\.css`: "text/css; charset=utf-8", `_a/p-[^"]*\.png`: "image/png"} {
		name := regexp.MustCompile(pattern).FindString(live.body)
		v := s.looks("GET", "/s/me/x/"+name)
		if v.status != 200 || v.header.Get("Content-Type") != kind || !strings.Contains(v.header.Get("Cache-Control"), "immutable") || v.header.Get("X-Content-Type-Options") != "nosniff" || v.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %+v", name, v.header)
		}
		if raw, _ := base64.StdEncoding.DecodeString(pixel); kind == "image/png" && v.body != string(raw) {
			t.Errorf("%q", v.body)
		}
		if again := s.looks("GET", "/s/me/x/"+name, "If-None-Match", v.header.Get("ETag")); again.status != 304 || again.body != "" {
			t.Errorf("%d", again.status)
		}
		if head := s.looks("HEAD", "/s/me/x/"+name); head.status != 200 || head.body != "" || head.header.Get("ETag") != v.header.Get("ETag") || head.header.Get("Content-Length") != fmt.Sprint(len(v.body)) {
			t.Errorf("%+v", head.header)
		}
	}
	for path, to := range map[string]string{"/s/me/x": "/s/me/x/", "/s/me/x?a=b": "/s/me/x/?a=b", "/s/me/x/docs": "/s/me/x/docs/", "/s/me/x/about/": "/s/me/x/about", "/preview/" + one: "/preview/" + one + "/"} {
		if v := s.looks("GET", path); v.status != 308 || v.header.Get("Location") != to {
			t.Errorf("%s: %d to %s", path, v.status, v.header.Get("Location"))
		}
	}
	for _, path := range []string{"/s/me/x/about", "/s/me/x/about.html", "/s/me/x/docs/", "/s/me/x/docs/index.html", "/s/me/x/img/p.png"} {
		if v := s.looks("GET", path); v.status != 200 {
			t.Errorf("%s: %d", path, v.status)
		}
	}
	for _, path := range []string{"/s/me/x/a/b/c", "/preview/" + one + "/a/b", "/s/me/x/app.tsx", "/s/me/x/a.css", "/s/me/x/_a/x.js"} {
		root := "/s/me/x/"
		if strings.HasPrefix(path, "/preview") {
			root = "/preview/" + one + "/"
		}
		if v := s.looks("GET", path); v.status != 404 || !strings.Contains(v.body, `<base href="`+root+`">`) || !strings.Contains(v.body, "not here") {
			t.Errorf("%s: %d %s", path, v.status, v.body)
		}
	}
	for _, path := range []string{"/s/me/y/", "/s/no/x/", "/s/me", "/s/", "/preview/", "/preview/x/", "/preview/" + uuid.NewString() + "/", "/s/me/x/%00", "/s/me/x/a%2F..%2Fb", "/s/%FF/x/"} {
		if v := s.looks("GET", path); v.status != 404 {
			t.Errorf("%s: %d %s", path, v.status, v.body)
		}
	}
	if v := s.looks("POST", "/s/me/x/"); v.status != 405 {
		t.Errorf("POST: %d", v.status)
	}

	s.put("index.html", "<title>Two</title>")
	if a := s.ok("GET", "/v1/microsites/x", nil); a.at("site.changed") != true || len(a.at("files").([]any)) != 1 {
		t.Error(a.raw)
	}
	two := s.built()
	s.ok("POST", "/v1/microsites/x/publish", object{"build_id": two})
	// a page of the first build that is still open gets its own script
	if v := s.looks("GET", "/s/me/x/"+regexp.MustCompile(`_a/app-[^"]*\.js`).FindString(live.body)); v.status != 200 {
		t.Errorf("%d", v.status)
	}
	if a := s.ok("POST", "/v1/microsites/x/rollback", nil); a.text("site.live.build_id") != one {
		t.Error(a.raw)
	}
	if a := s.call("POST", "/v1/microsites/x/rollback", nil); a.status != 409 || a.text("code") != "nothing_to_roll_back" {
		t.Error(a.raw)
	}
	if a := s.ok("POST", "/v1/microsites/x/unpublish", nil); a.at("changed") != true || a.at("site.live") != nil {
		t.Error(a.raw)
	}
	if a := s.ok("POST", "/v1/microsites/x/unpublish", nil); a.at("changed") != false {
		t.Error(a.raw)
	}
	if v := s.looks("GET", "/s/me/x/"); v.status != 404 {
		t.Errorf("%d", v.status)
	}
	if a := s.ok("POST", "/v1/microsites/x/rollback", nil); a.text("site.live.build_id") != one {
		t.Error(a.raw)
	}

	// a build that failed names the place, and can't go live
	s.put("index.tsx", "export default () => (\n  <p>{</p>\n)")
	failed := s.asks()
	a = s.settled(failed)
	log, _ := a.at("log").([]any)
	if a.text("status") != "failed" || len(log) == 0 || log[0].(object)["file"] != "index.tsx" || log[0].(object)["line"] != 2.0 || log[0].(object)["column"] == nil || a.text("preview_url") != "" {
		t.Error(a.raw)
	}
	if a := s.call("POST", "/v1/microsites/x/publish", object{"build_id": failed}); a.status != 409 || a.text("code") != "build_not_built" {
		t.Error(a.raw)
	}
	if v := s.looks("GET", "/preview/"+failed+"/"); v.status != 404 {
		t.Errorf("%d", v.status)
	}

	// another owner has none of it
	_, s.token = s.owns("other")
	for _, c := range []struct{ method, path string }{{"GET", "/v1/microsites/x"}, {"GET", "/v1/builds/" + one}, {"POST", "/v1/microsites/x/build"}, {"POST", "/v1/microsites/x/rollback"}, {"POST", "/v1/microsites/x/unpublish"}, {"DELETE", "/v1/microsites/x"}, {"GET", "/v1/microsites/x/files/index.tsx"}, {"GET", "/v1/tasks/" + one}} {
		if a := s.call(c.method, c.path, nil); a.status != 404 || a.text("code") != "not_found" {
			t.Errorf("%v: %s", c, a.raw)
		}
	}
	s.ok("POST", "/v1/microsites", object{"slug": "y"})
	if a := s.call("POST", "/v1/microsites/y/publish", object{"build_id": one}); a.status != 404 {
		t.Error(a.raw)
	}
	if a := s.call("POST", "/v1/microsites/y/build", nil); a.status != 409 || a.text("code") != "no_files" {
		t.Error(a.raw)
	}
	if a := s.ok("GET", "/v1/builds/await-settled?wait_seconds=0", nil); a.at("position") != 0.0 || len(a.at("builds").([]any)) != 0 || a.text("wait.ended") != "not_asked" {
		t.Error(a.raw)
	}
}

// Files and slugs that no site may have leave nothing.
func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, c := range []struct {
		body object
		code string
	}{
		{object{"slug": "X"}, "invalid_format"}, {object{"slug": "-a"}, "invalid_format"}, {object{"slug": "a/b"}, "invalid_format"},
		{object{"slug": "a", "files": files("../x.md", "")}, "invalid_format"}, {object{"slug": "a", "files": files("/x.md", "")}, "invalid_format"},
		{object{"slug": "a", "files": files("a/../x.md", "")}, "invalid_format"}, {object{"slug": "a", "files": files(`a\x.md`, "")}, "invalid_format"},
		{object{"slug": "a", "files": files("_a/x.js", "")}, "invalid_format"}, {object{"slug": "a", "files": files(".env.json", "")}, "invalid_format"},
		{object{"slug": "a", "files": files("x.exe", "")}, "invalid_format"}, {object{"slug": "a", "files": files("x", "")}, "invalid_format"},
		{object{"slug": "a", "files": files("a//x.md", "")}, "invalid_format"}, {object{"slug": "a", "files": files(strings.Repeat("a/", 9)+"x.md", "")}, "invalid_format"},
		{object{"slug": "a", "files": files("x.md", strings.Repeat("x", 64<<10+1))}, "too_large"},
		{object{"slug": "a", "files": files("x.md", "a", "X.md", "b")}, "duplicate_path"},
		{object{"slug": "a", "files": []object{{"path": "x.png", "content": "%", "encoding": "base64"}}}, "malformed_base64"},
		{object{"slug": "a", "files": []object{{"path": "x.md", "content": "/w==", "encoding": "base64"}}}, "invalid_text"},
	} {
		if a := s.call("POST", "/v1/microsites", c.body); a.status != 400 || !strings.Contains(a.raw, `"`+c.code+`"`) {
			t.Errorf("%v: %d %.300s", c.body["slug"], a.status, a.raw)
		}
	}
	if n := s.count(`SELECT (SELECT count(*) FROM microsites) + (SELECT count(*) FROM events)`); n != 0 {
		t.Errorf("%d rows of what was refused", n)
	}
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("é%d.md", i), "x")
	}
	s.put(many...)
	if a := s.call("POST", "/v1/microsites", object{"slug": "x"}); a.status != 409 || a.text("code") != "slug_taken" {
		t.Error(a.raw)
	}
	more := slices.Clone(many[:102])
	for i := 0; i < len(more); i += 2 {
		more[i] = "more" + more[i]
	}
	if a := s.call("PUT", "/v1/microsites/x/files", object{"files": files(more...)}); a.status != 413 || a.text("code") != "too_many_files" {
		t.Errorf("%d %.300s", a.status, a.raw)
	}
	a := s.ok("PUT", "/v1/microsites/x/files", object{"files": files("é0.md", "y", "é1.md", "x", "new.md", "z", "É2.md", "x"), "delete": []string{"e\u03013.md", "none.md"}})
	if a.at("files.added") != 1.0 || a.at("files.replaced") != 2.0 || a.at("files.unchanged") != 1.0 || a.at("files.deleted") != 1.0 || a.at("site.file_count") != 150.0 {
		t.Error(a.raw)
	}
	if n := s.count(`SELECT count(*) FROM microsite_files`); n != 150 {
		t.Errorf("%d files are kept", n)
	}
	s.ok("DELETE", "/v1/microsites/x", nil)
	if n := s.count(`SELECT count(*) FROM microsite_files`); n != 0 || s.call("GET", "/v1/microsites/x", nil).status != 404 {
		t.Errorf("%d files of a deleted site", n)
	}
	s.put("index.md", "again")
}

// A build is of the files as they were when it was asked for, and one that finishes
// late takes nobody's place.
func TestBuildsAndLaterChanges(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put("index.html", "old")
	old := s.asks()
	s.put("index.html", "new")
	if n := s.count(`SELECT count(*) FROM microsite_files`); n != 2 {
		t.Errorf("%d files for an unsettled build and a site", n)
	}
	fresh := s.asks()
	late := make(chan struct{})
	s.builds(inProcess, func(b *builder) {
		build := b.build
		b.build = func(ctx context.Context, in sitebuild.Input) (sitebuild.Output, error) {
			if string(in.Files[0].Content) == "old" {
				<-late
			}
			return build(ctx, in)
		}
	})
	if a := s.settled(fresh); a.text("status") != "built" {
		t.Error(a.raw)
	}
	s.ok("POST", "/v1/microsites/x/publish", object{"build_id": fresh})
	s.eventually("the old one to be under way", func() bool { return s.ok("GET", "/v1/builds/"+old, nil).text("status") == "building" })
	close(late)
	if a := s.settled(old); a.text("status") != "built" {
		t.Error(a.raw)
	}
	if v := s.looks("GET", "/s/me/x/"); !strings.Contains(v.body, "new") {
		t.Errorf("live is %s", v.body)
	}
	if v := s.looks("GET", "/preview/"+old+"/"); !strings.Contains(v.body, "old") {
		t.Errorf("the old build is %s", v.body)
	}
	s.put("index.html", "third")
	if n := s.count(`SELECT count(*) FROM microsite_files`); n != 1 {
		t.Errorf("%d files once all builds have settled", n)
	}
}

// childSite, when set beside child, makes that worker build into this directory,
// and stop in the middle.
const childSite = "STANDMEET_TEST_WORKER_SITE"

func forChildSite(dir string) func(*river.Workers, *env) {
	return building(&stuck{Store: blob.NewDir(dir, secret.Keys{}, page), file: filepath.Join(dir, "stuck")}, inProcess)
}

// stuck is a store whose second blob never gets there.
type stuck struct {
	blob.Store
	file string
	puts atomic.Int32
}

func (s *stuck) Put(ctx context.Context, key string, content []byte, m blob.Meta) error {
	if s.puts.Add(1) == 2 {
		if err := os.WriteFile(s.file, nil, 0o600); err != nil {
			panic(err)
		}
		select {}
	}
	return s.Store.Put(ctx, key, content, m)
}

func TestKilledBuilder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put("index.md", "# a", "b.md", "# b", "c.md", "# c")
	worker := exec.CommandContext(t.Context(), os.Args[0])
	worker.Env = append(os.Environ(), child+"="+s.url, childSite+"="+s.dir)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	build := s.asks()
	s.eventually("a build in its middle", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "stuck"))
		return err == nil
	})
	_ = worker.Process.Kill()
	_ = worker.Wait()
	if a := s.ok("GET", "/v1/builds/"+build+"?wait_seconds=0", nil); a.text("status") != "building" {
		t.Error(a.raw)
	}
	if v := s.looks("GET", "/preview/"+build+"/"); v.status != 404 {
		t.Errorf("half a build is served: %d", v.status)
	}
	// what the rescuer does once the kind's time is up
	if _, err := s.db.Exec(t.Context(), `UPDATE river_job SET state = 'available', scheduled_at = now(),
		errors = array_append(errors, '{"at": "2026-01-02T03:04:05Z", "attempt": 1, "error": "Stuck job rescued by Rescuer", "trace": ""}') WHERE kind = 'microsite.build'`); err != nil {
		t.Fatal(err)
	}
	s.builds(inProcess)
	if a := s.settled(build); a.text("status") != "built" || a.at("files") != 4.0 {
		t.Error(a.raw)
	}
	if n := s.count(`SELECT count(*) FROM events WHERE type = 'microsite.build.settled'`); n != 1 {
		t.Errorf("settled %d times", n)
	}
	if v := s.looks("GET", "/preview/"+build+"/c"); v.status != 200 || !strings.Contains(v.body, "c</h1>") {
		t.Errorf("%+v", v)
	}
}

// A store that fails is tried again; a build that is cancelled has settled, and may
// be retried.
func TestBuildsThatEndOtherwise(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put("index.md", "# a")
	queued := s.asks()
	position := func() float64 {
		return s.ok("GET", "/v1/builds/await-settled?wait_seconds=0", nil).at("position").(float64)
	}
	s.ok("POST", "/v1/tasks/"+queued+"/cancel", nil)
	a := s.settled(queued)
	if a.text("status") != "failed" || !strings.Contains(a.raw, "was cancelled") || position() != 1 {
		t.Error(a.raw)
	}
	var broken atomic.Int32
	broken.Store(2)
	s.builds(inProcess, func(b *builder) { b.blobs = &breaking{b.blobs, &broken} })
	if a := s.settled(s.asks()); a.text("status") != "built" || position() != 2 || broken.Load() > 0 {
		t.Error(a.raw)
	}
	s.put("index.md", "# changed")
	s.ok("POST", "/v1/tasks/"+queued+"/retry", nil)
	s.eventually("the retried build", func() bool { return s.ok("GET", "/v1/builds/"+queued, nil).text("status") == "built" })
	if v := s.looks("GET", "/preview/"+queued+"/"); !strings.Contains(v.body, "changed") || position() != 3 {
		t.Errorf("%+v", v)
	}
	broken.Store(1000)
	given := s.asks()
	if a := s.settled(given); a.text("status") != "failed" || !strings.Contains(a.raw, "could not be carried out") {
		t.Error(a.raw)
	}
	if got := s.ok("GET", "/v1/tasks/"+given, nil); got.text("task.state") != "discarded" {
		t.Error(got.raw)
	}
}

type breaking struct {
	blob.Store
	left *atomic.Int32
}

func (b *breaking) Put(ctx context.Context, key string, content []byte, m blob.Meta) error {
	if b.left.Add(-1) >= 0 {
		return io.ErrUnexpectedEOF
	}
	return b.Store.Put(ctx, key, content, m)
}

// Whoever waits for builds to settle misses none, whatever the order, also in
// another process.
func TestAwaitSettled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, otherToken := s.owns("other")
	s.put("index.md", "# a")
	at := s.ok("POST", "/v1/microsites/x/build", nil)
	if at.at("position") != 0.0 {
		t.Error(at.raw)
	}
	const builds = 12
	woken := make(chan answer, 2)
	var waiting sync.WaitGroup
	other := *s
	otherDesk := *s.desk
	other.desk, otherDesk.token = &otherDesk, otherToken
	waiting.Go(func() { woken <- s.call("GET", "/v1/builds/await-settled?since=0&wait_seconds=20", nil) })
	waiting.Go(func() {
		if a := other.call("GET", "/v1/builds/await-settled?since=0&wait_seconds=1", nil); a.text("wait.ended") != "timeout" || len(a.at("builds").([]any)) != 0 {
			t.Errorf("another owner is woken: %s", a.raw)
		}
	})
	s.builds(inProcess)
	if a := <-woken; a.text("wait.ended") != "observed" || a.at("position").(float64) < 1 || a.at("builds").([]any)[0].(object)["build_id"] != at.text("build_id") {
		t.Error(a.raw)
	}
	waiting.Wait()
	for range builds - 1 {
		waiting.Go(func() { s.call("POST", "/v1/microsites/x/build", nil) })
	}
	seen := map[any]int{}
	since, here := 0.0, []string{s.base, s.serve()}
	for i := 0; len(seen) < builds && i < 100; i++ {
		asks := *s.desk
		asks.base = here[i%2]
		a := asks.call("GET", fmt.Sprintf("/v1/builds/await-settled?limit=3&since=%v&wait_seconds=20", since), nil)
		for _, b := range a.at("builds").([]any) {
			seen[b.(object)["build_id"]]++
		}
		if next := a.at("position").(float64); next < since || next == since && a.text("wait.ended") == "observed" {
			t.Fatal(a.raw)
		} else {
			since = next
		}
	}
	waiting.Wait()
	for build, times := range seen {
		if times != 1 {
			t.Errorf("%v was told %d times", build, times)
		}
	}
	if len(seen) != builds || since != builds {
		t.Errorf("%d builds up to %v", len(seen), since)
	}
	if a := s.call("GET", "/v1/builds/await-settled?wait_seconds=20&since=0", nil); a.at("wait.waited_ms") != 0.0 || a.text("wait.ended") != "observed" || len(a.at("builds").([]any)) != builds || a.at("open") != 0.0 {
		t.Error(a.raw)
	}
}

// A page and what it loads are of one build, whatever is published meanwhile.
func TestPublishUnderLoad(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.builds(inProcess)
	var builds []string
	for _, name := range []string{"alpha", "omega"} {
		s.put("index.html", `<p>is-`+name+`</p><link rel=stylesheet href=a.css><script src=a.js></script>`, "a.css", "."+name+"-style { color: red }", "a.js", `document.title = "`+name+`-script"`)
		builds = append(builds, s.built())
	}
	s.ok("POST", "/v1/microsites/x/publish", object{"build_id": builds[0]})
	loads := regexp.MustCompile(`_a/[^"]+`)
	var seen [2]atomic.Int32
	visit := func() {
		v := s.looks("GET", "/s/me/x/")
		name, n := "alpha", 0
		if strings.Contains(v.body, "is-omega") {
			name, n = "omega", 1
		}
		if v.status != 200 || !strings.Contains(v.body, "is-"+name) {
			t.Errorf("%d %s", v.status, v.body)
			return
		}
		seen[n].Add(1)
		for _, asset := range loads.FindAllString(v.body, -1) {
			if a := s.looks("GET", "/s/me/x/"+asset); a.status != 200 || !strings.Contains(a.body, name+"-") {
				t.Errorf("a page of %s gets %s: %d %s", name, asset, a.status, a.body)
			}
		}
	}
	// 200 visits a second, each of three requests, as long as it is published
	// back and forth
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	slots := make(chan struct{}, 32)
	var visiting sync.WaitGroup
	published := make(chan struct{})
	go func() {
		defer close(published)
		for i := range 30 {
			if a := s.call("POST", "/v1/microsites/x/publish", object{"build_id": builds[(i+1)%2]}); a.status != 200 {
				t.Errorf("%d %s", a.status, a.raw)
			}
		}
	}()
	for going := true; going || seen[0].Load() == 0 || seen[1].Load() == 0; {
		select {
		case <-published:
			going = false
			if seen[0].Load() == 0 || seen[1].Load() == 0 {
				s.ok("POST", "/v1/microsites/x/publish", object{"build_id": builds[min(seen[0].Load(), 1)]})
			}
		default:
		}
		<-tick.C
		slots <- struct{}{}
		visiting.Go(func() {
			defer func() { <-slots }()
			visit()
		})
	}
	visiting.Wait()
	t.Logf("%d and %d visits", seen[0].Load(), seen[1].Load())
}

// What a page shows of the corpus is what anybody may read.
func TestNotesInPages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.work(func(registry *river.Workers, e *env) {
		building(s.blobs(), inProcess)(registry, e)
	})
	note := func(title, body, visibility string) {
		s.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": title, "body": body, "visibility": visibility, "tags": []string{"insects"}}, "Prefer", "wait=0")
	}
	note("Ants", "They *crawl*.", "public")
	note("Bees", "zanzibarsecret", "private")
	note("Wasps", "zanzibarsecret", "coded")
	s.put("index.md", "# Insects\n\n![[Ants]]\n\n![[Bees]]\n\n[[Wasps]] and [[wiki/ants|a link]]\n\n```query\ntag: insects\n```\n")
	build := s.asks()
	a := s.settled(build)
	log, _ := a.at("log").([]any)
	if a.text("status") != "built" || strings.Contains(a.raw, "zanzibar") || len(log) < 2 {
		t.Error(a.raw)
	}
	v := s.looks("GET", "/preview/"+build+"/")
	for _, want := range []string{`<section class="note">`, "<em>crawl</em>", `<a href="/@me/notes/ants">a link</a>`, `<li><a href="/@me/notes/ants">Ants</a>`} {
		if !strings.Contains(v.body, want) {
			t.Errorf("no %s in %s", want, v.body)
		}
	}
	if strings.Contains(v.body, "zanzibar") || strings.Count(v.body, "<li>") != 1 {
		t.Error(v.body)
	}
}

// Old builds go, with their blobs; what is live or can be again stays.
func TestOldBuildsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.builds(inProcess)
	s.put("index.md", "# a")
	first, second := s.built(), s.built()
	stop() // their periodic job would do the same
	s.ok("POST", "/v1/microsites/x/publish", object{"build_id": first})
	if _, err := s.db.Exec(t.Context(), `UPDATE microsite_builds SET settled_at = now() - interval '2 days', published_at = published_at - interval '9 days'`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(t.Context(), `UPDATE microsites SET builds = 100`); err != nil {
		t.Fatal(err)
	}
	if n, err := forgetBuilds(t.Context(), s.db, s.blobs(), 10); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if v := s.looks("GET", "/s/me/x/"); v.status != 200 {
		t.Errorf("what is live: %d", v.status)
	}
	if a := s.call("GET", "/v1/builds/"+second, nil); a.status != 404 {
		t.Error(a.raw)
	}
	s.ok("DELETE", "/v1/microsites/x", nil)
	if _, err := s.db.Exec(t.Context(), `UPDATE microsites SET deleted_at = now() - interval '9 days'`); err != nil {
		t.Fatal(err)
	}
	if n, err := forgetBuilds(t.Context(), s.db, s.blobs(), 10); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "sites", "*", "*")); err != nil || len(left) > 0 || s.count(`SELECT count(*) FROM microsites`) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
