package account

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// MailSent answers mail.send_test.
type MailSent struct {
	Mail     task.Mail   `json:"mail"`
	Sentence string      `json:"sentence" jsonschema:"what can truthfully be said about it now"`
	Wait     waiter.Wait `json:"wait"`
}

// PendingReceipt is the task that was not waited for to its end.
func (m MailSent) PendingReceipt() string {
	if m.Mail.State == task.MailSending {
		return m.Mail.JobID
	}
	return ""
}

// sent is what can be said about a test mail whose task is in state s.
func sent(id task.ID, s task.State, w waiter.Wait) MailSent {
	return MailSent{Mail: task.MailOf(id, s), Sentence: task.Say(task.MailTest, s), Wait: w}
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
		return sent(id, state, wait), nil
	})
}

// TestMailAnswer declares what answers, for a receipt of mail.send_test, as that
// operation would now. It belongs to the MCP endpoint and not to the catalog.
func TestMailAnswer(d Deps) *op.Operation {
	type in struct {
		ID string `json:"id" maxLength:"200"`
	}
	return op.New(op.Spec{
		Name: "mail.send_test_answer", Method: "GET", Path: "/v1/mail/send-test", Scope: "account:read",
		Summary: "Answer for a test mail",
	}, func(ctx context.Context, c auth.Caller, in in) (m MailSent, err error) {
		id, err := task.ParseID(in.ID)
		if err != nil {
			return m, err
		}
		if id.Subscriber != task.MailTest {
			return m, fault.NotFound("task")
		}
		t, err := task.Get(ctx, d.DB, c.OwnerID, id)
		return sent(id, t.State, waiter.Wait{Ended: waiter.NotAsked}), err
	})
}
