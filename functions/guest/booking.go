package guest

import (
	"net/http"
	"net/url"

	"standmeet/functions/page"
	"standmeet/shared/fault"
)

// booking is what is shown of one.
type booking struct{ ID, State, When, Name, Topic string }

func (p *pages) booking(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	token := r.URL.Query().Get("token")
	var answer struct {
		Booking  booking
		Sentence string
	}
	if _, err := v.call(r.Context(), "bookings.get", map[string]any{"id": r.PathValue("id"), "manage_token": token}, &answer); err != nil {
		p.fail(w, r, unproved(err))
		return
	}
	out := view{Title: "Your booking with " + v.name(), Base: v.base, Booking: &answer.Booking, Token: token, Text: answer.Sentence}
	if answer.Booking.State == "cancelled" {
		out.Title = "Your booking with " + v.name() + " is cancelled"
	}
	page.Show(w, markup, 0, out)
}

func (p *pages) cancel(w http.ResponseWriter, r *http.Request) {
	if err := page.ReadForm(w, r); err != nil {
		p.fail(w, r, err)
		return
	}
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	id, token := r.PathValue("id"), r.PostForm.Get("token")
	if _, err := v.call(r.Context(), "bookings.cancel", map[string]any{"id": id, "manage_token": token}, nil); err != nil {
		p.fail(w, r, unproved(err))
		return
	}
	http.Redirect(w, r, v.address("/bookings/"+id, url.Values{"token": {token}}), http.StatusSeeOther)
}

// unproved puts it as a visitor with a wrong link understands it, who has nothing
// to sign in with.
func unproved(err error) error {
	if f := fault.From(err); f.Kind == fault.Unauthorized || f.Kind == fault.Forbidden {
		return fault.NotFound("booking, or this is not the whole link to it")
	}
	return err
}
