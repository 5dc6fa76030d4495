package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/riverqueue/river"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// bookingMail sends a visitor what became of a booking, as a message that
// calendars take (iTIP). It says what its event says, not what became of the
// booking later: that is another event's mail. The mails of a booking go out in
// the order of their sequence.
func bookingMail(p *post) func(context.Context, *river.Job[task.BookingMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.BookingMailArgs]) error {
		n, err := readNews(ctx, p.db, job.Args.Caused)
		if err != nil {
			return err
		}
		token, ok := "", false
		if !p.keys.Zero() {
			token, ok = p.keys.FindToken(booking.TokenPurpose, n.row.ID.String(), n.row.TokenHash)
		}
		if !ok {
			return permanent(errors.New("the key that the booking's token was made with is not configured (SECRET_KEY)"))
		}
		return deliver(ctx, p, job, n.toVisitor(booking.ManageURL(p.url, n.owner.Handle, n.row.ID, token)), inOrder(job, n.Sequence, n.row.Sequence))
	}
}

// news is a change of a booking that somebody is mailed about.
type news struct {
	booking.Change
	row   booking.Row
	owner auth.Profile
}

func readNews(ctx context.Context, db *pg.DB, c task.Caused) (n news, err error) {
	if err := json.Unmarshal(c.Data, &n.Change); err != nil {
		return n, permanent(fmt.Errorf("the event's data: %w", err))
	}
	if n.row, err = booking.Get(ctx, db, n.BookingID); err != nil {
		return n, lasting(err)
	}
	if n.row.Owner != c.OwnerID {
		return n, permanent(fault.NotFound("booking"))
	}
	n.owner, err = auth.GetOwner(ctx, db, c.OwnerID)
	return n, lasting(err)
}

// when says a time in the owner's zone, and for whoever reads elsewhere in theirs,
// or in UTC if it is unknown ("").
func when(start, end time.Time, zone, theirs string) string {
	said := booking.When(start, end, zone)
	if other := booking.When(start, end, cmp.Or(theirs, "UTC")); other != said {
		said += "\n      " + other
	}
	return said
}

func (n news) toVisitor(manage string) mail.Message {
	who := called(n.owner)
	m := mail.Message{
		FromName: who,
		To:       mail.Address{Name: n.row.Name, Email: n.row.Email},
		ReplyTo:  mail.Address{Name: who, Email: n.owner.Email},
	}
	method := booking.Request
	paragraphs := []string{fmt.Sprintf("Hello %s,", n.row.Name)}
	at := booking.When(n.StartsAt, n.EndsAt, n.TimeZone)
	facts := "When: " + when(n.StartsAt, n.EndsAt, n.TimeZone, n.row.VisitorZone)
	switch {
	case n.State == booking.Cancelled:
		method = booking.CancelMethod
		m.Subject = "Cancelled: " + who + ", " + at
		by := "Your booking with " + who + " was cancelled by " + who + "."
		if n.By == booking.ByVisitor {
			by = "You have cancelled your booking with " + who + "."
		}
		paragraphs = append(paragraphs, by)
	case n.WasStartsAt != nil && n.WasEndsAt != nil:
		m.Subject = "Moved: " + who + ", " + at
		by := who + " has moved your booking to another time."
		if n.By == booking.ByVisitor {
			by = "You have moved your booking with " + who + " to another time."
		}
		paragraphs = append(paragraphs, by)
		facts += "\nBefore: " + booking.When(*n.WasStartsAt, *n.WasEndsAt, n.TimeZone)
	default:
		m.Subject = "Booked: " + who + ", " + at
		paragraphs = append(paragraphs, "Your booking with "+who+" is confirmed.")
	}
	paragraphs = append(paragraphs, facts)
	if n.row.Topic != "" {
		paragraphs = append(paragraphs, "Topic:\n> "+strings.ReplaceAll(n.row.Topic, "\n", "\n> "))
	}
	link := ""
	if n.State != booking.Cancelled {
		link = manage
		paragraphs = append(paragraphs, "To move or to cancel it, open this page:", link)
		m.Links = []string{link}
	}
	paragraphs = append(paragraphs, fmt.Sprintf("If you answer this mail, your answer goes to %s.", who))
	m.Text = strings.Join(paragraphs, "\n\n") + "\n"
	e := booking.EventAfter(n.Change, n.row, booking.Person{Name: who, Email: n.owner.Email}, link)
	m.Calendar = &mail.Calendar{Method: string(method), ICS: booking.Message(method, e)}
	return m
}

// inOrder keeps the mails of a kind about one booking in the order of their
// sequence. One whose predecessor is still open is put off without losing an
// attempt; when the predecessor has failed for good, it goes out alone. One that is
// tried again is dropped when a later one was sent, or has begun to be, or when none
// is to come that would tell what became of the booking since, whose sequence is
// now: it would tell what is so no more.
//
// It looks in the transaction that takes the mail's turn, one mail of a booking
// after the other: so no two of them are handed over at the same time.
func inOrder[A caused](job *river.Job[A], sequence, now int) ownerCap {
	owner, event := job.Args.Origin()
	kind, subject := job.Args.Kind(), job.Args.About()
	return ownerCap{first: func(ctx context.Context, tx *pg.Tx) (wait time.Duration, refused string, err error) {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "mails about "+subject+" "+kind); err != nil {
			return 0, "", err
		}
		var earlierOpen, laterSent, laterOpen, laterTried bool
		// a task that the relay has not made yet is that of an event which waits
		err = tx.QueryRow(ctx, `
			SELECT coalesce(bool_or(sequence < $5 AND open), false), coalesce(bool_or(sequence > $5 AND sent), false),
				coalesce(bool_or(sequence > $5 AND open), false), coalesce(bool_or(sequence > $5 AND open AND tried), false) FROM (
				SELECT (e.data->>'sequence')::int AS sequence, t.state = 'completed' AS sent,
					t.state IN ('pending', 'running') OR t.event_id IS NULL AND q.event_id IS NOT NULL AND q.poisoned_at IS NULL AS open,
					EXISTS (SELECT FROM mail_turns m WHERE m.event_id = e.id AND m.subscriber = $4) AS tried
				FROM events e
					LEFT JOIN tasks t ON t.event_id = e.id AND t.subscriber = $4
					LEFT JOIN event_queue q ON q.event_id = e.id
				WHERE e.subject = $1 AND e.type = ANY ($2) AND e.owner_id = $3 AND e.id <> $6) AS mails`,
			subject, []string{outbox.BookingCreated, outbox.BookingRescheduled, outbox.BookingCancelled}, owner, kind, sequence, event).
			Scan(&earlierOpen, &laterSent, &laterOpen, &laterTried)
		switch {
		case err != nil:
			return 0, "", err
		case laterSent:
			return 0, "no mail: a later one about this booking went out before", nil
		case laterTried:
			return 0, "no mail: a later one about this booking is being sent already", nil
		case now > sequence && !laterOpen:
			return 0, "no mail: the booking was changed since, and none that says so is on its way", nil
		case earlierOpen:
			return min(max(time.Since(job.CreatedAt)/4, time.Second), 30*time.Second), "", nil
		}
		return 0, "", nil
	}}
}
