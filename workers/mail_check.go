package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/riverqueue/river"

	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// Mailer hands a message over to the next mail server.
type Mailer = mail.Sender

// mailTest sends the owner a mail that says that mail works.
func mailTest(db *pg.DB, m Mailer) func(context.Context, *river.Job[task.MailTestArgs]) error {
	return func(ctx context.Context, job *river.Job[task.MailTestArgs]) error {
		if m == nil {
			return permanent(errors.New("no mail server is configured (SMTP_URL)"))
		}
		var to, name string
		if err := db.QueryRow(ctx, `SELECT email, name FROM owners WHERE id = $1`, job.Args.OwnerID).Scan(&to, &name); err != nil {
			return fmt.Errorf("owner: %w", err)
		}
		err := m.Send(ctx, mail.Message{
			TaskID:  task.ID{Event: job.Args.EventID, Subscriber: task.MailTest}.String(),
			To:      mail.Address{Name: name, Email: to},
			Subject: "Mail from your StandMeet page works",
			Text:    "You asked for a test mail. This is it: your page can send mail.\n",
		})
		if mail.Permanent(err) {
			return permanent(err)
		}
		if err != nil {
			return err
		}
		return complete(ctx, db, job, map[string]string{"to": to})
	}
}
