// Package stack runs the parts of the product in one process: what serves
// requests, the relay, the workers. Several stacks on one database are several
// processes.
package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"standmeet/relay"
	"standmeet/shared/blob"
	"standmeet/shared/egress"
	"standmeet/shared/microsite"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
	"standmeet/workers"
)

// Parts says which parts a process runs.
type Parts struct{ Gateway, Relay, Workers bool }

// Options configure a stack. Only URL is needed.
type Options struct {
	URL    string
	Logger *slog.Logger
	Mail   workers.Mailer
	// Keys and PublicURL are as in workers.Options.
	Keys      secret.Keys
	PublicURL string
	// Blobs, Egress and SourceBases are as in workers.Options.
	Blobs       blob.Store
	Egress      egress.Rules
	SourceBases map[string]string
	// Conns is the size of the pool that requests use; 0 is 24.
	Conns int32
	// Telemetry records what the parts do; nil doesn't. Whoever made it shuts it
	// down after Stop.
	Telemetry *telemetry.Telemetry
	// Waiter tunes the shared waiter. Keep is set when a relay runs.
	Waiter waiter.Options
}

// lockTimeout is how long the relay and the workers wait for a row that somebody
// holds, before they go on with the others.
const lockTimeout = time.Second

// Stack is a running process's parts.
type Stack struct {
	// DB, Waiter and Receipts serve requests.
	DB       *pg.DB
	Waiter   *waiter.Waiter
	Receipts *task.Receipts

	stop    context.CancelFunc
	uncount func()
	pools   []*pg.DB
	parts   sync.WaitGroup
	mu      sync.Mutex
	failed  error
	gone    chan struct{}
}

// Start starts the parts; the database must be migrated. They run until Stop,
// whatever becomes of ctx.
func Start(ctx context.Context, o Options, p Parts) (*Stack, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Conns == 0 {
		o.Conns = 24
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stack{stop: stop, gone: make(chan struct{})}
	open := func(name string, po pg.Options) (*pg.DB, error) {
		po.Name, po.Tracer = "standmeet-"+name, o.Telemetry.SQL()
		db, err := pg.Open(running, o.URL, po)
		if err == nil {
			s.pools = append(s.pools, db)
			o.Telemetry.Pool(name, db.Pool())
		}
		return db, err
	}
	abort := func(err error) (*Stack, error) {
		stop()
		s.close()
		return nil, fmt.Errorf("stack: %w", err)
	}
	var err error
	if s.DB, err = open("requests", pg.Options{MaxConns: o.Conns}); err != nil {
		return abort(err)
	}
	sources := []waiter.Source{task.FinalSource(s.DB), outbox.FanoutSource(s.DB), microsite.SettledSource(s.DB)}
	var r *relay.Relay
	if p.Relay {
		db, err := open("relay", pg.Options{MaxConns: 4, AsyncCommit: true, LockTimeout: lockTimeout})
		if err != nil {
			return abort(err)
		}
		if r, err = relay.New(db, o.Logger); err != nil {
			return abort(err)
		}
		r.Telemetry = o.Telemetry
		sources = append(sources, r.Source())
		o.Waiter.Keep = true
	}
	var w *workers.Workers
	if p.Workers {
		effects, err := open("workers", pg.Options{MaxConns: 12, LockTimeout: lockTimeout})
		if err != nil {
			return abort(err)
		}
		jobs, err := open("jobs", pg.Options{MaxConns: 10, AsyncCommit: true})
		if err != nil {
			return abort(err)
		}
		if w, err = workers.New(effects, jobs, workers.Options{Logger: o.Logger, Mail: o.Mail, Keys: o.Keys, PublicURL: o.PublicURL, Blobs: o.Blobs, Egress: o.Egress, SourceBases: o.SourceBases, Telemetry: o.Telemetry}); err != nil {
			return abort(err)
		}
	}
	if o.Waiter.Logger == nil {
		o.Waiter.Logger = o.Logger
	}
	s.Waiter = waiter.New(s.DB, o.Waiter, sources...)
	s.Receipts = task.NewReceipts(s.DB, s.Waiter)
	s.uncount = func() {}
	if p.Relay || p.Workers {
		s.uncount = o.Telemetry.Backlog(func(ctx context.Context) (telemetry.Backlog, error) { return task.ReadBacklog(ctx, s.DB) })
	}
	if r != nil {
		s.run(func() error { return r.Run(running) })
	}
	if w != nil {
		s.run(func() error { return w.Run(running) })
	}
	return s, nil
}

// run keeps a part going; the first to fail is told by Failed.
func (s *Stack) run(part func() error) {
	s.parts.Go(func() {
		if err := part(); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.failed == nil {
				s.failed = err
				close(s.gone)
			}
		}
	})
}

// Failed is closed when a part ended by itself; Stop tells why.
func (s *Stack) Failed() <-chan struct{} { return s.gone }

// Stop ends the relay and the workers in order, the workers within 20 s, and
// closes every connection.
func (s *Stack) Stop() error {
	s.uncount()
	s.stop()
	s.parts.Wait()
	if s.Waiter != nil {
		s.Waiter.Close()
	}
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed)
}

func (s *Stack) close() {
	for _, db := range s.pools {
		db.Close()
	}
}
