package guest

import (
	"crypto/rand"
	"net/http"

	"standmeet/functions/access"
	"standmeet/functions/page"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

func (p *pages) askCode(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.showCode(w, v, 0, view{Code: r.URL.Query().Get("code"), Nonce: rand.Text()})
}

// showCode shows the form for a code. Its nonce, which is fresh with each page,
// makes a button that is pressed twice one visitor.
func (p *pages) showCode(w http.ResponseWriter, v visit, status int, out view) {
	out.Title, out.Base, out.AskCode = "Your code for "+v.name(), v.base, true
	out.Text = "Pressing the button lets this browser read what is shared by this code."
	page.Show(w, markup, status, out)
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
	code, nonce := r.PostForm.Get("code"), r.PostForm.Get("nonce")
	if len(nonce) < access.MinRedeemKey {
		nonce = rand.Text()
	}
	redeem := func() (op.Result, error) {
		return v.call(r.Context(), "codes.redeem", map[string]any{"handle": v.owner.Handle, "code": code, "idempotency_key": nonce}, nil)
	}
	res, err := redeem()
	if f := fault.From(err); f != nil && f.Code == "idempotency_key_reused" {
		// the same page again, with another code in it
		nonce = rand.Text()
		res, err = redeem()
	}
	if f := fault.From(err); f != nil && f.Status() < http.StatusInternalServerError {
		f = page.Refuse(w, r, p.server, "guest", err)
		p.showCode(w, v, f.Status(), view{Alert: f.Detail, Code: code, Nonce: nonce})
		return
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	// the operation makes the cookie
	for _, h := range p.catalog.ByName("codes.redeem").Spec().Headers {
		if value := h.Value(res.Value); value != "" {
			w.Header().Add(h.Name, value)
		}
	}
	http.Redirect(w, r, v.base, http.StatusSeeOther)
}
