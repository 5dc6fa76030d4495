package telemetry

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"standmeet/shared/fault"
)

// Traceparent is the W3C trace context of ctx, empty when there is none. It
// travels in the event, so that one trace leads from a request through its
// event to the work that it caused.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// WithTraceparent continues the trace that traceparent names; anything else
// leaves ctx as it is.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// begin starts a span of which the end is another function's business.
func begin(ctx context.Context, t trace.Tracer, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.Start(ctx, name, options...) //nolint:spancheck // whoever called ends it
}

// Span is a part of a trace. The zero Span records nothing.
type Span struct{ span trace.Span }

// Start begins a part of what ctx is recording; where nothing is recorded it is
// nothing. The span must be ended.
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := begin(ctx, parent.TracerProvider().Tracer(library), name)
	return ctx, Span{span}
}

// End ends the span; err is what went wrong, if anything.
func (s Span) End(err error) {
	if s.span != nil {
		fail(s.span, err)
		s.span.End()
	}
}

// fail marks a span. It doesn't take the error's text, which may quote what
// somebody wrote.
func fail(s trace.Span, err error) {
	if err == nil || !s.IsRecording() {
		return
	}
	kind := errorType(err)
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, kind)
}

// errorType is a fault's code, the SQLSTATE of PostgreSQL, or what Go calls the
// error's type.
func errorType(err error) string {
	var f *fault.Fault
	if errors.As(err, &f) && f.Code != "" {
		return f.Code
	}
	var sql *pgconn.PgError
	if errors.As(err, &sql) {
		return sql.Code
	}
	return semconv.ErrorType(err).Value.AsString()
}
