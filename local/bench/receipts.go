package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/google/uuid"

	"standmeet/functions"
	"standmeet/local/bench/reference"
	"standmeet/local/stack"
	"standmeet/shared/auth"
	"standmeet/shared/corpus"
	"standmeet/shared/op/apigw"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// budget is how long a write waits for its receipt, as in the product.
const budget = 2 * time.Second

// product writes notes and waits for their receipts.
type product struct {
	*stack.Stack
	owner  uuid.UUID
	body   func() string
	titles atomic.Int64
	// missed counts receipts that did not come within the budget
	missed atomic.Int64

	mu   sync.Mutex
	seen []observed
}

// observed is a receipt's way, as its caller saw it.
type observed struct {
	event                    uuid.UUID
	began, committed, landed time.Time
}

// once is what corpus.create does behind its face.
func (p *product) once(ctx context.Context) error {
	o := observed{event: outbox.NewID(), began: time.Now()}
	receipt := p.Receipts.Expect(o.event, task.CorpusIndex)
	defer receipt.Drop()
	draft := corpus.Draft{Genre: corpus.Wiki, Title: fmt.Sprintf("Note %d", p.titles.Add(1)), Body: p.body()}
	err := p.DB.InTx(ctx, func(tx *pg.Tx) error {
		_, err := corpus.Create(ctx, tx, p.owner, o.event, draft)
		return err
	})
	if err != nil {
		return err
	}
	o.committed = time.Now()
	state, _ := receipt.Await(ctx, o.committed, budget)
	o.landed = time.Now()
	if state != task.Completed {
		p.missed.Add(1)
		return nil
	}
	p.mu.Lock()
	p.seen = append(p.seen, o)
	p.mu.Unlock()
	return nil
}

// hops says where the time of the receipts seen so far went, as medians in
// milliseconds: what the rows recorded between what the caller saw.
func (p *product) hops(ctx context.Context) (map[string]float64, error) {
	p.mu.Lock()
	seen := p.seen
	p.seen = nil
	p.mu.Unlock()
	ids := make([]uuid.UUID, len(seen))
	at := map[uuid.UUID]observed{}
	for i, o := range seen {
		ids[i], at[o.event] = o.event, o
	}
	rows, err := p.DB.Query(ctx, `
		SELECT t.event_id, e.occurred_at, t.fanned_at, t.started_at, t.finished_at
		FROM tasks t JOIN events e ON e.id = t.event_id WHERE t.event_id = ANY ($1)`, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	spans := map[string][]time.Duration{}
	for rows.Next() {
		var id uuid.UUID
		var recorded, fanned, fetched, finished time.Time
		if err := rows.Scan(&id, &recorded, &fanned, &fetched, &finished); err != nil {
			return nil, err
		}
		o := at[id]
		last := o.began
		for _, hop := range []struct {
			name string
			at   time.Time
		}{
			{"1 begin → event row", recorded}, {"2 → commit seen", o.committed}, {"3 → task row", fanned},
			{"4 → job fetched", fetched}, {"5 → task completed", finished}, {"6 → receipt seen", o.landed},
		} {
			spans[hop.name] = append(spans[hop.name], hop.at.Sub(last))
			last = hop.at
		}
	}
	medians := map[string]float64{}
	for name, took := range spans {
		medians[name] = round(quantile(took, 0.5), 3)
	}
	return medians, rows.Err()
}

// caller makes the whole way: HTTP, the gateway's event, the function's handler.
type caller struct {
	client *http.Client
	url    string
	token  string
	*product
}

func (c *caller) once(ctx context.Context) error {
	body, err := json.Marshal(map[string]any{"genre": "wiki", "title": fmt.Sprintf("Note %d", c.titles.Add(1)), "body": c.body()})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/corpus", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var created struct {
		Indexed bool `json:"indexed"`
	}
	if err := json.Unmarshal(answer, &created); err != nil || res.StatusCode/100 != 2 {
		return fmt.Errorf("corpus.create answered %s: %s", res.Status, answer)
	}
	if !created.Indexed {
		c.missed.Add(1)
	}
	return nil
}

// face serves the product's corpus.create as it is deployed.
func (b *bench) face(ctx context.Context, p *product) (*caller, func(), error) {
	store := &auth.Store{DB: p.DB}
	endpoint, err := functions.New(functions.Deps{DB: p.DB, Waiter: p.Waiter, Receipts: p.Receipts, Auth: store}).Endpoint("corpus.create")
	if err != nil {
		return nil, nil, err
	}
	c := &caller{product: p, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: waiter.PerChannel}}}
	err = p.DB.InTx(ctx, func(tx *pg.Tx) (err error) {
		_, c.token, err = auth.CreateToken(ctx, tx, p.owner, auth.Token{Name: "bench", Scopes: []string{"*"}})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	server := httptest.NewServer(apigw.Gateway(lambda.NewHandler(apigw.Lambda(endpoint)).Invoke))
	c.url = server.URL
	return c, func() { c.client.CloseIdleConnections(); server.Close() }, nil
}

// receipts measures B1, B2 and B3.
func (b *bench) receipts(ctx context.Context) (err error) {
	url, drop, err := b.database(ctx, "receipts")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	bodies := b.bodies()
	db, err := pg.Open(ctx, url, pg.Options{MaxConns: 64, Name: "floor"})
	if err != nil {
		return err
	}
	defer db.Close()
	owner, err := b.owner(ctx, db)
	if err != nil {
		return err
	}
	bare := floor{db: db, body: bodies}
	writers := []int{1, 16, 64, 256}
	type candidate struct{ floor, product, reference, http rounds }
	results := map[int]*candidate{1: {}, 16: {}, 64: {}, 256: {}}
	hops := map[int]map[string]float64{}
	var missed int64
	// one round at a number of writers
	one := func(n int, p *product, ref *reference.Reference, face *caller, keep bool) error {
		window := pick(b, 1500*time.Millisecond, 600*time.Millisecond)
		c := results[n]
		for _, m := range []struct {
			into *rounds
			d    time.Duration
			op   func(context.Context) error
			name string
		}{
			{&c.floor, window, bare.once, ""},
			{&c.product, window, p.once, map[int]string{1: "B1", 64: "B3"}[n]},
			{&c.http, window, func(ctx context.Context) error { return face.once(ctx) }, map[int]string{1: "B2"}[n]},
			{&c.reference, max(window, time.Second), func(ctx context.Context) error { return ref.Write(ctx, owner, bodies()) }, ""},
		} {
			if m.into == &c.http && (face == nil || n != 1 && n != 64) {
				continue
			}
			measure := func() error {
				r, err := b.closedLoop(ctx, n, m.d, m.op)
				if keep {
					*m.into = append(*m.into, r)
				}
				return err
			}
			if keep && m.name != "" && len(*m.into) == 0 {
				err = b.profiled(ctx, m.name, url, measure)
			} else {
				err = measure()
			}
			if err != nil {
				return err
			}
			if m.into == &c.product && keep {
				if hops[n], err = p.hops(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}
	times := pick(b, 5, 2)
	for i := -1; i < times; i++ { // the first round warms up
		for _, crowd := range []bool{false, true} {
			if crowd && i < 0 {
				continue
			}
			most := waiter.PerChannel
			if crowd {
				most = slices.Max(writers)
			}
			err := func() (err error) {
				s, err := stack.Start(ctx, stack.Options{URL: url, Waiter: waiter.Options{PerChannel: most}}, stack.Parts{Gateway: true, Relay: true, Workers: true})
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, s.Stop()) }()
				ref, err := reference.Start(ctx, url, reference.Options{Relay: true, Workers: true, Waiters: most})
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, ref.Stop(ctx)) }()
				p := &product{Stack: s, owner: owner, body: bodies}
				p.titles.Store(int64(i+2)<<32 + int64(most)<<20)
				var face *caller
				if b.wants("B2") {
					var end func()
					if face, end, err = b.face(ctx, p); err != nil {
						return err
					}
					defer end()
				}
				for _, n := range writers {
					if (n > waiter.PerChannel) != crowd {
						continue
					}
					if err := one(n, p, ref, face, i >= 0); err != nil {
						return fmt.Errorf("%d writers: %w", n, err)
					}
				}
				missed += p.missed.Load()
				return nil
			}()
			if err != nil {
				return err
			}
		}
	}
	detail := map[string]any{"receipts_missed": missed}
	for _, n := range writers {
		c := results[n]
		detail[fmt.Sprintf("writers_%d", n)] = map[string]any{
			"p50_ms": round(c.product.p50(), 3), "p99_ms": round(c.product.p99(), 3), "per_s": round(c.product.rate(), 0),
			"floor_p50_ms": round(c.floor.p50(), 3), "floor_per_s": round(c.floor.rate(), 0),
			"reference_p50_ms": round(c.reference.p50(), 3), "reference_per_s": round(c.reference.rate(), 0),
			"p50_by_floor": round(ratio(c.product, c.floor, run.p50), 2), "rate_by_floor": round(ratio(c.product, c.floor, run.rate), 2),
			"cpu_ms": round(median(c.product, run.cpuEach), 3), "floor_cpu_ms": round(median(c.floor, run.cpuEach), 3), "reference_cpu_ms": round(median(c.reference, run.cpuEach), 3),
			"hops_ms": hops[n],
		}
	}
	solo, crowd := results[1], results[64]
	b.report.Figures["B1"] = Figure{
		What: "receipt p50, 1 writer, in process", Unit: "ms", Value: round(solo.product.p50(), 3), P99: round(solo.product.p99(), 3), Rounds: times,
		Floor: round(solo.floor.p50(), 3), Baseline: round(solo.reference.p50(), 3),
		Ratio: round(ratio(solo.product, solo.floor, run.p50), 2), Gain: round(ratio(solo.reference, solo.product, run.p50), 1),
		Goal: "≤ 2.5 × floor, ≥ 80 × faster than reference", Detail: detail,
	}.judge(func(f Figure) bool { return f.Ratio <= 2.5 && f.Gain >= 80 && missed == 0 })
	if b.wants("B2") {
		b.report.Figures["B2"] = Figure{
			What: "the same over HTTP, gateway and handler", Unit: "ms", Value: round(solo.http.p50(), 3), P99: round(solo.http.p99(), 3), Rounds: times,
			Floor: round(solo.floor.p50(), 3), Baseline: round(solo.reference.p50(), 3),
			Ratio: round(ratio(solo.http, solo.floor, run.p50), 2), Gain: round(ratio(solo.reference, solo.http, run.p50), 1),
			Goal:   "≤ 5 × floor",
			Detail: map[string]any{"writers_64_per_s": round(crowd.http.rate(), 0), "writers_64_p50_ms": round(crowd.http.p50(), 3), "writers_64_p99_ms": round(crowd.http.p99(), 3)},
		}.judge(func(f Figure) bool { return f.Ratio <= 5 && missed == 0 })
	}
	b.report.Figures["B3"] = Figure{
		What: "receipts at 64 writers, in process", Unit: "1/s", Value: round(crowd.product.rate(), 0), P99: round(crowd.product.p99(), 3), Rounds: times,
		Floor: round(crowd.floor.rate(), 0), Baseline: round(crowd.reference.rate(), 0),
		Ratio: round(ratio(crowd.product, crowd.floor, run.rate), 2), Gain: round(ratio(crowd.product, crowd.reference, run.rate), 1),
		Goal: "≥ 10 × reference, ≥ 1.5 × floor, p99 ≤ 60 ms",
	}.judge(func(f Figure) bool { return f.Gain >= 10 && f.Ratio >= 1.5 && f.P99 <= 60 && missed == 0 })
	return nil
}

func (f Figure) judge(met func(Figure) bool) Figure {
	f.Met = met(f)
	return f
}

// bodies hands out notes one after the other, to any number of clients.
func (b *bench) bodies() func() string {
	var n atomic.Int64
	return func() string { return b.sample.note(int(n.Add(1))) }
}

func (b *bench) owner(ctx context.Context, db *pg.DB) (uuid.UUID, error) {
	var owner auth.Profile
	err := db.InTx(ctx, func(tx *pg.Tx) (err error) {
		owner, err = auth.EnsureOwner(ctx, tx, auth.Profile{Handle: "bench", Name: "Bench", Email: "bench@example.com"})
		return err
	})
	return owner.ID, err
}

func round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}
