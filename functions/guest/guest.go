// Package guest serves the pages that visitors get links to. They are a client
// of the catalog: what they show and do are its operations, called as the visitor
// who asks.
package guest

import (
	"context"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"standmeet/functions/page"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
)

// Pages serves what lies below /@{handle}, and everything else as cat does:
//
//	GET  /@{handle}                         what the visitor may read
//	GET  /@{handle}/notes/{path}            a note
//	GET  /@{handle}/code?code=…             asks to press a button
//	POST /@{handle}/code                    redeems the code, leads to /@{handle}
//	GET  /@{handle}/book?from=…             offers times to book
//	POST /@{handle}/book                    books one, leads to the booking
//	GET  /@{handle}/bookings/{id}?token=…   a booking
//	POST /@{handle}/bookings/{id}           cancels it, leads back to it
//	GET  /@{handle}/bookings/{id}/move?token=…&from=…  offers other times
//	POST /@{handle}/bookings/{id}/move      moves it, leads back to it
//
// GET and HEAD use up nothing: programs that look at mails follow links. The
// owner's name is read from db.
func Pages(cat op.Catalog, s *op.Server, db *pg.DB) http.Handler {
	p := &pages{catalog: cat, server: s, db: db}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{at}", p.home)
	mux.HandleFunc("GET /{at}/{$}", p.home)
	mux.HandleFunc("GET /{at}/notes/{path...}", p.note)
	mux.HandleFunc("GET /{at}/code", p.askCode)
	mux.HandleFunc("POST /{at}/code", p.redeem)
	mux.HandleFunc("GET /{at}/book", p.askBooking)
	mux.HandleFunc("POST /{at}/book", p.book)
	mux.HandleFunc("GET /{at}/bookings/{id}", p.booking)
	mux.HandleFunc("POST /{at}/bookings/{id}", p.cancel)
	mux.HandleFunc("GET /{at}/bookings/{id}/move", p.askMove)
	mux.HandleFunc("POST /{at}/bookings/{id}/move", p.move)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, fault.New(fault.NotFoundKind, "not_found", "There is nothing at this address."))
	})
	ours, rest := page.Handler(s, mux), cat.Handler(s)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/@") {
			rest.ServeHTTP(w, r)
			return
		}
		if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
			// the mux would redirect, as far as to the pages of others
			rest.ServeHTTP(w, r)
			return
		}
		ours.ServeHTTP(w, r)
	})
}

type pages struct {
	catalog op.Catalog
	server  *op.Server
	db      *pg.DB
}

type view struct {
	Title string
	Text  string
	// Alert says what went wrong.
	Alert string
	// Base is /@{handle}.
	Base string

	// the owner's page
	Home  bool
	Notes []noteLink
	More  bool
	Coded bool
	// Ended: a code that this browser used holds no more.
	Ended bool

	// a note
	Body string

	// the form for a code
	AskCode     bool
	Code, Nonce string

	Booking *booking
	Token   string
	// Self is its page without the token, Move the one on which it is moved, and File
	// the calendar file.
	Self, Move, File string
	// Times can be chosen, to move the booking or to make one by the Form; where it
	// NeedsCode, nothing can be booked yet.
	Times     *times
	Moving    bool
	Form      *form
	NeedsCode bool
	// Bookable: the owner takes bookings.
	Bookable bool
}

type noteLink struct{ Title, Address string }

var markup = template.Must(page.Layout(`{{with .Alert}}<p role="alert">{{.}}</p>
{{end}}{{with .Text}}<p>{{.}}</p>
{{end}}{{if .Ended}}<p role="status">A code that was used in this browser has ended, so what is shared by it is not shown any more. <a href="{{.Base}}/code">I have a code</a></p>
{{end}}{{if .Home}}{{if .Coded}}<p>You redeemed a code: notes that are shared by code are among these.</p>
{{end}}{{if .Notes}}<ul>
{{range .Notes}}<li><a href="{{.Address}}">{{.Title}}</a></li>
{{end}}</ul>
{{if .More}}<p>There are more.</p>
{{end}}{{else}}<p>There is nothing here to read yet.</p>
{{end}}{{if .Bookable}}<p><a href="{{.Base}}/book">Book a time</a></p>
{{end}}{{if not (or .Coded .Ended)}}<p><a href="{{.Base}}/code">I have a code</a></p>
{{end}}{{end}}{{with .Body}}<pre>{{.}}</pre>
{{end}}{{if .AskCode}}<form method="post" action="{{.Base}}/code"><input type="hidden" name="nonce" value="{{.Nonce}}">
<label>Code <input name="code" value="{{.Code}}" autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="200" required></label>
<button>Use this code</button>
</form>
{{end}}{{with .Booking}}<dl>
<dt>When</dt><dd>{{.When}}</dd>
{{with .VisitorWhen}}<dt>In your time zone</dt><dd>{{.}}</dd>
{{end}}<dt>Name</dt><dd>{{.Name}}</dd>
{{with .Topic}}<dt>Topic</dt><dd>{{.}}</dd>
{{end}}</dl>
{{if and .Open (not $.Moving)}}<p><a href="{{$.Move}}">Move this booking</a></p>
<form method="post" action="{{$.Self}}"><input type="hidden" name="token" value="{{$.Token}}"><button>Cancel this booking</button></form>
{{end}}{{if not $.Moving}}<p><a href="{{$.File}}">Calendar file (.ics)</a></p>
{{end}}{{end}}{{with .Times}}{{if $.Moving}}<form method="post" action="{{$.Self}}/move"><input type="hidden" name="token" value="{{$.Token}}">
{{template "days" .}}
{{if .Days}}<button>Move the booking</button>
{{end}}</form>
{{else if $.NeedsCode}}<p>To book a time here you need an access code. <a href="{{$.Base}}/code">I have a code</a></p>
{{range .Days}}<p><strong>{{.Name}}</strong>: {{range .Times}}{{.Text}} {{end}}</p>
{{else}}<p>No time is free on these days.</p>
{{end}}{{else}}<form method="post" action="{{$.Base}}/book">{{with $.Form}}<input type="hidden" name="nonce" value="{{.Nonce}}">{{end}}
{{template "days" .}}
{{if .Days}}{{with $.Form}}<label>Your name <input name="name" value="{{.Name}}" autocomplete="name" maxlength="200" required></label>
<label>Your e-mail address, where the invitation goes <input name="email" type="email" value="{{.Email}}" autocomplete="email" maxlength="320" required></label>
<label>What it is about <input name="topic" value="{{.Topic}}" maxlength="2000"></label>
<label>Your time zone, if it is another, such as Asia/Tokyo <input name="time_zone" value="{{.Zone}}" autocapitalize="none" spellcheck="false" maxlength="64"></label>
<label class="unseen" aria-hidden="true">Leave this empty <input name="website" tabindex="-1" autocomplete="off"></label>
<button>Book this time</button>
{{end}}{{end}}</form>
{{end}}<p>{{with .Earlier}}<a href="{{.}}">Earlier days</a> {{end}}<a href="{{.Later}}">Later days</a></p>
{{end}}{{if not .Home}}{{with .Base}}<p><a href="{{.}}">Back</a></p>
{{end}}{{end}}{{define "days"}}{{range .Days}}<fieldset><legend>{{.Name}}</legend>
{{range .Times}}<label><input type="radio" name="start" value="{{.Start}}" required> {{.Text}}</label>
{{end}}</fieldset>
{{else}}<p>No time is free on these days.</p>
{{end}}{{end}}`))

// fail shows a failure in words.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := page.Refuse(w, r, p.server, "guest", err)
	v := view{Title: "That didn’t work", Text: f.Detail}
	if f.Kind == fault.NotFoundKind {
		v.Title = "Not found"
	}
	page.Show(w, markup, f.Status(), v)
}

// visit is one request: who asks, and whose page it is.
type visit struct {
	*pages
	r      *http.Request
	caller auth.Caller
	owner  auth.Profile
	base   string
	// ended: a code that the visitor used here holds no more.
	ended bool
}

// enter finds out both, and refuses who asks too often.
func (p *pages) enter(r *http.Request) (v visit, err error) {
	v = visit{pages: p, r: r}
	if v.caller, err = p.server.Anyone(r); err != nil {
		return v, err
	}
	if err := p.server.Admit(r.Context(), v.caller); err != nil {
		return v, err
	}
	handle := strings.TrimPrefix(r.PathValue("at"), "@")
	if !utf8.ValidString(handle) || strings.ContainsRune(handle, 0) {
		return v, fault.NotFound("owner")
	}
	v.owner, err = auth.OwnerOf(r.Context(), p.db, handle)
	v.base = "/@" + v.owner.Handle
	// of a session that is gone nobody knows whose page it was for
	cookie, _ := r.Cookie(auth.VisitorCookie)
	gone := cookie != nil && cookie.Value != "" && v.caller.VisitorSession == ""
	v.ended = !v.caller.Reads(v.owner.ID) && (gone || slices.Contains(v.caller.Ended, v.owner.ID))
	return v, err
}

// name is what the owner is called.
func (v visit) name() string {
	if v.owner.Name != "" {
		return v.owner.Name
	}
	return "@" + v.owner.Handle
}

// call calls an operation of the catalog as the visitor, and reads its answer
// into out, which may be nil.
func (v visit) call(ctx context.Context, operation string, args map[string]any, out any) (op.Result, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return op.Result{}, err
	}
	o := v.catalog.ByName(operation)
	if o == nil {
		return op.Result{}, fault.NotFound("page")
	}
	res, err := v.server.Call(ctx, o, v.caller, raw, op.CallInfo{RequestID: op.RequestID(v.r)})
	if err != nil || out == nil {
		return res, err
	}
	return res, json.Unmarshal(res.JSON, out)
}

// address is the path of a page below the owner's, escaped.
func (v visit) address(below string, query url.Values) string {
	u := url.URL{Path: v.base + below, RawQuery: query.Encode()}
	return u.String()
}
