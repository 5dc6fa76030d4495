package bench

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/local/bench/reference"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

func TestCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word word word\n", 60) // 900 bytes
	doc := "# One\nshort\n\n## Two\n" + long + "### Three\n" + strings.Repeat(long, 20) + "#### Four\ntoo short to stand alone\n"
	pieces := cut(doc)
	if len(pieces) < 4 || !strings.HasPrefix(pieces[0], "# One\nshort\n\n## Two\n") || !strings.HasPrefix(pieces[1], "### Three") {
		t.Errorf("%d pieces: %.60q", len(pieces), pieces)
	}
	for _, p := range pieces {
		if len(p) < minNote || len(p) > maxNote {
			t.Errorf("a piece of %d bytes", len(p))
		}
	}
	s := sample{notes: pieces}
	if s.note(0) == s.note(len(pieces)) {
		t.Error("the second time round the notes are the same")
	}
	if j := s.jotting(1); len(j) > jottingSize || len(j) < jottingSize/2 {
		t.Errorf("a jotting of %d bytes", len(j))
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	of := func(ms ...int) run {
		r := run{elapsed: time.Second}
		for _, n := range ms {
			r.took = append(r.took, time.Duration(n)*time.Millisecond)
		}
		return r
	}
	a, b := rounds{of(2, 1, 3), of(20, 10, 30), of(5, 4, 6)}, rounds{of(1, 1, 1), of(5, 5, 5), of(5, 5, 5)}
	if got := a.p50(); got != 5 { // of 2, 20, 5
		t.Errorf("p50 %v", got)
	}
	if got := a.p99(); got != 30 {
		t.Errorf("p99 %v", got)
	}
	if got := ratio(a, b, run.p50); got != 2 { // of 2/1, 20/5, 5/5
		t.Errorf("ratio %v", got)
	}
	if got := (rounds{of(1, 1), of(1, 1, 1, 1)}).rate(); got != 3 {
		t.Errorf("rate %v", got)
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing %v", got)
	}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	none := func(string) (string, bool) { return "", false }
	o, err := ParseFlags([]string{"-quick", "-only", "B1,B4"}, none)
	b := bench{Options: o}
	if err != nil || !o.Quick || !b.wants("B4") || b.wants("B2") {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := ParseFlags(nil, func(string) (string, bool) { return "1", true }); err != nil || !o.Quick || o.Only != nil {
		t.Errorf("BENCH_QUICK=1: %+v, %v", o, err)
	}
}

// What is compared does what it is said to.
func TestContenders(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	if err := reference.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db, err := pg.Open(t.Context(), url, pg.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if _, err := db.Exec(t.Context(), floorSchema); err != nil {
		t.Fatal(err)
	}
	count := func(sql string) (n int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	bare := floor{db: db, body: func() string { return "body" }}
	for range 2 {
		if err := bare.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	done := count(`
		SELECT count(*) FROM floor.notes n JOIN floor.events e ON e.subject = n.id::text
		JOIN floor.tasks t ON t.event_id = e.id AND t.state = 'completed'
		JOIN floor.jobs j ON j.id = t.job_id AND j.state = 'completed'`)
	if left := count(`SELECT count(*) FROM floor.event_queue`); done != 2 || left != 0 {
		t.Errorf("the floor completed %d and left %d", done, left)
	}

	ref, err := reference.Start(t.Context(), url, reference.Options{Relay: true, Workers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ref.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := ref.Write(t.Context(), uuid.New(), "a note about whales"); err != nil {
		t.Fatal(err)
	}
	if n := count(`SELECT count(*) FROM reference.note_search WHERE words @@ 'whale'`); n != 1 {
		t.Errorf("the reference indexed %d notes", n)
	}
}

func TestClosedLoop(t *testing.T) {
	t.Parallel()
	spent := func() time.Duration { return time.Second }
	var ops atomic.Int64
	r, err := closedLoop(t.Context(), spent, 4, time.Millisecond, func(context.Context) error { ops.Add(1); return nil })
	if err != nil || len(r.took) < 4 || len(r.took) != int(ops.Load()) || r.elapsed < time.Millisecond || r.cpu != 0 {
		t.Errorf("%d of %d in %v, %v", len(r.took), ops.Load(), r.elapsed, err)
	}
	want := errors.New("no")
	if _, err := closedLoop(t.Context(), spent, 4, time.Hour, func(context.Context) error { return want }); !errors.Is(err, want) {
		t.Errorf("error %v", err)
	}
}
