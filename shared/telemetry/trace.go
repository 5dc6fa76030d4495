// Package telemetry holds traces, metrics and structured logs. Without an
// OTLP endpoint nothing is recorded or sent.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// Traceparent is the W3C trace context of ctx, empty when there is none. It
// travels in the event, so that one trace leads from a request through its
// event to the work that it caused.
func Traceparent(ctx context.Context) string {
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
