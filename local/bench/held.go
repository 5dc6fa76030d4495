package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"standmeet/local/stack"
	"standmeet/shared/corpus"
	"standmeet/shared/pg"
)

// held measures B10 in short: the receipts of 64 writers while a transaction is
// held open, so that VACUUM can clean nothing, against those before it.
func (b *bench) held(ctx context.Context) error {
	if b.Quick && b.Only == nil {
		return nil
	}
	const writers, window, hold = 64, 6 * time.Second, 24 * time.Second
	return b.inDatabase(ctx, "held", func(url string, db *pg.DB) (err error) {
		s, err := stack.Start(ctx, stack.Options{URL: url}, stack.Parts{Gateway: true, Relay: true, Workers: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		owner, err := b.owner(ctx, db)
		if err != nil {
			return err
		}
		p := &product{Stack: s, owner: owner, genre: corpus.Raw, body: turns(b.sample.jotting)}
		if _, err := b.closedLoop(ctx, writers, time.Second, p.once); err != nil {
			return err
		}
		free, err := b.closedLoop(ctx, writers, window, p.once)
		if err != nil {
			return err
		}
		release, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- db.InTx(ctx, func(tx *pg.Tx) error {
				for {
					// an idle one would be ended by the server
					if _, err := tx.Exec(ctx, `SELECT txid_current()`); err != nil {
						return err
					}
					select {
					case <-release:
						return nil
					case <-time.After(time.Second):
					}
				}
			})
		}()
		_, before := b.closedLoop(ctx, writers, hold-window, p.once)
		with, after := b.closedLoop(ctx, writers, window, p.once)
		close(release)
		if err := errors.Join(before, after, <-ended); err != nil {
			return err
		}
		b.report.Figures["B10"] = Figure{
			What: fmt.Sprintf("receipts at 64 writers, a transaction held %v", hold), Unit: "1/s", Value: round(with.rate(), 0), P99: round(quantile(with.took, 0.99), 1), Rounds: 1,
			Goal: "≥ 0.9 × without (10 minutes in the goal)", Detail: map[string]any{"without_per_s": round(free.rate(), 0), "by_without": round(with.rate()/free.rate(), 2),
				"cpu_ms": round(with.cpuEach(), 3), "without_cpu_ms": round(free.cpuEach(), 3), "receipts_missed": p.missed.Load()},
		}.judge(func(Figure) bool { return with.rate() >= 0.9*free.rate() })
		return nil
	})
}
