package access

import (
	"context"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// Issuing is what codes are made with. Cannot is the fault of an installation
// that can't make one, or can't have it mailed; nil when it can.
type Issuing struct {
	Keys   secret.Keys
	Cannot error
}

// Approve makes the code of a request, and the event that asks for the mail with
// it, whose id is mail. For a request that was approved before it changes nothing
// and gives that code and the event of its latest mail, however many ask at once;
// ignored then says that t asks for other terms than the code has.
// An empty label is the visitor's name. Faults: "not_found"; "request_closed",
// "code_revoked", "code_expired", "code_key_gone" (409); with.Cannot, when there is a code to make.
func Approve(ctx context.Context, tx *pg.Tx, owner, id, mail uuid.UUID, with Issuing, t Terms) (code, event uuid.UUID, ignored bool, err error) {
	r, err := lock(ctx, tx, owner, id)
	switch {
	case err != nil:
		return code, event, false, err
	case r.State == Closed:
		return code, event, false, fault.New(fault.Conflict, "request_closed", "This request was closed: it can't be approved. A code can be made without it.")
	case r.CodeID != nil:
		c, err := GetCode(ctx, tx, owner, *r.CodeID)
		if err == nil {
			err = c.usable()
		}
		if err == nil {
			_, err = Reveal(ctx, tx, owner, c.ID, with.Keys)
		}
		return *r.CodeID, *r.MailEvent, c.differs(t), err
	case with.Cannot != nil:
		return code, event, false, with.Cannot
	}
	if blank(oneLine(t.Label)) {
		t.Label = r.Name
	}
	if code, err = issue(ctx, tx, owner, with.Keys, t); err != nil {
		return code, event, false, err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE access_requests SET state = 'approved', approved_at = now(), code_id = $2, mail_event = $3, mail_state = 'sending' WHERE id = $1`,
		id, code, mail); err != nil {
		return code, event, false, err
	}
	return code, mail, false, outbox.Record(ctx, tx, mail, outbox.AccessApproved, owner, id.String(), map[string]any{"request_id": id, "code_id": code})
}

// Resend asks for the mail with the code once more, by an event whose id is mail.
// Faults: "not_found"; "request_not_approved", "mail_pending" while one is on its
// way, "code_revoked", "code_expired", "code_key_gone" (409); with.Cannot.
func Resend(ctx context.Context, tx *pg.Tx, owner, id, mail uuid.UUID, with Issuing) (code uuid.UUID, err error) {
	r, err := lock(ctx, tx, owner, id)
	switch {
	case err != nil:
		return code, err
	case r.State != Approved && r.State != Replied:
		return code, fault.New(fault.Conflict, "request_not_approved", "This request has no code: it was not approved.")
	case r.MailState == mailSending:
		return code, fault.New(fault.Conflict, "mail_pending", "The mail with the code is still on its way: it is tried again by itself. Follow its receipt, or cancel its task first.")
	}
	c, err := GetCode(ctx, tx, owner, *r.CodeID)
	if err != nil {
		return code, err
	}
	if err := c.usable(); err != nil {
		return code, err
	}
	if _, err := Reveal(ctx, tx, owner, c.ID, with.Keys); err != nil {
		return code, err
	}
	if with.Cannot != nil {
		return code, with.Cannot
	}
	if _, err := tx.Exec(ctx, `UPDATE access_requests SET mail_event = $2, mail_state = 'sending' WHERE id = $1`, id, mail); err != nil {
		return code, err
	}
	return c.ID, outbox.Record(ctx, tx, mail, outbox.AccessMailRequested, owner, id.String(), map[string]any{"request_id": id, "code_id": c.ID})
}

// mailSending is task.MailSending, which the row spells the same way.
const mailSending = "sending"

// Letter is what the mail with a code says.
type Letter struct {
	Request Request
	Owner   auth.Profile
	Code    Code
	// Plain is the code itself.
	Plain string
}

// Write gathers the mail with the code of a request that event asked for. The
// fault is one that no repetition helps: what it was about is gone or has ended,
// or a later mail took its place. Every other error may pass.
func Write(ctx context.Context, q pg.Querier, owner, id, event uuid.UUID, keys secret.Keys) (l Letter, err error) {
	if l.Request, err = Get(ctx, q, owner, id); err != nil {
		return l, err
	}
	switch {
	case l.Request.CodeID == nil || l.Request.State != Approved && l.Request.State != Replied:
		return l, fault.New(fault.Conflict, "request_not_approved", "The request is not approved.")
	case l.Request.MailEvent == nil || *l.Request.MailEvent != event:
		return l, fault.New(fault.Conflict, "mail_superseded", "A later mail with this code was asked for: this one is not sent any more.")
	}
	if l.Code, err = GetCode(ctx, q, owner, *l.Request.CodeID); err != nil {
		return l, err
	}
	if err := l.Code.usable(); err != nil {
		return l, err
	}
	if l.Plain, err = Reveal(ctx, q, owner, l.Code.ID, keys); err != nil {
		return l, err
	}
	l.Owner, err = auth.GetOwner(ctx, q, owner)
	return l, err
}
