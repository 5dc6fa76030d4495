// Package booking holds when an owner can be booked, the bookings, and what
// calendars are told of them.
package booking

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/pg"
)

// State is where a booking stands.
type State string

// The states.
const (
	Confirmed State = "confirmed"
	Cancelled State = "cancelled"
)

// By is who did something to a booking.
type By string

// Who may.
const (
	ByOwner   By = "owner"
	ByVisitor By = "visitor"
)

// Booking is one as its owner and its visitor read it.
type Booking struct {
	ID          uuid.UUID  `json:"id"`
	State       State      `json:"state" enum:"confirmed,cancelled"`
	Start       time.Time  `json:"start"`
	End         time.Time  `json:"end"`
	DurationMin int        `json:"duration_min"`
	TimeZone    string     `json:"time_zone" jsonschema:"the owner's time zone"`
	When        string     `json:"when" jsonschema:"start and end in the owner's time zone, in words"`
	VisitorZone string     `json:"visitor_time_zone,omitempty" jsonschema:"the visitor's, if they said so"`
	VisitorWhen string     `json:"visitor_when,omitempty" jsonschema:"the same in the visitor's time zone, if that is another"`
	Name        string     `json:"name" jsonschema:"the visitor's"`
	Email       string     `json:"email" jsonschema:"the visitor's"`
	Topic       string     `json:"topic"`
	Sequence    int        `json:"sequence" jsonschema:"rises with each change; calendars are told the same number"`
	CodeID      *uuid.UUID `json:"code_id,omitempty" jsonschema:"the access code that it was made with; absent: none, or it is not the owner who reads"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	CancelledAt *time.Time `json:"cancelled_at,omitempty"`
	CancelledBy By         `json:"cancelled_by,omitempty" enum:"owner,visitor"`
}

// Row is a booking with what nobody reads as it is.
type Row struct {
	Booking
	Owner uuid.UUID
	// TokenHash is of the token by which the visitor manages it.
	TokenHash []byte
	// MailEvent is the latest event that the visitor is mailed about, and
	// MailState what became of that mail: sending, sent or failed.
	MailEvent uuid.UUID
	MailState string
}

// Change is the data of a booking's events: the booking as that change left it.
type Change struct {
	BookingID uuid.UUID `json:"booking_id"`
	Sequence  int       `json:"sequence"`
	State     State     `json:"state"`
	StartsAt  time.Time `json:"starts_at"`
	EndsAt    time.Time `json:"ends_at"`
	TimeZone  string    `json:"time_zone"`
	// By is who made the change, At when.
	By By        `json:"by"`
	At time.Time `json:"at"`
	// Where a booking was moved from.
	WasStartsAt *time.Time `json:"was_starts_at,omitempty"`
	WasEndsAt   *time.Time `json:"was_ends_at,omitempty"`
}

func (r Row) change(by By) Change {
	return Change{
		BookingID: r.ID, Sequence: r.Sequence, State: r.State, StartsAt: r.Start, EndsAt: r.End, TimeZone: r.TimeZone, By: by, At: r.UpdatedAt,
	}
}

const columns = `id, owner_id, code_id, starts_at, ends_at, time_zone, name, email, topic, state, sequence, token_hash, mail_event, mail_state,
	created_at, updated_at, cancelled_at, coalesce(cancelled_by, ''), coalesce(visitor_zone, '')`

func scan(row pgx.CollectableRow) (r Row, err error) {
	err = row.Scan(&r.ID, &r.Owner, &r.CodeID, &r.Start, &r.End, &r.TimeZone, &r.Name, &r.Email, &r.Topic, &r.State, &r.Sequence, &r.TokenHash,
		&r.MailEvent, &r.MailState, &r.CreatedAt, &r.UpdatedAt, &r.CancelledAt, &r.CancelledBy, &r.VisitorZone)
	r.Start, r.End, r.CreatedAt, r.UpdatedAt = r.Start.UTC(), r.End.UTC(), r.CreatedAt.UTC(), r.UpdatedAt.UTC()
	r.DurationMin = int(r.End.Sub(r.Start) / time.Minute)
	r.When = When(r.Start, r.End, r.TimeZone)
	if r.VisitorZone != "" && r.VisitorZone != r.TimeZone {
		r.VisitorWhen = When(r.Start, r.End, r.VisitorZone)
	}
	return r, err
}

func one(ctx context.Context, q pg.Querier, sql string, args ...any) (Row, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return Row{}, pg.Fault(err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scan)
	if pg.IsNoRows(err) {
		return r, fault.NotFound("booking")
	}
	return r, pg.Fault(err)
}

// Get reads a booking, whoever's it is; fault "not_found".
func Get(ctx context.Context, q pg.Querier, id uuid.UUID) (Row, error) {
	return one(ctx, q, `SELECT `+columns+` FROM bookings WHERE id = $1`, id)
}

// Lock is Get, and keeps others from changing the booking until tx ends.
func Lock(ctx context.Context, tx *pg.Tx, id uuid.UUID) (Row, error) {
	return one(ctx, tx, `SELECT `+columns+` FROM bookings WHERE id = $1 FOR UPDATE`, id)
}

// Filter narrows a list of bookings; zero fields don't.
type Filter struct {
	// From and To: only bookings that end after From and start before To.
	From, To time.Time
	State    State
}

// Position is a place in a list of bookings: the last one seen.
type Position struct {
	Start time.Time `json:"s"`
	ID    uuid.UUID `json:"i"`
}

// List reads an owner's bookings by their start, those after the position (nil:
// from the first). next is nil on the last page; total counts all that match.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, f Filter, after *Position, limit int) (items []Row, next *Position, total int, err error) {
	const where = ` FROM bookings WHERE owner_id = $1 AND ($2::timestamptz IS NULL OR ends_at > $2) AND ($3::timestamptz IS NULL OR starts_at < $3) AND ($4 = '' OR state = $4)`
	args := []any{owner, optional(f.From), optional(f.To), f.State}
	if err := q.QueryRow(ctx, `SELECT count(*)`+where, args...).Scan(&total); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	from := Position{Start: time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)}
	if after != nil {
		from = *after
	}
	rows, err := q.Query(ctx, `SELECT `+columns+where+` AND (starts_at, id) > ($5, $6) ORDER BY starts_at, id LIMIT $7`, append(args, from.Start, from.ID, limit+1)...)
	if err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scan); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = &Position{Start: items[limit-1].Start, ID: items[limit-1].ID}
	}
	return items, next, total, nil
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// When says a span of time in words, in the time zone of that name, with its
// offset from UTC: the same words in mails, answers and pages.
func When(start, end time.Time, zone string) string {
	loc, err := time.LoadLocation(zone)
	if err != nil { // a zone that was valid when it was stored
		loc, zone = time.UTC, "UTC"
	}
	const day, clock = "Monday, 2 January 2006", "15:04"
	s, e := start.In(loc), end.In(loc)
	from, dash, until := s.Format(day+", "+clock), "–", e.Format(clock)
	if s.Format(time.DateOnly) != e.Format(time.DateOnly) {
		dash, until = " to ", e.Format(day)+", "+until
	}
	switch {
	case offset(s) != offset(e):
		// the clock is changed meanwhile, and may show an end before the start
		return from + " (" + offset(s) + ") to " + until + " (" + offset(e) + "), " + zone
	case offset(s) != zone:
		zone += " (" + offset(s) + ")"
	}
	return from + dash + until + " " + zone
}

func offset(t time.Time) string {
	_, seconds := t.Zone()
	if seconds == 0 {
		return "UTC"
	}
	sign := '+'
	if seconds < 0 {
		sign, seconds = '-', -seconds
	}
	return fmt.Sprintf("UTC%c%02d:%02d", sign, seconds/3600, seconds/60%60)
}

// OneLine makes one line of what a visitor typed, without control characters.
func OneLine(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if control(r) {
			return ' '
		}
		return r
	}, s)), " ")
}

// Lines keeps the line breaks and tabs of what a visitor typed and drops every
// other control character.
func Lines(s string) string {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if control(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s))
}

// control: what neither a line of a mail nor one of iCalendar may hold, and what
// turns text around for its reader.
func control(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
