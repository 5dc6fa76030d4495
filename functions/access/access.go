// Package access holds the operations on access requests and codes: a visitor
// asks, the owner answers with a code, the visitor redeems it.
package access

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Deps is what these operations need.
type Deps struct {
	DB       *pg.DB
	Receipts *task.Receipts
	// Keys derive codes; without them none is made.
	Keys secret.Keys
	// PublicURL is where people reach the gateway, without a final slash.
	PublicURL string
	// Mail: there is a mail supplier, as far as this process can tell.
	Mail bool
	// HTTPS: people reach the gateway by HTTPS alone.
	HTTPS bool
}

// maxWait is how long an answer waits for the mail with a code.
const maxWait = 2 * time.Second

// making is what a code is made with, if one can be.
func (d Deps) making() access.Issuing {
	i := access.Issuing{Keys: d.Keys}
	switch {
	case d.Keys.Zero():
		i.Cannot = fault.New(fault.Conflict, "keys_not_configured", "No key for codes is configured (SECRET_KEY), so no code was made.")
	case d.PublicURL == "":
		i.Cannot = fault.New(fault.Conflict, "public_url_not_configured", "The address of the page is not configured (PUBLIC_URL), so a code would have no link, and none was made.")
	}
	return i
}

// mailing is making, for a code that is mailed.
func (d Deps) mailing() access.Issuing {
	i := d.making()
	if i.Cannot == nil && !d.Mail {
		i.Cannot = fault.New(fault.Conflict, "mail_not_configured", "No mail supplier is configured, so nothing was approved and no mail was asked for. A code can be made without mail, and given by hand.")
	}
	return i
}

// Mail is where the mail with a code stands.
type Mail struct {
	task.Mail
	Sentence string `json:"sentence" jsonschema:"what can truthfully be said about it now"`
}

// Notify is where the mail that tells the owner of a request stands.
type Notify struct {
	JobID    string     `json:"job_id" jsonschema:"its receipt, for tasks.get"`
	State    task.State `json:"state" enum:"pending,running,retryable,completed,discarded,cancelled"`
	Sentence string     `json:"sentence" jsonschema:"what can truthfully be said about it now"`
}

// Item is an access request with what became of its mails.
type Item struct {
	access.Request
	Mail   *Mail   `json:"mail,omitempty" jsonschema:"the latest mail with the code; absent: there was none. Its state is kept for as long as the request is"`
	Notify *Notify `json:"notify,omitempty" jsonschema:"the mail to the owner about this request; absent once its task is no longer kept, 30 days after it ended"`
}

// items adds to requests where their mails stand.
func (d Deps) items(ctx context.Context, owner uuid.UUID, requests []access.Request) ([]Item, error) {
	ids := make([]task.ID, 0, 2*len(requests))
	for _, r := range requests {
		ids = append(ids, notifyOf(r))
		if r.MailEvent != nil {
			ids = append(ids, mailOf(*r.MailEvent))
		}
	}
	tasks, err := task.Stand(ctx, d.DB, owner, ids)
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(requests))
	for i, r := range requests {
		items[i].Request = r
		if id := notifyOf(r); tasks[id] != (task.Standing{}) {
			items[i].Notify = &Notify{JobID: id.String(), State: tasks[id].State, Sentence: tasks[id].Sentence}
		}
		if r.MailEvent != nil {
			id := mailOf(*r.MailEvent)
			items[i].Mail = &Mail{task.Mail{State: r.MailState, JobID: id.String()}, sentence(r.MailState, tasks[id])}
		}
	}
	return items, nil
}

func (d Deps) item(ctx context.Context, owner uuid.UUID, r access.Request) (Item, error) {
	items, err := d.items(ctx, owner, []access.Request{r})
	if err != nil {
		return Item{}, err
	}
	return items[0], nil
}

// notifyOf is the task that tells the owner of r.
func notifyOf(r access.Request) task.ID { return task.ID{Event: r.ID, Subscriber: task.OwnerNotify} }

// mailOf is the task of the mail with a code that event asked for.
func mailOf(event uuid.UUID) task.ID { return task.ID{Event: event, Subscriber: task.ApprovalMail} }

// sentence is what the row's word for a mail means, in the words of its task
// where that agrees: it may have been read a moment later, or be kept no longer.
func sentence(mail string, t task.Standing) string {
	if t.State != "" && task.MailOf(task.ID{}, t.State).State == mail {
		return t.Sentence
	}
	switch mail {
	case task.MailSent:
		return task.Say(task.ApprovalMail, task.Completed)
	case task.MailFailed:
		return task.CodeMailFailed()
	}
	return task.Say(task.ApprovalMail, task.Running)
}

// Approval answers what issues a code for a request and mails it.
type Approval struct {
	Code     string      `json:"code,omitempty" jsonschema:"the code itself. Absent only when a repetition under the same idempotency_key meets an installation that has lost the key that made it"`
	CodeID   uuid.UUID   `json:"code_id"`
	Link     string      `json:"link,omitempty" jsonschema:"where the person redeems the code; absent without the code"`
	Mail     task.Mail   `json:"mail"`
	Sentence string      `json:"sentence" jsonschema:"what can truthfully be said about the mail now"`
	Wait     waiter.Wait `json:"wait"`
	// Ignored: the request had been approved before, and this call asked for other
	// terms.
	Ignored bool `json:"terms_ignored,omitempty" jsonschema:"true: the request had been approved before, so its code has the terms of then. Those that this call asked for (label, expires_at, member_limit, booking_quota) were not applied: codes.list shows what holds. To change them, revoke the code and make another"`
}

// PendingReceipt is the mail's task, unless it was waited for to its end.
func (a Approval) PendingReceipt() string {
	if a.Mail.State == task.MailSending {
		return a.Mail.JobID
	}
	return ""
}

// issued is what was committed: a code, and an event that asks for the mail
// with it.
type issued struct {
	Request uuid.UUID `json:"request"`
	Code    uuid.UUID `json:"code"`
	Event   uuid.UUID `json:"event"`
	Ignored bool      `json:"ignored,omitempty"`

	receipt *task.Receipt
}

// expect takes a place among the waiters before the commit, unless the caller
// won't wait. It is given back when the call ends at the latest.
func (d Deps) expect(ctx context.Context, event uuid.UUID) *task.Receipt {
	if op.CallFrom(ctx).Wait <= 0 {
		return nil
	}
	r := d.Receipts.Expect(event, task.ApprovalMail)
	context.AfterFunc(ctx, r.Drop)
	return r
}

// answer waits for the mail and tells how it stands.
func (d Deps) answer(ctx context.Context, c auth.Caller, made issued) (a Approval, err error) {
	since, budget := time.Now(), op.CallFrom(ctx).Wait
	id := mailOf(made.Event)
	if made.receipt == nil || made.receipt.ID != id {
		made.receipt = d.Receipts.Resume(id)
	}
	state, wait := made.receipt.Await(ctx, since, budget)
	if a, err = d.shown(ctx, c, made.Code); err != nil {
		return a, err
	}
	a.Wait, a.Ignored = wait, made.Ignored
	if state != "" {
		a.Mail, a.Sentence = task.MailOf(id, state), task.Say(task.ApprovalMail, state)
		return a, nil
	}
	return a, d.stands(ctx, c, &a, made)
}

// shown is the code of an answer.
func (d Deps) shown(ctx context.Context, c auth.Caller, code uuid.UUID) (a Approval, err error) {
	a.CodeID = code
	a.Code, err = access.Reveal(ctx, d.DB, c.OwnerID, code, d.Keys)
	if f := fault.From(err); f != nil && f.Code == "code_key_gone" {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	a.Link = access.Link(d.PublicURL, c.Handle, a.Code)
	return a, nil
}

// stands reads where the mail stands: its task tells as long as it is kept, the
// request afterwards. A receipt is good whether or not that can be read now.
func (d Deps) stands(ctx context.Context, c auth.Caller, a *Approval, made issued) error {
	id := mailOf(made.Event)
	a.Mail, a.Sentence = task.MailOf(id, task.Pending), task.Say(task.ApprovalMail, task.Pending)
	tasks, err := task.Stand(ctx, d.DB, c.OwnerID, []task.ID{id})
	if t, kept := tasks[id]; kept {
		a.Mail, a.Sentence = task.MailOf(id, t.State), t.Sentence
		return nil
	}
	if err != nil {
		return nil //nolint:nilerr // what was committed stands
	}
	r, err := access.Get(ctx, d.DB, c.OwnerID, made.Request)
	if err != nil || r.MailEvent == nil || *r.MailEvent != made.Event {
		return err
	}
	a.Mail.State, a.Sentence = r.MailState, sentence(r.MailState, task.Standing{})
	return nil
}

func say(out any) string { return out.(Approval).Sentence }

// MailAnswer declares what answers, for a receipt of access_requests.approve or
// resend_mail, as that operation would now. It shows the code, so it wants what
// they want. It belongs to the MCP endpoint and not to the catalog.
func MailAnswer(d Deps) *op.Operation {
	type in struct {
		ID string `json:"id" maxLength:"200"`
	}
	return op.New(op.Spec{
		Name: "access_requests.mail_answer", Method: "GET", Path: "/v1/access-requests", Scope: "access:write",
		Summary: "Answer for a mail with a code",
	}, func(ctx context.Context, c auth.Caller, in in) (a Approval, err error) {
		id, err := task.ParseID(in.ID)
		if err != nil {
			return a, err
		}
		t, err := task.Get(ctx, d.DB, c.OwnerID, id)
		if err != nil {
			return a, err
		}
		request, err := uuid.Parse(t.Subject)
		if err != nil || id.Subscriber != task.ApprovalMail {
			return a, fault.NotFound("task")
		}
		r, err := access.Get(ctx, d.DB, c.OwnerID, request)
		if err != nil {
			return a, err
		}
		if r.CodeID == nil {
			return a, fault.NotFound("code")
		}
		if a, err = d.shown(ctx, c, *r.CodeID); err != nil {
			return a, err
		}
		a.Mail, a.Sentence, a.Wait = task.MailOf(id, t.State), t.Sentence, waiter.Wait{Ended: waiter.NotAsked}
		return a, nil
	})
}
