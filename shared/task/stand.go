package task

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// Standing is where a task stands, in short.
type Standing struct {
	State    State
	Sentence string
}

// Stand reads where tasks of an owner stand, in one look. Those that are no
// longer kept, and ids that are none of the owner's, are left out.
func Stand(ctx context.Context, q pg.Querier, owner uuid.UUID, ids []ID) (map[ID]Standing, error) {
	found := make(map[ID]Standing, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	events, subscribers := make([]uuid.UUID, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		events[i], subscribers[i] = id.Event, id.Subscriber
	}
	// one that the relay has not made yet is that of an event that waits
	rows, err := q.Query(ctx, `
		SELECT k.event_id, k.subscriber, coalesce(e.type, ''), CASE WHEN t.event_id IS NULL THEN 'pending' ELSE `+stateSQL+` END,
			coalesce(t.cancel_requested_at IS NOT NULL AND t.state IN ('pending', 'running'), false), q.poisoned_at IS NOT NULL
		FROM unnest($2::uuid[], $3::text[]) AS k (event_id, subscriber)
			LEFT JOIN tasks t ON t.event_id = k.event_id AND t.subscriber = k.subscriber AND t.owner_id = $1
			LEFT JOIN river_job j ON j.id = t.job_id
			LEFT JOIN event_queue q ON q.event_id = k.event_id AND t.event_id IS NULL
			LEFT JOIN events e ON e.id = q.event_id AND e.owner_id = $1
		WHERE t.event_id IS NOT NULL OR e.id IS NOT NULL`, owner, events, subscribers)
	if err != nil {
		return nil, pg.Fault(err)
	}
	var id ID
	var event string
	var t Task
	_, err = pgx.ForEachRow(rows, []any{&id.Event, &id.Subscriber, &event, &t.State, &t.CancelRequested, &t.SetAside}, func() error {
		if event == "" || asksFor(event, id.Subscriber) {
			t.Kind = id.Subscriber
			found[id] = Standing{t.State, t.say()}
		}
		return nil
	})
	return found, pg.Fault(err)
}
