package webhook

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
)

// Delivery is one about to be written.
type Delivery struct {
	// ID is the delivery's, and that of the event whose task carries it out.
	ID         uuid.UUID
	OwnerID    uuid.UUID
	EndpointID uuid.UUID
	EventID    uuid.UUID
	EventType  string
	Payload    string
	// Held: the endpoint is disabled, so that no task is due.
	Held bool
	// Trace is of the event.
	Trace string

	repeats uuid.UUID
}

// Match gives the deliveries that events ask for. It asks the database only when
// one of them may leave by webhook.
func Match(ctx context.Context, q pg.Querier, events []outbox.Event) ([]Delivery, error) {
	var owners []uuid.UUID
	bodies := map[int]string{}
	for i, e := range events {
		body, ok, err := leaves(e)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		bodies[i] = body
		if !slices.Contains(owners, e.OwnerID) {
			owners = append(owners, e.OwnerID)
		}
	}
	if len(bodies) == 0 {
		return nil, nil
	}
	type subscriber struct {
		id       uuid.UUID
		globs    []string
		disabled bool
	}
	rows, err := q.Query(ctx, `
		SELECT owner_id, id, event_types, disabled_at IS NOT NULL FROM webhook_endpoints
		WHERE owner_id = ANY ($1) AND deleted_at IS NULL ORDER BY id`, owners)
	if err != nil {
		return nil, err
	}
	endpoints := map[uuid.UUID][]subscriber{}
	var owner uuid.UUID
	var s subscriber
	if _, err := pgx.ForEachRow(rows, []any{&owner, &s.id, &s.globs, &s.disabled}, func() error {
		endpoints[owner] = append(endpoints[owner], subscriber{s.id, slices.Clone(s.globs), s.disabled})
		return nil
	}); err != nil {
		return nil, err
	}
	var due []Delivery
	for i, e := range events {
		body, ok := bodies[i]
		if !ok {
			continue
		}
		for _, s := range endpoints[e.OwnerID] {
			if slices.ContainsFunc(s.globs, func(g string) bool { return matches(g, e.Type) }) {
				due = append(due, Delivery{
					ID: outbox.NewID(), OwnerID: e.OwnerID, EndpointID: s.id, EventID: e.ID, EventType: e.Type,
					Payload: body, Held: s.disabled, Trace: e.Trace,
				})
			}
		}
	}
	return due, nil
}

// Event is the one whose task carries the delivery out.
func (d Delivery) Event() outbox.Event {
	data, _ := json.Marshal(map[string]any{"delivery_id": d.ID, "event_id": d.EventID, "event_type": d.EventType}) // plain texts
	return outbox.Event{ID: d.ID, Type: outbox.DeliveryRequested, OwnerID: d.OwnerID, Subject: d.EndpointID.String(), Data: data, Trace: d.Trace, OccurredAt: time.Now()}
}

// Task is the delivery's receipt.
func (d Delivery) Task() task.ID { return task.ID{Event: d.ID, Subscriber: task.WebhookDeliver} }

// Write queues the writing of deliveries. The events of those that are not held
// belong in the same transaction.
func Write(b *pgx.Batch, all []Delivery) {
	n := len(all)
	ids, owners, endpoints, events, repeats := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	types, payloads, held := make([]string, n), make([]string, n), make([]bool, n)
	for i, d := range all {
		ids[i], owners[i], endpoints[i], events[i], repeats[i] = d.ID, d.OwnerID, d.EndpointID, d.EventID, d.repeats
		types[i], payloads[i], held[i] = d.EventType, d.Payload, d.Held
	}
	b.Queue(`
		INSERT INTO webhook_deliveries (id, owner_id, endpoint_id, event_id, event_type, payload, state, task_event, repeats)
		SELECT id, owner_id, endpoint_id, event_id, event_type, payload,
			CASE WHEN held THEN 'held' ELSE 'pending' END, CASE WHEN NOT held THEN id END, nullif(repeats, '00000000-0000-0000-0000-000000000000')
		FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bool[], $8::uuid[])
			AS d (id, owner_id, endpoint_id, event_id, event_type, payload, held, repeats)`,
		ids, owners, endpoints, events, types, payloads, held, repeats)
}
