package account

import (
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Pages serves signing in and out, and the page that both lead to:
//
//	GET  /                 whose session this is
//	GET  /sign-in?token=…  asks to press a button
//	POST /sign-in          uses up the link, begins a session, leads to /
//	POST /sign-out         ends the session, leads to /
//
// A link is used up by POST alone: programs that look at mails follow links. s
// authenticates and logs. secure marks the session's cookie for HTTPS only, also
// when the request itself does not look like HTTPS.
func Pages(d Deps, s *op.Server, secure bool) http.Handler {
	p := &pages{Deps: d, server: s, secure: secure}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.home)
	mux.HandleFunc("GET /sign-in", p.ask)
	mux.HandleFunc("POST /sign-in", p.signIn)
	mux.HandleFunc("POST /sign-out", p.signOut)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Flush != nil {
			defer s.Flush(r.Context())
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("Referrer-Policy", "no-referrer") // the address holds a secret
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(op.RequestIDHeader, op.RequestID(r))
		mux.ServeHTTP(w, r)
	})
}

type pages struct {
	Deps
	server *op.Server
	secure bool
}

// view is what the one page shows.
type view struct {
	Title, Text string
	// Link is the sign-in link's secret, for the button.
	Link   string
	Owner  *auth.Profile
	status int
}

var markup = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}} – StandMeet</title>
<style>
	body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem; color: #222; background: #fff }
	button { font: inherit; padding: .5rem 1.25rem }
	@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } a { color: #8bf } }
</style>
<main>
<h1>{{.Title}}</h1>
{{with .Text}}<p>{{.}}</p>
{{end}}{{with .Owner}}<p>Signed in as <strong>{{.Handle}}</strong> ({{.Email}}).</p>
<p>The <a href="/openapi.json">API’s description</a> · your <a href="/v1/corpus">notes</a>, <a href="/v1/tasks">tasks</a> and <a href="/v1/tokens">API tokens</a> as JSON.</p>
<form method="post" action="/sign-out"><button>Sign out</button></form>
{{end}}{{with .Link}}<form method="post" action="/sign-in"><input type="hidden" name="token" value="{{.}}"><button autofocus>Sign in</button></form>
{{end}}</main>
</html>
`))

func (p *pages) show(w http.ResponseWriter, v view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if v.status != 0 {
		w.WriteHeader(v.status)
	}
	_ = markup.Execute(w, v) // the client is gone if this fails
}

// fail shows a failure in words.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.From(err)
	p.server.Log(r.Context(), "sign_in", auth.Caller{}, op.RequestID(r), err)
	v := view{Title: "That didn’t work", Text: f.Detail, status: f.Status()}
	switch f.Code {
	case "link_expired":
		v.Title, v.status = "This link no longer works", http.StatusGone
		v.Text = "It was used already or has expired. Each start of StandMeet prints a fresh one."
	case "cross_origin":
		v.Text = "The request came from another site. Open the sign-in link itself."
	}
	if s := f.RetrySeconds(); s > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(s))
	}
	p.show(w, v)
}

// owner is who is signed in, nil for nobody.
func (p *pages) owner(r *http.Request) (*auth.Profile, error) {
	cookie, err := r.Cookie(auth.SessionCookie)
	if err != nil || p.server.Authenticate == nil {
		return nil, nil //nolint:nilerr // no cookie is no error
	}
	c, err := p.server.Authenticate(r.Context(), auth.Credentials{Session: cookie.Value})
	if f := fault.From(err); f != nil && f.Kind == fault.Unauthorized || err == nil && c.Kind != auth.Owner {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	owner, err := auth.GetOwner(r.Context(), p.DB, c.OwnerID)
	return &owner, err
}

func (p *pages) home(w http.ResponseWriter, r *http.Request) {
	owner, err := p.owner(r)
	switch {
	case err != nil:
		p.fail(w, r, err)
	case owner == nil:
		p.show(w, view{Title: "StandMeet", Text: "You are not signed in. Open your sign-in link."})
	default:
		p.show(w, view{Title: "StandMeet", Owner: owner})
	}
}

func (p *pages) ask(w http.ResponseWriter, r *http.Request) {
	owner, err := p.owner(r)
	link := r.URL.Query().Get("token")
	switch {
	case err != nil:
		p.fail(w, r, err)
	case owner != nil:
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case link == "":
		p.show(w, view{Title: "Sign in", Text: "Open the sign-in link that StandMeet printed when it started."})
	default:
		p.show(w, view{Title: "Sign in", Link: link})
	}
}

func (p *pages) signIn(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		p.fail(w, r, err)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	if err := r.ParseForm(); err != nil {
		p.fail(w, r, &fault.Fault{Kind: fault.Invalid, Code: "malformed_body", Detail: "The form could not be read.", Err: err})
		return
	}
	var session string
	err := p.DB.InTx(r.Context(), func(tx *pg.Tx) error {
		owner, s, err := auth.SignIn(r.Context(), tx, r.PostForm.Get("token"))
		if err != nil {
			return err
		}
		session = s
		return record(r, tx, outbox.SignedIn, owner)
	})
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.cookie(w, r, session, int(auth.SessionLife.Seconds()))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (p *pages) signOut(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		p.fail(w, r, err)
		return
	}
	if cookie, err := r.Cookie(auth.SessionCookie); err == nil {
		err := p.DB.InTx(r.Context(), func(tx *pg.Tx) error {
			owner, ended, err := auth.SignOut(r.Context(), tx, cookie.Value)
			if err != nil || !ended {
				return err
			}
			return record(r, tx, outbox.SignedOut, owner)
		})
		if err != nil {
			p.fail(w, r, err)
			return
		}
	}
	p.cookie(w, r, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (p *pages) cookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: auth.SessionCookie, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: p.secure || r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}

// sameOrigin keeps another site from signing its visitors in or out.
func sameOrigin(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return &fault.Fault{Kind: fault.Forbidden, Code: "cross_origin", Detail: "This came from another site.", Err: err}
	}
	return nil
}

func record(r *http.Request, tx *pg.Tx, event string, owner uuid.UUID) error {
	return outbox.Record(r.Context(), tx, outbox.NewID(), event, owner, owner.String(), struct{}{})
}
