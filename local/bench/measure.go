package bench

import (
	"context"
	"slices"
	"sync"
	"time"
)

// run is what one candidate did in one round.
type run struct {
	took    []time.Duration
	elapsed time.Duration
	cpu     time.Duration // of this process and PostgreSQL's
}

func (b *bench) closedLoop(ctx context.Context, n int, d time.Duration, op func(context.Context) error) (run, error) {
	return closedLoop(ctx, b.cpuTime, n, d, op)
}

// closedLoop has n clients repeat op for d; what is under way then is finished
// and counted. The first error ends it.
func closedLoop(ctx context.Context, spent func() time.Duration, n int, d time.Duration, op func(context.Context) error) (run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cpu, began := spent(), time.Now()
	took := make([][]time.Duration, n)
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			for ctx.Err() == nil && time.Since(began) < d {
				start := time.Now()
				if err := op(ctx); err != nil {
					cancel(err)
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	clients.Wait()
	r := run{took: slices.Concat(took...), elapsed: time.Since(began), cpu: spent() - cpu}
	return r, context.Cause(ctx)
}

func (r run) rate() float64 { return float64(len(r.took)) / r.elapsed.Seconds() }

// cpuEach is the processor time of one operation in milliseconds.
func (r run) cpuEach() float64 { return ms(r.cpu) / float64(max(len(r.took), 1)) }

func (r run) p50() float64 { return quantile(r.took, 0.50) }

// rounds are one candidate's runs.
type rounds []run

func (r rounds) p50() float64  { return median(r, run.p50) }
func (r rounds) rate() float64 { return median(r, run.rate) }

// p99 is that of all rounds together: a round alone has too few.
func (r rounds) p99() float64 {
	var all []time.Duration
	for _, one := range r {
		all = append(all, one.took...)
	}
	return quantile(all, 0.99)
}

// ratio is the median of a's figure by b's, each taken in one round, so that
// what slows the machine for a while slows both.
func ratio(a, b rounds, figure func(run) float64) float64 {
	ratios := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if d := figure(b[i]); d > 0 {
			ratios = append(ratios, figure(a[i])/d)
		}
	}
	return middle(ratios)
}

func median(r rounds, figure func(run) float64) float64 {
	values := make([]float64, len(r))
	for i := range r {
		values[i] = figure(r[i])
	}
	return middle(values)
}

func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// quantile is the nearest rank, in milliseconds.
func quantile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return ms(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)])
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
