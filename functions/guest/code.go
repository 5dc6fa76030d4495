package guest

import (
	"net/http"

	"standmeet/functions/page"
	"standmeet/shared/fault"
)

func (p *pages) askCode(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.showCode(w, v, 0, "", r.URL.Query().Get("code"))
}

func (p *pages) showCode(w http.ResponseWriter, v visit, status int, alert, code string) {
	page.Show(w, markup, status, view{
		Title: "Your code for " + v.name(), Base: v.base, AskCode: true, Code: code, Alert: alert,
		Text: "Pressing the button lets this browser read what is shared by this code.",
	})
}

func (p *pages) redeem(w http.ResponseWriter, r *http.Request) {
	if err := page.ReadForm(w, r); err != nil {
		p.fail(w, r, err)
		return
	}
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	code := r.PostForm.Get("code")
	res, err := v.call(r.Context(), "codes.redeem", map[string]any{"handle": v.owner.Handle, "code": code}, nil)
	if f := fault.From(err); f != nil && f.Status() < http.StatusInternalServerError {
		f = page.Refuse(w, r, p.server, "guest", err)
		p.showCode(w, v, f.Status(), f.Detail, code)
		return
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	// the operation makes the cookie
	for _, h := range p.catalog.ByName("codes.redeem").Spec().Headers {
		w.Header().Add(h.Name, h.Value(res.Value))
	}
	http.Redirect(w, r, v.base, http.StatusSeeOther)
}
