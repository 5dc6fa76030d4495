package workers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"standmeet/shared/blob"
	"standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/microsite"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/workers/internal/sitebuild"
)

const (
	// maxNotes bounds the notes that the pages of one build show, in bytes.
	maxNotes = 8 << 20
	// putsAtOnce is how many blobs are put at a time.
	putsAtOnce = 8
)

// Builder makes a process that was started to build one microsite do so and end.
// It returns in every other process, and is called before anything else.
func Builder() { sitebuild.Child() }

// builder builds microsites.
type builder struct {
	db    *pg.DB
	blobs blob.Store
	// build replaces the process of its own, in tests
	build func(context.Context, sitebuild.Input) (sitebuild.Output, error)
}

func newBuilder(db *pg.DB, blobs blob.Store) *builder {
	return &builder{db, blobs, func(ctx context.Context, in sitebuild.Input) (sitebuild.Output, error) {
		return sitebuild.Isolated(ctx, in, sitebuild.DefaultLimits())
	}}
}

// work builds what the event asked for. All that an attempt leaves before it settles
// the build are blobs that are named by their content, so that an attempt which was
// cut off, or still goes on somewhere, changes nothing.
func (b *builder) work(ctx context.Context, job *river.Job[task.MicrositeBuildArgs]) error {
	id := job.Args.EventID
	if b.blobs == nil {
		return permanent(errors.New("no store of files is configured"))
	}
	var src microsite.Source
	var open bool
	if err := b.db.InTx(ctx, func(tx *pg.Tx) (err error) {
		src, open, err = microsite.StartBuild(ctx, tx, id)
		return err
	}); err != nil || !open {
		return err
	}
	if len(src.Files) == 0 {
		return b.settle(ctx, job, microsite.Failed, []microsite.Message{{Severity: "error", Text: "The site was deleted before it was built."}}, nil)
	}
	report := func(done int, note string) error {
		return task.Report(ctx, b.db, job.ID, task.Progress{Done: done, Total: 3, Note: note}, nil)
	}
	if err := report(0, "reading the notes that it shows"); err != nil {
		return err
	}
	in := sitebuild.Input{Name: src.Title, Files: src.Files}
	if in.Name == "" {
		in.Name = src.Slug
	}
	if why, err := b.notes(ctx, src, &in); err != nil {
		return err
	} else if why != "" {
		return b.settle(ctx, job, microsite.Failed, []microsite.Message{{Severity: "error", Text: why}}, nil)
	}
	if err := report(1, "building"); err != nil {
		return err
	}
	made, err := b.build(ctx, in)
	if err != nil {
		return err
	}
	if made.Failed() {
		return b.settle(ctx, job, microsite.Failed, made.Log, nil)
	}
	if err := report(2, "storing what was built"); err != nil {
		return err
	}
	out, err := b.store(ctx, id, made.Files)
	if err != nil {
		return err
	}
	return b.settle(ctx, job, microsite.Built, made.Log, out)
}

// settle ends the build and its task together.
func (b *builder) settle(ctx context.Context, job *river.Job[task.MicrositeBuildArgs], status microsite.Status, log []microsite.Message, out []microsite.Output) error {
	return b.db.InTx(ctx, func(tx *pg.Tx) error {
		open, err := task.Complete(ctx, tx, []task.Job{record(job, nil)})
		if err != nil || !open[job.ID] {
			return err // cancelled meanwhile, which has settled it
		}
		_, err = microsite.Settle(ctx, tx, job.Args.OwnerID, job.Args.EventID, status, log, out)
		return err
	})
}

// store puts what was made.
func (b *builder) store(ctx context.Context, build uuid.UUID, files []sitebuild.File) ([]microsite.Output, error) {
	out, keys := make([]microsite.Output, len(files)), make([]string, len(files))
	for i, f := range files {
		sum := sha256.Sum256(f.Content)
		keys[i] = "sites/" + build.String() + "/" + hex.EncodeToString(sum[:])
		out[i] = microsite.Output{Path: f.Path, Blob: keys[i], SHA256: sum[:], Size: len(f.Content), ContentType: f.ContentType}
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	if err := microsite.Blobs(ctx, b.db, build, distinct); err != nil {
		return nil, err
	}
	putting, inPut := errgroup.WithContext(ctx)
	putting.SetLimit(putsAtOnce)
	for _, key := range distinct {
		f := files[slices.Index(keys, key)]
		putting.Go(func() error { return b.blobs.Put(inPut, key, f.Content, blob.Meta{ContentType: f.ContentType}) })
	}
	return out, putting.Wait()
}

// notes reads what the site's pages show of the corpus: public notes alone, since
// its visitors may be anybody. why says what can't be shown.
func (b *builder) notes(ctx context.Context, src microsite.Source, in *sitebuild.Input) (why string, err error) {
	public := []corpus.Visibility{corpus.Public}
	targets, queries := sitebuild.Wanted(src.Files)
	if len(targets) > corpus.MaxLinks {
		return fmt.Sprintf("The pages refer to %d notes, and may refer to %d.", len(targets), corpus.MaxLinks), nil
	}
	in.Notes, in.Lists = map[string]sitebuild.Note{}, map[string][]sitebuild.Note{}
	body := "[[" + strings.Join(targets, "]]\n\n[[") + "]]"
	links, err := corpus.LinksOf(ctx, b.db, src.OwnerID, corpus.Note{Genre: corpus.Wiki, Body: &body}, public)
	if err != nil {
		return "", err
	}
	total := 0
	for _, l := range links {
		if l.Note == nil {
			continue
		}
		n, err := corpus.Get(ctx, b.db, src.OwnerID, l.Note.ID)
		if f := fault.From(err); f != nil && f.Kind == fault.NotFoundKind || err == nil && n.Visibility != corpus.Public {
			continue // changed since
		} else if err != nil {
			return "", err
		}
		if total += len(*n.Body); total > maxNotes {
			return fmt.Sprintf("The notes that the pages refer to have more than %d MiB together.", maxNotes>>20), nil
		}
		note := listed(src.Handle, n, "")
		note.Body = *n.Body
		in.Notes[l.Target] = note
	}
	for _, text := range queries {
		q, why := sitebuild.ParseQuery(text)
		if why != "" {
			continue // the builder says where
		}
		if q.Search == "" {
			found, _, _, err := corpus.List(ctx, b.db, src.OwnerID, corpus.Filter{Genre: corpus.Genre(q.Genre), Tag: q.Tag, Seen: public}, corpus.Position{}, q.Limit)
			if err != nil {
				return "", err
			}
			for _, n := range found {
				in.Lists[text] = append(in.Lists[text], listed(src.Handle, n, ""))
			}
			continue
		}
		found, err := corpus.Search(ctx, b.db, src.OwnerID, corpus.SearchOptions{Query: q.Search, Genre: corpus.Genre(q.Genre), Tag: q.Tag, Seen: public, Limit: q.Limit})
		if f := fault.From(err); f != nil && f.Kind == fault.Invalid {
			return "A query of a page can't be searched for: " + f.Detail, nil
		}
		if err != nil {
			return "", err
		}
		for _, h := range found.Hits {
			in.Lists[text] = append(in.Lists[text], listed(src.Handle, h.Note, h.Snippet))
		}
	}
	return "", nil
}

// listed is a note as a page tells of it.
func listed(handle string, n corpus.Note, snippet string) sitebuild.Note {
	u := url.URL{Path: "/@" + handle + "/notes/" + n.Path}
	if n.Genre != corpus.Wiki {
		u.RawQuery = url.Values{"genre": {string(n.Genre)}}.Encode()
	}
	return sitebuild.Note{Title: n.Title, URL: u.String(), Snippet: snippet}
}

// forgetBuilds removes old builds, at most n, with their blobs.
func forgetBuilds(ctx context.Context, db *pg.DB, blobs blob.Store, n int) (int64, error) {
	if blobs == nil {
		return 0, nil
	}
	removed, keys, err := microsite.Forget(ctx, db, n)
	if err != nil || len(keys) == 0 {
		return removed, err
	}
	return removed, blobs.Delete(ctx, keys...)
}
