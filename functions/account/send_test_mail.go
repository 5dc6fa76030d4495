package account

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// Mail is where a mail stands, and its receipt.
type Mail struct {
	State string `json:"state" enum:"sending,sent,failed" jsonschema:"sent only once the mail server has taken it"`
	JobID string `json:"job_id" jsonschema:"the receipt: follow it with tasks.get"`
}

func mailOf(id task.ID, s task.State) Mail {
	m := Mail{State: "sending", JobID: id.String()}
	switch s {
	case task.Completed:
		m.State = "sent"
	case task.Discarded, task.Cancelled:
		m.State = "failed"
	case task.Pending, task.Running, task.Retryable:
	}
	return m
}

// MailSent answers mail.send_test.
type MailSent struct {
	Mail     Mail        `json:"mail"`
	Sentence string      `json:"sentence" jsonschema:"what can truthfully be said about it now"`
	Wait     waiter.Wait `json:"wait"`
}

// SendTestMail declares mail.send_test.
func SendTestMail(d Deps) *op.Operation {
	type in struct{}
	type committed struct {
		Event uuid.UUID `json:"event"`
	}
	return op.NewWrite(op.Spec{
		Name: "mail.send_test", Method: "POST", Path: "/v1/mail/send-test", Scope: "account:write",
		Summary:     "Send a test mail",
		Description: "Sends a test mail to the owner's own address. It waits up to 2 s for the mail server; state sending means that it is still on its way, and mail.job_id tells later what became of it.",
		Tool:        &op.Tool{OpenWorld: true},
		MaxWait:     2 * time.Second,
		Say:         func(o any) string { return o.(MailSent).Sentence },
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, _ in) (committed, error) {
		id := outbox.NewID()
		return committed{id}, outbox.Record(ctx, tx, id, outbox.MailTestRequested, c.OwnerID, c.OwnerID.String(), struct{}{})
	}, func(ctx context.Context, c auth.Caller, made committed) (MailSent, error) {
		id := task.ID{Event: made.Event, Subscriber: task.MailTest}
		state, wait := d.Receipts.Resume(id).Await(ctx, time.Now(), op.CallFrom(ctx).Wait)
		if state == "" {
			// the receipt is good whether or not its state can be read now
			state = task.Pending
			if t, err := task.Get(ctx, d.DB, c.OwnerID, id); err == nil {
				state = t.State
			}
		}
		return MailSent{Mail: mailOf(id, state), Sentence: task.Say(task.MailTest, state), Wait: wait}, nil
	})
}
