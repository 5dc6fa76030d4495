package guest

import (
	"net/http"
	"net/url"

	"standmeet/functions/page"
	rules "standmeet/shared/booking"
	"standmeet/shared/fault"
)

func (p *pages) home(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	var list struct {
		Items []struct{ Genre, Path, Title string }
		Next  string `json:"next_cursor"`
	}
	if _, err := v.call(r.Context(), "public.notes", map[string]any{"handle": v.owner.Handle, "limit": 200}, &list); err != nil {
		p.fail(w, r, err)
		return
	}
	out := view{Title: v.name(), Base: v.base, Home: true, More: list.Next != "", Coded: v.caller.Reads(v.owner.ID), Ended: v.ended}
	a, err := rules.ReadAvailability(r.Context(), p.db, v.owner.ID)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	out.Bookable = a.Bookable
	for _, n := range list.Items {
		query := url.Values{}
		if n.Genre != "wiki" {
			query.Set("genre", n.Genre)
		}
		out.Notes = append(out.Notes, noteLink{Title: n.Title, Address: v.address("/notes/"+n.Path, query)})
	}
	page.Show(w, markup, 0, out)
}

func (p *pages) note(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	args := map[string]any{"handle": v.owner.Handle, "path": r.PathValue("path")}
	if genre := r.URL.Query().Get("genre"); genre != "" {
		args["genre"] = genre
	}
	var n struct {
		Note struct{ Title string }
		Body string
	}
	if _, err := v.call(r.Context(), "public.note", args, &n); err != nil {
		p.noNote(w, r, v, err)
		return
	}
	page.Show(w, markup, 0, view{Title: n.Note.Title, Body: n.Body, Base: v.base})
}

// noNote is fail for a note, and says so where the visitor could read it once.
func (p *pages) noNote(w http.ResponseWriter, r *http.Request, v visit, err error) {
	if f := fault.From(err); f.Kind != fault.NotFoundKind || !v.ended {
		p.fail(w, r, err)
		return
	}
	page.Show(w, markup, http.StatusNotFound, view{Title: "Not found", Text: "There is no such note, or it is not shared with everybody.", Base: v.base, Ended: true})
}
