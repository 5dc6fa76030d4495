package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/fault"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// RedeliverMost is how many deliveries one call of [RedeliverAll] takes up.
const RedeliverMost = 1000

// Queued is a delivery that was asked for, with its receipt.
type Queued struct {
	DeliveryID uuid.UUID `json:"delivery_id"`
	EventID    uuid.UUID `json:"event_id"`
	EventType  string    `json:"event_type"`
	JobID      string    `json:"job_id" jsonschema:"the receipt: follow it with tasks.get"`
}

// SendTest asks for a delivery of type webhook.test to one endpoint. Faults:
// "not_found", "webhook_disabled" (409).
func SendTest(ctx context.Context, tx *pg.Tx, owner, endpoint uuid.UUID) (Queued, error) {
	e, err := ready(ctx, tx, owner, endpoint)
	if err != nil {
		return Queued{}, err
	}
	d := Delivery{ID: outbox.NewID(), OwnerID: owner, EndpointID: endpoint, EventType: TypeTest}
	d.EventID = d.ID
	if d.Payload, err = testPayload(e, time.Now()); err != nil {
		return Queued{}, err
	}
	return d.queued(), ask(ctx, tx, endpoint, []Delivery{d}, nil)
}

// ready locks an endpoint that deliveries can be asked for.
func ready(ctx context.Context, tx *pg.Tx, owner, endpoint uuid.UUID) (Endpoint, error) {
	e, err := lock(ctx, tx, owner, endpoint)
	if err == nil && !e.Enabled {
		err = fault.New(fault.Conflict, "webhook_disabled", "The webhook is disabled. Enable it first (webhooks.update with enabled true).")
	}
	return e, err
}

func (d Delivery) queued() Queued {
	return Queued{DeliveryID: d.ID, EventID: d.EventID, EventType: d.EventType, JobID: d.Task().String()}
}

// ask writes fresh deliveries and wakes held ones, whose rows they are and whose
// ID is that of the event that is to carry them out. What the owner asks for ends
// a cool-down.
func ask(ctx context.Context, tx *pg.Tx, endpoint uuid.UUID, fresh, held []Delivery) error {
	raw, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue(`UPDATE webhook_endpoints SET cooldown_until = NULL, consecutive_failures = 0 WHERE id = $1`, endpoint)
	if len(fresh) > 0 {
		Write(&b, fresh)
		ids := make([]uuid.UUID, len(fresh))
		for i, d := range fresh {
			ids[i] = d.repeats
		}
		b.Queue(`UPDATE webhook_deliveries SET repeated_at = clock_timestamp() WHERE id = ANY ($1)`, ids)
	}
	if len(held) > 0 {
		rows, events := make([]uuid.UUID, len(held)), make([]uuid.UUID, len(held))
		for i, d := range held {
			rows[i], events[i] = d.repeats, d.ID
		}
		b.Queue(`
			UPDATE webhook_deliveries d SET state = 'pending', task_event = k.event, due_at = clock_timestamp(), spent = 0
			FROM unnest($1::uuid[], $2::uuid[]) AS k (id, event) WHERE d.id = k.id`, rows, events)
	}
	if err := raw.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	var events []outbox.Event
	for _, d := range append(fresh, held...) {
		events = append(events, d.Event())
	}
	return outbox.RecordAll(ctx, tx, events)
}

const repeatSQL = `SELECT id, owner_id, endpoint_id, event_id, event_type, payload, state FROM webhook_deliveries`

// repeat makes ready what is to be delivered again: a held one goes on, one that
// has ended gets a new one with the same webhook-id and bytes.
func repeat(ctx context.Context, tx *pg.Tx, endpoint uuid.UUID, sql string, args ...any) (queued []Queued, pending bool, err error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, false, err
	}
	var d Delivery
	var state State
	var fresh, held []Delivery
	if _, err := pgx.ForEachRow(rows, []any{&d.repeats, &d.OwnerID, &d.EndpointID, &d.EventID, &d.EventType, &d.Payload, &state}, func() error {
		d.ID = outbox.NewID()
		switch state {
		case Pending:
			pending = true
		case Held:
			held = append(held, d)
		case Done, Discarded, Cancelled:
			fresh = append(fresh, d)
		}
		return nil
	}); err != nil {
		return nil, false, err
	}
	for _, d := range fresh {
		queued = append(queued, d.queued())
	}
	for _, d := range held {
		q := d.queued()
		q.DeliveryID = d.repeats
		queued = append(queued, q)
	}
	if len(queued) == 0 {
		return nil, pending, nil
	}
	return queued, pending, ask(ctx, tx, endpoint, fresh, held)
}

// Redeliver asks for one delivery again, whatever became of it. Twice gives two.
// Faults: "not_found", "webhook_disabled", and "delivery_pending" (409) for one
// that has not ended.
func Redeliver(ctx context.Context, tx *pg.Tx, owner, endpoint, delivery uuid.UUID) (Queued, error) {
	if _, err := ready(ctx, tx, owner, endpoint); err != nil {
		return Queued{}, err
	}
	queued, pending, err := repeat(ctx, tx, endpoint, repeatSQL+` WHERE id = $1 AND endpoint_id = $2 FOR UPDATE`, delivery, endpoint)
	switch {
	case err != nil:
		return Queued{}, err
	case pending:
		return Queued{}, fault.New(fault.Conflict, "delivery_pending", "This delivery has not ended: there is nothing to redeliver. tasks.retry has it attempted now.")
	case len(queued) == 0:
		return Queued{}, fault.NotFound("delivery")
	}
	return queued[0], nil
}

// RedeliverAll asks for the oldest [RedeliverMost] deliveries that are in state
// Discarded and were not repeated yet, or Held. more counts those that are left.
// Faults: "not_found", "webhook_disabled".
func RedeliverAll(ctx context.Context, tx *pg.Tx, owner, endpoint uuid.UUID, state State) (queued []Queued, more int, err error) {
	if _, err := ready(ctx, tx, owner, endpoint); err != nil {
		return nil, 0, err
	}
	const which = ` WHERE endpoint_id = $1 AND state = $2 AND repeated_at IS NULL`
	queued, _, err = repeat(ctx, tx, endpoint, repeatSQL+which+` ORDER BY event_id, id LIMIT $3 FOR UPDATE`, endpoint, state, RedeliverMost)
	if err != nil {
		return nil, 0, err
	}
	err = tx.QueryRow(ctx, `SELECT count(*) FROM webhook_deliveries`+which, endpoint, state).Scan(&more)
	return queued, more, err
}

// Receipt is the task of a delivery that was asked for.
func (q Queued) Receipt() task.ID {
	id, _ := task.ParseID(q.JobID) // we made it
	return id
}
