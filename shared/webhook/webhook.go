// Package webhook holds what owners have sent to them when something happens:
// the endpoints, which events reach them, and the log of every attempt.
//
// The relay matches events and writes deliveries; workers claim one at a time for
// each endpoint, send it, and record how it went. Whoever locks several rows locks
// the endpoint first, then tasks, then deliveries.
package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
)

const (
	// MaxEndpoints is how many an owner may have.
	MaxEndpoints = 50
	// OldSecretLife is how long a replaced secret goes on signing.
	OldSecretLife = 24 * time.Hour

	purpose    = "webhook"
	secretSize = 32
	// secretPrefix is the one of Standard Webhooks.
	secretPrefix = "whsec_"
)

// Endpoint is where an owner has events sent, as they read it.
type Endpoint struct {
	ID          uuid.UUID `json:"id"`
	URL         string    `json:"url"`
	EventTypes  []string  `json:"event_types" jsonschema:"event types or globs like booking.*; * is every exposed type"`
	Description string    `json:"description"`
	Ordered     bool      `json:"ordered" jsonschema:"true: strictly in event order, each delivery only after the one before it has ended"`
	Enabled     bool      `json:"enabled" jsonschema:"false: events are held until they are redelivered"`
	// DisabledAt and DisabledReason are there while it is disabled.
	DisabledAt          *time.Time `json:"disabled_at,omitempty"`
	DisabledReason      string     `json:"disabled_reason,omitempty" jsonschema:"why it is disabled, in plain words"`
	FailingSince        *time.Time `json:"failing_since,omitempty" jsonschema:"the first failure since the last success; after 5 days it is disabled"`
	ConsecutiveFailures int        `json:"consecutive_failures"`
	CooldownUntil       *time.Time `json:"cooldown_until,omitempty" jsonschema:"no attempt before it, because attempts keep failing or the endpoint asked for a pause"`
	OldSecretUntil      *time.Time `json:"old_secret_until,omitempty" jsonschema:"until then the replaced secret signs too"`
	CreatedAt           time.Time  `json:"created_at"`
	UpdatedAt           time.Time  `json:"updated_at"`
}

const endpointSQL = `id, url, event_types, description, ordered, disabled_at IS NULL, disabled_at, coalesce(disabled_reason, ''),
	failing_since, consecutive_failures, CASE WHEN cooldown_until > now() THEN cooldown_until END,
	CASE WHEN old_secret_until > now() THEN old_secret_until END, created_at, updated_at`

func scanEndpoint(row pgx.CollectableRow) (e Endpoint, err error) {
	err = row.Scan(&e.ID, &e.URL, &e.EventTypes, &e.Description, &e.Ordered, &e.Enabled, &e.DisabledAt, &e.DisabledReason,
		&e.FailingSince, &e.ConsecutiveFailures, &e.CooldownUntil, &e.OldSecretUntil, &e.CreatedAt, &e.UpdatedAt)
	return e, err
}

// one reads the endpoint that a statement gives; fault "not_found" for none.
func one(ctx context.Context, q pg.Querier, sql string, args ...any) (Endpoint, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return Endpoint{}, pg.Fault(err)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanEndpoint)
	if pg.IsNoRows(err) {
		return e, fault.NotFound("webhook")
	}
	return e, pg.Fault(err)
}

// Get reads an endpoint of an owner; fault "not_found" for every other id, and
// for one that was deleted.
func Get(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (Endpoint, error) {
	return one(ctx, q, `SELECT `+endpointSQL+` FROM webhook_endpoints WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL`, id, owner)
}

// lock is Get that holds the row to the end of tx.
func lock(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) (Endpoint, error) {
	return one(ctx, tx, `SELECT `+endpointSQL+` FROM webhook_endpoints WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE`, id, owner)
}

// Cursor is a place in a list of endpoints: the last one seen.
type Cursor struct {
	CreatedAt time.Time `json:"c"`
	ID        uuid.UUID `json:"i"`
}

// List reads an owner's endpoints, newest first, after the cursor (nil: from the
// newest). next is nil on the last page; total counts all.
func List(ctx context.Context, q pg.Querier, owner uuid.UUID, after *Cursor, limit int) (items []Endpoint, next *Cursor, total int, err error) {
	upto := Cursor{CreatedAt: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), ID: uuid.Max}
	if after != nil {
		upto = *after
	}
	rows, err := q.Query(ctx, `
		SELECT `+endpointSQL+` FROM webhook_endpoints WHERE owner_id = $1 AND deleted_at IS NULL AND (created_at, id) < ($2, $3)
		ORDER BY created_at DESC, id DESC LIMIT $4`, owner, upto.CreatedAt, upto.ID, limit+1)
	if err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if items, err = pgx.CollectRows(rows, scanEndpoint); err != nil {
		return nil, nil, 0, pg.Fault(err)
	}
	if len(items) > limit {
		items = items[:limit]
		next = &Cursor{CreatedAt: items[limit-1].CreatedAt, ID: items[limit-1].ID}
	}
	err = q.QueryRow(ctx, `SELECT count(*) FROM webhook_endpoints WHERE owner_id = $1 AND deleted_at IS NULL`, owner).Scan(&total)
	return items, next, total, pg.Fault(err)
}

// Create makes an endpoint of e's URL (checked by egress), event types (checked by
// [Subscription]), description and order. sealed is its secret for [Reveal]. Fault
// "too_many_webhooks" (409) above [MaxEndpoints].
func Create(ctx context.Context, tx *pg.Tx, keys secret.Keys, owner uuid.UUID, e Endpoint) (made Endpoint, sealed []byte, err error) {
	if _, err := tx.Exec(ctx, `SELECT FROM owners WHERE id = $1 FOR NO KEY UPDATE`, owner); err != nil {
		return e, nil, err
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM webhook_endpoints WHERE owner_id = $1 AND deleted_at IS NULL`, owner).Scan(&n); err != nil {
		return e, nil, err
	}
	if n >= MaxEndpoints {
		return e, nil, fault.New(fault.Conflict, "too_many_webhooks", "You have 50 webhooks, and there can be no more. Delete one first.")
	}
	id := outbox.NewID()
	sealed = newSecret(keys, id)
	made, err = one(ctx, tx, `
		INSERT INTO webhook_endpoints (id, owner_id, url, event_types, description, ordered, secret) VALUES ($1, $2, $3, $4, $5, $6, $7)
		RETURNING `+endpointSQL, id, owner, e.URL, e.EventTypes, e.Description, e.Ordered, sealed)
	if err != nil {
		return made, nil, err
	}
	return made, sealed, record(ctx, tx, outbox.WebhookCreated, owner, id, "")
}

func record(ctx context.Context, tx *pg.Tx, kind string, owner, endpoint uuid.UUID, reason string) error {
	data := map[string]any{"endpoint_id": endpoint}
	if reason != "" {
		data["reason"] = reason
	}
	return outbox.Record(ctx, tx, outbox.NewID(), kind, owner, endpoint.String(), data)
}

func newSecret(keys secret.Keys, endpoint uuid.UUID) (sealed []byte) {
	plain := make([]byte, secretSize)
	_, _ = rand.Read(plain) // never fails
	return keys.Seal(purpose, endpoint.String(), plain)
}

// Reveal gives the secret of an endpoint as its owner writes it down: "whsec_" and
// base64. The error is of secret.Keys.Open.
func Reveal(keys secret.Keys, endpoint uuid.UUID, sealed []byte) (string, error) {
	plain, err := keys.Open(purpose, endpoint.String(), sealed)
	return secretPrefix + base64.StdEncoding.EncodeToString(plain), err
}

// Change is an update; nil fields keep what is stored.
type Change struct {
	URL         *string
	EventTypes  []string
	Description *string
	Ordered     *bool
	Enabled     *bool
}

// Update changes an endpoint. Disabling it has what is pending held; enabling it
// forgets its failures, and what is held stays so until it is redelivered.
func Update(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID, c Change) (Endpoint, error) {
	before, err := lock(ctx, tx, owner, id)
	if err != nil {
		return before, err
	}
	enabled := before.Enabled
	if c.Enabled != nil {
		enabled = *c.Enabled
	}
	const byOwner = "Disabled by the owner."
	// a new address has no history
	fresh := c.URL != nil && *c.URL != before.URL || enabled && !before.Enabled
	after, err := one(ctx, tx, `
		UPDATE webhook_endpoints SET url = coalesce($2, url), event_types = coalesce($3, event_types), description = coalesce($4, description),
			ordered = coalesce($5, ordered), updated_at = clock_timestamp(),
			disabled_at = CASE WHEN NOT $6 THEN coalesce(disabled_at, clock_timestamp()) END,
			disabled_reason = CASE WHEN NOT $6 THEN coalesce(disabled_reason, $7) END,
			failing_since = CASE WHEN NOT $8 THEN failing_since END,
			consecutive_failures = CASE WHEN NOT $8 THEN consecutive_failures ELSE 0 END,
			cooldown_until = CASE WHEN NOT $8 THEN cooldown_until END
		WHERE id = $1 RETURNING `+endpointSQL, id, c.URL, c.EventTypes, c.Description, c.Ordered, enabled, byOwner, fresh)
	if err != nil {
		return after, err
	}
	if !enabled && before.Enabled {
		if err := hold(ctx, tx, id, byOwner); err != nil {
			return after, err
		}
	}
	return after, record(ctx, tx, outbox.WebhookUpdated, owner, id, "")
}

// Delete ends an endpoint and what was still to be delivered to it. Its log stays
// readable until it is forgotten. Deleting again changes nothing; fault
// "not_found" for another owner's.
func Delete(ctx context.Context, tx *pg.Tx, owner, id uuid.UUID) error {
	var gone bool
	err := tx.QueryRow(ctx, `SELECT deleted_at IS NOT NULL FROM webhook_endpoints WHERE id = $1 AND owner_id = $2 FOR NO KEY UPDATE`, id, owner).Scan(&gone)
	switch {
	case pg.IsNoRows(err):
		return fault.NotFound("webhook")
	case err != nil || gone:
		return err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE webhook_endpoints SET deleted_at = clock_timestamp(), secret = NULL, old_secret = NULL, old_secret_until = NULL WHERE id = $1`, id); err != nil {
		return err
	}
	if err := endAll(ctx, tx, id); err != nil {
		return err
	}
	return record(ctx, tx, outbox.WebhookDeleted, owner, id, "")
}

// Rotate gives an endpoint a new secret; the one that it replaces signs too for
// [OldSecretLife]. sealed is for [Reveal].
func Rotate(ctx context.Context, tx *pg.Tx, keys secret.Keys, owner, id uuid.UUID) (e Endpoint, sealed []byte, err error) {
	sealed = newSecret(keys, id)
	e, err = one(ctx, tx, `
		UPDATE webhook_endpoints SET old_secret = secret, old_secret_until = clock_timestamp() + $4, secret = $3, updated_at = clock_timestamp()
		WHERE id = $1 AND owner_id = $2 AND deleted_at IS NULL RETURNING `+endpointSQL, id, owner, sealed, OldSecretLife)
	if err != nil {
		return e, nil, err
	}
	return e, sealed, record(ctx, tx, outbox.WebhookSecretRotated, owner, id, "")
}
