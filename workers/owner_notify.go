package workers

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

// ownerNotify tells the owner that somebody asked for access: 5 times an hour at
// most, whoever asks. What is over that stays to be read in the list of requests.
func ownerNotify(p *post) func(context.Context, *river.Job[task.OwnerNotifyArgs]) error {
	return func(ctx context.Context, job *river.Job[task.OwnerNotifyArgs]) error {
		id, err := uuid.Parse(job.Args.Subject)
		if err != nil {
			return permanent(err)
		}
		r, err := access.Get(ctx, p.db, job.Args.OwnerID, id)
		if err != nil {
			return lasting(err)
		}
		owner, err := auth.GetOwner(ctx, p.db, job.Args.OwnerID)
		if err != nil {
			return lasting(err)
		}
		var link string
		if p.url != "" {
			link = p.url + "/"
		}
		return deliver(ctx, p, job, notice(r, owner, link), perOwner(5, time.Hour))
	}
}

// notice tells of a request. What the visitor wrote stands last and as a
// quotation, so that nothing of it can pass for ours. Without a link it is told all
// the same.
func notice(r access.Request, owner auth.Profile, link string) mail.Message {
	from := "Name: " + r.Name
	if r.Org != "" {
		from += "\nOrganisation: " + r.Org
	}
	from += "\nE-mail: " + r.Email + " (not verified)"
	m := mail.Message{
		FromName: "StandMeet",
		To:       mail.Address{Name: owner.Name, Email: owner.Email},
		Subject:  "A request for access to your page, from " + r.Name,
	}
	paragraphs := []string{"Somebody asked for access to what you share by code. Nothing has been decided: sign in to approve or to close the request."}
	if link != "" {
		m.Links = []string{link}
		paragraphs = append(paragraphs, link)
	}
	m.Text = strings.Join(append(paragraphs,
		from+"\nRequest: "+r.ID.String(),
		"This is what they wrote:",
		"> "+strings.ReplaceAll(r.Message, "\n", "\n> "),
	), "\n\n") + "\n"
	return m
}
