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
	owner uuid.UUID
	// genre raw makes notes of nothing but body; the others have a title too
	genre corpus.Genre
	body  func() string
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
	draft := corpus.Draft{Genre: p.genre, Body: p.body()}
	if p.genre != corpus.Raw {
		draft.Title = "Note " + o.event.String()
	}
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
	body, err := json.Marshal(map[string]any{"genre": "raw", "body": c.body()})
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
	server := httptest.NewServer(apigw.InProcess(endpoint))
	c.url = server.URL
	return c, func() { c.client.CloseIdleConnections(); server.Close() }, nil
}

// contender is what is measured in turn with others, at some numbers of writers.
type contender struct {
	name string
	at   []int
	op   func(context.Context) error
}

// receipts measures B1, B2 and B3.
func (b *bench) receipts(ctx context.Context) (err error) {
	return b.inDatabase(ctx, "receipts", func(url string, db *pg.DB) error {
		r := receiptRounds{b: b, url: url, runs: map[string]rounds{}, hops: map[int]map[string]float64{}}
		if r.owner, err = b.owner(ctx, db); err != nil {
			return err
		}
		for i := range 1 + pick(b, 5, 2) {
			r.warm = i > 0 // the first round only warms up
			if err := r.round(ctx, waiter.PerChannel, 1, 16, 64); err != nil {
				return err
			}
			if err := r.round(ctx, 256, 256); err != nil {
				return err
			}
		}
		r.report()
		return nil
	})
}

// receiptRounds collects the runs of all contenders.
type receiptRounds struct {
	b      *bench
	url    string
	owner  uuid.UUID
	warm   bool
	runs   map[string]rounds // by name and writers
	hops   map[int]map[string]float64
	missed int64
}

func (r *receiptRounds) of(name string, writers int) rounds {
	return r.runs[fmt.Sprint(name, writers)]
}

// round measures every contender once at each number of writers, of which most
// may wait at a time.
func (r *receiptRounds) round(ctx context.Context, most int, writers ...int) (err error) {
	db, err := pg.Open(ctx, r.url, pg.Options{MaxConns: 64, Name: "floor"})
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := stack.Start(ctx, stack.Options{URL: r.url, Waiter: waiter.Options{PerChannel: most}}, stack.Parts{Gateway: true, Relay: true, Workers: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	ref, err := reference.Start(ctx, r.url, reference.Options{Relay: true, Workers: true, Waiters: most})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ref.Stop(ctx)) }()
	short := turns(r.b.sample.jotting)
	jottings := &product{Stack: s, owner: r.owner, genre: corpus.Raw, body: short}
	notes := &product{Stack: s, owner: r.owner, genre: corpus.Wiki, body: turns(r.b.sample.note)}
	contenders := []contender{
		{"floor", writers, floor{db: db, body: short}.once},
		{"product", writers, jottings.once},
		{"notes", []int{1, 64}, notes.once},
		{"reference", writers, func(ctx context.Context) error { return ref.Write(ctx, r.owner, short()) }},
	}
	if r.b.wants("B2") {
		face, end, err := r.b.face(ctx, jottings)
		if err != nil {
			return err
		}
		defer end()
		contenders = append(contenders, contender{"http", []int{1, 64}, face.once})
	}
	for _, n := range writers {
		for _, c := range contenders {
			if !slices.Contains(c.at, n) {
				continue
			}
			if err := r.measure(ctx, c, n); err != nil {
				return fmt.Errorf("%s, %d writers: %w", c.name, n, err)
			}
			if c.name != "product" {
				continue
			}
			if r.hops[n], err = jottings.hops(ctx); err != nil {
				return err
			}
		}
	}
	r.missed += jottings.missed.Load() + notes.missed.Load()
	return nil
}

func (r *receiptRounds) measure(ctx context.Context, c contender, n int) error {
	window := pick(r.b, 1500*time.Millisecond, 600*time.Millisecond)
	if c.name == "reference" {
		window = max(window, time.Second)
	}
	key := fmt.Sprint(c.name, n)
	figure := map[string]string{"product1": "B1", "http1": "B2", "product64": "B3"}[key]
	closed := func() error {
		run, err := r.b.closedLoop(ctx, n, window, c.op)
		if r.warm {
			r.runs[key] = append(r.runs[key], run)
		}
		return err
	}
	if r.warm && figure != "" && r.runs[key] == nil {
		return r.b.profiled(ctx, figure, r.url, closed)
	}
	return closed()
}

func (r *receiptRounds) report() {
	detail := map[string]any{"receipts_missed": r.missed}
	for _, n := range []int{1, 16, 64, 256} {
		at := map[string]any{
			"hops_ms":       r.hops[n],
			"p50_by_floor":  round(ratio(r.of("product", n), r.of("floor", n), run.p50), 2),
			"rate_by_floor": round(ratio(r.of("product", n), r.of("floor", n), run.rate), 2),
		}
		for _, name := range []string{"product", "floor", "reference", "notes", "http"} {
			if c := r.of(name, n); c != nil {
				at[name] = map[string]any{"p50_ms": round(c.p50(), 3), "p99_ms": round(c.p99(), 3), "per_s": round(c.rate(), 1), "cpu_ms": round(median(c, run.cpuEach), 3)}
			}
		}
		detail[fmt.Sprintf("writers_%d", n)] = at
	}
	solo := func(what, name, goal string, met func(Figure) bool) Figure {
		own, bare, ref := r.of(name, 1), r.of("floor", 1), r.of("reference", 1)
		return Figure{
			What: what, Unit: "ms", Value: round(own.p50(), 3), P99: round(own.p99(), 3), Rounds: len(own), Floor: round(bare.p50(), 3), Baseline: round(ref.p50(), 3),
			Ratio: round(ratio(own, bare, run.p50), 2), Gain: round(ratio(ref, own, run.p50), 1), Goal: goal,
		}.judge(func(f Figure) bool { return met(f) && r.missed == 0 })
	}
	b1 := solo("receipt p50, 1 writer, in process", "product", "≤ 2.5 × floor, ≥ 80 × faster than reference",
		func(f Figure) bool { return f.Ratio <= 2.5 && f.Gain >= 80 })
	b1.Detail = detail
	r.b.report.Figures["B1"] = b1
	if r.b.wants("B2") {
		r.b.report.Figures["B2"] = solo("the same over HTTP, gateway and handler", "http", "≤ 5 × floor", func(f Figure) bool { return f.Ratio <= 5 })
	}
	own, bare, ref := r.of("product", 64), r.of("floor", 64), r.of("reference", 64)
	r.b.report.Figures["B3"] = Figure{
		What: "receipts at 64 writers, in process", Unit: "1/s", Value: round(own.rate(), 0), P99: round(own.p99(), 3), Rounds: len(own),
		Floor: round(bare.rate(), 0), Baseline: round(ref.rate(), 0), Ratio: round(ratio(own, bare, run.rate), 2), Gain: round(ratio(own, ref, run.rate), 1),
		Goal: "≥ 10 × reference, ≥ 1.5 × floor, p99 ≤ 60 ms",
	}.judge(func(f Figure) bool { return f.Gain >= 10 && f.Ratio >= 1.5 && f.P99 <= 60 && r.missed == 0 })
}

func (f Figure) judge(met func(Figure) bool) Figure {
	f.Met = met(f)
	return f
}

// turns hands out notes one after the other, to any number of clients.
func turns(note func(int) string) func() string {
	var n atomic.Int64
	return func() string { return note(int(n.Add(1))) }
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
