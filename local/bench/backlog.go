package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"standmeet/local/bench/reference"
	"standmeet/local/stack"
	"standmeet/relay"
	"standmeet/shared/pg"
)

// backlog measures B4 and B5: the same events first become tasks and jobs, then
// the jobs are done, each with nothing else running. Every round has a fresh
// database.
func (b *bench) backlog(ctx context.Context) error {
	n, few := pick(b, 50_000, 10_000), pick(b, 5_000, 1_000)
	var fanOut, work, refFanOut, refWork, inSync, fanCPU, workCPU []float64
	times := pick(b, 3, 1)
	for i := range times {
		err := b.inDatabase(ctx, fmt.Sprintf("backlog_%d", i), func(url string, db *pg.DB) error {
			if err := b.fill(ctx, db, 0, n); err != nil {
				return err
			}
			var took, synced time.Duration
			cpu := b.cpuTime()
			measure := func() (err error) { took, err = b.drain(ctx, url, db); return err }
			if err := b.profile1(ctx, i, "B4", url, measure); err != nil {
				return err
			}
			fanOut, fanCPU = append(fanOut, float64(n)/took.Seconds()), append(fanCPU, ms(b.cpuTime()-cpu)/float64(n))
			cpu = b.cpuTime()
			measure = func() (err error) { took, synced, err = b.index(ctx, url, db, n); return err }
			if err := b.profile1(ctx, i, "B5", url, measure); err != nil {
				return err
			}
			work, inSync = append(work, float64(n)/took.Seconds()), append(inSync, float64(n)/synced.Seconds())
			workCPU = append(workCPU, ms(b.cpuTime()-cpu)/float64(n))
			took, worked, err := b.referenceBacklog(ctx, url, few)
			refFanOut, refWork = append(refFanOut, float64(few)/took.Seconds()), append(refWork, float64(few)/worked.Seconds())
			return err
		})
		if err != nil {
			return err
		}
	}
	middling, mean := b.sample.sizes(n)
	gain := func(a, b []float64) float64 {
		ratios := make([]float64, len(a))
		for i := range a {
			ratios[i] = a[i] / b[i]
		}
		return round(middle(ratios), 1)
	}
	// middle sorts, so the gains come first
	fanGain, workGain := gain(fanOut, refFanOut), gain(work, refWork)
	b.report.Figures["B4"] = Figure{
		What: fmt.Sprintf("fan-out of a backlog of %d events", n), Unit: "events/s", Value: round(middle(fanOut), 0), Rounds: times,
		Baseline: round(middle(refFanOut), 0), Gain: fanGain, Goal: "≥ 30000 events/s", Detail: map[string]any{"each_round": fanOut, "cpu_ms": round(middle(fanCPU), 4)},
	}.judge(func(f Figure) bool { return f.Value >= 30_000 })
	b.report.Figures["B5"] = Figure{
		What: fmt.Sprintf("index jobs done of a backlog of %d real notes", n), Unit: "jobs/s", Value: round(middle(work), 0), Rounds: times,
		Baseline: round(middle(refWork), 0), Gain: workGain, Goal: "≥ 4000 jobs/s",
		Detail: map[string]any{"median_bytes": middling, "mean_bytes": mean, "each_round": work, "cpu_ms": round(middle(workCPU), 4), "until_river_recorded_all": round(middle(inSync), 0)},
	}.judge(func(f Figure) bool { return f.Value >= 4_000 })
	return nil
}

// profile1 profiles the first round only.
func (b *bench) profile1(ctx context.Context, round int, figure, url string, f func() error) error {
	if round > 0 {
		return f()
	}
	return b.profiled(ctx, figure, url, f)
}

func (b *bench) inDatabase(ctx context.Context, name string, f func(url string, db *pg.DB) error) (err error) {
	url, drop, err := b.database(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	db, err := pg.Open(ctx, url, pg.Options{StatementTimeout: -1})
	if err != nil {
		return err
	}
	defer db.Close()
	return f(url, db)
}

// fill commits the notes from the i-th to before the n-th, as an import does:
// many to a statement, an event for each by the trigger.
func (b *bench) fill(ctx context.Context, db *pg.DB, i, n int) error {
	owner, err := b.owner(ctx, db)
	if err != nil {
		return err
	}
	for ; i < n; i += 1000 {
		var ids []uuid.UUID
		var titles, bodies []string
		for j := i; j < min(i+1000, n); j++ {
			ids, titles, bodies = append(ids, uuid.Must(uuid.NewV7())), append(titles, fmt.Sprintf("note %d", j)), append(bodies, b.sample.note(j))
		}
		err := db.InTx(ctx, func(tx *pg.Tx) error {
			_, err := tx.Exec(ctx, `
				INSERT INTO notes (id, owner_id, genre, title, title_key, slug, path, body)
				SELECT id, $1, 'wiki', title, title, replace(title, ' ', '-'), replace(title, ' ', '-'), body
				FROM unnest($2::uuid[], $3::text[], $4::text[]) AS k (id, title, body)`, owner, ids, titles, bodies)
			return err
		})
		if err != nil {
			return err
		}
	}
	// what the import dirtied is not written out in the middle of what follows
	_, err = db.Exec(ctx, `CHECKPOINT`)
	return err
}

// drain has one relay fan out everything, on a pool as the product gives it.
func (b *bench) drain(ctx context.Context, url string, db *pg.DB) (time.Duration, error) {
	pool, err := pg.Open(ctx, url, pg.Options{MaxConns: 4, AsyncCommit: true, Name: "relay"})
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	r, err := relay.New(pool, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- r.Run(running) }()
	// the newest goes last: one row is cheaper to watch than the queue
	err = until(ctx, 5*time.Millisecond, func() (bool, error) {
		var left bool
		err := db.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM event_queue WHERE event_id = (SELECT id FROM events ORDER BY id DESC LIMIT 1))
				OR EXISTS (SELECT FROM event_queue)`).Scan(&left)
		return !left, err
	})
	took := time.Since(began)
	stop()
	return took, errors.Join(err, <-ended)
}

// index has the workers do all jobs: the time to the last completed task, and
// until River has recorded the end of every job.
func (b *bench) index(ctx context.Context, url string, db *pg.DB, n int) (took, synced time.Duration, err error) {
	began := time.Now()
	s, err := stack.Start(ctx, stack.Options{URL: url}, stack.Parts{Workers: true})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	err = until(ctx, 100*time.Millisecond, func() (bool, error) {
		var open bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM tasks WHERE state <> 'completed')`).Scan(&open)
		return !open, err
	})
	if err != nil {
		return 0, 0, err
	}
	var last time.Time
	var found int
	if err := db.QueryRow(ctx, `SELECT max(finished_at), (SELECT count(*) FROM note_search) FROM tasks`).Scan(&last, &found); err != nil {
		return 0, 0, err
	}
	if found != n {
		return 0, 0, fmt.Errorf("%d of %d notes are indexed", found, n)
	}
	err = until(ctx, 20*time.Millisecond, func() (bool, error) {
		n, err := reference.Unfinished(ctx, db)
		return n == 0, err
	})
	return last.Sub(began), time.Since(began), err
}

func (b *bench) referenceBacklog(ctx context.Context, url string, n int) (fanOut, work time.Duration, err error) {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = b.sample.note(i)
	}
	stage := func(o reference.Options, first func(*reference.Reference) error, done func(*reference.Reference) (int, error)) (took time.Duration, err error) {
		began := time.Now()
		r, err := reference.Start(ctx, url, o)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.Stop(ctx)) }()
		if err := first(r); err != nil {
			return 0, err
		}
		err = until(ctx, 10*time.Millisecond, func() (bool, error) {
			n, err := done(r)
			return n == 0, err
		})
		return time.Since(began), err
	}
	nothing := func(*reference.Reference) error { return nil }
	fill := func(r *reference.Reference) error { return r.Fill(ctx, uuid.New(), bodies) }
	if _, err = stage(reference.Options{}, fill, func(*reference.Reference) (int, error) { return 0, nil }); err != nil {
		return 0, 0, err
	}
	if fanOut, err = stage(reference.Options{Relay: true}, nothing, func(r *reference.Reference) (int, error) { return r.Unfanned(ctx) }); err != nil {
		return 0, 0, err
	}
	work, err = stage(reference.Options{Workers: true}, nothing, func(r *reference.Reference) (int, error) { return r.Unfinished(ctx) })
	return fanOut, work, err
}

// until asks again and again until the answer is yes, for two minutes at most.
func until(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not done within two minutes"))
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
