package workers

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"standmeet/shared/corpus"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
)

const (
	// indexBatch is how many notes one transaction indexes at most.
	indexBatch = 200
	// heldUp is how long the next batch waits for one that is not full.
	heldUp = 50 * time.Millisecond
)

// indexer gathers index jobs that run at the same time and gives each batch one
// read, one analysis in parallel, and one transaction that writes the index
// rows and completes the tasks. It never waits for a batch to fill.
type indexer struct {
	db        *pg.DB
	log       *slog.Logger
	telemetry *telemetry.Telemetry
	in        chan *indexing
	terms     *vocabulary
}

type indexing struct {
	ctx  context.Context
	note uuid.UUID
	job  task.Job
	done chan error
}

func newIndexer(db *pg.DB, log *slog.Logger, t *telemetry.Telemetry) *indexer {
	return &indexer{db: db, log: log, telemetry: t, in: make(chan *indexing, 4*indexBatch), terms: newVocabulary()}
}

// work hands a job to the next batch and waits for it.
func (x *indexer) work(ctx context.Context, job *river.Job[task.IndexArgs]) error {
	j := &indexing{ctx: ctx, note: job.Args.NoteID, job: record(job, nil), done: make(chan error, 1)}
	select {
	case x.in <- j:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		// its batch may still commit; then the next attempt finds it done
		return ctx.Err()
	}
}

// start runs batches until the returned function is called: one at a time, so
// that what comes in meanwhile makes the next one larger, and indexLanes at a time
// while there is more than a batch holds or one is held up.
func (x *indexer) start() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var lanes errgroup.Group
		lanes.SetLimit(indexLanes)
		defer func() { _ = lanes.Wait() }()
		for {
			select {
			case first := <-x.in:
				batch, done := x.gather(first), make(chan struct{})
				lanes.Go(func() error { defer close(done); x.run(batch); return nil })
				if len(batch) < indexBatch {
					select {
					case <-done:
					case <-time.After(heldUp):
					}
				}
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func (x *indexer) gather(first *indexing) []*indexing {
	batch := []*indexing{first}
	for len(batch) < indexBatch {
		select {
		case j := <-x.in:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// run indexes a batch. When the batch fails as a whole, each job gets a try of
// its own, so that one bad note fails alone.
func (x *indexer) run(batch []*indexing) {
	ctx := context.Background()
	batch = slices.DeleteFunc(batch, func(j *indexing) bool { return j.ctx.Err() != nil })
	if len(batch) == 0 {
		return
	}
	err := x.index(ctx, batch)
	if err != nil && len(batch) > 1 && !pg.Unavailable(err) {
		x.log.LogAttrs(ctx, slog.LevelWarn, "workers: index batch failed, going one by one", slog.Int("jobs", len(batch)), slog.Any("error", err))
		for _, j := range batch {
			j.done <- x.index(ctx, []*indexing{j})
		}
		return
	}
	for _, j := range batch {
		j.done <- err
	}
}

func (x *indexer) index(ctx context.Context, batch []*indexing) (err error) {
	ctx, span := x.telemetry.Together(ctx, "corpus.index batch", len(batch), func(i int) context.Context { return batch[i].ctx })
	defer func() { span.End(err) }()
	ctx, cancel := context.WithTimeout(ctx, rescueAfter)
	defer cancel()
	notes := make([]uuid.UUID, len(batch))
	jobs := make([]task.Job, len(batch))
	for i, j := range batch {
		notes[i], jobs[i] = j.note, j.job
	}
	slices.SortFunc(notes, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	sources, err := corpus.ReadForIndex(ctx, x.db, slices.Compact(notes))
	if err != nil {
		return err
	}
	rows := make([]corpus.IndexRow, len(sources))
	var analysis errgroup.Group
	analysis.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range sources {
		analysis.Go(func() error { rows[i] = corpus.BuildIndexRow(s); return nil })
	}
	_ = analysis.Wait()
	fresh := x.terms.unknown(rows)
	err = x.db.InTx(ctx, func(tx *pg.Tx) error {
		open, err := task.Complete(ctx, tx, jobs)
		if err != nil || len(open) == 0 {
			return err
		}
		wanted := map[uuid.UUID]bool{}
		for _, j := range batch {
			if open[j.job.ID] {
				wanted[j.note] = true
			}
		}
		write := slices.DeleteFunc(slices.Clone(rows), func(r corpus.IndexRow) bool { return !wanted[r.NoteID] })
		return corpus.WriteIndex(ctx, tx, fresh, write)
	})
	if err == nil {
		x.terms.learn(fresh)
	}
	return err
}

// vocabulary remembers which words are known to be in the database, so that
// only new ones are written. It forgets everything when it is full.
type vocabulary struct {
	mu    sync.Mutex
	known map[corpus.Term]struct{}
}

const vocabularySize = 300_000

func newVocabulary() *vocabulary { return &vocabulary{known: map[corpus.Term]struct{}{}} }

func (v *vocabulary) unknown(rows []corpus.IndexRow) []corpus.Term {
	fresh := map[corpus.Term]struct{}{}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range rows {
		for _, word := range r.Terms {
			t := corpus.Term{OwnerID: r.OwnerID, Word: word}
			if _, ok := v.known[t]; !ok {
				fresh[t] = struct{}{}
			}
		}
	}
	terms := make([]corpus.Term, 0, len(fresh))
	for t := range fresh {
		terms = append(terms, t)
	}
	return terms
}

func (v *vocabulary) learn(terms []corpus.Term) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known)+len(terms) > vocabularySize {
		clear(v.known)
	}
	for _, t := range terms {
		v.known[t] = struct{}{}
	}
}
