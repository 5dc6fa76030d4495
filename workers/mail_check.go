package workers

import (
	"context"

	"github.com/riverqueue/river"

	"standmeet/shared/auth"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// mailTest sends the owner a mail that says that mail works.
func mailTest(p *post) func(context.Context, *river.Job[task.MailTestArgs]) error {
	return func(ctx context.Context, job *river.Job[task.MailTestArgs]) error {
		owner, err := auth.GetOwner(ctx, p.db, job.Args.OwnerID)
		if err != nil {
			return err
		}
		return deliver(ctx, p, job, mail.Message{
			FromName: "StandMeet",
			To:       mail.Address{Name: owner.Name, Email: owner.Email},
			Subject:  "Mail from your StandMeet page works",
			Text:     "You asked for a test mail. This is it: your page can send mail.\n",
		})
	}
}
