package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP/HTTP collector that keeps what it is sent.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	raw     bytes.Buffer
	spans   []*traces.Span
	part    map[*traces.Span]string // which process sent it
	metrics map[string]bool
}

func newCollector(t *testing.T) *collector {
	c := &collector{part: map[*traces.Span]string{}, metrics: map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("collector: %v", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(r *http.Request) error {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(raw)
	if strings.HasSuffix(r.URL.Path, "/v1/metrics") {
		var m collectmetrics.ExportMetricsServiceRequest
		err := proto.Unmarshal(raw, &m)
		for _, of := range m.ResourceMetrics {
			for _, in := range of.ScopeMetrics {
				for _, metric := range in.Metrics {
					c.metrics[metric.Name] = true
				}
			}
		}
		return err
	}
	var m collecttraces.ExportTraceServiceRequest
	err = proto.Unmarshal(raw, &m)
	for _, of := range m.ResourceSpans {
		part := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "standmeet.part" {
				part = a.Value.GetStringValue()
			}
		}
		for _, in := range of.ScopeSpans {
			for _, s := range in.Spans {
				c.spans = append(c.spans, s)
				c.part[s] = part
			}
		}
	}
	return err
}

// has finds the span of that name under parent (nil: any) in a trace.
func (c *collector) has(trace, name string, parent *traces.Span) *traces.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace && s.Name == name && (parent == nil || bytes.Equal(s.ParentSpanId, parent.SpanId)) {
			return s
		}
	}
	return nil
}

func attribute(s *traces.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// One trace leads through three processes, metrics arrive from each, and neither
// the collector nor a log, at its most talkative and while things fail, gets to
// see what somebody wrote, or a secret.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newSite(t)
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "LOG_LEVEL=debug", "OTEL_BSP_SCHEDULE_DELAY=100"}
	processes := []*process{s.start("gateway", env...), s.start("relay", env...), s.start("workers", env...)}

	const trace, secret = "4bf92f3577b34da6a3ce929d0e0e4736", "heliotrope walrus"
	a := s.create(object{"genre": "raw", "body": "a " + secret}, "Traceparent: 00-"+trace+"-00f067aa0ba902b7-01", "Idempotency-Key: "+strings.ReplaceAll(secret, " ", "-"))
	if a.at("indexed") != true {
		t.Fatalf("the answer: %s", a.raw)
	}
	var request, transaction, fanOut, job, wait *traces.Span
	s.eventually("the trace", func() bool {
		request = c.has(trace, "corpus.create", nil)
		if request == nil {
			return false
		}
		wait, transaction = c.has(trace, "wait corpus.index", request), c.has(trace, "transaction", request)
		if wait == nil || transaction == nil || c.has(trace, "batch", transaction) == nil {
			return false
		}
		if fanOut = c.has(trace, "fan_out corpus.note.changed", transaction); fanOut == nil {
			return false
		}
		job = c.has(trace, "corpus.index", fanOut)
		return job != nil
	})
	if hex.EncodeToString(request.ParentSpanId) != "00f067aa0ba902b7" || attribute(request, "standmeet.wait.ended") != "observed" || attribute(request, "standmeet.owner.id") == "" {
		t.Errorf("the request: %v", request)
	}
	for span, part := range map[*traces.Span]string{request: "gateway", transaction: "gateway", wait: "gateway", fanOut: "relay", job: "workers"} {
		if c.part[span] != part {
			t.Errorf("%s is from %s, want %s", span.Name, c.part[span], part)
		}
	}
	if len(fanOut.Links) == 0 || len(job.Links) == 0 {
		t.Error("no links to the batches")
	}

	s.eventually("metrics of every part", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range []string{
			"http.server.request.duration", "standmeet.waits", "standmeet.receipt.duration", "standmeet.receipt.hop.duration", "standmeet.jobs",
			"standmeet.relay.batch.size", "standmeet.relay.batch.duration", "standmeet.events.queued", "standmeet.events.poisoned",
			"standmeet.events.oldest", "standmeet.tasks.open", "db.client.connection.count", "db.client.connection.max",
		} {
			if !c.metrics[name] {
				return false
			}
		}
		return true
	})

	// PostgreSQL quotes the row that breaks a constraint
	for _, sql := range []string{
		`ALTER TABLE note_search ADD CONSTRAINT broken CHECK (false) NOT VALID`,
		`ALTER TABLE notes ADD CONSTRAINT broken CHECK (body !~ 'falls') NOT VALID`,
	} {
		if _, err := s.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s.create(object{"genre": "raw", "body": secret + " is not indexed"}, "Prefer: wait=0")
	if failed := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": secret + " falls"}); failed.status != 500 || strings.Contains(failed.raw, secret) {
		t.Errorf("the answer: %d %s", failed.status, failed.raw)
	}
	s.call("POST", "/v1/corpus", `{"genre": "raw", "body": "`+secret)
	logs := func(what string) bool {
		for _, p := range processes {
			for line := range strings.Lines(p.log.String()) {
				if strings.Contains(line, what) && strings.Contains(line, "trace_id=") && strings.Contains(line, "owner=") {
					return true
				}
			}
		}
		return false
	}
	s.eventually("both failures in the logs", func() bool { return logs("attempt failed") && logs("operation failed") })
	for _, p := range processes {
		p.stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	told := map[string]string{"the collector": c.raw.String()}
	for _, p := range processes {
		for line := range strings.Lines(p.log.String()) {
			if strings.HasPrefix(line, "time=") { // the rest is what a person is told at the start
				told["a log"] += line
			}
		}
	}
	for who, text := range told {
		for _, word := range []string{"heliotrope", "walrus", s.token} {
			if strings.Contains(text, word) {
				t.Errorf("%s is told %q", who, word)
			}
		}
	}
}
