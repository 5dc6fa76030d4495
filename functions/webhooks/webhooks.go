// Package webhooks holds the operations on webhooks: where an owner has events
// sent, and the log of what was delivered. What a write answers promises nothing
// about deliveries; the log tells of them.
package webhooks

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/egress"
	"standmeet/shared/fault"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/webhook"
)

// Deps is what these operations need.
type Deps struct {
	DB *pg.DB
	// Keys seal signing secrets; without them no webhook is made.
	Keys secret.Keys
	// Egress says which addresses may be asked.
	Egress egress.Rules
}

type named struct {
	ID uuid.UUID `json:"id" path:"id" jsonschema:"the webhook's id"`
}

// Answer is a webhook.
type Answer struct {
	Endpoint webhook.Endpoint `json:"endpoint"`
}

// Secret answers what made a signing secret.
type Secret struct {
	Endpoint webhook.Endpoint `json:"endpoint"`
	Secret   string           `json:"secret" jsonschema:"the signing secret (Standard Webhooks). No other answer shows it again, except to a repetition of this very request under its idempotency_key"`
}

// sealed is what an idempotency key keeps: the repetition of a request whose
// answer was lost shows the secret, and the database doesn't.
type sealed struct {
	Endpoint webhook.Endpoint `json:"endpoint"`
	Sealed   []byte           `json:"sealed"`
}

func (d Deps) reveal(_ context.Context, _ auth.Caller, made sealed) (Secret, error) {
	plain, err := webhook.Reveal(d.Keys, made.Endpoint.ID, made.Sealed)
	return Secret{made.Endpoint, plain}, err
}

func (d Deps) keyed() error {
	if d.Keys.Zero() {
		return fault.New(fault.Conflict, "keys_not_configured", "No key for secrets is configured (SECRET_KEY), so no signing secret was made.")
	}
	return nil
}

// address checks a URL that an owner gives, and gives it as it is kept.
func (d Deps) address(raw string) (string, error) {
	u, err := d.Egress.URL(raw)
	var refused *egress.Refused
	if errors.As(err, &refused) {
		return "", fault.InvalidField("url", refused.Code, refused.Reason)
	}
	if err != nil {
		return "", err
	}
	return u.String(), nil
}
