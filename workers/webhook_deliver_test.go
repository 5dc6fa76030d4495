package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"standmeet/functions"
	"standmeet/shared/auth"
	"standmeet/shared/config"
	rules "standmeet/shared/egress"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
	"standmeet/shared/webhook"
	"standmeet/workers/internal/egress"
)

// yard is a desk that may post to this machine, with a relay and, once it posts,
// workers that deliver.
type yard struct {
	*desk
	// patience is how long an answer may take
	patience time.Duration
}

func loopback() rules.Rules {
	return rules.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

func newYard(t *testing.T) *yard {
	d := newDesk(t)
	wait := waiter.New(d.db, waiter.Options{}, task.FinalSource(d.db), outbox.FanoutSource(d.db))
	t.Cleanup(wait.Close)
	store := &auth.Store{DB: d.db}
	t.Cleanup(func() { store.Flush(context.Background()) })
	h, err := functions.New(functions.Deps{DB: d.db, Waiter: wait, Receipts: task.NewReceipts(d.db, wait), Auth: store, Keys: d.keys, PublicURL: page, Mail: true, Egress: loopback()}).
		Endpoint(functions.Any)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	d.base = s.URL
	d.relays()
	return &yard{d, 2 * time.Second}
}

// posts starts workers that deliver; the next attempt is due a moment after the one
// before it.
func (y *yard) posts() (stop func()) {
	return y.work(func(registry *river.Workers, e *env) {
		h := newHooks(e, y.keys, loopback())
		h.client = egress.New(egress.Options{Rules: loopback(), Timeout: y.patience})
		h.wait = func(int, float64) (time.Duration, bool) { return 20 * time.Millisecond, true }
		river.AddWorker(registry, newWorker(e, task.WebhookDeliver, quick, h.work))
		river.AddWorker(registry, newWorker(e, task.CorpusIndex, quick, func(ctx context.Context, j *river.Job[task.IndexArgs]) error {
			return complete(ctx, e.db, j, nil)
		}))
		river.AddWorker(registry, newWorker(e, task.PeriodicRun, quick, periodic(e.db)))
	})
}

// request is one that a receiver got.
type request struct {
	header http.Header
	body   string
	at     time.Time
}

func (r request) id() string { return r.header.Get("Webhook-Id") }

// receiver is somebody's server. It answers the n-th request (from 0) as told.
type receiver struct {
	*httptest.Server
	mu        sync.Mutex
	got       []request
	inFlight  atomic.Int32
	crowded   atomic.Bool
	endpoint  string
	secret    string
	unlimited bool
	// its handlers go on after the sender has gone: they are no measure of what is in flight
	lingers bool
}

func (r *receiver) serve(answer func(w http.ResponseWriter, req *http.Request, n int)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if r.inFlight.Add(1) > 1 {
			r.crowded.Store(true)
		}
		defer r.inFlight.Add(-1)
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		n := len(r.got)
		r.got = append(r.got, request{req.Header.Clone(), string(body), time.Now()})
		r.mu.Unlock()
		answer(w, req, n)
	}
}

func (r *receiver) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// receives starts a receiver and subscribes it.
func (y *yard) receives(body object, answer func(w http.ResponseWriter, req *http.Request, n int)) *receiver {
	y.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(r.serve(answer))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	r.Start()
	y.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	y.subscribes(r, body)
	return r
}

func (y *yard) subscribes(r *receiver, body object) {
	y.Helper()
	in := object{"url": r.URL + "/hook", "event_types": []string{"code.*"}}
	for k, v := range body {
		in[k] = v
	}
	a := y.ok("POST", "/v1/webhooks", in)
	r.endpoint, r.secret = a.text("endpoint.id"), a.text("secret")
}

func status(codes ...int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, n int) { w.WriteHeader(codes[min(n, len(codes)-1)]) }
}

// happens makes an event of type code.created.
func (y *yard) happens() (subject string) {
	y.Helper()
	return y.ok("POST", "/v1/codes", object{"label": "x"}).text("details.id")
}

// log reads an endpoint's deliveries, newest first.
func (y *yard) log(r *receiver, query string) (entries []webhook.Entry) {
	y.Helper()
	a := y.ok("GET", "/v1/webhooks/"+r.endpoint+"/deliveries"+query, nil)
	var page struct{ Items []webhook.Entry }
	if err := json.Unmarshal([]byte(a.raw), &page); err != nil {
		y.Fatal(err)
	}
	return page.Items
}

// ends waits until an endpoint has n deliveries and all are in the given states,
// the newest first, and checks the log against what the receiver saw.
func (y *yard) ends(r *receiver, states ...webhook.State) []webhook.Entry {
	y.Helper()
	var entries []webhook.Entry
	var is []webhook.State
	ok := func() bool {
		entries, is = y.log(r, ""), nil
		for _, e := range entries {
			is = append(is, e.State)
		}
		return slices.Equal(is, states)
	}
	deadline := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if <-tick.C; time.Now().After(deadline) {
			y.Fatalf("the deliveries are %v, not %v", is, states)
		}
	}
	y.agrees(r, entries)
	return entries
}

// agrees: the log has a row for each request that the receiver got, and each
// request is what Standard Webhooks wants.
func (y *yard) agrees(r *receiver, entries []webhook.Entry) {
	y.Helper()
	logged, got := map[string]int{}, map[string]int{}
	bodies := map[string]string{}
	for _, e := range entries {
		if len(e.Attempts) > 0 {
			logged[e.EventID.String()] += len(e.Attempts)
		}
		bodies[e.EventID.String()] = string(e.Payload)
		for i, a := range e.Attempts {
			if a.Number != i+1 || len(a.Response) > 4096 || a.Outcome == "under_way" || a.Outcome != "interrupted" && a.DurationMS == nil || (a.Error == "") != (a.Outcome == "delivered") {
				y.Errorf("attempt %+v", a)
			}
		}
		if e.State != webhook.Held {
			id, err := task.ParseID(e.JobID)
			if err != nil {
				y.Fatal(err)
			}
			want := map[webhook.State]task.State{webhook.Done: task.Completed, webhook.Discarded: task.Discarded, webhook.Cancelled: task.Cancelled}[e.State]
			if d := y.get(id); want != "" && d.State != want || d.Attempts != len(e.Attempts) {
				y.Errorf("delivery %s of %d attempts, task %s of %d (%s)", e.State, len(e.Attempts), d.State, d.Attempts, d.Sentence)
			}
		}
	}
	verify, err := webhooks.NewWebhook(r.secret)
	if err != nil {
		y.Fatal(err)
	}
	for _, req := range r.all() {
		got[req.id()]++
		if err := verify.Verify([]byte(req.body), req.header); err != nil {
			y.Errorf("the signature: %v", err)
		}
		var compact bytes.Buffer
		_ = json.Compact(&compact, []byte(bodies[req.id()]))
		var sent bytes.Buffer
		_ = json.Compact(&sent, []byte(req.body))
		if sent.String() != compact.String() {
			y.Errorf("the log has %s, sent was %s", bodies[req.id()], req.body)
		}
		seconds, _ := strconv.ParseInt(req.header.Get("Webhook-Timestamp"), 10, 64)
		if age := req.at.Sub(time.Unix(seconds, 0)); age > 5*time.Second || age < -time.Second {
			y.Errorf("the timestamp is %s old", age)
		}
	}
	if !r.unlimited && fmt.Sprint(logged) != fmt.Sprint(got) {
		y.Errorf("the log has %v attempts, the receiver %v", logged, got)
	}
	if r.crowded.Load() && !r.lingers {
		y.Error("two were in flight at once")
	}
}

func outcomes(e webhook.Entry) (all []string) {
	for _, a := range e.Attempts {
		all = append(all, a.Outcome)
	}
	return all
}

// A receiver that doesn't answer holds up neither another one nor the index.
func TestSlowWebhookHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.patience = sendFor
	release := make(chan struct{})
	slow := y.receives(nil, func(_ http.ResponseWriter, req *http.Request, _ int) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	fine := y.receives(nil, status(204))
	y.posts()
	y.happens()
	y.eventually("the slow one to be under way", func() bool { return slow.inFlight.Load() == 1 })
	y.happens()
	note := y.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "T", "body": "b"}, "Prefer", "wait=0")
	id, _ := task.ParseID(note.text("index_job_id"))
	y.eventually("the note to be indexed", func() bool { return y.get(id).State == task.Completed })
	y.ends(fine, webhook.Done, webhook.Done)
	if n := len(slow.all()); n != 1 || slow.inFlight.Load() != 1 {
		t.Errorf("%d requests to the slow one", n)
	}
	close(release)
	y.ends(slow, webhook.Done, webhook.Done)
}

// One event reaches endpoints that behave in every way.
func TestWebhooksOfEveryKindOfReceiver(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	hang := func(_ http.ResponseWriter, req *http.Request, _ int) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
	fine := y.receives(nil, status(204))
	flaky := y.receives(nil, status(500, 500, 200))
	later := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 0 {
			w.Header().Set("Retry-After", "6")
			w.WriteHeader(429)
		}
	})
	dated := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 0 {
			w.Header().Set("Retry-After", time.Now().Add(7*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		}
	})
	junk := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n < 2 {
			w.Header().Set("Retry-After", []string{"-5", "soon"}[n])
			w.WriteHeader(429)
		}
	})
	gone := y.receives(nil, status(410))
	wrong := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, _ int) { http.Error(w, "no such thing", 400) })
	moved := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 0 {
			w.Header().Set("Location", fine.URL)
			w.WriteHeader(301)
		}
	})
	much := bytes.Repeat([]byte("é"), 5<<20)
	large := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, _ int) {
		_, _ = w.Write(much)
	})
	hanging := y.receives(nil, hang)
	dripping := y.receives(nil, func(w http.ResponseWriter, req *http.Request, n int) {
		if n > 0 {
			return
		}
		w.Header().Set("Content-Length", "100")
		c, _, _ := w.(http.Hijacker).Hijack()
		defer c.Close()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for _, b := range []byte("HTTP/1.1 200 OK" + strings.Repeat(" ", 1000)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			<-tick.C
		}
	})
	closing := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 0 {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		}
	})
	tls := &receiver{}
	tls.Server = httptest.NewUnstartedServer(tls.serve(status(200)))
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	tls.unlimited = true // it sees no request
	y.subscribes(tls, nil)
	for _, r := range []*receiver{dripping, closing, large} {
		r.lingers = true
	}
	y.posts()

	subject := y.happens()
	e := y.ends(fine, webhook.Done)[0]
	if got := fine.all()[0]; got.id() != e.EventID.String() || !strings.Contains(got.body, subject) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", got)
	}
	if e := y.ends(flaky, webhook.Done)[0]; !slices.Equal(outcomes(e), []string{"failed", "failed", "delivered"}) {
		t.Errorf("500, 500, 200: %v", outcomes(e))
	}
	if e := y.ends(wrong, webhook.Discarded)[0]; !slices.Equal(outcomes(e), []string{"discard"}) || e.Attempts[0].Response != "no such thing\n" {
		t.Errorf("400: %+v", e)
	}
	if e := y.ends(large, webhook.Done)[0]; len(e.Attempts[0].Response) != 4096 {
		t.Errorf("%d bytes were kept of a large answer", len(e.Attempts[0].Response))
	}
	if e := y.ends(gone, webhook.Discarded)[0]; !slices.Equal(outcomes(e), []string{"gone"}) {
		t.Errorf("410: %v", outcomes(e))
	}
	if a := y.ok("GET", "/v1/webhooks/"+gone.endpoint, nil); a.at("endpoint.enabled") != false || !strings.Contains(a.text("endpoint.disabled_reason"), "410") {
		t.Errorf("after 410: %s", a.raw)
	}
	for name, c := range map[string]struct {
		r    *receiver
		want []string
		says string
	}{
		"moved":    {moved, []string{"failed", "delivered"}, "301"},
		"dripping": {dripping, []string{"failed", "delivered"}, ""},
		"closing":  {closing, []string{"failed", "delivered"}, ""},
		"junk":     {junk, []string{"failed", "failed", "delivered"}, "429"},
		"later":    {later, []string{"later", "delivered"}, "429"},
		"dated":    {dated, []string{"later", "delivered"}, "503"},
	} {
		if e := y.ends(c.r, webhook.Done)[0]; !slices.Equal(outcomes(e), c.want) || !strings.Contains(e.Attempts[0].Error, c.says) {
			t.Errorf("%s: %+v", name, e.Attempts)
		}
	}
	for name, r := range map[string]*receiver{"later": later, "dated": dated} {
		if pause := r.all()[1].at.Sub(r.all()[0].at); pause < 5*time.Second {
			t.Errorf("%s: it came again after %s", name, pause)
		}
	}
	for name, r := range map[string]*receiver{"hanging": hanging, "bad TLS": tls} {
		y.eventually(name+" to fail three times", func() bool {
			e := y.log(r, "")[0]
			return e.State == webhook.Pending && slices.Equal(outcomes(e), []string{"failed", "failed", "failed"}) && e.Attempts[0].Error != "" && e.Attempts[0].Status == nil
		})
		a := y.ok("GET", "/v1/webhooks/"+r.endpoint, nil)
		until, _ := time.Parse(time.RFC3339, a.text("endpoint.cooldown_until"))
		if wait := time.Until(until); wait < 4*time.Minute || wait > 5*time.Minute || a.text("endpoint.failing_since") == "" {
			t.Errorf("%s: %s", name, a.raw)
		}
		id, _ := task.ParseID(y.log(r, "")[0].JobID)
		y.eventually("the task to wait", func() bool { return y.get(id).State == task.Retryable })
		if d := y.get(id); len(d.Errors) != 3 || d.Attempts != 3 || d.NextAttemptAt == nil || d.MaxAttempts != 18 || d.LastError == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Only what may leave does, and of it only what is allowed.
func TestWebhooksTellLittle(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.posts()
	r := y.receives(object{"event_types": []string{"*"}}, status(200))
	const canary = "CANARY-7f3a"
	note := func(in object) string { return y.ok("POST", "/v1/corpus", in).text("note.id") }
	note(object{"genre": "raw", "title": canary, "body": canary})
	note(object{"genre": "wiki", "title": canary + " private", "body": canary})
	public := note(object{"genre": "wiki", "title": canary, "body": canary, "tags": []string{canary}, "visibility": "public"})
	y.ok("PATCH", "/v1/corpus/"+public, object{"visibility": "private"})
	y.ok("PATCH", "/v1/corpus/"+public, object{"body": canary + "2"})
	y.ok("POST", "/v1/public/me/access-requests", object{"name": `<b>&" 日本`, "email": "eve@visitor.test", "message": canary})
	made := y.ok("POST", "/v1/codes", object{"label": canary})
	y.ok("POST", "/v1/tokens", object{"name": canary, "scopes": []string{"*"}})
	y.ends(r, webhook.Done, webhook.Done, webhook.Done, webhook.Done, webhook.Done)
	types := map[string]object{}
	for _, req := range r.all() {
		var body object
		if err := json.Unmarshal([]byte(req.body), &body); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(req.body, canary) || strings.Contains(req.body, "eve@") || strings.Contains(req.body, made.text("code")) {
			t.Errorf("it tells too much: %s", req.body)
		}
		data, _ := body["data"].(object)
		change, _ := data["change"].(string)
		types[fmt.Sprint(body["type"], " ", change)] = data
	}
	if created := types["corpus.note.changed created"]; created["id"] != public || created["visibility"] != "public" {
		t.Errorf("a public note: %v", types)
	}
	if hidden := types["corpus.note.changed updated"]; hidden["was_visibility"] != "public" || hidden["visibility"] != "private" {
		t.Errorf("a note that was public: %v", types)
	}
	if asked := types["access_request.submitted "]; asked["name"] != `<b>&" 日本` {
		t.Errorf("an access request: %v", types)
	}
	for _, name := range []string{"code.created ", "token.created "} {
		if types[name] == nil {
			t.Errorf("%s is missing: %v", name, types)
		}
	}
}

// What comes while an endpoint is disabled is held, and goes out when its owner
// says so.
func TestWebhookHolds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var healthy atomic.Bool
	r := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if !healthy.Load() {
			w.WriteHeader(500)
		}
	})
	path := "/v1/webhooks/" + r.endpoint
	first := y.happens()
	y.eventually("the delivery", func() bool { return len(y.log(r, "")) == 1 })
	y.ok("PATCH", path, object{"enabled": false})
	second := y.happens()
	y.posts()
	y.ends(r, webhook.Held, webhook.Held)
	y.settled()
	if n := len(r.all()); n != 0 {
		t.Errorf("a disabled endpoint got %d", n)
	}
	if a := y.call("POST", path+"/redeliver", object{"all": "held"}); a.status != 409 || a.text("code") != "webhook_disabled" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := y.ok("PATCH", path, object{"enabled": true}); a.at("endpoint.disabled_reason") != nil {
		t.Error(a.raw)
	}
	y.ends(r, webhook.Held, webhook.Held)

	// it fails for five days, and is disabled
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_endpoints SET failing_since = now() - interval '5 days 1 minute'`); err != nil {
		t.Fatal(err)
	}
	y.ok("POST", path+"/redeliver", object{"all": "held"})
	y.eventually("it to be disabled", func() bool { return y.ok("GET", path, nil).at("endpoint.enabled") == false })
	if a := y.ok("GET", path, nil); !strings.Contains(a.text("endpoint.disabled_reason"), "5 days") || !strings.Contains(a.text("endpoint.disabled_reason"), "500") {
		t.Error(a.raw)
	}
	entries := y.ends(r, webhook.Held, webhook.Held)
	if n := y.count(`SELECT count(*) FROM events WHERE type = 'webhook.disabled'`); n != 1 {
		t.Errorf("%d events tell of it", n)
	}

	healthy.Store(true)
	y.ok("PATCH", path, object{"enabled": true})
	if a := y.ok("POST", path+"/redeliver", object{"all": "held"}); len(a.at("queued").([]any)) != 2 || a.at("more") != 0.0 {
		t.Error(a.raw)
	}
	y.ends(r, webhook.Done, webhook.Done)
	got := r.all()[len(r.all())-2:]
	if !strings.Contains(got[0].body+got[1].body, first) || !strings.Contains(got[0].body+got[1].body, second) {
		t.Errorf("%v", got)
	}
	if now := y.log(r, ""); now[0].ID != entries[0].ID || now[1].ID != entries[1].ID {
		t.Error("a held delivery was replaced")
	}
}

// Three failures in a row give the receiver five minutes, unless the owner asks.
func TestWebhookCoolsDown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.posts()
	var healthy atomic.Bool
	r := y.receives(nil, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if !healthy.Load() {
			w.WriteHeader(500)
		}
	})
	path := "/v1/webhooks/" + r.endpoint
	y.happens()
	y.eventually("three failures", func() bool { return len(r.all()) == 3 })
	y.happens()
	y.eventually("the second to wait", func() bool {
		return y.count(`SELECT count(*) FROM river_job WHERE kind = $1 AND state = 'scheduled' AND scheduled_at > now() + interval '4 minutes'`, task.WebhookDeliver) == 2
	})
	if n := len(r.all()); n != 3 {
		t.Fatalf("%d attempts were made in the cool-down", n)
	}
	entries := y.log(r, "")
	first, _ := task.ParseID(entries[1].JobID)
	second, _ := task.ParseID(entries[0].JobID)
	if s := y.get(second).State; s != task.Pending {
		t.Errorf("the second is %s", s)
	}
	if a := y.call("POST", path+"/redeliver", object{"delivery_id": entries[0].ID}); a.status != 409 || a.text("code") != "delivery_pending" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	healthy.Store(true)
	if err := y.retry(first); err != nil {
		t.Fatal(err)
	}
	y.state(first, task.Completed)
	// a success ends the cool-down, and what waits goes when the owner or its job says so
	if a := y.ok("GET", path, nil); a.at("endpoint.cooldown_until") != nil || a.at("endpoint.consecutive_failures") != 0.0 {
		t.Error(a.raw)
	}
	y.ok("POST", path+"/send-test", object{})
	y.ends(r, webhook.Done, webhook.Done, webhook.Done)
}

// W6, T1: redelivering twice gives two, with the same webhook-id, and retrying one
// while another is under way is no accident.
func TestWebhookRedelivers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.posts()
	var healthy atomic.Bool
	hold := make(chan struct{})
	r := y.receives(nil, func(w http.ResponseWriter, req *http.Request, n int) {
		if !healthy.Load() {
			w.WriteHeader(400)
			return
		}
		if n == 1 {
			select {
			case <-hold:
			case <-req.Context().Done():
			}
		}
	})
	path := "/v1/webhooks/" + r.endpoint
	y.happens()
	lost := y.ends(r, webhook.Discarded)[0]
	if n := y.count(`SELECT count(*) FROM tasks WHERE state = 'discarded'`); n != 1 {
		t.Errorf("%d tasks raise the alert", n)
	}
	healthy.Store(true)
	again := y.ok("POST", path+"/redeliver", object{"delivery_id": lost.ID})
	y.eventually("it to be under way", func() bool { return r.inFlight.Load() == 1 })
	if e := y.log(r, "")[0]; outcomes(e)[0] != "under_way" {
		t.Errorf("%+v", e)
	}
	y.ok("POST", path+"/redeliver", object{"delivery_id": lost.ID})
	id, _ := task.ParseID(lost.JobID)
	a := y.call("POST", "/v1/tasks/"+lost.JobID+"/retry", object{})
	if a.status != 200 && a.status != 409 && a.status != 202 {
		t.Errorf("retrying beside it: %d %s", a.status, a.raw)
	}
	close(hold)
	y.state(id, task.Completed)
	y.ends(r, webhook.Done, webhook.Done, webhook.Done)
	for _, req := range r.all() {
		if req.id() != lost.EventID.String() || req.body != r.all()[0].body {
			t.Errorf("another message: %v", req)
		}
	}
	first := again.at("queued").([]any)[0].(object)
	if first["event_id"] != lost.EventID.String() || first["delivery_id"] == lost.ID.String() {
		t.Error(again.raw)
	}
	if a := y.ok("POST", path+"/redeliver", object{"all": "discarded"}); len(a.at("queued").([]any)) != 0 {
		t.Errorf("nothing is lost any more: %s", a.raw)
	}
	if e := y.log(r, "?event_id="+lost.EventID.String()+"&state=delivered&event_type=code.created"); len(e) != 3 {
		t.Errorf("%d of it are in the log", len(e))
	}
	if e := y.log(r, "?since="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)); len(e) != 0 {
		t.Errorf("%d are of the future", len(e))
	}
}

// The 18th failure is the last; one that was not tried is not given up.
func TestWebhookGivesUp(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.receives(nil, status(500))
	y.happens()
	y.eventually("the delivery", func() bool { return len(y.log(r, "")) == 1 })
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_deliveries SET spent = 16`); err != nil {
		t.Fatal(err)
	}
	y.posts()
	e := y.ends(r, webhook.Discarded)[0]
	if !slices.Equal(outcomes(e), []string{"failed", "failed"}) {
		t.Errorf("%v", outcomes(e))
	}
	y.settled()
}

// Both secrets sign while a rotation lasts, and then the new one alone.
func TestWebhookRotatesItsSecret(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.posts()
	r := y.receives(nil, status(200))
	old := r.secret
	a := y.ok("POST", "/v1/webhooks/"+r.endpoint+"/rotate-secret", object{})
	r.secret = a.text("secret")
	if r.secret == old || a.text("endpoint.old_secret_until") == "" {
		t.Fatal(a.raw)
	}
	verifies := func(secret string, req request) bool {
		w, err := webhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		return w.Verify([]byte(req.body), req.header) == nil
	}
	y.happens()
	y.ends(r, webhook.Done)
	if req := r.all()[0]; !verifies(old, req) || !verifies(r.secret, req) {
		t.Errorf("during the rotation: %v", req.header)
	}
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_endpoints SET old_secret_until = now() - interval '1 s'`); err != nil {
		t.Fatal(err)
	}
	y.happens()
	y.ends(r, webhook.Done, webhook.Done)
	if req := r.all()[1]; verifies(old, req) || !verifies(r.secret, req) {
		t.Errorf("after the rotation: %v", req.header)
	}
	if n := y.count(`SELECT count(*) FROM webhook_endpoints WHERE position($1::bytea in secret) > 0`, []byte(r.secret)); n != 0 {
		t.Error("the secret lies open")
	}
}

// With order kept, one that fails holds up those after it, and one that was given
// up lets them go.
func TestWebhookKeepsOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.receives(object{"ordered": true}, status(500, 500, 200, 400, 200))
	var want []string
	for range 6 {
		want = append(want, y.happens())
	}
	y.eventually("the deliveries", func() bool { return len(y.log(r, "")) == 6 })
	y.posts()
	y.ends(r, webhook.Done, webhook.Done, webhook.Done, webhook.Done, webhook.Discarded, webhook.Done)
	var got []string
	for _, req := range r.all() {
		var body struct{ Data struct{ ID string } }
		if err := json.Unmarshal([]byte(req.body), &body); err != nil {
			t.Fatal(err)
		}
		got = append(got, body.Data.ID)
	}
	want = slices.Concat([]string{want[0], want[0]}, want)
	if !slices.Equal(got, want) {
		t.Errorf("in the order %v, not %v", got, want)
	}
}

// An older event that is not fanned out yet goes first.
func TestWebhookOrderWaitsForTheRelay(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.receives(object{"ordered": true}, status(200))
	older := outbox.NewID()
	if err := y.db.InTx(t.Context(), func(tx *pg.Tx) error {
		return outbox.Record(t.Context(), tx, older, outbox.CodeRevoked, y.owner, uuid.NewString(), struct{}{})
	}); err != nil {
		t.Fatal(err)
	}
	y.eventually("the older to be fanned out", func() bool { return len(y.log(r, "")) == 1 })
	// put it back, as if the relay had failed on it
	if _, err := y.db.Exec(t.Context(), `DELETE FROM webhook_deliveries`); err != nil {
		t.Fatal(err)
	}
	if _, err := y.db.Exec(t.Context(), `INSERT INTO event_queue (event_id, due_at) VALUES ($1, now() + interval '2 s')`, older); err != nil {
		t.Fatal(err)
	}
	y.happens()
	y.posts()
	y.ends(r, webhook.Done, webhook.Done)
	if got := r.all(); got[0].id() != older.String() {
		t.Errorf("the younger went first")
	}
}

// A worker that was killed leaves a row that says so, and the delivery goes on.
func TestWebhookInterrupted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.receives(nil, status(200))
	y.happens()
	y.eventually("the delivery", func() bool { return len(y.log(r, "")) == 1 })
	endpoint := uuid.MustParse(r.endpoint)
	a, err := webhook.Claim(t.Context(), y.db, endpoint, uuid.New())
	if err != nil || a == nil || a.Number != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	for range 3 {
		if b, err := webhook.Claim(t.Context(), y.db, endpoint, uuid.New()); err != nil || b != nil {
			t.Fatalf("two at once: %+v, %v", b, err)
		}
	}
	y.posts()
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_attempts SET until = now()`); err != nil {
		t.Fatal(err)
	}
	if e := y.log(r, "")[0]; outcomes(e)[0] != "interrupted" || e.Attempts[0].Error == "" {
		t.Errorf("%+v", e)
	}
	if len(r.all()) != 0 {
		t.Fatal("it went on while the lease was held")
	}
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_endpoints SET lease_until = now()`); err != nil {
		t.Fatal(err)
	}
	r.unlimited = true // the interrupted one was never sent
	if e := y.ends(r, webhook.Done)[0]; !slices.Equal(outcomes(e), []string{"interrupted", "delivered"}) {
		t.Errorf("%v", outcomes(e))
	}
}

// Cancelling: what waits ends, what is under way ends as what it is.
func TestWebhookCancel(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.patience = sendFor
	hold := make(chan struct{})
	r := y.receives(nil, func(_ http.ResponseWriter, req *http.Request, n int) {
		if n == 0 {
			select {
			case <-hold:
			case <-req.Context().Done():
			}
		}
	})
	y.happens()
	y.happens()
	y.eventually("the deliveries", func() bool { return len(y.log(r, "")) == 2 })
	y.posts()
	y.eventually("the first to be under way", func() bool { return r.inFlight.Load() == 1 })
	entries := y.log(r, "")
	first, _ := task.ParseID(entries[1].JobID)
	second, _ := task.ParseID(entries[0].JobID)
	if s, err := y.cancel(second); err != nil || s != task.Cancelled {
		t.Errorf("%s, %v", s, err)
	}
	if s, err := y.cancel(first); err != nil || s != task.Running {
		t.Errorf("what is under way can't be called back: %s, %v", s, err)
	}
	if d := y.get(first); !d.CancelRequested {
		t.Errorf("%+v", d)
	}
	close(hold)
	y.eventually("the end", func() bool { return y.get(first).State == task.Completed })
	y.ends(r, webhook.Cancelled, webhook.Done)
	y.settled()
	if err := y.retry(second); err != nil {
		t.Fatal(err)
	}
	y.ends(r, webhook.Done, webhook.Done)
}

// Deleting ends what was still to be delivered, and keeps the log; after 30 days
// all of it is forgotten.
func TestWebhookDeleted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.receives(nil, status(200))
	path := "/v1/webhooks/" + r.endpoint
	y.happens()
	y.eventually("the delivery", func() bool { return len(y.log(r, "")) == 1 })
	for range 2 {
		if a := y.ok("DELETE", path, nil); a.at("deleted") != true {
			t.Error(a.raw)
		}
	}
	y.posts()
	y.happens()
	y.settled()
	y.ends(r, webhook.Cancelled)
	if len(r.all()) != 0 {
		t.Error("a deleted endpoint got something")
	}
	for _, c := range []struct{ method, path string }{{"GET", path}, {"PATCH", path}, {"POST", path + "/send-test"}, {"POST", path + "/rotate-secret"}} {
		if a := y.call(c.method, c.path, object{}); a.status != 404 {
			t.Errorf("%s %s: %d", c.method, c.path, a.status)
		}
	}
	if n, err := webhook.DeleteOld(t.Context(), y.db, time.Hour, 100); n != 0 || err != nil {
		t.Errorf("%d removed too early, %v", n, err)
	}
	if _, err := webhook.DeleteOld(t.Context(), y.db, -time.Minute, 100); err != nil {
		t.Error(err)
	}
	if n := y.count(`SELECT (SELECT count(*) FROM webhook_deliveries) + (SELECT count(*) FROM webhook_attempts) + (SELECT count(*) FROM webhook_endpoints)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A name that can't be resolved is tried again (W6), and an address that turns
// private after it was given is refused when it is dialled (W2).
func TestWebhookBadNames(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var named atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			named.Add(1)
			_ = c.Close()
		}
	}()
	lost, inside := &receiver{unlimited: true}, &receiver{unlimited: true}
	lost.Server, inside.Server = &httptest.Server{URL: "https://hook.does-not-resolve-7f3a.com"}, &httptest.Server{URL: "https://localtest.me"}
	y.subscribes(lost, nil)
	y.subscribes(inside, nil)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	// what a rebinding name or a changed row would lead to
	if _, err := y.db.Exec(t.Context(), `UPDATE webhook_endpoints SET url = 'http://[::ffff:127.0.0.1]:' || $2 WHERE id = $1`, inside.endpoint, port); err != nil {
		t.Fatal(err)
	}
	y.happens()
	y.posts()
	for name, r := range map[string]*receiver{"unresolvable": lost, "inside": inside} {
		y.eventually(name+" to be tried again", func() bool {
			e := y.log(r, "")
			return len(e) == 1 && len(e[0].Attempts) > 1 && e[0].State == webhook.Pending && e[0].Attempts[0].Error != ""
		})
	}
	if named.Load() != 0 {
		t.Error("a connection to the inside was made")
	}
}
