package access

import (
	"context"
	"time"

	"standmeet/shared/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// Limits are what an owner may limit a code by.
type Limits struct {
	ExpiresAt    *time.Time `json:"expires_at,omitempty" jsonschema:"when the code stops working (RFC 3339); leave it out for never"`
	MemberLimit  *int       `json:"member_limit,omitempty" minimum:"1" maximum:"1000000" jsonschema:"how many visitors may redeem it; leave it out for any number"`
	BookingQuota *int       `json:"booking_quota,omitempty" minimum:"0" maximum:"1000000" jsonschema:"how many bookings it is good for; leave it out for any number"`
}

func (l Limits) terms(label string) access.Terms {
	return access.Terms{Label: label, ExpiresAt: l.ExpiresAt, MemberLimit: l.MemberLimit, BookingQuota: l.BookingQuota}
}

// Approve declares access_requests.approve. Faults: "request_closed",
// "code_revoked", "code_expired", "mail_not_configured", "keys_not_configured", "public_url_not_configured",
// "code_key_gone" (409).
func Approve(d Deps) *op.Operation {
	type in struct {
		named
		Label string `json:"label,omitempty" maxLength:"200" jsonschema:"what the owner calls the code; the visitor's name if left out"`
		Limits
	}
	return op.NewWrite(op.Spec{
		Name: "access_requests.approve", Method: "POST", Path: "/v1/access-requests/{id}/approve", Scope: "access:write",
		Summary: "Approve an access request",
		Description: `Makes an access code for a request and asks for the mail with it, waiting up to 2 s for the mail server. Example: {"id": "…", "member_limit": 1}. ` +
			`mail.state sending means that the mail is still on its way: follow mail.job_id with tasks.get. Approving again gives the same code with its first terms; terms_ignored then says that others were asked for.`,
		Tool: &op.Tool{Idempotent: true, OpenWorld: true}, MaxWait: maxWait, Say: say,
	}, d.DB, func(ctx context.Context, tx *pg.Tx, c auth.Caller, in in) (made issued, err error) {
		event := outbox.NewID()
		made = issued{Request: in.ID, receipt: d.expect(ctx, event)}
		made.Code, made.Event, made.Ignored, err = access.Approve(ctx, tx, c.OwnerID, in.ID, event, d.mailing(), in.terms(in.Label))
		return made, err
	}, d.answer)
}
