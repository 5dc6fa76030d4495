package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"standmeet/shared/fault"
	"standmeet/shared/telemetry"
)

// way is what one request and the work that it causes record, in one process.
func way(t *telemetry.Telemetry, r *http.Request, event uuid.UUID) {
	r, call := t.Request(r, "corpus.create", "/v1/corpus")
	writing, transaction := telemetry.Start(r.Context(), "transaction")
	trace := telemetry.Traceparent(writing)
	transaction.End(nil)

	ctx, batch := t.Batch(context.Background(), 2)
	trace = batch.Event(event, event, "corpus.created", trace, time.Time{})
	batch.Event(event, event, "corpus.created", "", time.Time{})
	batch.Join(1, 0)
	batch.End(nil)
	ctx, job := t.Job(ctx, telemetry.Attempt{Kind: "corpus.index", Queue: "index", Job: 7, Number: 1, Traceparent: trace, Owner: event})
	together, span := t.Together(context.Background(), "corpus.index batch", 1, func(int) context.Context { return ctx })
	_, statement := telemetry.Start(together, "query")
	statement.End(nil)
	span.End(nil)
	job.End(telemetry.Completed, nil)

	_, wait := telemetry.Wait(r.Context(), "corpus.index", event)
	wait.End("observed", 2*time.Millisecond, time.Time{}.Add(1))
	telemetry.Replayed(r.Context())
	call.End(event, 201, nil)
	t.Flush(r.Context())
}

func request() *http.Request {
	return httptest.NewRequest(http.MethodPost, "/v1/corpus", nil)
}

func TestOff(t *testing.T) {
	before := runtime.NumGoroutine()
	off, err := telemetry.Setup(t.Context(), telemetry.Config{Part: "gateway"})
	if err != nil || off != nil {
		t.Fatalf("%v, %v", off, err)
	}
	r, event := request(), uuid.New()
	if n := testing.AllocsPerRun(100, func() { way(off, r, event) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		_, call := off.Tool(r.Context(), "corpus.create")
		call.End(event, 0, nil)
	}); n != 0 {
		t.Errorf("%v allocations a tool call", n)
	}
	if off.SQL() != nil {
		t.Error("a tracer of statements")
	}
	off.Pool("x", nil)
	off.Backlog(func(context.Context) (telemetry.Backlog, error) {
		t.Error("the backlog was read")
		return telemetry.Backlog{}, nil
	})()
	if err := off.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines, %d before", now, before)
	}
}

// collector is an OTLP/HTTP collector that keeps what it is sent.
type collector struct {
	*httptest.Server
	// hold, unless nil, keeps every answer back until it is closed
	hold chan struct{}

	mu      sync.Mutex
	spans   []*collecttraces.ExportTraceServiceRequest
	metrics []*collectmetrics.ExportMetricsServiceRequest
	headers []http.Header
}

func newCollector(t *testing.T, hold chan struct{}) *collector {
	c := &collector{hold: hold}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.hold != nil {
		<-c.hold
	}
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headers = append(c.headers, r.Header)
	switch r.URL.Path {
	case "/otlp/v1/traces":
		m := &collecttraces.ExportTraceServiceRequest{}
		err = proto.Unmarshal(raw, m)
		c.spans = append(c.spans, m)
	case "/otlp/v1/metrics":
		m := &collectmetrics.ExportMetricsServiceRequest{}
		err = proto.Unmarshal(raw, m)
		c.metrics = append(c.metrics, m)
	default:
		err = fmt.Errorf("nothing is at %s", r.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func value(attrs []*common.KeyValue, key string) string {
	for _, a := range attrs {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func TestCollector(t *testing.T) {
	c := newCollector(t, nil)
	on, err := telemetry.Setup(t.Context(), telemetry.Config{Endpoint: c.URL + "/otlp", Part: "relay, workers", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	way(on, request(), uuid.New())
	on.Webhook(t.Context(), "delivered", time.Millisecond)
	if err := on.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range c.spans {
		for _, rs := range m.ResourceSpans {
			attrs := rs.Resource.Attributes
			if value(attrs, "service.name") != "standmeet" || value(attrs, "standmeet.part") != "relay, workers" ||
				value(attrs, "service.version") != "1.2.3" || value(attrs, "service.instance.id") == "" {
				t.Errorf("resource %v", attrs)
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					names = append(names, s.Name)
				}
			}
		}
	}
	slices.Sort(names)
	want := []string{"corpus.create", "corpus.index", "corpus.index batch", "fan_out", "fan_out corpus.created", "fan_out corpus.created", "query", "transaction", "wait corpus.index"}
	if !slices.Equal(names, want) {
		t.Errorf("spans %q\nwant  %q", names, want)
	}
	var metrics []string
	for _, m := range c.metrics {
		for _, rm := range m.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					metrics = append(metrics, m.Name)
				}
			}
		}
	}
	slices.Sort(metrics)
	want = []string{"http.server.request.duration", "standmeet.jobs", "standmeet.receipt.duration", "standmeet.receipt.hop.duration",
		"standmeet.relay.batch.duration", "standmeet.relay.batch.size", "standmeet.waits", "standmeet.webhook.attempt.duration"}
	if !slices.Equal(slices.Compact(metrics), want) {
		t.Errorf("metrics %q\nwant    %q", metrics, want)
	}
}

// The environment adds to what the process says of itself, and wins.
func TestResource(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging,service.version=2")
	t.Setenv("OTEL_SERVICE_NAME", "other")
	spans := tracetest.NewSpanRecorder()
	on, err := telemetry.New(telemetry.Config{Part: "relay", Version: "1"}, spans, sdkmetric.NewManualReader())
	if err != nil {
		t.Fatal(err)
	}
	way(on, request(), uuid.New())
	from := map[string]string{}
	for _, a := range spans.Ended()[0].Resource().Attributes() {
		from[string(a.Key)] = a.Value.String()
	}
	if from["deployment.environment.name"] != "staging" || from["service.version"] != "2" || from["service.name"] != "other" || from["standmeet.part"] != "relay" {
		t.Errorf("%v", from)
	}
}

func TestEndpointRefused(t *testing.T) {
	for _, endpoint := range []string{"localhost:4318", "%", "/v1"} {
		if _, err := telemetry.Setup(t.Context(), telemetry.Config{Endpoint: endpoint}); err == nil {
			t.Errorf("%q is taken", endpoint)
		}
	}
}

// A function's spans have left when Flush returns; a collector that doesn't
// answer holds it up only so long; a process that is never frozen doesn't flush.
func TestFlush(t *testing.T) {
	c := newCollector(t, nil)
	open := func(endpoint string, frozen bool) *telemetry.Telemetry {
		on, err := telemetry.Setup(t.Context(), telemetry.Config{Endpoint: endpoint, Frozen: frozen, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_ = on.Shutdown(ctx) // the silent collector never takes it
		})
		return on
	}
	way(open(c.URL+"/otlp", false), request(), uuid.New())
	if len(c.spans) != 0 {
		t.Error("flushed in a process that is not frozen")
	}
	way(open(c.URL+"/otlp", true), request(), uuid.New())
	c.mu.Lock()
	if len(c.spans) == 0 || len(c.metrics) == 0 {
		t.Errorf("%d and %d exports when Flush had returned", len(c.spans), len(c.metrics))
	}
	c.mu.Unlock()

	hold := make(chan struct{})
	silent := newCollector(t, hold)
	t.Cleanup(func() { close(hold) })
	slow := open(silent.URL, true)
	for range 2 {
		began := time.Now()
		way(slow, request(), uuid.New())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a silent collector took %v of an answer", took)
		}
	}
}

// recorded gives telemetry that keeps its spans, and the reader of its metrics.
func recorded(t testing.TB) (*telemetry.Telemetry, *tracetest.SpanRecorder, *sdkmetric.ManualReader) {
	spans, metrics := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	on, err := telemetry.New(telemetry.Config{Part: "gateway"}, spans, metrics)
	if err != nil {
		t.Fatal(err)
	}
	return on, spans, metrics
}

func named(t *testing.T, spans *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range spans.Ended() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no span %q", name)
	return nil
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func TestOneTrace(t *testing.T) {
	on, spans, _ := recorded(t)
	event := uuid.New()
	r := request()
	r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	way(on, r, event)
	call, transaction, fanOut, job, wait := named(t, spans, "corpus.create"), named(t, spans, "transaction"),
		named(t, spans, "fan_out corpus.created"), named(t, spans, "corpus.index"), named(t, spans, "wait corpus.index")
	if call.Parent().SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("the caller's trace was not continued: %v", call.Parent())
	}
	for child, parent := range map[sdktrace.ReadOnlySpan]sdktrace.ReadOnlySpan{transaction: call, fanOut: transaction, job: fanOut, wait: call} {
		if child.Parent().SpanID() != parent.SpanContext().SpanID() || child.SpanContext().TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("%s is under %v of trace %v, not under %s", child.Name(), child.Parent().SpanID(), child.SpanContext().TraceID(), parent.Name())
		}
	}
	relay, batch := named(t, spans, "fan_out"), named(t, spans, "corpus.index batch")
	linked := func(from, to sdktrace.ReadOnlySpan) {
		if !slices.ContainsFunc(from.Links(), func(l sdktrace.Link) bool { return l.SpanContext.SpanID() == to.SpanContext().SpanID() }) {
			t.Errorf("%s has no link to %s", from.Name(), to.Name())
		}
	}
	linked(relay, fanOut)
	linked(fanOut, relay)
	linked(batch, job)
	linked(job, batch)
	if len(relay.Links()) != 2 || relay.Parent().IsValid() {
		t.Errorf("the batch has %d links and parent %v", len(relay.Links()), relay.Parent())
	}
	for _, s := range spans.Ended() {
		if s.Name() == "fan_out corpus.created" && s.SpanContext().TraceID() != fanOut.SpanContext().TraceID() {
			linked(s, fanOut) // the job that covers it
		}
	}
	for key, want := range map[string]string{
		"standmeet.operation": "corpus.create", "standmeet.owner.id": event.String(), "http.response.status_code": "201",
		"http.request.method": "POST", "http.route": "/v1/corpus",
		"standmeet.wait.ended": "observed", "standmeet.wait.waited_ms": "2", "standmeet.idempotent_replay": "true",
	} {
		if got := attr(call, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := attr(job, "standmeet.job.outcome"); got != "completed" {
		t.Errorf("job outcome %q", got)
	}
}

// Spans say what kind of error it was, and never its text.
func TestErrors(t *testing.T) {
	const secret = "what somebody wrote"
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{fault.New(fault.Conflict, "version_conflict", secret), 409, "version_conflict"},
		{errors.New(secret), 500, "internal"},
		{context.DeadlineExceeded, 503, "timeout"},
	} {
		on, spans, _ := recorded(t)
		r, call := on.Request(request(), "corpus.create", "/v1/corpus")
		_, span := telemetry.Start(r.Context(), "transaction")
		span.End(fmt.Errorf("wrapped %s: %w", secret, &pgconn.PgError{Code: "23505", Message: secret}))
		call.End(uuid.UUID{}, 0, c.err)
		server := named(t, spans, "corpus.create")
		if attr(server, "http.response.status_code") != fmt.Sprint(c.status) || attr(server, "standmeet.code") != c.code {
			t.Errorf("%v: %v", c.err, server.Attributes())
		}
		if failed := server.Status().Code == codes.Error; failed != (c.status >= 500) {
			t.Errorf("%v: status %v", c.err, server.Status())
		}
		if attr(named(t, spans, "transaction"), "error.type") != "23505" {
			t.Errorf("%v", named(t, spans, "transaction").Attributes())
		}
		for _, s := range spans.Ended() {
			if text := fmt.Sprint(s.Attributes(), s.Status(), s.Events()); strings.Contains(text, secret) {
				t.Errorf("%s: %s", s.Name(), text)
			}
		}
	}
}

func collect(t *testing.T, r *sdkmetric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.Metrics{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

func TestBacklog(t *testing.T) {
	on, _, reader := recorded(t)
	reads := 0
	stop := on.Backlog(func(context.Context) (telemetry.Backlog, error) {
		reads++
		return telemetry.Backlog{Queued: 3, Poisoned: 1, Oldest: 90 * time.Second, Tasks: []telemetry.OpenTasks{{Kind: "mail.test", State: "pending", Count: 2}}}, nil
	})
	for range 3 {
		m := collect(t, reader)
		if got := m["standmeet.events.queued"].Data.(metricdata.Gauge[int64]).DataPoints[0].Value; got != 3 {
			t.Errorf("queued %d", got)
		}
		if got := m["standmeet.events.oldest"].Data.(metricdata.Gauge[float64]).DataPoints[0].Value; got != 90 {
			t.Errorf("oldest %v", got)
		}
		if got := m["standmeet.tasks.open"].Data.(metricdata.Gauge[int64]).DataPoints[0]; got.Value != 2 || got.Attributes.Len() != 2 {
			t.Errorf("tasks %v", got)
		}
	}
	if reads != 1 {
		t.Errorf("read %d times within 15 s", reads)
	}
	stop()
	if _, still := collect(t, reader)["standmeet.events.queued"]; still {
		t.Error("observed after stop")
	}
}

// A batch that failed is told by its spans and counts as no fan-out.
func TestFailedBatch(t *testing.T) {
	on, spans, reader := recorded(t)
	_, batch := on.Batch(t.Context(), 1)
	batch.Event(uuid.New(), uuid.New(), "corpus.created", "", time.Now())
	batch.End(&pgconn.PgError{Code: "40001"})
	for _, name := range []string{"fan_out", "fan_out corpus.created"} {
		if s := named(t, spans, name); s.Status().Code != codes.Error {
			t.Errorf("%s: %v", name, s.Status())
		}
	}
	if m := collect(t, reader); len(m) != 0 {
		t.Errorf("%v", m)
	}
}

func TestLogger(t *testing.T) {
	on, _, _ := recorded(t)
	r, call := on.Request(request(), "corpus.create", "/v1/corpus")
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelInfo, true).With("function", "x")
	log.LogAttrs(r.Context(), slog.LevelInfo, "in", slog.String("owner", "o"))
	log.LogAttrs(t.Context(), slog.LevelInfo, "outside")
	log.LogAttrs(r.Context(), slog.LevelDebug, "too quiet")
	call.End(uuid.UUID{}, 200, nil)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatal(out.String())
	}
	var in, outside map[string]any
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &in), json.Unmarshal([]byte(lines[1]), &outside)); err != nil {
		t.Fatal(err)
	}
	if trace := strings.Split(telemetry.Traceparent(r.Context()), "-"); in["trace_id"] != trace[1] || in["span_id"] != trace[2] || in["function"] != "x" || in["owner"] != "o" {
		t.Errorf("%v", in)
	}
	if _, has := outside["trace_id"]; has || outside["msg"] != "outside" {
		t.Errorf("%v", outside)
	}
	out.Reset()
	telemetry.NewLogger(&out, slog.LevelInfo, false).LogAttrs(r.Context(), slog.LevelInfo, "text")
	if !strings.Contains(out.String(), "level=INFO msg=text trace_id=") {
		t.Error(out.String())
	}
}

// Parameters of a statement never reach a span.
func TestSQL(t *testing.T) {
	on, spans, _ := recorded(t)
	tracer := on.SQL()
	r, call := on.Request(request(), "corpus.create", "/v1/corpus")
	ctx := tracer.TraceQueryStart(r.Context(), nil, pgx.TraceQueryStartData{SQL: "SELECT $1", Args: []any{"secret"}})
	tracer.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{Err: pgx.ErrNoRows})
	var b pgx.Batch
	b.Queue("SELECT 1", "secret")
	b.Queue("SELECT 2")
	ctx = tracer.(pgx.BatchTracer).TraceBatchStart(r.Context(), nil, pgx.TraceBatchStartData{Batch: &b})
	tracer.(pgx.BatchTracer).TraceBatchEnd(ctx, nil, pgx.TraceBatchEndData{})
	outside := tracer.TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{SQL: "SELECT 3"})
	tracer.TraceQueryEnd(outside, nil, pgx.TraceQueryEndData{})
	if n := len(spans.Ended()); n != 2 {
		t.Errorf("%d spans", n)
	}
	call.End(uuid.UUID{}, 200, nil)
	if query, batch := named(t, spans, "query"), named(t, spans, "batch"); attr(query, "db.query.text") != "SELECT $1" ||
		attr(batch, "db.query.text") != "SELECT 1; SELECT 2" || attr(batch, "db.operation.batch.size") != "2" {
		t.Errorf("%v, %v", query.Attributes(), batch.Attributes())
	}
	for _, s := range spans.Ended() {
		if strings.Contains(fmt.Sprint(s.Attributes()), "secret") {
			t.Error(s.Attributes())
		}
	}
}

// BenchmarkWay is all that is recorded from a request to the end of its job.
func BenchmarkWay(b *testing.B) {
	r, event := request(), uuid.New()
	b.Run("off", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			way(nil, r, event)
		}
	})
	b.Run("on", func(b *testing.B) {
		on, err := telemetry.New(telemetry.Config{}, sdktrace.NewBatchSpanProcessor(tracetest.NewNoopExporter()), sdkmetric.NewManualReader())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			way(on, r, event)
		}
		if err := on.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
}
