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
	// Session is the secret of the visitor's session, which ends at SessionEnds.
	Session     string
	SessionEnds time.Time
	// Ends is when the session or the code ends, whichever is first.
	Ends time.Time
}

func wrongCodes() limit.Rule {
	return limit.Rule{Name: "wrong_code", Most: 30, Per: 10 * time.Minute, Detail: "That were too many wrong codes from this address."}
}

// Redeem puts the code that a visitor typed into their session; session is the
// secret of the one that they have, or "". Redeeming again in the same session
// makes no new member.
//
// Faults: "not_found" for an unknown handle; "code_not_accepted" (403) for every
// code that can't be redeemed here, whatever the reason; "code_full" (409) for a
// good one that has its members; "rate_limited" (429) after 30 wrong ones from
// address within 10 minutes. A refusal leaves nothing but its count.
func Redeem(ctx context.Context, db *pg.DB, handle, session, address, typed string) (r Redeemed, err error) {
	if r.Owner, err = auth.OwnerOf(ctx, db, handle); err != nil {
		return r, err
	}
	address = limit.Address(address)
	if err := wrongCodes().Check(ctx, db, address); err != nil {
		return r, err
	}
	// what can't be a code is looked for as well, and takes as long
	clean, ok := secret.CleanCode(typed)
	if !ok {
		clean = typed
	}
	hash := secret.Hash(clean)
	var accepted bool
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		var code uuid.UUID
		var most *int
		var ends *time.Time
		// one at a time for each code: members are counted
		err := tx.QueryRow(ctx, `
			SELECT id, member_limit, expires_at FROM codes
			WHERE code_hash = $1 AND owner_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
			FOR NO KEY UPDATE`, hash, r.Owner.ID).Scan(&code, &most, &ends)
		if accepted = !pg.IsNoRows(err); !accepted {
			return nil
		}
		if err != nil {
			return err
		}
		var admitted bool
		if r.Session, r.SessionEnds, admitted, err = auth.Admit(ctx, tx, session, code); err != nil {
			return err
		}
		r.Ends = r.SessionEnds
		if ends != nil && ends.Before(r.Ends) {
			r.Ends = *ends
		}
		if !admitted {
			return nil
		}
		if most != nil {
			var members int
			if err := tx.QueryRow(ctx, `SELECT `+membersSQL+` FROM codes c WHERE c.id = $1`, code).Scan(&members); err != nil {
				return err
			}
			if members > *most {
				return fault.New(fault.Conflict, "code_full", "This code is right, but as many people use it as it allows. Ask its owner for another.")
			}
		}
		return outbox.Record(ctx, tx, outbox.NewID(), outbox.CodeRedeemed, r.Owner.ID, code.String(), map[string]any{"code_id": code})
	})
	switch {
	case err != nil:
		return Redeemed{}, err
	case !accepted:
		if err := wrongCodes().Take(ctx, db, address); err != nil {
			return Redeemed{}, err
		}
		return Redeemed{}, fault.New(fault.Forbidden, "code_not_accepted", "This code is not accepted here. Look whether it is complete, or ask the owner of the page for another.")
	}
	return r, nil
}
