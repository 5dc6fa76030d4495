package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// instruments are the metrics that are recorded as things happen. Durations are
// in seconds.
type instruments struct {
	requests metric.Float64Histogram // http.server.request.duration
	tools    metric.Float64Histogram // mcp.server.operation.duration
	waits    metric.Int64Counter     // standmeet.waits, by operation and how they ended
	hops     metric.Float64Histogram // standmeet.receipt.hop.duration, by hop and kind
	receipts metric.Float64Histogram // standmeet.receipt.duration: commit to observed
	jobs     metric.Int64Counter     // standmeet.jobs, by kind and outcome
	batches  metric.Int64Histogram   // standmeet.relay.batch.size
	fanOuts  metric.Float64Histogram // standmeet.relay.batch.duration
	webhooks metric.Float64Histogram // standmeet.webhook.attempt.duration, by outcome

	// observed when they are read
	events, poisoned, tasks metric.Int64ObservableGauge
	oldest                  metric.Float64ObservableGauge
	conns, maxConns         metric.Int64ObservableUpDownCounter
	connTimeouts            metric.Int64ObservableCounter
	meter                   metric.Meter
}

// The hops of a receipt, in order.
const (
	hopFanOut  = "fan_out" // committed → fanned out
	hopStart   = "start"   // fanned out → started
	hopFinish  = "finish"  // started → finished
	hopObserve = "observe" // finished → observed by the waiter
)

func newInstruments(m metric.Meter) (i instruments, err error) {
	// a receipt takes 2 ms, a build minutes
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .002, .003, .005, .0075, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)
	duration := func(name, description string) metric.Float64Histogram {
		h, e := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
		err = errors.Join(err, e)
		return h
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		c, e := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		err = errors.Join(err, e)
		return c
	}
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, e := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		err = errors.Join(err, e)
		return g
	}
	conns := func(name, description string) metric.Int64ObservableUpDownCounter {
		c, e := m.Int64ObservableUpDownCounter(name, metric.WithUnit("{connection}"), metric.WithDescription(description))
		err = errors.Join(err, e)
		return c
	}
	i = instruments{
		requests: duration("http.server.request.duration", "Duration of HTTP server requests."),
		tools:    duration("mcp.server.operation.duration", "Duration of MCP requests as the server sees them."),
		waits:    counter("standmeet.waits", "{wait}", "Waits for work in flight, by operation and how they ended."),
		hops:     duration("standmeet.receipt.hop.duration", "Parts of the way from a commit to the observed end of the work that it caused."),
		receipts: duration("standmeet.receipt.duration", "From a commit to the observed end of the work that it caused."),
		jobs:     counter("standmeet.jobs", "{attempt}", "Attempts of jobs, by kind and outcome."),
		fanOuts:  duration("standmeet.relay.batch.duration", "Duration of the transaction that fans out a batch of events."),
		webhooks: duration("standmeet.webhook.attempt.duration", "Duration of the attempts to deliver to webhooks, by outcome."),
		events:   gauge("standmeet.events.queued", "{event}", "Events that no relay has fanned out yet."),
		poisoned: gauge("standmeet.events.poisoned", "{event}", "Events that were set aside after repeated failure."),
		tasks:    gauge("standmeet.tasks.open", "{task}", "Tasks that have not ended, by kind and state."),
		conns:    conns("db.client.connection.count", "The number of connections that are currently in the state described by the state attribute."),
		maxConns: conns("db.client.connection.max", "The maximum number of open connections allowed."),
		meter:    m,
	}
	var e error
	i.batches, e = m.Int64Histogram("standmeet.relay.batch.size", metric.WithUnit("{event}"), metric.WithDescription("Events that one transaction fans out."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
	err = errors.Join(err, e)
	i.oldest, e = m.Float64ObservableGauge("standmeet.events.oldest", metric.WithUnit("s"), metric.WithDescription("Age of the oldest event that waits to be fanned out."))
	err = errors.Join(err, e)
	i.connTimeouts, e = m.Int64ObservableCounter("db.client.connection.timeouts", metric.WithUnit("{timeout}"), metric.WithDescription("The number of times that a connection was not obtained in time."))
	return i, errors.Join(err, e)
}

// since is the time from then to now. Clocks of two machines may disagree by
// more than a hop takes; no hop is negative.
func since(then, now time.Time) float64 { return max(now.Sub(then), 0).Seconds() }

func (i *instruments) hop(ctx context.Context, name, kind string, seconds float64) {
	i.hops.Record(ctx, seconds, metric.WithAttributes(attribute.String("standmeet.hop", name), attribute.String("standmeet.kind", kind)))
}

// Backlog is what the whole product still has to do.
type Backlog struct {
	// Queued events wait to be fanned out, Poisoned ones were set aside.
	Queued, Poisoned int64
	// Oldest is the age of the oldest queued event.
	Oldest time.Duration
	Tasks  []OpenTasks
}

// OpenTasks counts the tasks of a kind that are in a state other than an end.
type OpenTasks struct {
	Kind, State string
	Count       int64
}

// Backlog has read asked for the gauges of the backlog, at most every 15 s, until
// the returned function is called. For processes that are never frozen.
func (t *Telemetry) Backlog(read func(context.Context) (Backlog, error)) (stop func()) {
	if t == nil {
		return func() {}
	}
	var mu sync.Mutex
	var last Backlog
	var at time.Time
	r, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= readEvery-time.Second { // the reader's ticks are not exact
			ctx, cancel := context.WithTimeout(ctx, readEvery/3)
			defer cancel()
			b, err := read(ctx)
			if err != nil {
				return err
			}
			last, at = b, time.Now()
		}
		o.ObserveInt64(t.events, last.Queued)
		o.ObserveInt64(t.poisoned, last.Poisoned)
		o.ObserveFloat64(t.oldest, last.Oldest.Seconds())
		for _, c := range last.Tasks {
			o.ObserveInt64(t.tasks, c.Count, metric.WithAttributes(attribute.String("standmeet.kind", c.Kind), attribute.String("standmeet.state", c.State)))
		}
		return nil
	}, t.events, t.poisoned, t.oldest, t.tasks)
	if err != nil {
		panic(err) // the instruments are this meter's
	}
	return func() { _ = r.Unregister() }
}

// Pool watches a pool of database connections by its name.
func (t *Telemetry) Pool(name string, pool *pgxpool.Pool) {
	if t == nil {
		return
	}
	of := semconv.DBClientConnectionPoolName(name)
	_, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := pool.Stat()
		o.ObserveInt64(t.conns, int64(s.IdleConns()), metric.WithAttributes(of, semconv.DBClientConnectionStateIdle))
		o.ObserveInt64(t.conns, int64(s.AcquiredConns()), metric.WithAttributes(of, semconv.DBClientConnectionStateUsed))
		o.ObserveInt64(t.maxConns, int64(s.MaxConns()), metric.WithAttributes(of))
		o.ObserveInt64(t.connTimeouts, s.CanceledAcquireCount(), metric.WithAttributes(of))
		return nil
	}, t.conns, t.maxConns, t.connTimeouts)
	if err != nil {
		panic(err) // the instruments are this meter's
	}
}
