package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"standmeet/shared/task"
)

// both is what a cancel and a retry of one task answered: a state or a refusal.
type both struct {
	cancelled, retried       task.State
	cancelError, retryError  error
	cancelledBeforeItRetried bool
}

// cancelAndRetry asks for both at once, or for the one after the other.
func (w *world) cancelAndRetry(id task.ID, inTurn bool) (b both) {
	b.cancelledBeforeItRetried = inTurn
	cancel := func() { b.cancelled, b.cancelError = w.cancel(id) }
	retry := func() {
		b.retryError = w.retry(id)
		b.retried = w.get(id).State
	}
	if inTurn {
		cancel()
		retry()
		return b
	}
	var asking sync.WaitGroup
	asking.Go(cancel)
	asking.Go(retry)
	asking.Wait()
	return b
}

// check compares both answers with the state at rest. A retry is accepted only of
// what has ended, so one that was has overtaken the cancel and is the last word;
// else the cancel is.
func (w *world) check(id task.ID, b both) {
	w.Helper()
	is := w.get(id).State
	fail := func(what string) {
		w.Errorf("%s: %s; cancel said %s (%v), retry %s (%v), and it is %s", id, what, b.cancelled, b.cancelError, b.retried, b.retryError, is)
	}
	switch {
	case b.cancelError != nil && code(b.cancelError) != "task_ended":
		fail("cancelling failed")
	case b.cancelledBeforeItRetried && (b.cancelError != nil || b.cancelled != task.Cancelled || b.retryError != nil):
		fail("what waits can be cancelled, and what was cancelled retried")
	case b.retryError == nil && (is != task.Completed || b.retried == task.Cancelled):
		fail("the retry was accepted and did not take place")
	case b.retryError != nil && b.cancelled != is:
		fail("the retry was refused, and the cancel did not tell the end")
	case b.retryError != nil && b.cancelError != nil && is != task.Completed:
		fail("neither was done, and it did not complete")
	}
	switch c := code(b.retryError); c {
	case "<nil>", "task_pending", "task_running", "task_completed":
	default:
		fail("retrying failed")
	}
	want := 0
	if is == task.Completed {
		want = 1
	}
	if n := w.count(`SELECT count(*) FROM effects WHERE job IN (SELECT id FROM river_job WHERE args->>'event_id' = $1 OR args->>'note_id' = $2)`, id.Event, w.get(id).Subject); n != want {
		w.Errorf("%s is %s and had %d effects", id, is, n)
	}
}

// Cancel and retry together (case T5): whoever comes first, each answer agrees
// with the state at rest. With everything running, before a relay has run, and
// while no worker does.
func TestCancelAndRetryTogether(t *testing.T) {
	short := only(task.CorpusIndex, task.MailTest, func(ctx context.Context, _ int64) error {
		select {
		case <-time.After(20 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for _, kind := range []string{task.CorpusIndex, task.MailTest} {
		for _, c := range []struct {
			name                   string
			relay, workers, inTurn bool
		}{
			{"all running", true, true, false},
			{"no worker", true, false, false},
			{"no worker, in turn", true, false, true},
			{"no relay", false, true, false},
			{"no relay, in turn", false, true, true},
		} {
			t.Run(kind+" "+c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorldAtRest(t)
				if c.relay {
					w.relays()
				}
				if c.workers {
					w.work(short)
				}
				answers := map[task.ID]both{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range 30 {
					all.Go(func() {
						id := w.ask(kind)
						// half of them meet a job, which is further on in each
						if c.relay && i%2 == 0 {
							w.eventually("a job", func() bool {
								return w.count(`SELECT count(*) FROM tasks WHERE event_id = $1`, id.Event) == 1
							})
						}
						b := w.cancelAndRetry(id, c.inTurn)
						mu.Lock()
						defer mu.Unlock()
						answers[id] = b
					})
				}
				all.Wait()
				if !c.relay {
					w.relays()
				}
				if !c.workers {
					w.work(short)
				}
				w.settled()
				seen := map[string]int{}
				for id, b := range answers {
					w.check(id, b)
					seen[fmt.Sprint(b.cancelled, code(b.retryError))]++
				}
				t.Log(seen)
			})
		}
	}
}
