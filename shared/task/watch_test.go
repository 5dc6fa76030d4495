package task_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	owner := uuid.New()
	add := func(job int64) task.ID {
		id := task.ID{Event: uuid.New(), Subscriber: task.TasksBulk}
		if _, err := db.Exec(t.Context(), `INSERT INTO tasks (event_id, subscriber, owner_id, subject, job_id) VALUES ($1, $2, $3, 'all', $4)`,
			id.Event, id.Subscriber, owner, job); err != nil {
			t.Fatal(err)
		}
		return id
	}
	watch := func(ids ...task.ID) (next func() string, stop func()) {
		heard := make(chan string, 1)
		stop = task.Watch(t.Context(), db, ids, func(done, total float64, note string) {
			select {
			case heard <- fmt.Sprintf("%v/%v %s", done, total, note):
			default: // nobody reads any more
			}
		})
		return func() string {
			select {
			case s := <-heard:
				return s
			case <-time.After(time.Minute):
				t.Fatal("nothing is told")
				return ""
			}
		}, stop
	}
	until := func(next func() string, want string) {
		t.Helper()
		var s string
		for range 500 {
			if s = next(); s == want {
				return
			}
		}
		t.Fatalf("told %q, want %q", s, want)
	}

	one, two := add(1), add(2)
	next, stop := watch(one)
	if err := task.Report(t.Context(), db, 1, task.Progress{Done: 3, Total: 9, Note: "a.md"}, nil); err != nil {
		t.Fatal(err)
	}
	until(next, "3/9 a.md")
	stop()

	next, stop = watch(one, two)
	defer stop()
	until(next, "0/2 ")
	if err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		_, err := task.Complete(t.Context(), tx, []task.Job{{ID: 2, Subject: "all", StartedAt: time.Now()}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	until(next, "1/2 ")
}
