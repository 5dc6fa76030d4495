package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"standmeet/shared/auth"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/workers/internal/mail"
)

const (
	// linkLife is how long the link of a mail signs in, from the attempt that sent
	// it.
	linkLife = 30 * time.Minute
	// signInPatience is how long after it was asked for such a mail is still wanted.
	signInPatience = time.Hour
)

// signInMail sends the owner a link that signs them in once. The link is made
// here, and by each attempt the same one: nobody who reads the database, or the
// arguments of a job, can sign in.
func signInMail(p *post) func(context.Context, *river.Job[task.SignInMailArgs]) error {
	return func(ctx context.Context, job *river.Job[task.SignInMailArgs]) error {
		if p.keys.Zero() {
			return permanent(errors.New("no key for secrets is configured (SECRET_KEY)"))
		}
		if time.Since(job.CreatedAt) > signInPatience {
			return permanent(errors.New("the link was asked for more than an hour ago; ask for a new one"))
		}
		owner, err := auth.GetOwner(ctx, p.db, job.Args.OwnerID)
		if err != nil {
			return lasting(err)
		}
		link := p.keys.Token("sign_in", job.Args.EventID.String())
		var works bool
		err = p.db.InTx(ctx, func(tx *pg.Tx) (err error) {
			works, err = auth.PlaceSignInLink(ctx, tx, owner.ID, link, linkLife)
			return err
		})
		if err != nil {
			return err
		}
		if !works {
			// an earlier attempt's mail arrived after all, or the owner has changed the
			// password, which is to end every link that is on its way
			return drop(ctx, p.db, job, "no mail: the link was used already, or ended by a change of the password")
		}
		return deliver(ctx, p, job, signIn(owner, p.url+"/sign-in?token="+link), uncapped())
	}
}

func signIn(owner auth.Profile, link string) mail.Message {
	return mail.Message{
		To:      mail.Address{Name: owner.Name, Email: owner.Email},
		Subject: "Your sign-in link for StandMeet",
		Text: fmt.Sprintf("Somebody asked for a link to sign in to the page of @%s. To sign in, open it and press the button:\n\n%s\n\n"+
			"It works once, for %d minutes. If it wasn't you who asked, do nothing.\n",
			owner.Handle, link, int(linkLife.Minutes())),
		Links: []string{link},
	}
}
