package access

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/email"
	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// The longest that a visitor may write, in characters.
const (
	MaxName    = 200
	MaxMessage = 10_000
)

// Ask is what a visitor says who asks for access.
type Ask struct{ Name, Org, Email, Message string }

// clean puts what was typed into the form that is stored. Fault
// "invalid_request" (400) names the field that can't be.
func (a Ask) clean() (Ask, error) {
	a = Ask{Name: oneLine(a.Name), Org: oneLine(a.Org), Email: strings.TrimSpace(a.Email), Message: text(a.Message)}
	if err := required("name", a.Name); err != nil {
		return a, err
	}
	if err := required("message", a.Message); err != nil {
		return a, err
	}
	if blank(a.Org) {
		a.Org = ""
	}
	address, err := email.Parse(a.Email)
	if err != nil {
		return a, fault.InvalidField("email", "invalid_format", "email must be one plain address like name@example.com.")
	}
	a.Email = address
	return a, nil
}

func submitLimit() limit.Rule {
	return limit.Rule{Name: "access_request", Most: 120, Per: time.Hour, Detail: "Those were too many access requests from this address."}
}

// Submit saves a request to the owner, whose event asks for the mail to the
// owner. address is where it came from: fault "rate_limited" (429) after 120
// within an hour. It must be the last of its transaction, since the address stays
// locked to its end.
func Submit(ctx context.Context, tx *pg.Tx, owner uuid.UUID, address string, a Ask) (uuid.UUID, error) {
	id := outbox.NewID()
	a, err := a.clean()
	if err != nil {
		return id, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO access_requests (id, owner_id, name, org, email, message) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, owner, a.Name, a.Org, a.Email, a.Message); err != nil {
		return id, err
	}
	data := map[string]any{"request_id": id, "name": a.Name, "org": a.Org}
	if err := outbox.Record(ctx, tx, id, outbox.AccessSubmitted, owner, id.String(), data); err != nil {
		return id, err
	}
	return id, submitLimit().Take(ctx, tx, limit.Address(address))
}
