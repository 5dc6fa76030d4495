// Package bookings holds the operations on bookings: the owner says when they can
// be booked, a visitor books, and both may move or cancel.
package bookings

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/booking"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
)

// Deps is what these operations need.
type Deps struct {
	DB *pg.DB
	// Keys derive the tokens by which visitors manage bookings and calendar apps
	// read feeds; without them there are none.
	Keys secret.Keys
	// PublicURL is where people reach the gateway, without a final slash.
	PublicURL string
}

// ready refuses what would need a link with a secret in it where none can be made.
func (d Deps) ready() error {
	switch {
	case d.Keys.Zero():
		return fault.New(fault.Conflict, "keys_not_configured", "No key for secrets is configured (SECRET_KEY), so nothing was saved.")
	case d.PublicURL == "":
		return fault.New(fault.Conflict, "public_url_not_configured", "The address of the page is not configured (PUBLIC_URL), so links would lead nowhere, and nothing was saved.")
	}
	return nil
}

// Notification is where the mail about a booking stands.
type Notification struct {
	State string `json:"state" enum:"sending,sent,failed" jsonschema:"sent only once the mail server has taken it"`
	JobID string `json:"job_id,omitempty" jsonschema:"its receipt, for tasks.get; told to the owner alone"`
}

// OwnerNotification is where the mail to the owner about a booking stands.
type OwnerNotification struct {
	State    string `json:"state" enum:"sending,sent,failed"`
	JobID    string `json:"job_id" jsonschema:"its receipt, for tasks.get"`
	Sentence string `json:"sentence" jsonschema:"what can truthfully be said about it now"`
}

// View is a booking with what became of the mails about its latest change.
type View struct {
	Booking           booking.Booking    `json:"booking"`
	Notification      Notification       `json:"notification" jsonschema:"the mail to the visitor. Its state is kept for as long as the booking is"`
	Sentence          string             `json:"sentence" jsonschema:"what can truthfully be said about the mail to the visitor now"`
	OwnerNotification *OwnerNotification `json:"owner_notification,omitempty" jsonschema:"the mail to the owner, told to the owner alone; absent once its task is no longer kept, 30 days after it ended"`
}

// views adds to an owner's bookings where their mails stand, as who may read it.
func (d Deps) views(ctx context.Context, owner uuid.UUID, rows []booking.Row, who booking.By) ([]View, error) {
	ids := make([]task.ID, 0, 2*len(rows))
	for _, r := range rows {
		ids = append(ids, visitorMail(r), ownerMail(r))
	}
	tasks, err := task.Stand(ctx, d.DB, owner, ids)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(rows))
	for i, r := range rows {
		v := View{Booking: r.Booking, Notification: Notification{State: r.MailState}, Sentence: sentence(r, tasks[visitorMail(r)])}
		if who == booking.ByVisitor {
			v.Booking.CodeID = nil
		} else {
			v.Notification.JobID = visitorMail(r).String()
			if s, kept := tasks[ownerMail(r)]; kept {
				m := task.MailOf(ownerMail(r), s.State)
				v.OwnerNotification = &OwnerNotification{State: m.State, JobID: m.JobID, Sentence: s.Sentence}
			}
		}
		views[i] = v
	}
	return views, nil
}

func visitorMail(r booking.Row) task.ID {
	return task.ID{Event: r.MailEvent, Subscriber: task.BookingMail}
}

func ownerMail(r booking.Row) task.ID {
	return task.ID{Event: r.MailEvent, Subscriber: task.BookingOwnerMail}
}

// sentence is what the row's word for the mail means, in the words of its task
// where that agrees: it was read a moment later, or is kept no longer.
func sentence(r booking.Row, t task.Standing) string {
	if t.State != "" && task.MailOf(task.ID{}, t.State).State == r.MailState {
		return t.Sentence
	}
	switch r.MailState {
	case task.MailSent:
		return task.Say(task.BookingMail, task.Completed)
	case task.MailFailed:
		return task.BookingMailFailed()
	}
	return task.Say(task.BookingMail, task.Pending)
}

// touched is what a write on a booking committed.
type touched struct {
	ID  uuid.UUID  `json:"id"`
	Who booking.By `json:"who"`
}

// answer reads a booking as it is now: another write may have come in between, and
// a repetition may come much later.
func (d Deps) answer(ctx context.Context, _ auth.Caller, t touched) (View, error) {
	r, err := booking.Get(ctx, d.DB, t.ID)
	if err != nil {
		return View{}, err
	}
	return d.view(ctx, r, t.Who)
}

func (d Deps) view(ctx context.Context, r booking.Row, who booking.By) (View, error) {
	views, err := d.views(ctx, r.Owner, []booking.Row{r}, who)
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

func say(out any) string { return out.(View).Sentence }

// Naming is how a call names a booking and proves that it is the caller's.
type Naming struct {
	ID          uuid.UUID `json:"id" path:"id" jsonschema:"the booking's id"`
	ManageToken string    `json:"manage_token,omitempty" maxLength:"200" jsonschema:"the visitor's proof, from the answer or the mail about the booking; the owner leaves it out"`
}

// reach reads a booking for whom it belongs to: a visitor with its token, or else
// the owner with the operation's scope. Everything else is not_found.
func (n Naming) reach(ctx context.Context, c auth.Caller, q pg.Querier) (booking.Row, booking.By, error) {
	return reach(ctx, c, q, n.ID, n.ManageToken)
}

func reach(ctx context.Context, c auth.Caller, q pg.Querier, id uuid.UUID, token string) (r booking.Row, who booking.By, err error) {
	who = booking.ByVisitor
	if token == "" {
		who = booking.ByOwner
		if err := asOwner(ctx, c); err != nil {
			return r, who, err
		}
	}
	if r, err = booking.Get(ctx, q, id); err != nil {
		return r, who, err
	}
	if who == booking.ByVisitor && !secret.Same(token, r.TokenHash) || who == booking.ByOwner && r.Owner != c.OwnerID {
		return booking.Row{}, who, fault.NotFound("booking")
	}
	return r, who, nil
}

// asOwner refuses a caller who comes without a visitor's proof and is not an owner
// with the operation's scope, and tells a visitor what they need.
func asOwner(ctx context.Context, c auth.Caller) error {
	err := op.CallFrom(ctx).Owner(c)
	f := fault.From(err)
	if f == nil || c.Kind == auth.Owner {
		return err
	}
	told := *f
	told.Detail = "This needs the booking's manage_token, which its visitor has from the answer or the mail about the booking, or a token or a session of the owner."
	return &told
}

// owner is how calendars and mails call one.
func owner(p auth.Profile) booking.Person {
	return booking.Person{Name: cmp.Or(strings.TrimSpace(p.Name), p.Handle), Email: p.Email}
}

// minute refuses times that no calendar has.
func minute(t time.Time) error {
	if year := t.UTC().Year(); year < 1970 || year > 9998 {
		return fault.New(fault.Unprocessable, "slot_not_offered", "This time is not offered. Choose one of the free slots.")
	}
	return nil
}
