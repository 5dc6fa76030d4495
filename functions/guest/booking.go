package guest

import (
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"standmeet/functions/page"
	rules "standmeet/shared/booking"
	"standmeet/shared/fault"
)

// booking is what is shown of one.
type booking struct {
	ID, State, When, Name, Topic string
	// VisitorWhen is When in the visitor's time zone; empty where that reads the same
	// or is unknown.
	VisitorWhen string `json:"visitor_when"`
	VisitorZone string `json:"visitor_time_zone"`
	Start       time.Time
	DurationMin int `json:"duration_min"`
}

// Open: the visitor may still change it.
func (b booking) Open() bool { return b.State == string(rules.Confirmed) && b.Start.After(time.Now()) }

// times is the part of a form where one is chosen.
type times struct {
	Days []day
	// Zones says whose clock they are on.
	Zones string
	// Earlier and Later lead to other days; may be empty.
	Earlier, Later string

	bookable, requiresCode bool
}

// day is one of the owner's, with what is free on it.
type day struct {
	Name  string
	Times []free
}

type free struct{ Start, Text string }

// booking reads the booking that the address names, for whoever has its token.
func (v visit) booking(token string) (view, booking, error) {
	var answer struct {
		Booking  booking
		Sentence string
	}
	id := v.r.PathValue("id")
	if _, err := v.call(v.r.Context(), "bookings.get", map[string]any{"id": id, "manage_token": token}, &answer); err != nil {
		return view{}, booking{}, unproved(err)
	}
	out := view{Title: "Your booking with " + v.name(), Base: v.base, Booking: &answer.Booking, Token: token, Text: answer.Sentence}
	if answer.Booking.State == string(rules.Cancelled) {
		out.Title += " is cancelled"
	}
	out.Self = v.base + "/bookings/" + answer.Booking.ID
	out.Move = v.address("/bookings/"+answer.Booking.ID+"/move", url.Values{"token": {token}})
	out.File = rules.FileURL("", v.owner.Handle, uuid.MustParse(answer.Booking.ID), token)
	return out, answer.Booking, nil
}

func (p *pages) booking(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	out, _, err := v.booking(r.URL.Query().Get("token"))
	if err != nil {
		p.fail(w, r, err)
		return
	}
	page.Show(w, markup, 0, out)
}

func (p *pages) cancel(w http.ResponseWriter, r *http.Request) { p.change(w, r, "bookings.cancel") }

func (p *pages) askMove(w http.ResponseWriter, r *http.Request) {
	v, err := p.enter(r)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.showMove(w, v, 0, r.URL.Query().Get("token"), "")
}

func (p *pages) move(w http.ResponseWriter, r *http.Request) { p.change(w, r, "bookings.reschedule") }

// change does what a form asks for and leads back to the booking. What can't be
// done to it now is said where another time can be chosen.
func (p *pages) change(w http.ResponseWriter, r *http.Request, operation string) {
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
	args := map[string]any{"id": id, "manage_token": token}
	moves := operation == "bookings.reschedule"
	if moves {
		start := r.PostForm.Get("start")
		if _, err := time.Parse(time.RFC3339, start); err != nil {
			p.showMove(w, v, http.StatusBadRequest, token, "Choose one of the times.")
			return
		}
		args["start"] = start
	}
	_, err = v.call(r.Context(), operation, args, nil)
	if f := fault.From(err); moves && f != nil && (f.Kind == fault.Conflict || f.Kind == fault.Unprocessable || f.Kind == fault.RateLimited) {
		f = page.Refuse(w, r, p.server, "guest", err)
		p.showMove(w, v, f.Status(), token, f.Detail)
		return
	}
	if err != nil {
		p.fail(w, r, unproved(err))
		return
	}
	http.Redirect(w, r, v.address("/bookings/"+id, url.Values{"token": {token}}), http.StatusSeeOther)
}

// showMove shows the form by which a booking is moved, if it still can be.
func (p *pages) showMove(w http.ResponseWriter, v visit, status int, token, alert string) {
	out, b, err := v.booking(token)
	if err != nil {
		p.fail(w, v.r, err)
		return
	}
	if out.Alert = alert; !b.Open() {
		page.Show(w, markup, status, out)
		return
	}
	if out.Times, err = v.times(b.DurationMin, b.VisitorZone, "/bookings/"+b.ID+"/move", url.Values{"token": {token}}); err != nil {
		p.fail(w, v.r, err)
		return
	}
	out.Title, out.Moving = "Move your booking with "+v.name(), true
	out.Text = "Choose another time. The booking stays as it is until you press the button. " + out.Times.Zones
	page.Show(w, markup, status, out)
}

// times are what is free from the day on that the query names, for two weeks.
// durationMin 0 is the owner's slot; theirs is the visitor's zone, or "". The days
// before and after are at the address below, with query.
func (v visit) times(durationMin int, theirs, below string, query url.Values) (*times, error) {
	var slots struct {
		Zone         string `json:"time_zone"`
		Bookable     bool
		RequiresCode bool `json:"requires_code"`
		From, To     time.Time
		Slots        []rules.Slot
	}
	args := map[string]any{"handle": v.owner.Handle}
	if durationMin != 0 {
		args["duration_min"] = durationMin
	}
	if from := v.r.URL.Query().Get("from"); from != "" {
		args["from"] = from
	}
	if _, err := v.call(v.r.Context(), "bookings.slots", args, &slots); err != nil {
		return nil, err
	}
	zone, err := rules.Zone(slots.Zone)
	if err != nil {
		return nil, err
	}
	there := zone
	if theirs != "" {
		if there, err = rules.Zone(theirs); err != nil {
			there = zone // it was known when they said so
		}
	}
	t := &times{Days: days(slots.Slots, zone, there), Zones: "Times are those of " + zone.String() + ".", bookable: slots.Bookable, requiresCode: slots.RequiresCode}
	if there != zone {
		t.Zones += " In brackets they are those of " + there.String() + "."
	}
	at := func(from time.Time) string {
		query.Set("from", from.UTC().Format(time.RFC3339))
		return v.address(below, query)
	}
	if now := time.Now(); slots.From.After(now) {
		t.Earlier = at(later(slots.From.Add(-slots.To.Sub(slots.From)), now))
	}
	t.Later = at(slots.To)
	return t, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// days groups slots by the owner's day and says each in both zones. Where the
// clock is changed on a day, each time has its offset: one may come twice.
func days(slots []rules.Slot, zone, theirs *time.Location) (all []day) {
	for _, s := range slots {
		start, end, there := s.Start.In(zone), s.End.In(zone), s.Start.In(theirs)
		name := start.Format("Monday, 2 January 2006")
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, day{Name: name})
		}
		text := start.Format("15:04") + "–" + end.Format("15:04")
		midnight := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, zone)
		if midnight.Format("-07:00") != midnight.AddDate(0, 0, 1).Format("-07:00") {
			text += " UTC" + start.Format("-07:00")
		}
		if theirs != zone {
			text += " (" + there.Format("Mon 15:04") + ")"
		}
		d := &all[len(all)-1]
		d.Times = append(d.Times, free{s.Start.UTC().Format(time.RFC3339), text})
	}
	return all
}

// unproved puts it as a visitor with a wrong link understands it, who has nothing
// to sign in with.
func unproved(err error) error {
	if f := fault.From(err); f.Kind == fault.Unauthorized || f.Kind == fault.Forbidden {
		return fault.NotFound("booking, or this is not the whole link to it")
	}
	return err
}
