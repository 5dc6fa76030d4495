// Package page is what the pages that the server renders have in common: one
// layout, the headers of every answer, how forms are read and failures shown.
// They hold no script, work without one, and load nothing.
package page

import (
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

// maxForm bounds the body of a form.
const maxForm = 8 << 10

const style = `
	body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 4rem auto; padding: 0 1rem; color: #222; background: #fff; overflow-wrap: anywhere }
	button, input { font: inherit; padding: .5rem .75rem; box-sizing: border-box }
	button { padding: .5rem 1.25rem }
	label { display: block; margin: .75rem 0 }
	label input { display: block; width: 100% }
	fieldset { border: 0; padding: 0; margin: 1rem 0 } legend { font-weight: 600 }
	fieldset label { display: inline-block; margin: 0 1.25rem 0 0 } label input[type=radio] { display: inline; width: auto }
	.unseen { position: absolute; left: -200vw }
	form + h2, section + section { margin-top: 2.5rem }
	dt { font-weight: 600 } dd { margin: 0 0 .5rem }
	pre { white-space: pre-wrap; font: inherit }
	[role=alert] { border-left: .25rem solid #c33; padding-left: .75rem }
	@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } a { color: #8bf } }
`

const layout = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{{.Title}} – StandMeet</title>
<style>` + style + `</style>
<main>
<h1>{{.Title}}</h1>
{{template "content" .}}</main>
</html>
`

// Layout is the page around content, the text of a template. What it is executed
// with has a Title.
func Layout(content string) (*template.Template, error) {
	t, err := template.New("page").Parse(layout)
	if err != nil {
		return nil, err
	}
	_, err = t.New("content").Parse(content)
	return t, err
}

// policy lets a page show its own style and send its own forms, and nothing
// else.
func policy() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}

// Handler serves pages, each answer with the headers that all of them have.
func Handler(s *op.Server, pages http.Handler) http.Handler {
	policy := policy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Flush != nil {
			defer s.Flush(r.Context())
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", policy)
		// addresses hold secrets; no-referrer would also make browsers send "Origin: null",
		// which over plain HTTP is all that says that a form is ours
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(op.RequestIDHeader, op.RequestID(r))
		pages.ServeHTTP(w, r)
	})
}

// Show answers with a page; status 0 is 200.
func Show(w http.ResponseWriter, t *template.Template, status int, view any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status != 0 {
		w.WriteHeader(status)
	}
	_ = t.Execute(w, view) // the client is gone if this fails
}

// Refuse logs err, which page ran into, and prepares the answer: it gives the
// failure to be shown.
func Refuse(w http.ResponseWriter, r *http.Request, s *op.Server, page string, err error) *fault.Fault {
	f := fault.From(err)
	s.Log(r.Context(), page, auth.Caller{}, op.RequestID(r), err)
	if seconds := f.RetrySeconds(); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	return f
}

// ReadForm reads a form that a page of ours sent, as it must have: another site
// must not sign its visitors in or out, or act for them. Faults: "cross_origin"
// (403), "malformed_body" (400).
func ReadForm(w http.ResponseWriter, r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return &fault.Fault{Kind: fault.Forbidden, Code: "cross_origin", Detail: "This came from another site.", Err: err}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &fault.Fault{Kind: fault.Invalid, Code: "malformed_body", Detail: "The form could not be read.", Err: err}
	}
	return nil
}

// Secure reports whether a cookie is for HTTPS alone: always where https says
// that people come by it, else when r did.
func Secure(r *http.Request, https bool) bool {
	return https || r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
