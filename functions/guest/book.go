package guest

import (
	"crypto/rand"
	"net/http"
	"net/url"

	"standmeet/functions/page"
	"standmeet/shared/fault"
	"standmeet/shared/op"
)

// form is what a visitor typed who books.
type form struct{ Nonce, Name, Email, Topic, Zone string }

func (p *pages) askBooking(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.showBooking(w, v, 0, "", form{Nonce: rand.Text()})
}

// showBooking shows the form by which a time is booked, or what is needed for it.
func (p *pages) showBooking(w http.ResponseWriter, v visit, status int, alert string, f form) {
	t, err := v.times(0, "", "/book", url.Values{})
	if err != nil {
		p.fail(w, v.r, err)
		return
	}
	out := view{Title: "Book a time with " + v.name(), Base: v.base, Alert: alert, Times: t, Text: t.Zones, Ended: v.ended}
	switch {
	case !t.bookable:
		out.Times, out.Text = nil, v.name()+" takes no bookings at present."
	case t.requiresCode && !v.caller.Reads(v.owner.ID):
		out.NeedsCode = true
	default:
		out.Form = &f
	}
	page.Show(w, markup, status, out)
}

func (p *pages) book(w http.ResponseWriter, r *http.Request) {
	if err := page.ReadForm(w, r); err != nil {
		p.fail(w, r, err)
		return
	}
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	f := form{Nonce: r.PostForm.Get("nonce"), Name: r.PostForm.Get("name"), Email: r.PostForm.Get("email"), Topic: r.PostForm.Get("topic"), Zone: r.PostForm.Get("time_zone")}
	if f.Nonce == "" {
		f.Nonce = rand.Text()
	}
	start := r.PostForm.Get("start")
	if start == "" {
		p.showBooking(w, v, http.StatusBadRequest, "Choose one of the times.", f)
		return
	}
	var made struct {
		Booking booking
		Token   string `json:"manage_token"`
	}
	book := func() (op.Result, error) {
		return v.call(r.Context(), "bookings.create", map[string]any{
			"handle": v.owner.Handle, "start": start, "name": f.Name, "email": f.Email, "topic": f.Topic, "time_zone": f.Zone,
			"website": r.PostForm.Get("website"), "idempotency_key": f.Nonce,
		}, &made)
	}
	_, err = book()
	if g := fault.From(err); g != nil && g.Code == "idempotency_key_reused" {
		// the same page again, filled in otherwise
		f.Nonce = rand.Text()
		_, err = book()
	}
	if g := fault.From(err); g != nil && g.Status() < http.StatusInternalServerError && g.Kind != fault.NotFoundKind {
		g = page.Refuse(w, r, p.server, "guest", err)
		p.showBooking(w, v, g.Status(), g.Detail, f)
		return
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	http.Redirect(w, r, v.address("/bookings/"+made.Booking.ID, url.Values{"token": {made.Token}}), http.StatusSeeOther)
}
