package account

import (
	"context"
	"html/template"
	"net/http"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/page"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Pages serves signing in and out, and the page that both lead to:
//
//	GET  /                 whose session this is
//	GET  /sign-in?token=…  asks to press a button; without a token, for a password
//	POST /sign-in          uses up the link, or checks the password; begins a session, leads to /
//	POST /sign-in/mail     asks for a link by mail
//	POST /sign-out         ends the session, or with everywhere=1 all of the owner's; leads to /
//
// A link is used up by POST alone: programs that look at mails follow links. s
// authenticates and logs.
func Pages(d Deps, s *op.Server) http.Handler {
	p := &pages{Deps: d, server: s}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.home)
	mux.HandleFunc("GET /sign-in", p.ask)
	mux.HandleFunc("POST /sign-in", p.signIn)
	mux.HandleFunc("POST /sign-in/mail", p.mailLink)
	mux.HandleFunc("POST /sign-out", p.signOut)
	return page.Handler(s, mux)
}

type pages struct {
	Deps
	server *op.Server
}

// view is what the one page shows.
type view struct {
	Title, Text string
	// Alert says what went wrong.
	Alert string
	// Link is the sign-in link's secret, for the button.
	Link  string
	Owner *auth.Profile
	// Forms offers to sign in by password, or by a link if Mail.
	Forms, Mail bool
	// Login is what was typed.
	Login string
}

var markup = template.Must(page.Layout(`{{with .Alert}}<p role="alert">{{.}}</p>
{{end}}{{with .Text}}<p>{{.}}</p>
{{end}}{{with .Owner}}<p>Signed in as <strong>{{.Handle}}</strong> ({{.Email}}).</p>
<p>The <a href="/openapi.json">API’s description</a> · your <a href="/v1/corpus">notes</a>, <a href="/v1/tasks">tasks</a>, <a href="/v1/tokens">API tokens</a> and <a href="/v1/sessions">sessions</a> as JSON · your <a href="/@{{.Handle}}">public page</a>.</p>
<form method="post" action="/sign-out"><button>Sign out</button> <button name="everywhere" value="1">Sign out everywhere</button></form>
{{end}}{{with .Link}}<form method="post" action="/sign-in"><input type="hidden" name="token" value="{{.}}"><button autofocus>Sign in</button></form>
{{end}}{{if .Forms}}<section><h2>With a password</h2>
<form method="post" action="/sign-in">
<label>E-mail address or handle <input name="login" value="{{.Login}}" autocomplete="username" autocapitalize="none" spellcheck="false" maxlength="254" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button>Sign in</button>
</form></section>
<section><h2>With a link</h2>
{{if .Mail}}<form method="post" action="/sign-in/mail">
<label>E-mail address or handle <input name="login" value="{{.Login}}" autocomplete="username" autocapitalize="none" spellcheck="false" maxlength="254" required></label>
<button>Mail me a link</button>
</form>
{{end}}<p>Or open the link that StandMeet printed when it started.</p></section>
{{end}}`))

func (p *pages) show(w http.ResponseWriter, status int, v view) { page.Show(w, markup, status, v) }

// fail shows a failure in words, with the forms if they may help.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := page.Refuse(w, r, p.server, "sign_in", err)
	v, status := view{Title: "That didn’t work", Text: f.Detail}, f.Status()
	switch f.Code {
	case "link_expired":
		v.Title, status = "This link no longer works", http.StatusGone
		v.Text = "It was used already or has expired."
		v.Forms, v.Mail = true, p.Mail
	case "cross_origin":
		v.Text = "The request came from another site. Open the sign-in page itself."
	case "sign_in_refused", "rate_limited":
		v = view{Title: "Sign in", Alert: f.Detail, Forms: true, Mail: p.Mail, Login: r.PostForm.Get("login")}
	}
	p.show(w, status, v)
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
		p.show(w, 0, view{Title: "StandMeet", Text: "You are not signed in.", Forms: true, Mail: p.Mail})
	default:
		p.show(w, 0, view{Title: "StandMeet", Owner: owner})
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
		p.show(w, 0, view{Title: "Sign in", Forms: true, Mail: p.Mail})
	default:
		p.show(w, 0, view{Title: "Sign in", Link: link})
	}
}

// post reads a form and says who sent it from where.
func (p *pages) post(w http.ResponseWriter, r *http.Request) (auth.Caller, error) {
	if err := page.ReadForm(w, r); err != nil {
		return auth.Caller{}, err
	}
	c, err := p.server.Anyone(r)
	if err != nil {
		return c, err
	}
	return c, p.server.Admit(r.Context(), c)
}

func (p *pages) signIn(w http.ResponseWriter, r *http.Request) {
	c, err := p.post(w, r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	var session string
	if r.PostForm.Has("login") {
		session, err = p.byPassword(r.Context(), r.PostForm.Get("login"), r.PostForm.Get("password"), c.RemoteAddr)
	} else {
		session, err = p.byLink(r.Context(), r.PostForm.Get("token"))
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	http.SetCookie(w, sessionCookie(session, page.Secure(r, p.HTTPS)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (d Deps) byLink(ctx context.Context, link string) (session string, err error) {
	err = d.DB.InTx(ctx, func(tx *pg.Tx) error {
		owner, s, err := auth.SignIn(ctx, tx, link)
		if err != nil {
			return err
		}
		session = s
		return record(ctx, tx, outbox.SignedIn, owner)
	})
	return session, err
}

// mailTime is how long the answer to a request for a link takes at least, so
// that it takes the same for an owner and for nobody.
const mailTime = 300 * time.Millisecond

func (p *pages) mailLink(w http.ResponseWriter, r *http.Request) {
	after := time.After(mailTime)
	c, err := p.post(w, r)
	if err == nil {
		err = p.askForLink(r.Context(), r.PostForm.Get("login"), c.RemoteAddr)
	}
	select {
	case <-after:
	case <-r.Context().Done():
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.show(w, 0, view{Title: "Sign in", Text: task.SignInAsked()})
}

func (p *pages) signOut(w http.ResponseWriter, r *http.Request) {
	c, err := p.post(w, r)
	if err == nil && c.Session != "" {
		if r.PostForm.Get("everywhere") != "" {
			err = p.DB.InTx(r.Context(), func(tx *pg.Tx) error {
				_, err := endAll(r.Context(), tx, c.OwnerID)
				return err
			})
		} else {
			err = p.end(r.Context(), c.Session)
		}
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	http.SetCookie(w, sessionCookie("", page.Secure(r, p.HTTPS)))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// sessionCookie is the cookie that holds an owner's session; an empty session
// removes it.
func sessionCookie(session string, secure bool) *http.Cookie {
	c := &http.Cookie{
		Name: auth.SessionCookie, Value: session, Path: "/", MaxAge: int(auth.SessionLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure,
	}
	if session == "" {
		c.MaxAge = -1
	}
	return c
}

func record(ctx context.Context, tx *pg.Tx, event string, owner uuid.UUID) error {
	return outbox.Record(ctx, tx, outbox.NewID(), event, owner, owner.String(), struct{}{})
}
