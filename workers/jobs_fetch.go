package workers

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"standmeet/shared/config"
	rules "standmeet/shared/egress"
	"standmeet/shared/fault"
	"standmeet/shared/jobfeed"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/workers/internal/egress"
	"standmeet/workers/internal/feeds"
)

const (
	// askFor bounds one exchange with a source.
	askFor = 20 * time.Second
	// restFor is how long a source may ask to be left alone for the fetch to wait for
	// it, and restMost how often.
	restFor  = 10 * time.Second
	restMost = 2
)

// sources reads job boards and feeds. bases are other addresses for the boards'
// APIs: whoever runs this named them, so they may lie inside.
func sources(r rules.Rules, bases map[string]string) *feeds.Reader {
	var named config.Egress
	for _, base := range bases {
		u, err := url.Parse(base)
		if err != nil {
			continue // config has parsed it
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			named.Networks = append(named.Networks, netip.PrefixFrom(addr, addr.BitLen()))
		} else {
			named.Hosts = append(named.Hosts, u.Hostname())
		}
	}
	client := func(r rules.Rules) *egress.Client {
		return egress.New(egress.Options{Rules: r, Timeout: askFor, MaxBody: feeds.MaxBody})
	}
	return &feeds.Reader{Client: client(r), Boards: client(rules.New(named)), Bases: bases}
}

// jobsFetch reads one source and puts what it lists into the pool. That a source
// can't be read is how a fetch may end, and no failure of the work.
func jobsFetch(db *pg.DB, reader *feeds.Reader) func(context.Context, *river.Job[task.JobsFetchArgs]) error {
	return func(ctx context.Context, job *river.Job[task.JobsFetchArgs]) error {
		source, err := uuid.Parse(job.Args.Subject)
		if err != nil {
			return permanent(err)
		}
		failed := func(reason string) error {
			return settle(ctx, db, job, func(ctx context.Context, tx *pg.Tx) (any, error) {
				return jobfeed.Failed(ctx, tx, job.Args.OwnerID, source, reason)
			})
		}
		s, err := jobfeed.Open(ctx, db, job.Args.OwnerID, source)
		if f := fault.From(err); err != nil && f.Kind == fault.NotFoundKind {
			return failed("The source was removed before it was asked.")
		}
		if err != nil {
			return err
		}
		a, err := reader.Read(ctx, feeds.Source{Kind: s.Kind, Board: s.Board, URL: s.URL, ETag: s.ETag, LastModified: s.LastModified}, func(done, total int) {
			// what can't be told is no reason to stop
			_ = task.Report(ctx, db, job.ID, task.Progress{Done: done, Total: total, Note: "pages read"}, nil)
		})
		var f *feeds.Fault
		switch {
		case errors.As(err, &f):
			var m struct {
				Snoozes int `json:"snoozes"`
			}
			_ = json.Unmarshal(job.Metadata, &m) // of River's own making; else it counts as new
			if wait := time.Until(f.After); !f.After.IsZero() && wait < restFor && m.Snoozes < restMost {
				return river.JobSnooze(max(wait, 0))
			}
			if f.Transient && f.After.IsZero() && failures(job.JobRow)+1 < job.MaxAttempts-task.SpareAttempts {
				return f
			}
			return failed(f.Reason)
		case err != nil:
			return err
		}
		found := jobfeed.Answer{Unchanged: a.Unchanged, ETag: a.ETag, LastModified: a.LastModified}
		for _, l := range a.Listings {
			found.Listings = append(found.Listings, jobfeed.Found(l))
		}
		return settle(ctx, db, job, func(ctx context.Context, tx *pg.Tx) (any, error) {
			return jobfeed.Store(ctx, tx, job.Args.OwnerID, source, job.Args.EventID, found)
		})
	}
}

// settle writes an effect on our own database, and with it that the task is
// completed and what it leaves to read. One that its owner cancelled leaves
// nothing.
func settle[A caused](ctx context.Context, db *pg.DB, job *river.Job[A], effect func(context.Context, *pg.Tx) (any, error)) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		open, err := task.Complete(ctx, tx, []task.Job{record(job, nil)})
		if err != nil || !open[job.ID] {
			return err
		}
		result, err := effect(ctx, tx)
		if err != nil {
			return err
		}
		return task.Result(ctx, tx, job.ID, result)
	})
}
