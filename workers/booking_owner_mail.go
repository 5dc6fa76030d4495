package workers

import (
	"context"
	"strings"
	"time"

	"github.com/riverqueue/river"

	"standmeet/shared/booking"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// bookingOwnerMail tells the owner what became of a booking, in the order of the
// changes. It asks nothing of calendars: the owner organises the event, and has
// the feed. 20 an hour at most: what is over that stays to be read in the list of
// bookings.
func bookingOwnerMail(p *post) func(context.Context, *river.Job[task.BookingOwnerMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.BookingOwnerMailArgs]) error {
		n, err := readNews(ctx, p.db, job.Args.Caused)
		if err != nil {
			return err
		}
		return deliver(ctx, p, job, n.toOwner(), inOrder(job, n.Sequence, n.row.Sequence), perOwner(20, time.Hour))
	}
}

// toOwner keeps what the visitor wrote apart, last and as a quotation, so that
// nothing of it can pass for ours.
func (n news) toOwner() mail.Message {
	verb, sentence := "Booked", "Somebody booked a time with you."
	by := map[booking.By]string{booking.ByOwner: "You", booking.ByVisitor: "The visitor"}[n.By]
	facts := []string{"When: " + when(n.StartsAt, n.EndsAt, n.TimeZone, "")}
	switch {
	case n.State == booking.Cancelled:
		verb, sentence = "Cancelled", by+" cancelled a booking. Its time is free again."
	case n.WasStartsAt != nil && n.WasEndsAt != nil:
		verb, sentence = "Moved", by+" moved a booking."
		facts = append(facts, "Before: "+booking.When(*n.WasStartsAt, *n.WasEndsAt, n.TimeZone))
	}
	facts = append(facts, "Name: "+n.row.Name, "E-mail: "+n.row.Email+" (not verified)", "Booking: "+n.row.ID.String())
	paragraphs := []string{sentence, strings.Join(facts, "\n")}
	if n.row.Topic != "" {
		paragraphs = append(paragraphs, "This is what they wrote:", "> "+strings.ReplaceAll(n.row.Topic, "\n", "\n> "))
	}
	return mail.Message{
		FromName: "StandMeet",
		To:       mail.Address{Name: n.owner.Name, Email: n.owner.Email},
		ReplyTo:  mail.Address{Name: n.row.Name, Email: n.row.Email},
		Subject:  verb + ": " + n.row.Name + ", " + booking.When(n.StartsAt, n.EndsAt, n.TimeZone),
		Text:     strings.Join(paragraphs, "\n\n") + "\n",
	}
}
