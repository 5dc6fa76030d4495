package access

import (
	"context"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// ResendMail declares access_requests.resend_mail. Faults:
// "request_not_approved", "mail_pending", "code_revoked", "code_expired", and
// those of approving (409).
func ResendMail(d Deps) *op.Operation {
	return op.NewWrite(op.Spec{
		Name: "access_requests.resend_mail", Method: "POST", Path: "/v1/access-requests/{id}/resend-mail", Scope: "access:write",
		Summary: "Mail a code again",
		Description: `Asks for another mail with the code of an approved request, for one that failed or was lost, waiting up to 2 s for the mail server. ` +
			`It is refused while a mail is on its way (mail_pending): that one is tried again by itself.`,
		Tool: &op.Tool{OpenWorld: true}, MaxWait: maxWait, Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in named) (made issued, err error) {
		made = issued{Request: in.ID, Event: outbox.NewID()}
		made.receipt = d.expect(ctx, made.Event)
		made.Code, err = access.Resend(ctx, tx, c.OwnerID, in.ID, made.Event, d.mailing())
		return made, err
	}, d.answer)
}
