package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// Mailer hands a message over to the next mail server.
type Mailer = mail.Sender

// post is what the kinds that send mails share.
type post struct {
	db     *pg.DB
	mailer Mailer
	keys   secret.Keys
	url    string
}

// deliver hands m over and completes the job, whose task names the mail: m.TaskID
// is filled in.
func deliver[A caused](ctx context.Context, p *post, job *river.Job[A], m mail.Message) error {
	if p.mailer == nil {
		return permanent(errors.New("no mail server is configured (SMTP_URL)"))
	}
	_, event := job.Args.Origin()
	m.TaskID = task.ID{Event: event, Subscriber: job.Args.Kind()}.String()
	err := p.mailer.Send(ctx, m)
	if mail.Permanent(err) {
		return permanent(err)
	}
	if err != nil {
		return err
	}
	return complete(ctx, p.db, job, map[string]string{"to": m.To.Email})
}
