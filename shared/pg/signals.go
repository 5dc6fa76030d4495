package pg

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

type signal struct {
	channel, payload string
	// whole payloads are sent as they are, the others joined with commas
	whole bool
}

// maxPayload keeps a NOTIFY under PostgreSQL's limit of 8,000 bytes.
const maxPayload = 7900

// signalGap is the time from one NOTIFY of a process to its next. Each wakes
// every listening process, so a crowd's are better sent together.
const signalGap = time.Millisecond

// signals sends NOTIFY in transactions of their own. While one is under way, and
// for signalGap from its start, the next ones gather and leave together: one
// statement for all that commit meanwhile, and no delay for the first.
type signals struct {
	pool *pgxpool.Pool

	mu      sync.Mutex
	pending []signal
	seen    map[signal]struct{}
	sending bool
	sent    time.Time // when the last NOTIFY began
	idle    *sync.Cond
	closed  bool
}

func newSignals(pool *pgxpool.Pool) *signals {
	s := &signals{pool: pool, seen: map[signal]struct{}{}}
	s.idle = sync.NewCond(&s.mu)
	return s
}

func (s *signals) add(n signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if _, ok := s.seen[n]; ok {
		return
	}
	s.seen[n] = struct{}{}
	s.pending = append(s.pending, n)
	if !s.sending {
		s.sending = true
		go s.send()
	}
}

func (s *signals) send() {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.sending = false
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
		early := signalGap - time.Since(s.sent)
		s.mu.Unlock()
		time.Sleep(early)

		s.mu.Lock()
		pending := s.pending
		s.pending, s.seen, s.sent = nil, map[signal]struct{}{}, time.Now()
		s.mu.Unlock()
		channels, payloads := pack(pending)
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		// A signal is a hint: whoever waits for it also polls.
		_, _ = s.pool.Exec(ctx, `SELECT pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS s (c, p)`, channels, payloads)
		cancel()
	}
}

// pack joins the payloads of a channel with commas, into as few as fit.
func pack(pending []signal) (channels, payloads []string) {
	open := map[string]int{}
	for _, n := range pending {
		at, ok := open[n.channel]
		if ok && !n.whole && len(payloads[at])+1+len(n.payload) <= maxPayload {
			payloads[at] += "," + n.payload
			continue
		}
		if !n.whole {
			open[n.channel] = len(payloads)
		}
		channels, payloads = append(channels, n.channel), append(payloads, n.payload)
	}
	return channels, payloads
}

func (s *signals) flush(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		s.mu.Lock()
		for s.sending {
			s.idle.Wait()
		}
		s.mu.Unlock()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (s *signals) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.flush(ctx)
}
