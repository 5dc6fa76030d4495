package telemetry

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Batch is a transaction of the relay that fans out events. Nil records nothing.
type Batch struct {
	t      *Telemetry
	ctx    context.Context
	span   trace.Span
	began  time.Time
	events []fannedOut
}

type fannedOut struct {
	span     trace.Span
	kind     string
	occurred time.Time
}

// Batch begins the span of a transaction that fans out n events: a trace of its
// own, with a link to each event's.
func (t *Telemetry) Batch(ctx context.Context, n int) (context.Context, *Batch) {
	if t == nil {
		return ctx, nil
	}
	b := &Batch{t: t, began: time.Now(), events: make([]fannedOut, 0, n)}
	b.ctx, b.span = begin(ctx, t.tracer, "fan_out", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(b.began), trace.WithAttributes(semconv.MessagingBatchMessageCount(n)))
	return b.ctx, b
}

// Event begins an event's own span, in the trace that the event carries, and
// answers the trace context that its jobs continue. The events of a batch are
// counted from 0.
func (b *Batch) Event(id, owner uuid.UUID, kind, traceparent string, occurred time.Time) string {
	if b == nil {
		return traceparent
	}
	cause := WithTraceparent(context.Background(), traceparent)
	ctx, span := begin(cause, b.t.tracer, "fan_out "+kind, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(b.began),
		trace.WithLinks(trace.LinkFromContext(b.ctx)), trace.WithAttributes(
			attribute.String("standmeet.event.id", id.String()), attribute.String("standmeet.event.type", kind),
			attribute.String("standmeet.owner.id", owner.String())))
	b.span.AddLink(trace.LinkFromContext(ctx))
	b.events = append(b.events, fannedOut{span, kind, occurred})
	return Traceparent(ctx)
}

// Join notes that the job of another event covers this one: the job's span is in
// the other's trace.
func (b *Batch) Join(event, other int) {
	if b != nil {
		b.events[event].span.AddLink(trace.Link{SpanContext: b.events[other].span.SpanContext()})
	}
}

// End ends the spans when the transaction has ended, err being why it failed.
func (b *Batch) End(err error) {
	if b == nil {
		return
	}
	now := time.Now()
	for _, e := range b.events {
		fail(e.span, err)
		e.span.End(trace.WithTimestamp(now))
		if err == nil {
			b.t.hop(b.ctx, hopFanOut, e.kind, since(e.occurred, now))
		}
	}
	fail(b.span, err)
	b.span.End(trace.WithTimestamp(now))
	if err == nil {
		b.t.batches.Record(b.ctx, int64(len(b.events)))
		b.t.fanOuts.Record(b.ctx, since(b.began, now))
	}
}

// Attempt is what there is to say about an attempt of a job when it begins.
type Attempt struct {
	Kind, Queue string
	Job         int64
	// Number counts from 1.
	Number int
	// Due is when it could have begun at the earliest.
	Due time.Time
	// Traceparent is the trace that it continues; Owner and Event may be zero.
	Traceparent  string
	Owner, Event uuid.UUID
}

// Job is an attempt of a job that runs. Nil records nothing.
type Job struct {
	t     *Telemetry
	ctx   context.Context
	span  trace.Span
	kind  string
	began time.Time
}

// Job begins the span of an attempt, in the trace of the event that asked for
// the work.
func (t *Telemetry) Job(ctx context.Context, a Attempt) (context.Context, *Job) {
	if t == nil {
		return ctx, nil
	}
	attrs := []attribute.KeyValue{
		semconv.MessagingSystemKey.String("river"), semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("work"),
		semconv.MessagingDestinationName(a.Queue), attribute.String("standmeet.kind", a.Kind),
		attribute.Int64("standmeet.job.id", a.Job), attribute.Int("standmeet.job.attempt", a.Number),
	}
	if a.Owner != (uuid.UUID{}) {
		attrs = append(attrs, attribute.String("standmeet.owner.id", a.Owner.String()))
	}
	if a.Event != (uuid.UUID{}) {
		attrs = append(attrs, attribute.String("standmeet.event.id", a.Event.String()), attribute.String("standmeet.task.id", a.Event.String()+":"+a.Kind))
	}
	j := &Job{t: t, kind: a.Kind, began: time.Now()}
	j.ctx, j.span = begin(WithTraceparent(ctx, a.Traceparent), t.tracer, a.Kind,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(j.began), trace.WithAttributes(attrs...))
	if a.Number == 1 {
		t.hop(j.ctx, hopStart, a.Kind, since(a.Due, j.began))
	}
	return j.ctx, j
}

// Outcome is how an attempt of a job ended.
type Outcome string

// The outcomes.
const (
	Completed   Outcome = "completed"
	Skipped     Outcome = "skipped"     // its tasks had ended before it began
	Snoozed     Outcome = "snoozed"     // put off by itself, which is no failure
	Dropped     Outcome = "dropped"     // a cap forbade it, which is no failure
	Interrupted Outcome = "interrupted" // cancelled, or the process was stopping
	Failed      Outcome = "failed"      // to be tried again
	Discarded   Outcome = "discarded"   // failed for good
)

// End ends the attempt; err is why it failed, if it did.
func (j *Job) End(o Outcome, err error) {
	if j == nil {
		return
	}
	now := time.Now()
	outcome := attribute.String("standmeet.job.outcome", string(o))
	j.span.SetAttributes(outcome)
	if o == Failed || o == Discarded {
		fail(j.span, err)
	}
	j.span.End(trace.WithTimestamp(now))
	j.t.jobs.Add(j.ctx, 1, metric.WithAttributes(outcome, attribute.String("standmeet.kind", j.kind)))
	if o == Completed {
		j.t.hop(j.ctx, hopFinish, j.kind, since(j.began, now))
	}
}

// Together begins the span of what is done at once for n jobs, of being the
// context of each: a trace of its own, linked with theirs both ways.
func (t *Telemetry) Together(ctx context.Context, name string, n int, of func(int) context.Context) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	links := make([]trace.Link, n)
	for i := range n {
		links[i] = trace.LinkFromContext(of(i))
	}
	ctx, span := begin(ctx, t.tracer, name, trace.WithNewRoot(), trace.WithLinks(links...), trace.WithAttributes(semconv.MessagingBatchMessageCount(n)))
	for i := range n {
		trace.SpanFromContext(of(i)).AddLink(trace.LinkFromContext(ctx))
	}
	return ctx, Span{span}
}
