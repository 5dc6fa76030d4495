package account

import (
	"context"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

func linksFrom() limit.Rule {
	return limit.Rule{Name: "sign_in_mail_from", Most: 10, Per: 15 * time.Minute, Detail: "Too many links were asked for from this address."}
}

func linksOf() limit.Rule { return limit.Rule{Name: "sign_in_mail_of", Most: 3, Per: 15 * time.Minute} }

// askForLink records that the owner whom login names wants a link by mail, three
// times within 15 minutes at most. Nothing that it answers depends on whether
// there is such an owner: only an address that asks too often is refused.
func (d Deps) askForLink(ctx context.Context, login, from string) error {
	if !d.Mail {
		return fault.New(fault.Unprocessable, "mail_unavailable", "This installation can't send mail. Use the link that it printed when it started, or a password.")
	}
	if err := linksFrom().Take(ctx, d.DB, limit.Address(from)); err != nil {
		return err
	}
	owner, found, err := auth.FindLogin(ctx, d.DB, login)
	if err != nil || !found {
		return err
	}
	err = d.DB.InTx(ctx, func(tx *pg.Tx) error {
		if err := linksOf().Take(ctx, tx, owner.String()); err != nil {
			return err
		}
		return record(ctx, tx, outbox.SignInLinkRequested, owner)
	})
	if f := fault.From(err); f != nil && f.Kind == fault.RateLimited {
		return nil
	}
	return err
}
