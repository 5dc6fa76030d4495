package microsites

import (
	"bytes"
	"context"
	"encoding/hex"
	"html"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/microsite"
	"standmeet/shared/op"
)

// policy is what a page of a microsite may do: run the scripts of its build, and
// speak to nobody but this server. The sandbox takes its origin away, which it has
// in common with the owner's pages: its scripts can read no cookie, no other page
// and no answer that isn't for everybody, and what they send carries no cookie.
const policy = "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox; " +
	"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'self'; form-action 'none'; frame-ancestors 'self'"

const (
	// what is named by its content
	forever = "public, max-age=31536000, immutable"
	// what a publish changes is asked for each time, which costs a 304
	asked = "public, no-cache"
)

// Pages serves
//
//	GET /s/{handle}/{slug}/{path...}       what is live
//	GET /preview/{build_id}/{path...}      a build, for whoever has its address
//
// A page and all that it loads are of one build: what a page loads is named by its
// content, and that of earlier builds stays as long as pages of theirs may be open.
func Pages(d Deps, s *op.Server) http.Handler {
	p := &pages{d, s}
	mux := http.NewServeMux()
	for _, root := range []string{"/s/{handle}/{slug}", "/preview/{build_id}"} {
		mux.HandleFunc("GET "+root, func(w http.ResponseWriter, r *http.Request) { redirect(w, r, r.URL.EscapedPath()+"/") })
		mux.HandleFunc("GET "+root+"/{path...}", p.serve)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			show(w, http.StatusMethodNotAllowed, "This can only be looked at.")
			return
		}
		show(w, http.StatusNotFound, notHere)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "strict-origin-when-cross-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		// a page without an origin loads its own scripts as a stranger would
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Cache-Control", asked)
		h.Set(op.RequestIDHeader, op.RequestID(r))
		if strings.HasPrefix(r.URL.Path, "/preview/") {
			h.Set("X-Robots-Tag", "noindex")
			h.Set("Referrer-Policy", "no-referrer")
		}
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
			show(w, http.StatusNotFound, notHere) // the mux would redirect
			return
		}
		mux.ServeHTTP(w, r)
	})
}

const notHere = "There is nothing at this address."

type pages struct {
	Deps
	server *op.Server
}

func (p *pages) serve(w http.ResponseWriter, r *http.Request) {
	if err := p.answerTo(w, r); err != nil {
		f := fault.From(err)
		p.server.Log(r.Context(), "site", auth.Caller{}, op.RequestID(r), err)
		if seconds := f.RetrySeconds(); seconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
		w.Header().Set("Cache-Control", "no-store")
		text := f.Detail
		if f.Kind == fault.NotFoundKind {
			text = notHere
		}
		show(w, f.Status(), text)
	}
}

func (p *pages) answerTo(w http.ResponseWriter, r *http.Request) error {
	at := r.PathValue("path")
	if len(at) > 1000 || strings.ContainsRune(at, 0) {
		return fault.NotFound("page")
	}
	dir := at == "" || strings.HasSuffix(at, "/")
	bare := strings.TrimSuffix(at, "/")
	index := path.Join(bare, "index.html")
	const missing = "404.html"
	wanted := []string{bare, bare + ".html", index, missing}
	found, live, err := p.find(r, wanted)
	if err != nil {
		return err
	}
	here := func(name string) (microsite.Output, bool) { o, ok := found.Files[name]; return o, ok }
	switch o, ok := here(bare); {
	case ok && !dir:
		return p.send(w, r, o)
	case ok:
		redirect(w, r, strings.TrimSuffix(r.URL.EscapedPath(), "/"))
		return nil
	}
	if o, ok := here(index); ok {
		if dir {
			return p.send(w, r, o)
		}
		redirect(w, r, r.URL.EscapedPath()+"/")
		return nil
	}
	if o, ok := here(bare + ".html"); ok {
		if !dir {
			return p.send(w, r, o)
		}
		redirect(w, r, strings.TrimSuffix(r.URL.EscapedPath(), "/"))
		return nil
	}
	if live && strings.HasPrefix(at, microsite.Assets+"/") {
		o, err := microsite.Formerly(r.Context(), p.DB, found.SiteID, at)
		if err == nil {
			return p.send(w, r, o)
		}
		if f := fault.From(err); f.Kind != fault.NotFoundKind {
			return err
		}
	}
	o, ok := here(missing)
	if !ok {
		return fault.NotFound("page")
	}
	body, err := p.read(r.Context(), o)
	if err != nil {
		return err
	}
	// it is served at every address, so it is told the site's
	depth := 3 // /s/{handle}/{slug}
	if !live {
		depth = 2
	}
	base := strings.Join(strings.SplitN(r.URL.EscapedPath(), "/", depth+2)[:depth+1], "/") + "/"
	w.Header().Set("Content-Type", o.ContentType)
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write(bytes.Replace(body, []byte(baseMark), []byte(`<base href="`+html.EscapeString(base)+`">`), 1)) // the client is gone if this fails
	return nil
}

// baseMark stands in a 404.html for the site's address.
const baseMark = `<base href="./">`

func (p *pages) find(r *http.Request, paths []string) (found microsite.Served, live bool, err error) {
	id := r.PathValue("build_id")
	if id == "" {
		found, err = microsite.Live(r.Context(), p.DB, r.PathValue("handle"), r.PathValue("slug"), paths)
		return found, true, err
	}
	build, err := uuid.Parse(id)
	if err != nil || len(id) != 36 {
		return found, false, fault.NotFound("build")
	}
	found, err = microsite.Preview(r.Context(), p.DB, build, paths)
	return found, false, err
}

// send answers with a file, whole: what can't be read to its end is no answer.
func (p *pages) send(w http.ResponseWriter, r *http.Request, o microsite.Output) error {
	etag := `"` + hex.EncodeToString(o.SHA256[:16]) + `"`
	h := w.Header()
	h.Set("Content-Type", o.ContentType)
	h.Set("ETag", etag)
	if strings.HasPrefix(o.Path, microsite.Assets+"/") {
		h.Set("Cache-Control", forever)
	}
	var body []byte
	if r.Header.Get("If-None-Match") != etag {
		var err error
		if body, err = p.read(r.Context(), o); err != nil {
			h.Del("ETag")
			return err
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

func (p *pages) read(ctx context.Context, o microsite.Output) ([]byte, error) {
	object, err := p.Blobs.Get(ctx, o.Blob)
	if err != nil {
		return nil, err
	}
	defer object.Body.Close()
	body, err := io.ReadAll(io.LimitReader(object.Body, int64(o.Size)+1))
	if err != nil || len(body) != o.Size {
		return nil, &fault.Fault{Kind: fault.Unavailable, Code: "blobs_unavailable", RetryAfter: time.Second, Err: err, Detail: "The page can't be read right now. Try again shortly."}
	}
	return body, nil
}

// redirect leads to another spelling of an address of ours.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusPermanentRedirect)
}

// show answers with a sentence.
func show(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>"+html.EscapeString(http.StatusText(status))+"</title>\n<p>"+html.EscapeString(text)+"</p>\n") // the client is gone if this fails
}
