// Package waiter lets a request wait for what another process will commit. All
// waits of a process share one LISTEN connection and one reader, whatever their
// number.
//
// A signal is only a hint. Whoever is woken reads the rows again; all waiters
// read again after the connection was lost, and every [PollEvery] in any case.
package waiter

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/shared/pg"
)

const (
	// PerChannel is how many may wait on one channel of a process. The next is
	// turned away at once.
	PerChannel = 64
	// PollEvery is what a lost signal costs.
	PollEvery = 250 * time.Millisecond

	// a connection that heard nothing is asked whether it still lives
	healthEvery = time.Second
	askTimeout  = 500 * time.Millisecond
	// how long the last waiter stays for the answer to a LISTEN or UNLISTEN; then
	// the connection goes, and LISTEN with it
	closePatience = 100 * time.Millisecond
	dialTimeout   = time.Second
)

// Ended says why a wait ended.
type Ended string

// The ends of a wait.
const (
	Observed     Ended = "observed"      // the awaited rows are there
	Timeout      Ended = "timeout"       // the budget ran out
	Capacity     Ended = "capacity"      // [PerChannel] were waiting already
	ListenerDown Ended = "listener_down" // the budget ran out with no live LISTEN connection
	NotAsked     Ended = "not_asked"     // the caller wanted no wait
)

// Wait is how a response reports its wait, in milliseconds from the commit.
type Wait struct {
	AskedMS  int64 `json:"asked_ms" jsonschema:"the longest the request was willing to wait, in milliseconds"`
	WaitedMS int64 `json:"waited_ms" jsonschema:"how long it waited, in milliseconds"`
	Ended    Ended `json:"ended" enum:"observed,timeout,capacity,listener_down,not_asked" jsonschema:"why the wait ended: observed (the result is there), timeout, capacity (too many were waiting), listener_down (signals were unavailable) or not_asked"`
}

// Source is one channel that can be waited on.
type Source struct {
	// Channel is the NOTIFY channel. Payloads are signal keys joined by commas.
	Channel string
	// Read reports, of the given read keys, those whose wait is over, each with
	// what it ended with. It is called with the keys of every waiter whose rows
	// may have changed, in one call.
	// Nil for a channel that nobody waits on.
	Read func(ctx context.Context, keys []string) (map[string]any, error)
	// Woken, when set, is called on every signal, and whenever signals may have
	// been missed. It must not block.
	Woken func()
}

// Options tune a Waiter.
type Options struct {
	// Keep holds LISTEN open while nobody waits. For processes that are never
	// frozen; a function must leave it false.
	Keep bool
	// PerChannel replaces the cap of the same name when it is not 0.
	PerChannel int
	Logger     *slog.Logger
}

// Waiter is the shared waiter of a process.
type Waiter struct {
	db      *pg.DB
	sources map[string]Source
	opts    Options

	mu       sync.Mutex
	channels map[string]*channel
	waiting  int
	live     bool
	closed   bool
	// wake starts the listener when somebody comes, and cuts its sleep short
	// when the last one leaves
	wake      chan struct{}
	interrupt context.CancelFunc
	unlistens *sync.Cond
	listening bool

	kick chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup
}

type channel struct {
	tickets  map[*Ticket]struct{}
	bySignal map[string]map[*Ticket]struct{}
	dirty    map[*Ticket]struct{}
}

// New starts a waiter on the given sources. Its LISTEN connection is opened when
// the first waiter comes; sources read through pools of their own, usually db's.
func New(db *pg.DB, o Options, sources ...Source) *Waiter {
	if o.PerChannel == 0 {
		o.PerChannel = PerChannel
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Waiter{
		db: db, opts: o,
		sources: map[string]Source{}, channels: map[string]*channel{},
		wake: make(chan struct{}, 1), kick: make(chan struct{}, 1),
	}
	w.unlistens = sync.NewCond(&w.mu)
	for _, s := range sources {
		w.sources[s.Channel] = s
		w.channels[s.Channel] = &channel{
			tickets: map[*Ticket]struct{}{}, bySignal: map[string]map[*Ticket]struct{}{}, dirty: map[*Ticket]struct{}{},
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.done.Add(2)
	go func() { defer w.done.Done(); w.listen(ctx) }()
	go func() { defer w.done.Done(); w.read(ctx) }()
	return w
}

// Close ends every wait with Timeout and closes the connection.
func (w *Waiter) Close() {
	w.mu.Lock()
	w.closed = true
	for _, c := range w.channels {
		for t := range c.tickets {
			t.end()
		}
	}
	w.mu.Unlock()
	w.stop()
	w.done.Wait()
}

// Key names what is waited for: the signal that announces it, and the key by
// which it is read. They are the same for a task.
type Key struct{ Signal, Read string }

// Ticket is one waiter's place.
type Ticket struct {
	w       *Waiter
	channel string
	keys    []Key
	// LISTEN was live when the place was taken and still is: no read is needed
	// before the first sleep. Guarded by w.mu.
	covered bool

	mu      sync.Mutex
	values  map[string]any
	missing int
	over    chan struct{}
	ended   bool
}

// Register takes a place on a channel, before the commit whose effects are
// awaited: then no signal can slip between. It is nil when the channel is full.
// A ticket must be closed.
func (w *Waiter) Register(name string, keys ...Key) *Ticket {
	t := &Ticket{w: w, channel: name, keys: keys, values: map[string]any{}, missing: len(keys), over: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channels[name]
	if c == nil {
		panic("waiter: no source for channel " + name)
	}
	if len(c.tickets) >= w.opts.PerChannel || w.closed {
		return nil
	}
	c.tickets[t] = struct{}{}
	for _, k := range keys {
		if c.bySignal[k.Signal] == nil {
			c.bySignal[k.Signal] = map[*Ticket]struct{}{}
		}
		c.bySignal[k.Signal][t] = struct{}{}
	}
	w.waiting++
	t.covered = w.live
	if w.waiting == 1 {
		poke(w.wake)
	}
	return t
}

// Recheck makes the wait begin with a read. For a ticket that was registered
// after the commit that it waits for.
func (t *Ticket) Recheck() {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.dirty(t)
}

// Wait sleeps until everything the ticket names is there or the deadline has
// passed. The values are what was observed so far, by read key.
func (t *Ticket) Wait(ctx context.Context, deadline time.Time) (map[string]any, Ended) {
	t.w.mu.Lock()
	if !t.covered {
		t.w.dirty(t)
	}
	t.w.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-t.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	t.w.mu.Lock()
	live := t.w.live
	t.w.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.missing == 0:
		return t.values, Observed
	case !live:
		return t.values, ListenerDown
	default:
		return t.values, Timeout
	}
}

// Close gives the place back. When it was the last one and the process does not
// keep LISTEN, Close returns after UNLISTEN, or after the connection was closed.
func (t *Ticket) Close() {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channels[t.channel]
	if _, ok := c.tickets[t]; !ok {
		return
	}
	delete(c.tickets, t)
	delete(c.dirty, t)
	for _, k := range t.keys {
		delete(c.bySignal[k.Signal], t)
		if len(c.bySignal[k.Signal]) == 0 {
			delete(c.bySignal, k.Signal)
		}
	}
	w.waiting--
	if w.waiting > 0 || w.opts.Keep {
		return
	}
	// A LISTEN that is under way is seen through, unless its connection is dead.
	if w.interrupt != nil && w.live {
		w.interrupt()
	} else if w.listening {
		patience := time.AfterFunc(closePatience, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.interrupt != nil && w.waiting == 0 {
				w.interrupt()
			}
		})
		defer patience.Stop()
	}
	for w.listening && w.waiting == 0 && !w.closed {
		w.unlistens.Wait()
	}
}

// end wakes the ticket's waiter for good.
func (t *Ticket) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.over)
	}
}

// observe records what a read found.
func (t *Ticket) observe(found map[string]any) {
	t.mu.Lock()
	for _, k := range t.keys {
		v, ok := found[k.Read]
		if !ok {
			continue
		}
		if _, had := t.values[k.Read]; !had {
			t.values[k.Read] = v
			t.missing--
		}
	}
	over := t.missing == 0
	t.mu.Unlock()
	if over {
		t.end()
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// dirty has the ticket's rows read again. w.mu is held.
func (w *Waiter) dirty(t *Ticket) {
	w.channels[t.channel].dirty[t] = struct{}{}
	poke(w.kick)
}

func (w *Waiter) dirtyAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.channels {
		for t := range c.tickets {
			w.dirty(t)
		}
	}
}

func (w *Waiter) dispatch(n *pgconn.Notification) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.channels[n.Channel]
	if c == nil {
		return
	}
	if woken := w.sources[n.Channel].Woken; woken != nil {
		woken()
	}
	for key := range strings.SplitSeq(n.Payload, ",") {
		for t := range c.bySignal[key] {
			w.dirty(t)
		}
	}
}

// read serves every waiter's reads, one query a channel at a time: what becomes
// due while it runs is read together by the next.
func (w *Waiter) read(ctx context.Context) {
	poll := time.NewTicker(PollEvery)
	defer poll.Stop()
	var reset time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.kick:
		case <-poll.C:
			w.dirtyAll()
		}
		for name, source := range w.sources {
			w.mu.Lock()
			c := w.channels[name]
			tickets := make([]*Ticket, 0, len(c.dirty))
			var keys []string
			for t := range c.dirty {
				tickets = append(tickets, t)
				for _, k := range t.keys {
					keys = append(keys, k.Read)
				}
			}
			clear(c.dirty)
			w.mu.Unlock()
			if len(tickets) == 0 {
				continue
			}
			slices.Sort(keys)
			reading, cancel := context.WithTimeout(ctx, askTimeout)
			found, err := source.Read(reading, slices.Compact(keys))
			silent := reading.Err() != nil && ctx.Err() == nil
			cancel()
			if silent && time.Since(reset) > 2*time.Second {
				// one connection that fell silent is seldom alone, and each would
				// cost a read
				reset = time.Now()
				w.db.Reset()
				w.dirtyAll()
			}
			if err != nil {
				// the next poll tries again
				w.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "waiter: read failed", slog.String("channel", name), slog.Any("error", err))
				continue
			}
			for _, t := range tickets {
				t.observe(found)
			}
		}
	}
}

// wanted reports whether LISTEN should be open.
func (w *Waiter) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting > 0 || w.opts.Keep
}

// listen owns the connection: nobody else touches it.
func (w *Waiter) listen(ctx context.Context) {
	var conn *pgx.Conn
	drop := func() {
		if conn != nil {
			// no farewell: a silent peer would keep us waiting for its own
			_ = conn.PgConn().Conn().Close()
			conn = nil
		}
	}
	defer func() { drop(); w.setListening(false, false) }()
	for backoff := time.Duration(0); ; {
		if !w.wanted() || backoff > 0 {
			var after <-chan time.Time
			if backoff > 0 {
				after = time.After(backoff)
			}
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			case <-after:
			}
			if !w.wanted() {
				backoff = 0
				continue
			}
		}
		if conn == nil {
			dialing, cancel := context.WithTimeout(ctx, dialTimeout)
			fresh, err := w.db.Connect(dialing)
			cancel()
			if err != nil {
				w.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "waiter: connection failed", slog.Any("error", err))
				backoff = min(max(2*backoff, 50*time.Millisecond), time.Second)
				continue
			}
			conn = fresh
		}
		backoff = 0
		asking, cancel := context.WithCancel(ctx)
		if !w.begin(cancel) {
			cancel()
			continue
		}
		err := w.ask(asking, conn, w.statement(), askTimeout)
		cancel()
		if err != nil {
			w.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "waiter: LISTEN failed", slog.Any("error", err))
			drop()
			w.setListening(false, false)
			backoff = time.Millisecond
			continue
		}
		w.setListening(true, true)
		w.dirtyAll()
		for _, s := range w.sources {
			if s.Woken != nil {
				s.Woken()
			}
		}
		err = w.follow(ctx, conn)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = w.ask(ctx, conn, "UNLISTEN *", closePatience)
		}
		if err != nil {
			w.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "waiter: connection lost", slog.Any("error", err))
			drop()
		}
		w.setListening(false, false)
	}
}

// begin says that LISTEN is about to be sent, so that the last waiter does not
// leave without seeing its end; it reports whether LISTEN is still wanted.
func (w *Waiter) begin(interrupt context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == 0 && !w.opts.Keep {
		return false
	}
	w.listening, w.interrupt = true, interrupt
	return true
}

// statement listens on every channel in one round trip.
func (w *Waiter) statement() string {
	var b strings.Builder
	for name := range w.sources {
		b.WriteString("LISTEN " + pgx.Identifier{name}.Sanitize() + ";")
	}
	return b.String()
}

func (w *Waiter) ask(ctx context.Context, conn *pgx.Conn, sql string, patience time.Duration) error {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := conn.PgConn().Exec(asking, sql).ReadAll()
	return err
}

// follow hands on notifications until LISTEN is no longer wanted (nil) or the
// connection fails.
func (w *Waiter) follow(ctx context.Context, conn *pgx.Conn) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, healthEvery)
		w.mu.Lock()
		if w.waiting == 0 && !w.opts.Keep {
			w.mu.Unlock()
			cancel()
			return nil
		}
		w.interrupt = cancel
		w.mu.Unlock()
		n, err := conn.WaitForNotification(waiting)
		ours := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			w.dispatch(n)
		case !ours:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case w.wanted():
			if err := w.ask(ctx, conn, "SELECT 1", askTimeout); err != nil {
				return err
			}
		}
	}
}

func (w *Waiter) setListening(listening, live bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listening, w.live = listening, live
	if !live {
		w.interrupt = nil
		for _, c := range w.channels {
			for t := range c.tickets {
				t.covered = false
			}
		}
	}
	w.unlistens.Broadcast()
}
