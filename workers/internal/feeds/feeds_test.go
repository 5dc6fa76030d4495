package feeds

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"standmeet/shared/config"
	rules "standmeet/shared/egress"
	"standmeet/workers/internal/egress"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reader reads from server in place of every board.
func reader(t *testing.T, h http.HandlerFunc) (*Reader, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := egress.New(egress.Options{Rules: rules.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}), MaxBody: MaxBody, Timeout: time.Minute})
	t.Cleanup(c.Close)
	bases := map[string]string{}
	for _, kind := range config.SourceKinds() {
		bases[kind] = s.URL + "/" + kind
	}
	return &Reader{Client: c, Bases: bases}, s.URL
}

func serve(body []byte, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body)
	}
}

func read(t *testing.T, r *Reader, s Source) []Listing {
	t.Helper()
	a, err := r.Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.Listings
}

func TestBoards(t *testing.T) { // J3
	t.Parallel()
	var path string
	r, _ := reader(t, func(w http.ResponseWriter, req *http.Request) {
		path = req.URL.String()
		kind := strings.Split(path, "/")[1]
		body := map[string]string{
			Workable:        `{"name": "Acme", "jobs": [{"title": "Cook", "shortcode": "AB12", "url": "https://apply.workable.com/j/AB12", "city": "Rome", "state": "", "country": "Italy", "published_on": "2026-11-23", "description": "<p>Pasta</p><ul><li>daily</li></ul>"}]}`,
			SmartRecruiters: `{"totalFound": 1, "content": [{"id": "744000", "name": "Nurse", "releasedDate": "2026-11-23T09:00:00.000Z", "company": {"identifier": "Acme1", "name": "Acme"}, "location": {"city": "Oslo", "country": "no", "remote": true}}]}`,
			RemoteOK:        `[{"legal": "terms", "last_updated": 1}, {"id": 12, "slug": "x", "position": "Pilot &amp; crew", "company": "Fly", "location": "", "date": "2026-11-23T09:00:00+00:00", "url": "https://remoteok.com/remote-jobs/12", "description": "Up"}]`,
		}[kind]
		if body == "" {
			body = string(file(t, kind+".json"))
		}
		serve([]byte(body), "application/json")(w, req)
	})
	day := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

	got := read(t, r, Source{Kind: Greenhouse, Board: "acme"})
	if path != "/greenhouse/v1/boards/acme/jobs?content=true" || len(got) != 2 {
		t.Fatalf("%s %+v", path, got)
	}
	if l := got[0]; l.ID != "9007199254740993" || l.URL != "https://boards.example.test/acme/jobs/1" || l.Location != "Tokyo" ||
		l.Description != "About\n\nPay > 100k & bonus" || !l.PublishedAt.Equal(day.Add(5*time.Hour)) {
		t.Errorf("%+v", l)
	}
	if l := got[1]; l.Location != "" || l.Description != "" || l.Title != "No place given" {
		t.Errorf("%+v", l)
	}

	got = read(t, r, Source{Kind: Lever, Board: "acme"})
	if len(got) != 2 || got[0].PublishedAt.Format(time.DateOnly) != "2026-11-23" || got[0].Location != "Berlin" || got[0].Description != "Draw things" || !got[1].PublishedAt.IsZero() {
		t.Errorf("%+v", got)
	}
	got = read(t, r, Source{Kind: Ashby, Board: "a c"})
	if !strings.Contains(path, "/a%20c?") || len(got) != 1 || got[0].Title != "Listed role" || !strings.Contains(got[0].Description, "€70K – €90K") || !got[0].PublishedAt.Equal(day) {
		t.Errorf("%s %+v", path, got)
	}
	got = read(t, r, Source{Kind: Workable, Board: "acme"})
	if len(got) != 1 || got[0].ID != "AB12" || got[0].Location != "Rome, Italy" || got[0].Company != "Acme" || got[0].Description != "Pasta\n\n- daily" {
		t.Errorf("%+v", got)
	}
	got = read(t, r, Source{Kind: SmartRecruiters, Board: "Acme1"})
	if len(got) != 1 || got[0].URL != "https://jobs.smartrecruiters.com/Acme1/744000" || got[0].Location != "Oslo, NO, Remote" {
		t.Errorf("%+v", got)
	}
	got = read(t, r, Source{Kind: RemoteOK})
	if len(got) != 1 || got[0].ID != "12" || got[0].Title != "Pilot & crew" {
		t.Errorf("%+v", got)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	const total = 250
	posting := func(n int) string {
		return fmt.Sprintf(`{"id": "%d", "text": "Job %d", "name": "Job %d", "hostedUrl": "https://jobs.example.test/%d"}`, n, n, n, n)
	}
	r, _ := reader(t, func(w http.ResponseWriter, req *http.Request) {
		from, _ := strconv.Atoi(req.FormValue("skip") + req.FormValue("offset"))
		var all []string
		for n := from; n < min(from+100, total); n++ {
			all = append(all, posting(n))
		}
		list := "[" + strings.Join(all, ",") + "]"
		if strings.HasPrefix(req.URL.Path, "/smart") {
			list = fmt.Sprintf(`{"totalFound": %d, "content": %s}`, total, list)
		}
		_, _ = w.Write([]byte(list))
	})
	for _, kind := range []string{Lever, SmartRecruiters} {
		var told []string
		a, err := r.Read(t.Context(), Source{Kind: kind, Board: "acme"}, func(done, total int) { told = append(told, fmt.Sprintf("%d/%d", done, total)) })
		if err != nil || len(a.Listings) != total || len(told) != 3 {
			t.Errorf("%s: %d listings, %v, %v", kind, len(a.Listings), told, err)
		}
	}
	odd, _ := reader(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Etag"] = []string{"\"\xff\""}
		_, _ = w.Write([]byte(`{"jobs": [{"id": "a\u0000b", "title": "x\u0000"}]}`))
	})
	if a, err := odd.Read(t.Context(), Source{Kind: Greenhouse, Board: "x"}, nil); err != nil || a.ETag != "" || a.Listings[0].ID != "ab" || a.Listings[0].Title != "x" {
		t.Errorf("%+v, %v", a, err)
	}
	// one that ends early has not given its list
	short, _ := reader(t, serve([]byte(`{"totalFound": 5, "content": []}`), "application/json"))
	if _, err := short.Read(t.Context(), Source{Kind: SmartRecruiters, Board: "x"}, nil); err == nil {
		t.Error("a shrunken list was taken for the whole")
	}
	// one that knows no paging
	same, _ := reader(t, serve([]byte("["+strings.Repeat(posting(1)+",", 99)+posting(1)+"]"), "application/json"))
	if got := read(t, same, Source{Kind: Lever, Board: "x"}); len(got) != 1 {
		t.Errorf("%d", len(got))
	}
}

func TestFeeds(t *testing.T) { // J2, J4
	t.Parallel()
	r, base := reader(t, func(w http.ResponseWriter, req *http.Request) {
		name := strings.TrimPrefix(req.URL.Path, "/")
		contentType := "application/xml"
		if strings.HasSuffix(name, ".json") {
			contentType = "application/json"
		}
		serve(file(t, name), contentType)(w, req)
	})
	feed := func(name string) []Listing { return read(t, r, Source{Kind: RSS, URL: base + "/" + name}) }

	got := feed("rss-dirty.xml")
	if len(got) != 4 || got[0].Title != "Café lead & R&D" || got[1].URL != "https://jobs.example.test/relative/d2" || got[1].Title != "Bell engineer" ||
		got[2].Description != "Hello" || got[2].ID != "" || got[3].Title != "Lead dev" || got[3].URL != "https://jobs.example.test/d4" {
		t.Errorf("%+v", got)
	}
	got = feed("rss-sjis.xml")
	if len(got) != 1 || got[0].Title != "東京の開発者ソ" {
		t.Errorf("%+v", got)
	}
	got = feed("jsonfeed-odd.json")
	if len(got) != 4 || got[0].ID != "41" || got[0].Company != "A. Writer" || got[1].Company != "B. Writer" || got[2].URL != "https://elsewhere.example.test/43" ||
		got[2].Company != "plain string" || got[3].Title != "d" || got[3].PublishedAt.Hour() != 14 {
		t.Errorf("%+v", got)
	}
	if got = feed("volatile-1.xml"); len(got) != 3 || got[0].PublishedAt.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestAtom(t *testing.T) {
	t.Parallel()
	r, base := reader(t, serve([]byte(`<?xml version="1.0"?><!DOCTYPE feed [<!ENTITY x "y">]><feed xmlns="http://www.w3.org/2005/Atom"><title>t</title><link href="https://a.example.test/"/>
		<entry><id>urn:1</id><title type="html">&lt;b&gt;Bold&lt;/b&gt; &x;</title><link rel="alternate" href="/jobs/1"/><updated>2026-11-23T09:00:00Z</updated><content type="html">&lt;p&gt;Hi &amp;amp; bye&lt;/p&gt;</content></entry></feed>`), "application/atom+xml"))
	got := read(t, r, Source{Kind: Atom, URL: base})
	if len(got) != 1 || got[0].ID != "urn:1" || got[0].URL != "https://a.example.test/jobs/1" || !strings.HasPrefix(got[0].Title, "Bold") || got[0].Description != "Hi & bye" {
		t.Errorf("%+v", got)
	}
}

// What can't be read is a fault in words, never an empty list.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		h         http.HandlerFunc
		says      string
		transient bool
	}{
		"not found":           {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "[]", 404) }, "404", false},
		"a page":              {serve([]byte("<!DOCTYPE html><title>Jobs</title>"), "text/html"), "web page", false},
		"a page, called JSON": {serve([]byte("<html>"), "application/json"), "web page", false},
		"busy":                {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "60"); w.WriteHeader(429) }, "left alone until", true},
		"broken":              {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, "502", true},
		"cut off":             {serve([]byte(`{"jobs": [{"id": 1`), "application/json"), "no list of jobs", false},
		"other JSON":          {serve([]byte(`{"error": "x"}`), "application/json"), "", false},
		"null":                {serve([]byte(`null`), "application/json"), "", false},
		"empty":               {serve(nil, "application/json"), "", false},
		"round":               {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }, "address to address", false},
		"inside": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
		}, "", false},
		"closed": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, base := reader(t, c.h)
			for _, kind := range append(config.SourceKinds(), RSS, JSONFeed) {
				a, err := r.Read(t.Context(), Source{Kind: kind, Board: "acme", URL: base + "/feed"}, nil)
				var f *Fault
				if !errors.As(err, &f) {
					t.Errorf("%s: %+v, %v", kind, a, err)
					continue
				}
				feed := kind == RSS || kind == JSONFeed
				if f.Transient != c.transient || !feed && !strings.Contains(f.Reason, c.says) || !strings.HasSuffix(f.Reason, ".") || strings.Contains(f.Reason, "10.0.0.1") {
					t.Errorf("%s: %q %v", kind, f.Reason, f.Transient)
				}
				if name == "busy" && (time.Until(f.After) < 30*time.Second || time.Until(f.After) > 2*time.Minute) {
					t.Errorf("%s", f.After)
				}
			}
		})
	}
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	var asked []string
	r, base := reader(t, func(w http.ResponseWriter, req *http.Request) {
		asked = append(asked, req.Header.Get("If-None-Match")+"|"+req.Header.Get("If-Modified-Since"))
		if req.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(304)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Last-Modified", "Mon, 23 Nov 2026 09:00:00 GMT")
		_, _ = w.Write(file(t, "volatile-1.xml"))
	})
	s := Source{Kind: RSS, URL: base}
	a, err := r.Read(t.Context(), s, nil)
	if err != nil || a.Unchanged || a.ETag != `"v1"` {
		t.Fatalf("%+v %v", a, err)
	}
	s.ETag, s.LastModified = a.ETag, a.LastModified
	if a, err = r.Read(t.Context(), s, nil); err != nil || !a.Unchanged || len(a.Listings) != 0 || a.ETag != `"v1"` {
		t.Errorf("%+v %v", a, err)
	}
	if asked[1] != `"v1"|Mon, 23 Nov 2026 09:00:00 GMT` {
		t.Error(asked)
	}
}

func TestLargeAndZipped(t *testing.T) {
	t.Parallel()
	pad := strconv.Quote(strings.Repeat("x", 3000))
	jobs := func(n int) []byte {
		var b bytes.Buffer
		b.WriteString(`{"jobs": [`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id": %d, "title": "Job", "absolute_url": "https://x.example.test/%d", "content": "words", "metadata": %s}`, i, i, pad)
		}
		b.WriteString(`]}`)
		return b.Bytes()
	}
	zipped := func(body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			_, _ = z.Write(body)
			_ = z.Close()
		}
	}
	large := jobs(3500) // over 10 MB
	if len(large) < 10<<20 {
		t.Fatal(len(large))
	}
	r, _ := reader(t, zipped(large))
	if got := read(t, r, Source{Kind: Greenhouse, Board: "x"}); len(got) != 3500 {
		t.Errorf("%d", len(got))
	}
	r, _ = reader(t, zipped(bytes.Repeat([]byte{' '}, 1<<20)))
	r.Client = egress.New(egress.Options{Rules: rules.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}), MaxBody: 1 << 18})
	var f *Fault
	if _, err := r.Read(t.Context(), Source{Kind: Greenhouse, Board: "x"}, nil); !errors.As(err, &f) || !strings.Contains(f.Reason, "32 MB") {
		t.Errorf("%v", err)
	}
}

func FuzzFeed(f *testing.F) {
	for _, name := range []string{"rss-dirty.xml", "rss-sjis.xml", "jsonfeed-odd.json", "volatile-1.xml"} {
		f.Add(file(f, name), "text/xml")
	}
	f.Add([]byte(`{"items": [null, {"id": {}}]}`), "application/json; charset=utf-16")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		all, err := parseFeed(reply{body: body, contentType: contentType})
		var fault *Fault
		if err != nil && !errors.As(err, &fault) {
			t.Fatal(err)
		}
		for _, l := range all {
			if strings.ContainsRune(l.Title+l.Description+l.Company, 0) || strings.ContainsAny(l.Title, "\n") {
				t.Errorf("%+v", l)
			}
		}
	})
}
