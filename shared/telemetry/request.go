package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"standmeet/shared/fault"
)

// Call is an operation that is being served. Nil records nothing.
type Call struct {
	t         *Telemetry
	ctx       context.Context
	span      trace.Span
	operation string
	began     time.Time
	// the metric that the call counts in
	duration metric.Float64Histogram
	labels   []attribute.KeyValue
}

type callKey struct{}

func callFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Request begins the span of an operation that r asks for on route; it continues
// the trace that r names. The request that it returns carries the span.
func (t *Telemetry) Request(r *http.Request, operation, route string) (*http.Request, *Call) {
	if t == nil {
		return r, nil
	}
	ctx := WithTraceparent(r.Context(), r.Header.Get("Traceparent"))
	ctx, c := t.call(ctx, operation, t.requests, semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(route))
	return r.WithContext(ctx), c
}

// Tool begins the span of an operation that a tools/call of MCP asks for.
func (t *Telemetry) Tool(ctx context.Context, operation string) (context.Context, *Call) {
	if t == nil {
		return ctx, nil
	}
	// the MCP conventions are not in the Go module
	return t.call(ctx, operation, t.tools, attribute.String("mcp.method.name", "tools/call"), attribute.String("gen_ai.tool.name", operation))
}

func (t *Telemetry) call(ctx context.Context, operation string, duration metric.Float64Histogram, labels ...attribute.KeyValue) (context.Context, *Call) {
	c := &Call{t: t, operation: operation, began: time.Now(), duration: duration, labels: labels}
	ctx, c.span = begin(ctx, t.tracer, operation, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.began),
		trace.WithAttributes(attribute.String("standmeet.operation", operation)), trace.WithAttributes(labels...))
	c.ctx = context.WithValue(ctx, callKey{}, c)
	return c.ctx, c
}

// End ends the span with how the operation was answered: with status, or with
// the fault that err is. owner is the zero UUID for a caller who is no owner.
func (c *Call) End(owner uuid.UUID, status int, err error) {
	if c == nil {
		return
	}
	if f := fault.From(err); f != nil {
		status = f.Status()
		c.span.SetAttributes(attribute.String("standmeet.code", f.Code))
		if status >= 500 {
			c.labels = append(c.labels, semconv.ErrorTypeKey.String(f.Code))
			c.span.SetAttributes(semconv.ErrorTypeKey.String(f.Code))
			c.span.SetStatus(codes.Error, f.Code)
		}
	}
	if owner != (uuid.UUID{}) {
		c.span.SetAttributes(attribute.String("standmeet.owner.id", owner.String()))
	}
	code := semconv.HTTPResponseStatusCode(status)
	c.span.SetAttributes(code)
	c.span.End()
	c.duration.Record(c.ctx, time.Since(c.began).Seconds(), metric.WithAttributes(append(c.labels, code)...))
}

// Replayed notes that the operation is answered from an idempotency key.
func Replayed(ctx context.Context) {
	if c := callFrom(ctx); c != nil {
		c.span.SetAttributes(attribute.Bool("standmeet.idempotent_replay", true))
	}
}

// Waiting is a wait for a task. The zero Waiting records nothing.
type Waiting struct {
	call *Call
	span trace.Span
	kind string
}

// Wait begins a wait of the operation that ctx belongs to: for the task of kind
// that event asked for, or for the event's fan_out.
func Wait(ctx context.Context, kind string, event uuid.UUID) (context.Context, Waiting) {
	c := callFrom(ctx)
	if c == nil {
		return ctx, Waiting{}
	}
	ctx, span := begin(ctx, c.t.tracer, "wait "+kind, trace.WithAttributes(
		attribute.String("standmeet.kind", kind), attribute.String("standmeet.event.id", event.String())))
	return ctx, Waiting{c, span, kind}
}

// End ends the wait. waited is counted from the commit. finished is when the
// task ended, as far as it did; it is zero, too, where the wait does not tell how
// long the task took, since it began long after the commit.
func (w Waiting) End(ended string, waited time.Duration, finished time.Time) {
	if w.call == nil {
		return
	}
	outcome := []attribute.KeyValue{attribute.String("standmeet.wait.ended", ended), attribute.Int64("standmeet.wait.waited_ms", waited.Milliseconds())}
	w.span.SetAttributes(outcome...)
	w.span.End()
	w.call.span.SetAttributes(outcome...)
	t, ctx := w.call.t, w.call.ctx
	t.waits.Add(ctx, 1, metric.WithAttributes(outcome[0], attribute.String("standmeet.operation", w.call.operation)))
	if !finished.IsZero() {
		t.receipts.Record(ctx, waited.Seconds(), metric.WithAttributes(attribute.String("standmeet.kind", w.kind)))
		t.hop(ctx, hopObserve, w.kind, since(finished, time.Now()))
	}
}
