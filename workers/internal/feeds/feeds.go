// Package feeds reads job listings from the public APIs of job boards and from
// feeds. A board that can't be read is a Fault in plain words, never an empty
// list.
package feeds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"standmeet/workers/internal/egress"
)

// The kinds of sources.
const (
	Greenhouse      = "greenhouse"
	Lever           = "lever"
	Ashby           = "ashby"
	Workable        = "workable"
	SmartRecruiters = "smartrecruiters"
	RemoteOK        = "remoteok"
	RSS             = "rss"
	Atom            = "atom"
	JSONFeed        = "json_feed"
)

// Limits of one source.
const (
	// MaxBody is the most that is read of one answer, in bytes once decompressed:
	// large boards have 10 MB.
	MaxBody = 32 << 20
	// MaxListings is the most that is taken of one source.
	MaxListings = 20_000
	// maxPages bounds boards that are read page by page.
	maxPages = 200
	// maxRedirects of one request; each is guarded like the first.
	maxRedirects = 3
	// maxRetryAfter bounds what a source may ask for.
	maxRetryAfter = 24 * time.Hour
)

// Source is what is read.
type Source struct {
	Kind string
	// Board is the company's name in the board's addresses; of remoteok, empty.
	Board string
	// URL is the feed's address, of the kinds that are feeds.
	URL string
	// ETag and LastModified are of the last answer, as it gave them.
	ETag, LastModified string
}

// Listing is one job, as its source tells it. All texts are plain.
type Listing struct {
	// ID is the source's own; empty where it has none.
	ID string
	// URL is absolute, http or https; it may be empty.
	URL         string
	Title       string
	Company     string
	Location    string
	Description string
	// PublishedAt is zero where the source doesn't say.
	PublishedAt time.Time
}

// Answer is what a source gave.
type Answer struct {
	// Unchanged: the source says that nothing has changed since the last answer.
	Unchanged          bool
	Listings           []Listing
	ETag, LastModified string
}

// Fault is why a source could not be read.
type Fault struct {
	// Reason is one plain sentence for the owner.
	Reason string
	// Transient: another try may go better.
	Transient bool
	// After is when the source wants to be asked again; zero if it doesn't say.
	After time.Time
	Err   error
}

func (f *Fault) Error() string { return f.Reason }

// Unwrap gives the cause, which may be nil.
func (f *Fault) Unwrap() error { return f.Err }

func broken(format string, args ...any) *Fault { return &Fault{Reason: fmt.Sprintf(format, args...)} }

// Reader reads sources. It is safe for concurrent use.
type Reader struct {
	// Client asks; its body limit must be [MaxBody].
	Client *egress.Client
	// Boards asks those boards that have an address in Bases; nil is Client.
	Boards *egress.Client
	// Bases are other addresses for the APIs of boards, by kind, without a final slash.
	Bases map[string]string
}

// Read reads a source once. tell (may be nil) hears how many pages are read, of
// how many; 0 is not known. The error is a *Fault, or the context's.
func (r *Reader) Read(ctx context.Context, s Source, tell func(done, total int)) (a Answer, err error) {
	if tell == nil {
		tell = func(int, int) {}
	}
	switch s.Kind {
	case Greenhouse:
		a, err = r.greenhouse(ctx, s)
	case Lever:
		a, err = r.lever(ctx, s, tell)
	case Ashby:
		a, err = r.ashby(ctx, s)
	case Workable:
		a, err = r.workable(ctx, s)
	case SmartRecruiters:
		a, err = r.smartRecruiters(ctx, s, tell)
	case RemoteOK:
		a, err = r.remoteOK(ctx, s)
	case RSS, Atom, JSONFeed:
		a, err = r.feed(ctx, s)
	default:
		err = broken("There is no kind of source called %q.", s.Kind)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return Answer{}, ctx.Err()
		}
		return Answer{}, err
	}
	// what no database and no JSON takes
	for i := range a.Listings {
		a.Listings[i].ID = clean(a.Listings[i].ID)
	}
	a.ETag, a.LastModified = header(a.ETag), header(a.LastModified)
	if len(a.Listings) > MaxListings {
		return Answer{}, broken("The source has more than %d listings, which is more than is read.", MaxListings)
	}
	return a, nil
}

// header is the value of a header that can be kept, and be sent as it came.
func header(value string) string {
	if clean(value) != value || len(value) > 1000 {
		return ""
	}
	return value
}

// reply is an answer of status 200 or 304.
type reply struct {
	unchanged          bool
	body               []byte
	contentType        string
	etag, lastModified string
	// url is where it came from, after redirects
	url *url.URL
}

// get asks once. accept is what the answer should be; last is nil where no
// earlier answer counts.
func (r *Reader) get(ctx context.Context, client *egress.Client, address, accept string, last *Source) (out reply, err error) {
	next, err := url.Parse(address)
	if err != nil {
		return out, broken("The address of the source can't be read.")
	}
	for hop := 0; ; hop++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, next.String(), nil)
		if err != nil {
			return out, broken("The address of the source can't be read.")
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("User-Agent", "StandMeet/1 (job listings)")
		if last != nil && last.ETag != "" {
			req.Header.Set("If-None-Match", last.ETag)
		}
		if last != nil && last.LastModified != "" {
			req.Header.Set("If-Modified-Since", last.LastModified)
		}
		res, err := client.Do(req)
		if err != nil {
			return out, unreached(ctx, err)
		}
		switch res.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			to, err := res.Location()
			_ = res.Body.Close()
			if err != nil || hop == maxRedirects {
				return out, broken("The source sends its readers on from address to address without an end.")
			}
			next = to
			continue
		}
		defer func() { _ = res.Body.Close() }()
		out = reply{contentType: res.Header.Get("Content-Type"), etag: res.Header.Get("ETag"), lastModified: res.Header.Get("Last-Modified"), url: next}
		switch {
		case res.StatusCode == http.StatusNotModified && last != nil && (last.ETag != "" || last.LastModified != ""):
			out.unchanged, out.etag, out.lastModified = true, last.ETag, last.LastModified
			return out, nil
		case res.StatusCode != http.StatusOK:
			return out, refused(res, time.Now())
		}
		if out.body, err = io.ReadAll(res.Body); err != nil {
			if errors.Is(err, egress.ErrTooLarge) {
				return out, broken("The source's answer has more than %d MB, which is more than is read.", MaxBody>>20)
			}
			return out, unreached(ctx, err)
		}
		return out, nil
	}
}

func unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var no *egress.Refused
	return &Fault{Reason: egress.Explain(err), Transient: !errors.As(err, &no), Err: err}
}

// refused says what a status other than 200 means.
func refused(res *http.Response, now time.Time) *Fault {
	status := strings.TrimSpace(strconv.Itoa(res.StatusCode) + " " + http.StatusText(res.StatusCode))
	f := &Fault{Reason: "The source answered " + status + "."}
	switch {
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		f.Reason = "The source answered " + status + ": there is no such board or feed."
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable:
		f.Transient = true
		if f.After = retryAfter(res.Header.Get("Retry-After"), now); !f.After.IsZero() {
			f.Reason = fmt.Sprintf("The source answered %s and asks to be left alone until %s.", status, f.After.UTC().Format("2006-01-02 15:04:05 MST"))
		}
	case res.StatusCode == http.StatusRequestTimeout || res.StatusCode >= 500:
		f.Transient = true
	}
	return f
}

// retryAfter reads seconds or an HTTP date; zero for junk and what isn't ahead.
func retryAfter(value string, now time.Time) time.Time {
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(seconds, int64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(min(wait, maxRetryAfter)).Truncate(time.Second).Add(time.Second)
}

// looksLike reports whether the answer calls itself a page for people.
func (p reply) isHTML() bool {
	if t, _, err := mime.ParseMediaType(p.contentType); err == nil && (t == "text/html" || t == "application/xhtml+xml") {
		return true
	}
	head := strings.ToLower(strings.TrimSpace(string(p.body[:min(len(p.body), 200)])))
	return strings.HasPrefix(head, "<!doctype html") || strings.HasPrefix(head, "<html")
}
