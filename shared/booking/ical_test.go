package booking

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ics "github.com/arran4/golang-ical"
	emersion "github.com/emersion/go-ical"
	"github.com/google/uuid"
)

// fields are what a parser read of an event.
type fields struct {
	method, uid, sequence, status, start, end, stamp, summary, description, organizer, attendee string
	organizerName, attendeeName                                                                 string
}

// decode6868 reads a parameter as RFC 6868 has it; neither parser does.
func decode6868(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '^' && i+1 < len(s) {
			if r, ok := map[byte]byte{'^': '^', '\'': '"', 'n': '\n'}[s[i+1]]; ok {
				b.WriteByte(r)
				i++
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func byEmersion(t testing.TB, raw []byte) (all []fields) {
	t.Helper()
	cal, err := emersion.NewDecoder(bytes.NewReader(raw)).Decode()
	if err != nil {
		t.Fatalf("emersion/go-ical: %v\n%s", err, raw)
	}
	text := func(p *emersion.Prop) string {
		if p == nil {
			return ""
		}
		s, err := p.Text()
		if err != nil {
			t.Fatalf("emersion/go-ical: %v\n%s", err, raw)
		}
		return s
	}
	for _, e := range cal.Events() {
		f := fields{method: text(cal.Props.Get("METHOD"))}
		for name, into := range map[string]*string{"UID": &f.uid, "SEQUENCE": &f.sequence, "STATUS": &f.status, "SUMMARY": &f.summary, "DESCRIPTION": &f.description} {
			*into = e.Props.Get(name).Value
			if name != "SEQUENCE" {
				*into = text(e.Props.Get(name))
			}
		}
		for name, into := range map[string]*string{"DTSTART": &f.start, "DTEND": &f.end, "DTSTAMP": &f.stamp} {
			at, err := e.Props.Get(name).DateTime(time.UTC)
			if err != nil {
				t.Fatalf("emersion/go-ical: %v", err)
			}
			*into = at.UTC().Format(time.RFC3339)
		}
		f.organizer, f.organizerName = e.Props.Get("ORGANIZER").Value, decode6868(e.Props.Get("ORGANIZER").Params.Get("CN"))
		if p := e.Props.Get("ATTENDEE"); p != nil {
			f.attendee, f.attendeeName = p.Value, decode6868(p.Params.Get("CN"))
		}
		all = append(all, f)
	}
	return all
}

func byArran(t testing.TB, raw []byte) (all []fields) {
	t.Helper()
	cal, err := ics.ParseCalendar(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("arran4/golang-ical: %v\n%s", err, raw)
	}
	var method string
	for _, p := range cal.CalendarProperties {
		if p.IANAToken == "METHOD" {
			method = p.Value
		}
	}
	for _, e := range cal.Events() {
		f := fields{method: method}
		for name, into := range map[ics.ComponentProperty]*string{
			ics.ComponentPropertyUniqueId: &f.uid, ics.ComponentPropertySequence: &f.sequence, ics.ComponentPropertyStatus: &f.status,
			ics.ComponentPropertySummary: &f.summary, ics.ComponentPropertyDescription: &f.description,
		} {
			*into = e.GetProperty(name).Value
		}
		for name, into := range map[ics.ComponentProperty]*string{
			ics.ComponentPropertyDtStart: &f.start, ics.ComponentPropertyDtEnd: &f.end, ics.ComponentPropertyDtstamp: &f.stamp,
		} {
			at, err := time.Parse("20060102T150405Z", e.GetProperty(name).Value)
			if err != nil {
				t.Fatal(err)
			}
			*into = at.Format(time.RFC3339)
		}
		name := func(p *ics.IANAProperty) string {
			if len(p.ICalParameters["CN"]) != 1 {
				return ""
			}
			return decode6868(p.ICalParameters["CN"][0])
		}
		o := e.GetProperty(ics.ComponentPropertyOrganizer)
		f.organizer, f.organizerName = o.Value, name(o)
		if a := e.GetProperty(ics.ComponentPropertyAttendee); a != nil {
			f.attendee, f.attendeeName = a.Value, name(a)
		}
		all = append(all, f)
	}
	return all
}

// wellFormed checks what no parser complains of: line ends, the length of lines,
// and that no character is cut in two.
func wellFormed(t testing.TB, raw []byte) {
	t.Helper()
	if bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\n")) || bytes.Contains(bytes.ReplaceAll(raw, []byte("\r\n"), nil), []byte("\r")) {
		t.Errorf("a line end that is not CRLF: %q", raw)
	}
	for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
		if len(line) > 75 || !utf8.Valid(line) {
			t.Errorf("%d octets: %q", len(line), line)
		}
	}
	if !bytes.HasSuffix(raw, []byte("END:VCALENDAR\r\n")) || bytes.Contains(raw, []byte("\nX-")) || bytes.Contains(raw, []byte("TZID")) {
		t.Errorf("%s", raw)
	}
}

func event() Event {
	return Event{
		ID: uuid.MustParse("0b0e7a52-3f0e-4a5e-9b7e-2f4d0c8f1a11"), Sequence: 3, Changed: at("2026-11-30T09:00:00.9Z"),
		Start: at("2027-03-29T09:00:00+02:00"), End: at("2027-03-29T09:30:00+02:00"),
		Topic: "Chat", Owner: Person{"Ola Owner", "ola@example.test"}, Visitor: Person{"Vera", "vera@example.test"}, Description: "d",
	}
}

func check(t testing.TB, m Method, e Event) {
	t.Helper()
	raw := Message(m, e)
	wellFormed(t, raw)
	status := "CONFIRMED"
	if e.Cancelled {
		status = "CANCELLED"
	}
	want := fields{
		method: string(m), uid: e.ID.String(), sequence: "3", status: status, start: e.Start.UTC().Format(time.RFC3339), end: e.End.UTC().Format(time.RFC3339),
		stamp: e.Changed.UTC().Format(time.RFC3339), summary: e.Topic, description: e.Description,
		organizer: mailto(e.Owner.Email), organizerName: OneLine(e.Owner.Name), attendee: mailto(e.Visitor.Email), attendeeName: OneLine(e.Visitor.Name),
	}
	if m == Publish {
		want.attendee, want.attendeeName = "", ""
	}
	for name, got := range map[string][]fields{"emersion": byEmersion(t, raw), "arran4": byArran(t, raw)} {
		// this one takes a backslash in a parameter for an escape, which RFC 5545 has
		// in text alone
		if name == "arran4" && len(got) == 1 && strings.Contains(want.organizerName+want.attendeeName, `\`) {
			got[0].organizerName, got[0].attendeeName = want.organizerName, want.attendeeName
		}
		if !slices.Equal(got, []fields{want}) {
			t.Errorf("%s reads\n%+v\nwant\n%+v\nof %s", name, got, want, raw)
		}
	}
}

func TestMessage(t *testing.T) {
	for _, m := range []Method{Request, Publish} {
		check(t, m, event())
	}
	e := event()
	e.Cancelled = true
	check(t, CancelMethod, e)
	if !bytes.Equal(Message(Request, e), Message(Request, e)) {
		t.Error("the same event has other bytes")
	}
}

// Case B5, with its input.
func TestTextOfABooking(t *testing.T) {
	var in struct {
		Topic string `json:"topic"`
		Name  string `json:"visitor_name"`
		Email string `json:"visitor_email"`
	}
	raw, err := os.ReadFile("testdata/booking-text.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		t.Fatal(err)
	}
	e := event()
	e.Topic, e.Visitor = Lines(in.Topic), Person{OneLine(in.Name), in.Email}
	if e.Topic != in.Topic || e.Visitor.Name != in.Name {
		t.Errorf("%q and %q are changed", e.Topic, e.Visitor.Name)
	}
	e.Description = in.Name + "\n" + in.Topic
	check(t, Request, e)
	check(t, Publish, e)
}

func TestNoTopic(t *testing.T) {
	e := event()
	e.Topic = ""
	e.Visitor.Name = ""
	if got := byEmersion(t, Message(Request, e))[0].summary; got != "vera@example.test – Ola Owner" {
		t.Error(got)
	}
}

func TestMailto(t *testing.T) {
	for address, want := range map[string]string{
		"sam.lee+visit@example.test": "mailto:sam.lee+visit@example.test",
		"a?b&c=d%e@example.test":     "mailto:a%3Fb%26c%3Dd%25e@example.test",
		"o'neil!#$@example.test":     "mailto:o'neil!%23$@example.test",
	} {
		if got := mailto(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestCalendar(t *testing.T) {
	a, b := event(), event()
	b.ID, b.Topic = uuid.New(), "second"
	raw := Calendar(`Bookings of A, "B"; C`, []Event{a, b})
	wellFormed(t, raw)
	if got := byEmersion(t, raw); len(got) != 2 || got[0].method != "PUBLISH" || got[1].summary != "second" || got[1].attendee != "" {
		t.Errorf("%+v", got)
	}
	if !bytes.Contains(raw, []byte("REFRESH-INTERVAL;VALUE=DURATION:PT15M\r\n")) {
		t.Errorf("%s", raw)
	}
	// one without events is a calendar too, to the parser that takes them
	empty := Calendar("x", nil)
	wellFormed(t, empty)
	if _, err := ics.ParseCalendar(bytes.NewReader(empty)); err != nil {
		t.Error(err)
	}
}

// Whatever visitors and owners write is read again as they wrote it, and makes no
// line of its own.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		"", "Chat", "a\nb", "a\r\nBEGIN:VALARM", `\n`, `\\n`, `C:\new, x; y`, `Lee, "Sam"; Ops: X`, "^n ^' ^^", "長長長長長長長長長長長長長長長長長長長長長長長長長長長",
		"🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉", "e\u0301\u0301\u0301", "\u2028x\u2029\u0085y", "\u202egnp.exe", "\x00\x01\x7f\t\xff", "a:b;c=d", " lead", "trail ", strings.Repeat("a", 74), strings.Repeat("ä", 200),
	} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, topic, name, description string) {
		e := event()
		e.Topic = Lines(strings.ToValidUTF8(topic, "\uFFFD"))
		e.Description = Lines(strings.ToValidUTF8(description, "\uFFFD"))
		if e.Topic == "" || e.Description == "" {
			return
		}
		e.Visitor.Name = strings.ToValidUTF8(name, "\uFFFD")
		e.Owner.Name = e.Visitor.Name
		check(t, Request, e)
		if e.Topic != Lines(e.Topic) || OneLine(e.Visitor.Name) != OneLine(OneLine(e.Visitor.Name)) {
			t.Errorf("cleaned twice it is another: %q, %q", e.Topic, e.Visitor.Name)
		}
	})
}
