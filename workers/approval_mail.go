package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// approvalMail sends a visitor the code that their request was approved with. It
// reads everything when it runs: a code that has ended by then is not mailed, nor
// is one for which a later mail was asked.
func approvalMail(p *post) func(context.Context, *river.Job[task.ApprovalMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.ApprovalMailArgs]) error {
		id, err := uuid.Parse(job.Args.Subject)
		if err != nil {
			return permanent(err)
		}
		l, err := access.Write(ctx, p.db, job.Args.OwnerID, id, job.Args.EventID, p.keys)
		var f *fault.Fault
		if errors.As(err, &f) && (f.Code == "code_revoked" || f.Code == "code_expired" || f.Code == "mail_superseded") {
			return drop(ctx, p.db, job, "no mail: "+f.Detail) // as its owner wanted
		}
		if err != nil {
			return lasting(err)
		}
		return deliver(ctx, p, job, approval(l, access.Link(p.url, l.Owner.Handle, l.Plain)))
	}
}

// lasting fails a task for good whose mail is about something that is gone or has
// ended.
func lasting(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && (f.Kind == fault.NotFoundKind || f.Kind == fault.Conflict) {
		return permanent(errors.New(f.Detail))
	}
	return err
}

// called is what a mail calls an owner.
func called(o auth.Profile) string {
	if name := strings.TrimSpace(o.Name); name != "" {
		return name
	}
	return o.Handle
}

func approval(l access.Letter, link string) mail.Message {
	who := called(l.Owner)
	paragraphs := []string{
		fmt.Sprintf("Hello %s,", l.Request.Name),
		fmt.Sprintf("%s has approved your request for access. Your access code is", who),
		l.Plain,
		"To use it, open this page and confirm there:",
		link,
	}
	if l.Code.ExpiresAt != nil {
		paragraphs = append(paragraphs, "The code works until "+l.Code.ExpiresAt.UTC().Format("2 January 2006, 15:04")+" UTC.")
	}
	paragraphs = append(paragraphs,
		fmt.Sprintf("If you answer this mail, your answer goes to %s. If you did not ask for access, you can ignore it.", who))
	return mail.Message{
		FromName: who,
		To:       mail.Address{Name: l.Request.Name, Email: l.Request.Email},
		ReplyTo:  mail.Address{Name: who, Email: l.Owner.Email},
		Subject:  "Your access code for the page of " + who,
		Text:     strings.Join(paragraphs, "\n\n") + "\n",
		Links:    []string{link},
	}
}
