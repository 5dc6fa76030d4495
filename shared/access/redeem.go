package access

import (
	"context"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

// Redeemed is what a visitor gets for a code.
type Redeemed struct {
	Owner auth.Profile
	Code  uuid.UUID
	// Session is the secret of the visitor's session, which ends at SessionEnds.
	Session     string
	SessionEnds time.Time
	// Ends is when the session or the code ends, whichever is first.
	Ends time.Time
}

func wrongCodes() limit.Rule {
	return limit.Rule{Name: "wrong_code", Most: 30, Per: 10 * time.Minute, Detail: "Those were too many wrong codes from this address."}
}

// Visit is who redeems a code.
type Visit struct {
	// Session is the secret of the session that they have, or "".
	Session string
	// Address is where they come from.
	Address string
	// Fresh gives the secret of a session that is begun for them by a code; nil has
	// one made. The same secret again is the same session, and the same member.
	Fresh func(code uuid.UUID) string
}

// Redeem puts the code that a visitor typed into their session. Redeeming again
// in the same session makes no new member.
//
// Faults: "not_found" for an unknown handle; "code_not_accepted" (403) for every
// code that can't be redeemed here, whatever the reason, which is for the caller
// to count by [Wrong] once the transaction is over; "code_full" (409) for a good
// one that has its members; "rate_limited" (429) after 30 wrong ones from the
// address within 10 minutes.
func Redeem(ctx context.Context, tx *pg.Tx, handle string, v Visit, typed string) (r Redeemed, err error) {
	if r.Owner, err = auth.OwnerOf(ctx, tx, handle); err != nil {
		return r, err
	}
	if err := wrongCodes().Check(ctx, tx, limit.Address(v.Address)); err != nil {
		return r, err
	}
	// what can't be a code is looked for as well, and takes as long
	clean, ok := secret.CleanCode(typed)
	if !ok {
		clean = typed
	}
	var code uuid.UUID
	var most *int
	var ends *time.Time
	// one at a time for each code: members are counted
	err = tx.QueryRow(ctx, `
		SELECT id, member_limit, expires_at FROM codes
		WHERE code_hash = $1 AND owner_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
		FOR NO KEY UPDATE`, secret.Hash(clean), r.Owner.ID).Scan(&code, &most, &ends)
	if pg.IsNoRows(err) {
		return r, fault.New(fault.Forbidden, notAccepted, "This code is not accepted here. Look whether it is complete, or ask the owner of the page for another.")
	}
	if err != nil {
		return r, err
	}
	var admitted bool
	if v.Fresh == nil {
		r.Session, r.SessionEnds, admitted, err = auth.Admit(ctx, tx, v.Session, code)
	} else {
		r.Session, r.SessionEnds, admitted, err = auth.AdmitAs(ctx, tx, v.Session, v.Fresh(code), code)
	}
	if err != nil {
		return r, err
	}
	r.Code, r.Ends = code, r.SessionEnds
	if ends != nil && ends.Before(r.Ends) {
		r.Ends = *ends
	}
	if !admitted {
		return r, nil
	}
	if most != nil {
		var members int
		if err := tx.QueryRow(ctx, `SELECT `+membersSQL+` FROM codes c WHERE c.id = $1`, code).Scan(&members); err != nil {
			return r, err
		}
		if members > *most {
			return r, fault.New(fault.Conflict, "code_full", "This code is right, but as many people use it as it allows. Ask its owner for another.")
		}
	}
	return r, outbox.Record(ctx, tx, outbox.NewID(), outbox.CodeRedeemed, r.Owner.ID, code.String(), map[string]any{"code_id": code})
}

const notAccepted = "code_not_accepted"

// Wrong counts err against the address if it is that of a wrong code, and gives
// the error to answer with.
func Wrong(ctx context.Context, db *pg.DB, address string, err error) error {
	if f := fault.From(err); f == nil || f.Code != notAccepted {
		return err
	}
	if over := wrongCodes().Take(ctx, db, limit.Address(address)); over != nil {
		return over
	}
	return err
}
