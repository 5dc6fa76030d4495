package booking

import (
	"net/url"

	"github.com/google/uuid"
)

// What the tokens of secret.Keys are for.
const (
	TokenPurpose = "booking"
	FeedPurpose  = "calendar_feed"
)

// ManageURL is the page on which a visitor moves or cancels a booking.
func ManageURL(base, handle string, id uuid.UUID, token string) string {
	return base + "/@" + handle + "/bookings/" + id.String() + "?token=" + url.QueryEscape(token)
}

// FileURL is the booking as a calendar file.
func FileURL(base, handle string, id uuid.UUID, token string) string {
	return base + "/v1/public/" + handle + "/bookings/" + id.String() + ".ics?token=" + url.QueryEscape(token)
}

// FeedURL is the address that calendar apps subscribe to.
func FeedURL(base, handle, token string) string {
	return base + "/v1/public/" + handle + "/calendar/" + token + ".ics"
}

// EventOf is a booking as it is now. manage may be empty.
func EventOf(r Row, owner Person, manage string) Event {
	return EventAfter(r.change(""), r, owner, manage)
}

// EventAfter is a booking as a change left it; who it is with and about never
// changes. manage may be empty.
func EventAfter(c Change, r Row, owner Person, manage string) Event {
	e := Event{
		ID: c.BookingID, Sequence: c.Sequence, Changed: c.At, Start: c.StartsAt, End: c.EndsAt, Cancelled: c.State == Cancelled,
		Topic: r.Topic, Owner: owner, Visitor: Person{r.Name, r.Email}, URL: manage,
	}
	e.Description = named(e.Visitor) + " (" + r.Email + ") – " + named(owner)
	if manage != "" {
		e.Description += "\n\nMove or cancel: " + manage
	}
	return e
}
