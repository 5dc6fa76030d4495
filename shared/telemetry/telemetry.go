// Package telemetry holds traces, metrics and structured logs.
//
// Everything hangs on a *Telemetry, of which nil records nothing, starts no
// goroutine and allocates nothing: that is what Setup gives without an OTLP
// endpoint. It is handed to what begins a trace: op.Server, the relay, the
// workers. Whatever runs below those finds it in its context.
//
// One trace leads from a request through its transaction, the fan-out of its
// event and the job to the end of the wait. The W3C trace context travels in the
// event and in the job's arguments. What is done at once for many (a relay's
// batch, a batch of index jobs) is a trace of its own, linked both ways.
//
// Names are those of OpenTelemetry's semantic conventions where there are any;
// the others begin with "standmeet.". No attribute holds what somebody wrote or a
// secret: ids, names and numbers alone, and SQL without its parameters.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

const (
	library = "standmeet"
	// flushTimeout is what a function's answer may wait for a slow collector.
	flushTimeout = 200 * time.Millisecond
	// readEvery is the pause between two exports of the metrics, and how old a
	// count of the backlog may become.
	readEvery = 15 * time.Second
	// spanQueue holds the spans that a burst makes faster than they are sent; more
	// are dropped. A fan-out of a full relay batch makes a thousand.
	spanQueue = 16_384
	// maxLinks lets a full relay batch link to every event; the SDK's default is 128.
	maxLinks = 1000
	// maxText bounds the text of an attribute, in bytes.
	maxText = 2048
)

// Config says where telemetry goes and what it comes from.
type Config struct {
	// Endpoint is the base URL of an OTLP/HTTP collector, "http://host:4318";
	// empty is off.
	Endpoint string
	// Part of the product that the process is: gateway, relay, workers or function;
	// several are joined by commas.
	Part string
	// Version of the product; may be empty.
	Version string
	// Frozen: the process may be frozen between two requests. Flush then sends what
	// is recorded.
	Frozen bool
	// Logger hears when telemetry can't be sent; nil is slog.Default.
	Logger *slog.Logger
}

// Telemetry records. Nil records nothing; every method takes nil.
type Telemetry struct {
	spans   *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	tracer  trace.Tracer
	frozen  bool
	instruments
}

// Setup prepares telemetry for a process. Without an endpoint it is nil, and so
// off. The OTEL_* variables that the SDK defines count too (headers of the
// exporter, sampler, resource attributes, limits). It connects to nothing and
// fails only on an endpoint that is no URL, or on such a variable.
func Setup(ctx context.Context, c Config) (*Telemetry, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	base, err := url.Parse(c.Endpoint)
	if err != nil || base.Host == "" {
		return nil, errors.New("telemetry: the endpoint is no URL like http://host:4318")
	}
	traces, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base.JoinPath("v1/traces").String()))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base.JoinPath("v1/metrics").String()))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	// the SDK has one handler for the whole process
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		c.Logger.LogAttrs(context.Background(), slog.LevelWarn, "telemetry failed", slog.Any("error", err))
	}))
	return New(c,
		sdktrace.NewBatchSpanProcessor(traces, sdktrace.WithMaxQueueSize(spanQueue)),
		sdkmetric.NewPeriodicReader(metrics, sdkmetric.WithInterval(readEvery)))
}

// New is Setup with another destination than a collector; Endpoint and Logger
// don't count.
func New(c Config, spans sdktrace.SpanProcessor, metrics sdkmetric.Reader) (*Telemetry, error) {
	attrs := []attribute.KeyValue{
		semconv.ServiceName("standmeet"), semconv.ServiceInstanceID(uuid.NewString()), attribute.String("standmeet.part", c.Part),
	}
	if c.Version != "" {
		attrs = append(attrs, semconv.ServiceVersion(c.Version))
	}
	// what the environment says wins
	from, err := resource.Merge(resource.NewWithAttributes(semconv.SchemaURL, attrs...), resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit, limits.AttributeValueLengthLimit = maxLinks, maxText
	t := &Telemetry{
		spans:   sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithRawSpanLimits(limits), sdktrace.WithSpanProcessor(spans)),
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithResource(from), sdkmetric.WithReader(metrics)),
		frozen:  c.Frozen,
	}
	t.tracer = t.spans.Tracer(library, trace.WithInstrumentationVersion(c.Version))
	t.instruments, err = newInstruments(t.metrics.Meter(library, metric.WithInstrumentationVersion(c.Version)))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// Flush sends what is recorded, for at most 200 ms, when the process may be
// frozen next. In every other process it does nothing.
func (t *Telemetry) Flush(ctx context.Context) {
	if t == nil || !t.frozen {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	var both sync.WaitGroup
	// what could not be sent in time stays for the next flush
	both.Go(func() { _ = t.spans.ForceFlush(ctx) })
	both.Go(func() { _ = t.metrics.ForceFlush(ctx) })
	both.Wait()
}

// Shutdown sends what is recorded until ctx ends. Nothing is recorded after it.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return errors.Join(t.spans.Shutdown(ctx), t.metrics.Shutdown(ctx))
}
