package task

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// watchPause is the time between two looks at how far tasks have come.
const watchPause = 250 * time.Millisecond

// Watch tells again and again how far tasks have come, until stop is
// called, which returns once nothing more is told. Of one task it tells what its
// worker reported; of several, how many have ended.
func Watch(ctx context.Context, q pg.Querier, ids []ID, tell func(done, total float64, note string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(watchPause)
		defer tick.Stop()
		for {
			// what can't be read now is told the next time
			if p, ok, err := progressOf(ctx, q, ids); err == nil && ok && ctx.Err() == nil {
				tell(float64(p.Done), float64(p.Total), p.Note)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); ended.Wait() }
}

func progressOf(ctx context.Context, q pg.Querier, ids []ID) (p Progress, ok bool, err error) {
	events, subscribers := make([]uuid.UUID, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		events[i], subscribers[i] = id.Event, id.Subscriber
	}
	rows, err := q.Query(ctx, `
		SELECT t.state NOT IN ('pending', 'running'), t.progress
		FROM tasks t JOIN unnest($1::uuid[], $2::text[]) AS k (event_id, subscriber) USING (event_id, subscriber)`, events, subscribers)
	if err != nil {
		return p, false, err
	}
	several := Progress{Total: len(ids)}
	var over bool
	var body []byte
	if _, err = pgx.ForEachRow(rows, []any{&over, &body}, func() error {
		if over {
			several.Done++
		}
		if len(ids) > 1 || body == nil {
			return nil
		}
		ok = true
		return json.Unmarshal(body, &p)
	}); err != nil {
		return p, false, err
	}
	if len(ids) > 1 {
		return several, true, nil
	}
	return p, ok, nil
}
