package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
)

// bench is an indexer with a batch of jobs, each for a note of its own.
type bench struct {
	*testing.T
	*indexer
	batch []*indexing
}

func newBench(t *testing.T, bodies ...string) *bench {
	b := &bench{T: t, indexer: newIndexer(pgtest.DB(t), slog.New(slog.DiscardHandler), nil)}
	owner := uuid.New()
	for i, body := range bodies {
		note, job := uuid.Must(uuid.NewV7()), int64(i+1)
		if _, err := b.db.Exec(t.Context(), `INSERT INTO notes (id, owner_id, genre, title, body) VALUES ($1, $2, 'raw', $3, $4)`, note, owner, fmt.Sprint("note ", i), body); err != nil {
			t.Fatal(err)
		}
		if _, err := b.db.Exec(t.Context(), `INSERT INTO tasks (event_id, subscriber, owner_id, subject, job_id) VALUES ($1, $2, $3, $4, $5)`, uuid.New(), task.CorpusIndex, owner, note.String(), job); err != nil {
			t.Fatal(err)
		}
		b.batch = append(b.batch, &indexing{ctx: t.Context(), note: note, job: task.Job{ID: job, Subject: note.String(), Attempt: 1, StartedAt: time.Now()}, done: make(chan error, 1)})
	}
	return b
}

func (b *bench) count(sql string) (n int) {
	b.Helper()
	if err := b.db.QueryRow(b.Context(), sql).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

func TestIndexBatchesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	bodies := make([]string, 12)
	for i := range bodies {
		bodies[i] = strings.Repeat("word ", 200_000)
	}
	bodies[7], bodies[8] = "short", "short"
	b := newBench(t, bodies...)
	b.run(slices.Clone(b.batch))
	for _, j := range b.batch {
		if err := <-j.done; err != nil {
			t.Error(err)
		}
	}
	if n := b.count(`SELECT count(*) FROM note_search`); n != 12 {
		t.Errorf("%d notes indexed", n)
	}
	if n := b.count(`SELECT count(*) FROM tasks WHERE state = 'completed'`); n != 12 {
		t.Errorf("%d tasks completed", n)
	}
	if n := b.count(`SELECT max(n) FROM (SELECT sum(octet_length(body)) AS n FROM note_search s JOIN notes ON id = note_id GROUP BY s.xmin::text) AS batch`); n > indexBytes {
		t.Errorf("one transaction indexed %d bytes", n)
	}
	if n := b.count(`SELECT count(DISTINCT xmin::text) FROM note_search`); n != 3 {
		t.Errorf("%d transactions", n)
	}
}

// TestNewWordsAreKept: the words of a batch that fails are not written again.
func TestNewWordsAreKept(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for i := range 3*newTerms + 100 {
		for _, c := range []int{i % 26, i / 26 % 26, i / 676 % 26, i / 17576} {
			body.WriteByte(byte('a' + c))
		}
		body.WriteByte(' ')
	}
	b := newBench(t, body.String())
	if _, err := b.db.Exec(t.Context(), `ALTER TABLE note_search ADD CONSTRAINT broken CHECK (false)`); err != nil {
		t.Fatal(err)
	}
	b.run(slices.Clone(b.batch))
	if err := <-b.batch[0].done; err == nil {
		t.Error("it did not fail")
	}
	if n := b.count(`SELECT count(*) FROM search_terms`); n != 3*newTerms {
		t.Errorf("%d words", n)
	}
	if _, err := b.db.Exec(t.Context(), `ALTER TABLE note_search DROP CONSTRAINT broken`); err != nil {
		t.Fatal(err)
	}
	b.run(slices.Clone(b.batch))
	if err := <-b.batch[0].done; err != nil {
		t.Error(err)
	}
	if n := b.count(`SELECT count(*) FROM search_terms`); n < 3*newTerms+100 {
		t.Errorf("%d words", n)
	}
}

// TestOneNoteHoldsNobodyUp: a note whose index row is locked takes the time of
// its batch; the others are indexed and lose no attempt.
func TestOneNoteHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, "one", "two", "three", "four")
	b.together, b.alone = 300*time.Millisecond, 600*time.Millisecond
	locked := b.batch[1]
	err := b.db.InTx(t.Context(), func(tx *pg.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO note_search (note_id, owner_id, version, turn) VALUES ($1, $1, 0, 0)`, locked.note); err != nil {
			return err
		}
		b.run(slices.Clone(b.batch))
		// once the row is free, what was given up may still commit
		if n := b.count(`SELECT count(*) FROM tasks WHERE state = 'completed'`); n != 3 {
			t.Errorf("%d tasks completed", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range b.batch {
		if err := <-j.done; (err != nil) != (j == locked) {
			t.Errorf("%s: %v", j.note, err)
		}
	}
}

// TestWhoeverWaitedLosesNoAttempt: the time of a job runs out before its turn.
func TestWhoeverWaitedLosesNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := &river.Job[task.IndexArgs]{JobRow: &rivertype.JobRow{ID: 1, Attempt: 1}, Args: task.IndexArgs{NoteID: uuid.New()}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var snooze *rivertype.JobSnoozeError
	if err := b.work(ctx, job); !errors.As(err, &snooze) { // nobody runs batches
		t.Errorf("its turn never came: %v", err)
	}
	late := <-b.in
	late.alone.Store(true)
	if err := late.late(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its own turn took too long: %v", err)
	}
	// the process stops: River knows what that is
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := b.work(stopped, job); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	// and one that has not been waited for is not begun
	late.alone.Store(false)
	b.run([]*indexing{late})
	select {
	case err := <-late.done:
		t.Errorf("begun too late: %v", err)
	default:
	}
	if err := b.db.QueryRow(t.Context(), `SELECT FROM note_search`).Scan(); !errors.Is(err, pgx.ErrNoRows) {
		t.Error(err)
	}
}
