package workers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/riverqueue/river"

	"standmeet/shared/task"
)

// fair is a yard with job boards, whose answers a test sets.
type fair struct {
	*yard
	server *httptest.Server
	mu     sync.Mutex
	boards map[string]http.HandlerFunc // by path
	asked  map[string]int
}

func newFair(t *testing.T) *fair {
	f := &fair{yard: newYard(t), boards: map[string]http.HandlerFunc{}, asked: map[string]int{}}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		h := f.boards[r.URL.Path]
		f.asked[r.URL.Path]++
		f.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(f.server.Close)
	return f
}

// fetches starts workers that read sources.
func (f *fair) fetches() (stop func()) {
	bases := map[string]string{"greenhouse": f.server.URL, "lever": f.server.URL}
	return f.work(func(registry *river.Workers, e *env) {
		river.AddWorker(registry, newWorker(e, task.JobsFetch, quick, jobsFetch(e.db, sources(loopback(), bases))))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodic(e.db)))
	})
}

func (f *fair) serves(path string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boards[path] = h
}

func (f *fair) times(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[path]
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// feed serves an RSS feed at path and adds it as a source.
func (f *fair) feed(path string, items ...string) (id string) {
	f.Helper()
	f.serves(path, body(rss(items...)))
	return f.source(object{"kind": "rss", "url": f.server.URL + path})
}

func rss(items ...string) string {
	return `<rss version="2.0"><channel><title>t</title><item>` + strings.Join(items, `</item><item>`) + `</item></channel></rss>`
}

func (f *fair) source(in object) (id string) {
	f.Helper()
	return f.ok("POST", "/v1/job-sources", in).text("source.id")
}

// fetch fetches with all the patience there is.
func (f *fair) fetch(in object) answer {
	f.Helper()
	a := f.ok("POST", "/v1/jobs/fetch-new", in, "Prefer", "wait=20")
	for a.at("pending") == true {
		a = f.ok("POST", "/v1/jobs/fetch-result", object{"job_ids": a.at("job_ids"), "wait_seconds": 20})
	}
	return a
}

func (f *fair) count(a answer, want string) {
	f.Helper()
	var got []string
	for _, s := range a.at("sources").([]any) {
		m := s.(map[string]any)
		got = append(got, fmt.Sprint(m["seen"], m["new"], m["duplicate"]))
	}
	if is := fmt.Sprint(got); is != want {
		f.Errorf("%s, want %s: %s", is, want, a.raw)
	}
}

// Sources that behave in every way are fetched at once: what one gives, and why
// another gave nothing.
func TestJobsFetch(t *testing.T) {
	t.Parallel()
	f := newFair(t)
	f.fetches()
	if a := f.fetch(object{}); a.at("pending") != false || len(a.at("listings").([]any)) != 0 || len(a.at("job_ids").([]any)) != 0 {
		t.Errorf("without a source: %s", a.raw)
	}
	f.serves("/v1/boards/acme/jobs", body(`{"jobs": [{"id": 9007199254740993, "title": "Platform engineer", "absolute_url": "https://boards.example.test/acme/1?gh_src=x", "location": null, "content": "&lt;p&gt;Pay &amp;gt; 100k &amp;amp; bonus&lt;/p&gt;&lt;script&gt;x&lt;/script&gt;"}]}`))
	good := f.source(object{"kind": "greenhouse", "board": "acme"})
	gone := f.source(object{"kind": "lever", "board": "gone"})
	page := f.feed("/page")
	f.serves("/page", body("<!doctype html><title>Jobs</title>"))
	busy := f.feed("/busy")
	f.serves("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(429)
	})
	flaky := f.feed("/flaky")
	f.serves("/flaky", func(w http.ResponseWriter, _ *http.Request) {
		if f.times("/flaky") < 3 {
			w.WriteHeader(502)
			return
		}
		fmt.Fprint(w, rss(`<title>Cook</title><guid>c1</guid>`))
	})
	down := f.feed("/down")
	f.serves("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })

	a := f.fetch(object{})
	reasons := map[string]string{}
	for _, s := range a.at("failed_sources").([]any) {
		m := s.(map[string]any)
		reasons[m["id"].(string)] = m["reason"].(string)
	}
	for id, says := range map[string]string{gone: "404", page: "web page", busy: "left alone until", down: "500"} {
		if !strings.Contains(reasons[id], says) {
			t.Errorf("%q does not say %q", reasons[id], says)
		}
	}
	if len(reasons) != 4 || a.at("listings_total") != 2.0 || len(a.at("sources").([]any)) != 2 {
		t.Errorf("%s", a.raw)
	}
	if f.times("/busy") != 1 || f.times("/down") != 4 || f.times("/flaky") != 3 {
		t.Errorf("asked %v", f.asked)
	}
	for _, id := range []string{good, flaky} {
		if !strings.Contains(fmt.Sprint(a.at("sources")), id) {
			t.Errorf("%s is not there: %s", id, a.raw)
		}
	}
	listings := f.ok("GET", "/v1/jobs?q=100k", nil)
	if listings.at("total") != 1.0 {
		t.Fatal(listings.raw)
	}
	id := listings.at("items").([]any)[0].(map[string]any)["id"].(string)
	if l := f.ok("GET", "/v1/jobs/"+id, nil); l.text("listing.description") != "Pay > 100k & bonus" || l.text("listing.location") != "" {
		t.Errorf("%s", l.raw)
	}
	// the failures stand with their sources, and close nothing
	f.serves("/v1/boards/acme/jobs", body(`{"jobs": []}`))
	f.count(f.fetch(object{"source_id": good}), "[0 0 0]")
	if n := f.ok("GET", "/v1/jobs", nil).at("total"); n != 2.0 {
		t.Errorf("%v listings are left", n)
	}
	if s := f.ok("GET", "/v1/job-sources", nil); strings.Count(s.raw, "failed_reason") != 4 {
		t.Errorf("%s", s.raw)
	}
}

// What is known is not new, whatever its address has become, and of two sources
// with one listing one has it.
func TestJobsAreFoundOnce(t *testing.T) { // J4
	t.Parallel()
	f := newFair(t)
	f.fetches()
	one := f.feed("/one",
		`<title>Field editor</title><link>http://jobs.example.test/p/1?v=aaa111</link><pubDate>Mon, 23 Nov 2026 09:00:00 GMT</pubDate>`,
		`<title>Proof reader</title><link>http://jobs.example.test/p/2?v=aaa111</link><pubDate>Tue, 24 Nov 2026 09:00:00 GMT</pubDate>`,
		`<title>Archivist</title><link>http://jobs.example.test/p/3</link><guid>http://jobs.example.test/p/3</guid>`)
	f.count(f.fetch(object{"source_id": one}), "[3 3 0]")
	f.serves("/one", body(rss(
		`<title>Field editor</title><link>https://jobs.example.test/p/1?v=bbb222</link><pubDate>Mon, 23 Nov 2026 09:00:00 GMT</pubDate>`,
		`<title>Proof reader</title><link>https://jobs.example.test/p/2?v=bbb222</link><pubDate>Tue, 24 Nov 2026 09:00:00 GMT</pubDate>`,
		`<title>Archivist (edited)</title><link>https://jobs.example.test/p/3</link><guid>https://jobs.example.test/p/3</guid>`)))
	f.count(f.fetch(object{"source_id": one}), "[3 0 0]")
	if a := f.ok("GET", "/v1/jobs", nil); a.at("total") != 3.0 || !strings.Contains(a.raw, "Archivist (edited)") || !strings.Contains(a.raw, "bbb222") {
		t.Errorf("%s", a.raw)
	}
	// a query that tells listings apart does
	two := f.feed("/two", `<title>Clerk</title><link>https://x.example.test/job?id=1</link>`)
	f.count(f.fetch(object{"source_id": two}), "[1 1 0]")
	f.serves("/two", body(rss(`<title>Clerk</title><link>https://x.example.test/job?id=1</link>`, `<title>Clerk</title><link>https://x.example.test/job?id=2</link>`)))
	f.count(f.fetch(object{"source_id": two}), "[2 1 0]")
	// another source with the same listing, and one that it gives twice
	three := f.feed("/three", `<title>Archivist</title><link>http://www.jobs.example.test/p/3/?utm_source=y#top</link><guid>own</guid>`, `<title>Archivist</title><guid>own</guid>`, `<title>Driver</title><guid>d</guid>`)
	f.count(f.fetch(object{"source_id": three}), "[3 1 2]")
	f.count(f.fetch(object{"source_id": three}), "[3 0 2]")
	if n := f.ok("GET", "/v1/jobs", nil).at("total"); n != 6.0 {
		t.Errorf("%v listings", n)
	}
}

// What takes longer than the caller waits is answered later, in the same shape,
// as often as one likes.
func TestJobsFetchedLater(t *testing.T) {
	t.Parallel()
	f := newFair(t)
	release := make(chan struct{})
	id := f.feed("/slow")
	f.serves("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, rss(`<title>Cook</title><guid>c1</guid>`))
	})
	a := f.ok("POST", "/v1/jobs/fetch-new", object{"source_id": id}, "Idempotency-Key", "once", "Prefer", "wait=0")
	if a.at("pending") != true || a.at("listings") != nil || len(a.at("job_ids").([]any)) != 1 || a.text("wait.ended") != "not_asked" {
		t.Fatalf("%s", a.raw)
	}
	again := f.ok("POST", "/v1/jobs/fetch-new", object{"source_id": id}, "Idempotency-Key", "once", "Prefer", "wait=0")
	if fmt.Sprint(again.at("job_ids")) != fmt.Sprint(a.at("job_ids")) {
		t.Errorf("a repetition fetched again: %s", again.raw)
	}
	stop := f.fetches()
	f.eventually("the source to be asked", func() bool { return f.times("/slow") == 1 })
	if r := f.ok("POST", "/v1/jobs/fetch-result", object{"job_ids": a.at("job_ids")}); r.at("pending") != true || r.at("sources") != nil {
		t.Errorf("%s", r.raw)
	}
	close(release)
	stop()
	f.fetches() // another process
	var first answer
	for range 3 {
		r := f.ok("POST", "/v1/jobs/fetch-result", object{"job_ids": a.at("job_ids"), "wait_seconds": 20})
		for r.at("pending") == true {
			r = f.ok("POST", "/v1/jobs/fetch-result", object{"job_ids": a.at("job_ids"), "wait_seconds": 20})
		}
		f.count(r, "[1 1 0]")
		if first.raw == "" {
			first = r
		}
		if fmt.Sprint(r.at("listings")) != fmt.Sprint(first.at("listings")) || len(r.at("listings").([]any)) != 1 {
			t.Errorf("%s\n%s", first.raw, r.raw)
		}
	}
	one := a.at("job_ids").([]any)[0]
	f.count(f.ok("POST", "/v1/jobs/fetch-result", object{"job_ids": []any{one, one}, "wait_seconds": 20}), "[1 1 0]")
	if r := f.call("POST", "/v1/jobs/fetch-result", object{"job_ids": []string{}}); r.status != 400 || !strings.Contains(r.raw, "missing_field") {
		t.Errorf("%d %s", r.status, r.raw)
	}
	// receipts of something else, or of nobody
	for _, bad := range []string{"x", "01a22dab-7bba-7cf9-a4db-2d6cb3497b8c:jobs.fetch", strings.Replace(fmt.Sprint(a.at("job_ids").([]any)[0]), "jobs.fetch", "corpus.index", 1)} {
		if r := f.call("POST", "/v1/jobs/fetch-result", object{"job_ids": []string{bad}}); r.status != 404 || r.text("code") != "not_found" {
			t.Errorf("%s: %d %s", bad, r.status, r.raw)
		}
	}
}

// Many at once of one source find each listing once.
func TestJobsFetchedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFair(t)
	f.fetches()
	id := f.feed("/f", `<title>A</title><guid>a</guid>`, `<title>B</title><guid>b</guid>`)
	var all []answer
	var mu sync.Mutex
	var done sync.WaitGroup
	for range 6 {
		done.Go(func() {
			a := f.fetch(object{"source_id": id})
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	done.Wait()
	found := 0.0
	for _, a := range all {
		found += a.at("sources").([]any)[0].(map[string]any)["new"].(float64)
	}
	if n := f.ok("GET", "/v1/jobs", nil).at("total"); found != 2 || n != 2.0 {
		t.Errorf("%v new, %v in the pool", found, n)
	}
}

func TestJobSources(t *testing.T) {
	t.Parallel()
	f := newFair(t)
	for name, c := range map[string]struct {
		in   object
		code string
	}{
		"no board":         {object{"kind": "greenhouse"}, "missing_field"},
		"no address":       {object{"kind": "rss"}, "missing_field"},
		"board of a feed":  {object{"kind": "rss", "url": "https://x.example.com/", "board": "x"}, "not_allowed"},
		"address of board": {object{"kind": "lever", "board": "x", "url": "https://x.example.com/"}, "not_allowed"},
		"a path":           {object{"kind": "lever", "board": "../x"}, "invalid_format"},
		"another kind":     {object{"kind": "linkedin", "board": "x"}, "not_allowed"},
		"inside":           {object{"kind": "rss", "url": "http://10.0.0.1/feed"}, ""},
		"of Remote OK":     {object{"kind": "remoteok", "board": "x"}, "not_allowed"},
	} {
		a := f.call("POST", "/v1/job-sources", c.in)
		if a.status != 400 || c.code != "" && !strings.Contains(a.raw, `"`+c.code+`"`) {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	in := object{"kind": "greenhouse", "board": "Acme"}
	id := f.source(in)
	if a := f.call("POST", "/v1/job-sources", object{"kind": "greenhouse", "board": "acme"}); a.status != 409 || a.text("code") != "source_exists" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	f.ok("DELETE", "/v1/job-sources/"+id, nil)
	if a := f.call("DELETE", "/v1/job-sources/"+id, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := f.call("POST", "/v1/jobs/fetch-new", object{"source_id": id}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	f.source(in)
	if n := f.ok("GET", "/v1/job-sources", nil).at("total"); n != 1.0 {
		t.Errorf("%v", n)
	}
}
