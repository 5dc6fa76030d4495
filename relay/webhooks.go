package relay

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/webhook"
)

// deliveries are what webhooks get of the claimed events, in the transaction that
// fans them out: a delivery is there exactly when its event was fanned out.
type deliveries struct {
	all []webhook.Delivery
	// events are those whose tasks carry them out, fanned out with their causes
	events []outbox.Event
	causes []uuid.UUID
}

// match finds the endpoints that subscribe to events. It costs nothing when none
// of them may leave by webhook.
func match(ctx context.Context, tx *pg.Tx, events []outbox.Event) (d deliveries, err error) {
	if d.all, err = webhook.Match(ctx, tx, events); err != nil {
		return d, err
	}
	for _, one := range d.all {
		if !one.Held {
			d.events, d.causes = append(d.events, one.Event()), append(d.causes, one.EventID)
		}
	}
	return d, nil
}

// write queues the rows of the deliveries and of their events.
func (d deliveries) write(b *pgx.Batch) {
	if len(d.all) > 0 {
		webhook.Write(b, d.all)
	}
	if len(d.events) > 0 {
		outbox.RecordFanned(b, d.events)
	}
}

func deliverArgs(e outbox.Event) (river.JobArgs, error) {
	endpoint, err := subjectID(e)
	return task.WebhookDeliverArgs{OwnerID: e.OwnerID, EndpointID: endpoint, Trace: e.Trace}, err
}
