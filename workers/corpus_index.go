package workers

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
	// indexBytes is how many bytes of text they may have together: a batch of long
	// notes would otherwise outlast its jobs, or the memory.
	indexBytes = 4 << 20
	// newTerms is how many new words a batch may write along with its notes; more
	// are written before, in transactions of as many.
	newTerms = 10_000
	// togetherFor bounds a batch of several notes, aloneFor one of one. Jobs time
	// out between the two.
	togetherFor = 8 * time.Second
	aloneFor    = rescueAfter
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
	// togetherFor and aloneFor; shorter in tests
	together, alone time.Duration
}

type indexing struct {
	ctx  context.Context
	note uuid.UUID
	job  task.Job
	done chan error
	// alone: it was begun by itself, so that what becomes of it is its own
	alone atomic.Bool
}

func newIndexer(db *pg.DB, log *slog.Logger, t *telemetry.Telemetry) *indexer {
	return &indexer{db: db, log: log, telemetry: t, in: make(chan *indexing, 4*indexBatch), terms: newVocabulary(), together: togetherFor, alone: aloneFor}
}

// work hands a job to the next batch and waits for it. A job whose time is up
// because of others is put off, and loses no attempt.
func (x *indexer) work(ctx context.Context, job *river.Job[task.IndexArgs]) error {
	j := &indexing{ctx: ctx, note: job.Args.NoteID, job: record(job, nil), done: make(chan error, 1)}
	select {
	case x.in <- j:
	case <-ctx.Done():
		return j.late()
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		// its batch may still commit; then the next attempt finds it done
		return j.late()
	}
}

// late is the outcome of a job whose context has ended.
func (j *indexing) late() error {
	if errors.Is(j.ctx.Err(), context.DeadlineExceeded) && !j.alone.Load() {
		return river.JobSnooze(time.Second)
	}
	return j.ctx.Err()
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

// run indexes a batch, in parts of indexBytes. When a part fails as a whole, or
// takes too long, each of its jobs gets a try of its own, so that one bad note
// fails alone. batch is its to change.
func (x *indexer) run(batch []*indexing) {
	ctx := context.Background()
	for {
		batch = slices.DeleteFunc(batch, func(j *indexing) bool { return j.ctx.Err() != nil })
		if len(batch) == 0 {
			return
		}
		part, err := x.index(ctx, batch)
		batch = slices.DeleteFunc(batch, func(j *indexing) bool { return slices.Contains(part, j) })
		if err == nil || len(part) == 1 || pg.Unavailable(err) && !errors.Is(err, context.DeadlineExceeded) {
			for _, j := range part {
				j.done <- err
			}
			continue
		}
		x.log.LogAttrs(ctx, slog.LevelWarn, "workers: index batch failed, going one by one", slog.Int("jobs", len(part)), slog.Any("error", err))
		for _, j := range part {
			if j.ctx.Err() == nil {
				_, err := x.index(ctx, []*indexing{j})
				j.done <- err
			}
		}
	}
}

// index indexes as many of the batch's notes as belong in one transaction, and
// reports whose jobs these are.
func (x *indexer) index(ctx context.Context, batch []*indexing) (part []*indexing, err error) {
	notes := make([]uuid.UUID, len(batch))
	for i, j := range batch {
		notes[i] = j.note
	}
	slices.SortFunc(notes, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	ctx, cancel := context.WithTimeout(ctx, x.alone)
	defer cancel()
	sources, err := corpus.ReadForIndex(ctx, x.db, slices.Compact(notes), indexBytes)
	if err != nil {
		return slices.Clone(batch), err
	}
	read := map[uuid.UUID]bool{}
	for _, s := range sources {
		read[s.NoteID] = true
	}
	for _, j := range batch {
		if read[j.note] {
			part = append(part, j)
		}
	}
	if len(part) == 1 {
		part[0].alone.Store(true)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, x.together)
		defer cancel()
	}
	return part, x.write(ctx, part, sources)
}

func (x *indexer) write(ctx context.Context, part []*indexing, sources []corpus.Source) (err error) {
	ctx, span := x.telemetry.Together(ctx, "corpus.index batch", len(part), func(i int) context.Context { return part[i].ctx })
	defer func() { span.End(err) }()
	jobs := make([]task.Job, len(part))
	for i, j := range part {
		jobs[i] = j.job
	}
	rows := make([]corpus.IndexRow, len(sources))
	var analysis errgroup.Group
	analysis.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range sources {
		analysis.Go(func() error { rows[i] = corpus.BuildIndexRow(s); return nil })
	}
	_ = analysis.Wait()
	fresh := x.terms.unknown(rows)
	for len(fresh) > newTerms {
		some := fresh[:newTerms]
		if err := x.db.InTx(ctx, func(tx *pg.Tx) error { return corpus.WriteIndex(ctx, tx, some, nil) }); err != nil {
			return err
		}
		x.terms.learn(some)
		fresh = fresh[newTerms:]
	}
	err = x.db.InTx(ctx, func(tx *pg.Tx) error {
		open, err := task.Complete(ctx, tx, jobs)
		if err != nil || len(open) == 0 {
			return err
		}
		wanted := map[uuid.UUID]bool{}
		for _, j := range part {
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
