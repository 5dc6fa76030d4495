package stack_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"standmeet/local/stack"
	"standmeet/shared/auth"
	"standmeet/shared/corpus"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/waiter"
)

type note struct {
	Body string `json:"body"`
}

type created struct {
	Receipt string      `json:"receipt"`
	State   task.State  `json:"state"`
	Wait    waiter.Wait `json:"wait"`
}

// serve runs every part and answers an operation that writes a note and waits
// for its index.
func serve(t testing.TB, on *telemetry.Telemetry) http.Handler {
	t.Helper()
	s, err := stack.Start(t.Context(), stack.Options{URL: pgtest.URL(t), Telemetry: on}, stack.Parts{Gateway: true, Relay: true, Workers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	type committed struct {
		Event   uuid.UUID `json:"event"`
		receipt *task.Receipt
	}
	create := op.NewWrite(op.Spec{Name: "notes.create", Method: "POST", Path: "/notes", Scope: "corpus:write", Summary: "Write", MaxWait: 5 * time.Second}, s.DB,
		func(ctx context.Context, tx *pg.Tx, c auth.Caller, in note) (committed, error) {
			id := outbox.NewID()
			rc := s.Receipts.Expect(id, task.CorpusIndex)
			_, err := corpus.Create(ctx, tx, c.OwnerID, id, corpus.Draft{Genre: corpus.Raw, Body: in.Body, Visibility: corpus.Private})
			if err != nil {
				rc.Drop()
			}
			return committed{id, rc}, err
		},
		func(ctx context.Context, _ auth.Caller, c committed) (created, error) {
			if c.receipt == nil {
				c.receipt = s.Receipts.Resume(task.ID{Event: c.Event, Subscriber: task.CorpusIndex})
			}
			state, wait := c.receipt.Await(ctx, time.Now(), op.CallFrom(ctx).Wait)
			return created{c.receipt.ID.String(), state, wait}, nil
		})
	owner := uuid.New()
	return op.NewCatalog(create).Handler(&op.Server{Telemetry: on, Authenticate: func(context.Context, auth.Credentials) (auth.Caller, error) {
		return auth.Caller{Kind: auth.Owner, OwnerID: owner, Scopes: []string{auth.AllScopes}}, nil
	}})
}

func post(t testing.TB, h http.Handler, headers ...string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/notes", strings.NewReader(`{"body": "the quick brown fox"}`))
	r.Header.Set("Authorization", "Bearer x")
	r.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"completed"`) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func recorded(t testing.TB) (*telemetry.Telemetry, *tracetest.SpanRecorder, *sdkmetric.ManualReader) {
	spans, metrics := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	on, err := telemetry.New(telemetry.Config{Part: "gateway, relay, workers"}, spans, metrics)
	if err != nil {
		t.Fatal(err)
	}
	return on, spans, metrics
}

// A note's trace has every part of its way, each under what caused it, down to
// the statements; so do the traces of both batches.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	on, spans, metrics := recorded(t)
	h := serve(t, on)
	post(t, h, "Idempotency-Key: k")
	find := func(name, under string) sdktrace.ReadOnlySpan {
		all := spans.Ended()
		for _, s := range all {
			if s.Name() == name && (under == "" && !s.Parent().IsValid() || slices.ContainsFunc(all, func(p sdktrace.ReadOnlySpan) bool {
				return p.Name() == under && s.Parent().SpanID() == p.SpanContext().SpanID() && s.SpanContext().TraceID() == p.SpanContext().TraceID()
			})) {
				return s
			}
		}
		return nil
	}
	want := [][2]string{
		{"notes.create", ""}, {"transaction", "notes.create"}, {"batch", "transaction"}, {"wait corpus.index", "notes.create"},
		{"fan_out corpus.note.changed", "transaction"}, {"corpus.index", "fan_out corpus.note.changed"},
		{"fan_out", ""}, {"query", "fan_out"}, {"corpus.index batch", ""}, {"query", "corpus.index batch"},
	}
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, w := range want {
		for find(w[0], w[1]) == nil {
			select {
			case <-tick.C:
			case <-deadline:
				for _, s := range spans.Ended() {
					t.Logf("%s under %v in %v", s.Name(), s.Parent().SpanID(), s.SpanContext().TraceID())
				}
				t.Fatalf("no span %s under %s", w[0], w[1])
			}
		}
	}
	post(t, h, "Idempotency-Key: k")
	replays := 0
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			if a.Key == "standmeet.idempotent_replay" && s.Name() == "notes.create" {
				replays++
			}
		}
	}
	if replays != 1 {
		t.Errorf("%d calls are told as replays", replays)
	}

	var all metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					hop, _ := p.Attributes.Value("standmeet.hop")
					kind, _ := p.Attributes.Value("standmeet.kind")
					counts[strings.TrimSpace(fmt.Sprintf("%s %s %s", m.Name, hop.AsString(), kind.AsString()))] += p.Count
					if p.Sum < 0 || p.Sum > 60 {
						t.Errorf("%s: %v s", m.Name, p.Sum)
					}
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					ended, _ := p.Attributes.Value("standmeet.wait.ended")
					counts[strings.TrimSpace(m.Name+" "+ended.AsString())] += uint64(p.Value)
				}
			case metricdata.Gauge[int64]:
				counts[m.Name] += uint64(len(d.DataPoints))
			}
		}
	}
	for name, want := range map[string]uint64{
		"http.server.request.duration": 2, "standmeet.waits observed": 2,
		// a replay waits for what may have ended long ago
		"standmeet.receipt.duration  corpus.index":                   1,
		"standmeet.receipt.hop.duration fan_out corpus.note.changed": 1,
		"standmeet.receipt.hop.duration start corpus.index":          1,
		"standmeet.receipt.hop.duration finish corpus.index":         1,
		"standmeet.receipt.hop.duration observe corpus.index":        1,
		"standmeet.events.queued":                                    1,
		"standmeet.tasks.open":                                       uint64(3 * len(task.Kinds())),
	} {
		if counts[name] != want {
			t.Errorf("%s: %d, want %d", name, counts[name], want)
		}
	}
	if counts["db.client.connection.max"] < 24 {
		t.Errorf("pools: %v", counts)
	}
	if t.Failed() {
		t.Log(counts)
	}
}

// BenchmarkReceipt is a note from the request to its observed index, by one
// writer.
func BenchmarkReceipt(b *testing.B) {
	for _, mode := range []string{"off", "on"} {
		b.Run(mode, func(b *testing.B) {
			var on *telemetry.Telemetry
			if mode == "on" {
				var err error
				if on, err = telemetry.New(telemetry.Config{}, sdktrace.NewBatchSpanProcessor(tracetest.NewNoopExporter()), sdkmetric.NewManualReader()); err != nil {
					b.Fatal(err)
				}
			}
			h := serve(b, on)
			b.ReportAllocs()
			for b.Loop() {
				post(b, h)
			}
		})
	}
}
