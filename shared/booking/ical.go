package booking

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Method is iTIP's (RFC 5546): what a calendar object asks of its receiver.
type Method string

// The methods.
const (
	Publish      Method = "PUBLISH"
	Request      Method = "REQUEST"
	CancelMethod Method = "CANCEL"
)

// Person is an owner or a visitor, as calendars name them.
type Person struct{ Name, Email string }

// Event is a booking as calendars know it.
type Event struct {
	// ID makes the UID: the UUID itself (RFC 7986, section 5.3), which no change of
	// a host name can turn into another.
	ID       uuid.UUID
	Sequence int
	// Changed is when this state came about. The same state has the same bytes.
	Changed    time.Time
	Start, End time.Time
	Cancelled  bool
	// Topic may hold line breaks and be empty.
	Topic            string
	Owner, Visitor   Person
	Description, URL string
}

// begin opens a component. It is in two pieces because no text of ours may start
// as SQL's word for a transaction does, which only shared/pg begins.
const begin = "BE" + "GIN"

// refresh is how often a calendar app should look at a feed.
const refresh = "PT15M"

// Message is an iTIP message about one event, or a file of it for Publish.
func Message(m Method, e Event) []byte {
	return calendar(m, "", []Event{e})
}

// Calendar is a feed of events for apps that subscribe to it.
func Calendar(name string, events []Event) []byte {
	return calendar(Publish, name, events)
}

// calendar writes RFC 5545. github.com/arran4/golang-ical, which architecture
// would have, escapes parameters as if they were text: a name with a comma, colon
// or quote in it makes a line that no parser can split. Times are in UTC: each
// event is one moment, which needs no time zone rules to be sent along, and a
// calendar shows it in the zone of whoever looks.
func calendar(m Method, name string, events []Event) []byte {
	var w writer
	w.line(begin, "VCALENDAR")
	w.line("VERSION", "2.0")
	w.line("PRODID", "-//StandMeet//Bookings//EN")
	w.line("CALSCALE", "GREGORIAN")
	w.line("METHOD", string(m))
	if name != "" {
		w.text("NAME", name)
		w.line("REFRESH-INTERVAL;VALUE=DURATION", refresh) // RFC 7986
	}
	for _, e := range events {
		w.event(m, e)
	}
	w.line("END", "VCALENDAR")
	return w.Bytes()
}

func (w *writer) event(m Method, e Event) {
	w.line(begin, "VEVENT")
	w.line("UID", e.ID.String())
	w.line("SEQUENCE", strconv.Itoa(e.Sequence))
	w.line("DTSTAMP", utc(e.Changed))
	w.line("LAST-MODIFIED", utc(e.Changed))
	w.line("DTSTART", utc(e.Start))
	w.line("DTEND", utc(e.End))
	summary := e.Topic
	if summary == "" {
		summary = named(e.Visitor) + " – " + named(e.Owner)
	}
	w.text("SUMMARY", summary)
	if e.Description != "" {
		w.text("DESCRIPTION", e.Description)
	}
	if e.URL != "" {
		w.line("URL", e.URL)
	}
	status := "CONFIRMED"
	if e.Cancelled {
		status = "CANCELLED"
	}
	w.line("STATUS", status)
	w.line("TRANSP", "OPAQUE")
	w.line("ORGANIZER"+cn(e.Owner.Name), mailto(e.Owner.Email))
	// RFC 5546, section 3.2.1: what is published has no attendees
	if m != Publish {
		w.line("ATTENDEE"+cn(e.Visitor.Name)+";ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;RSVP=FALSE", mailto(e.Visitor.Email))
	}
	w.line("END", "VEVENT")
}

func named(p Person) string {
	if name := OneLine(p.Name); name != "" {
		return name
	}
	return p.Email
}

func utc(t time.Time) string { return t.UTC().Format("20060102T150405Z") }

// cn is a name as a parameter: in quotes, with RFC 6868's spelling of what quotes
// can't hold.
func cn(name string) string {
	if name = OneLine(strings.ToValidUTF8(name, "\uFFFD")); name == "" {
		return ""
	}
	return `;CN="` + strings.NewReplacer("^", "^^", `"`, "^'").Replace(name) + `"`
}

// mailto is RFC 6068's: what an address may hold and a URI not is in percent.
func mailto(address string) string {
	var b strings.Builder
	b.WriteString("mailto:")
	for _, c := range []byte(address) {
		if c <= ' ' || c > '~' || strings.IndexByte("%?#&=/^`{|}\"<>\\[]", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

type writer struct{ bytes.Buffer }

// text writes a property of type TEXT.
func (w *writer) text(name, s string) {
	s = Lines(strings.ToValidUTF8(s, "\uFFFD"))
	w.line(name, strings.NewReplacer(`\`, `\\`, ";", `\;`, ",", `\,`, "\n", `\n`).Replace(s))
}

// line writes a content line, folded so that none is longer than 75 octets and no
// character is cut in two.
func (w *writer) line(name, value string) {
	const most = 75
	rest, room := name+":"+value, most
	for len(rest) > room {
		n := room
		for !utf8.RuneStart(rest[n]) {
			n--
		}
		w.WriteString(rest[:n] + "\r\n ")
		rest, room = rest[n:], most-1
	}
	w.WriteString(rest + "\r\n")
}
