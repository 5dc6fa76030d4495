//go:build unix

package op_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

type effectIn struct {
	Box  string         `json:"box" path:"box"`
	Text string         `json:"text"`
	Tags []string       `json:"tags,omitempty"`
	Keep op.Opt[string] `json:"keep,omitzero"`
}

type committed struct {
	ID   uuid.UUID `json:"id"`
	Text string    `json:"text"`
}

type effectOut struct {
	ID   uuid.UUID `json:"id"`
	Text string    `json:"text"`
}

// bench is an operation that writes one row, and what may go wrong with it.
type bench struct {
	db *pg.DB
	h  http.Handler
	op *op.Operation
	// before runs in the transaction before the row is written, answering before
	// the answer is made.
	before    func(ctx context.Context, in effectIn) error
	answering func(ctx context.Context) error
	commits   atomic.Int64
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{db: pgtest.DB(t)}
	if _, err := b.db.Pool().Exec(t.Context(), `CREATE TABLE effects (id uuid PRIMARY KEY, owner_id uuid, box text, body text)`); err != nil {
		t.Fatal(err)
	}
	declare := func(name, path string) *op.Operation {
		return op.NewWrite(op.Spec{Name: name, Method: "POST", Path: path, Status: 201, Scope: "effects:write", Summary: "Write one row.", MaxWait: 2 * time.Second}, b.db,
			func(ctx context.Context, tx *pg.Tx, c auth.Caller, in effectIn) (committed, error) {
				b.commits.Add(1)
				if b.before != nil {
					if err := b.before(ctx, in); err != nil {
						return committed{}, err
					}
				}
				row := committed{uuid.New(), in.Text}
				_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1, $2, $3, $4)`, row.ID, c.OwnerID, in.Box, in.Text)
				return row, err
			},
			func(ctx context.Context, _ auth.Caller, row committed) (effectOut, error) {
				if b.answering != nil {
					if err := b.answering(ctx); err != nil {
						return effectOut{}, err
					}
				}
				return effectOut(row), nil
			})
	}
	b.op = declare("effects.create", "/v1/boxes/{box}/effects")
	b.h = op.NewCatalog(b.op, declare("effects.other", "/v1/other/{box}")).Handler(&op.Server{
		Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(_ context.Context, c auth.Credentials) (auth.Caller, error) {
			return auth.Caller{Kind: auth.Owner, OwnerID: uuid.NewSHA1(uuid.Nil, []byte(c.Bearer)), Scopes: []string{auth.AllScopes}}, nil
		},
	})
	return b
}

func (b *bench) post(path, owner, key, body string) (status int, answer string) {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+owner)
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (b *bench) rows(t *testing.T) (n int) {
	t.Helper()
	if err := b.db.QueryRow(t.Context(), `SELECT count(*) FROM effects`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const boxA, boxB = "/v1/boxes/a/effects", "/v1/boxes/b/effects"

func wantCode(t *testing.T, status int, answer string, wantStatus int, code string) {
	t.Helper()
	var p fault.Problem
	if err := json.Unmarshal([]byte(answer), &p); err != nil || status != wantStatus || p.Code != code {
		t.Errorf("%d %s, want %d %s", status, answer, wantStatus, code)
	}
}

// Case L4: 50 parallel equal requests under one key have one effect and one
// answer.
func TestEqualRequestsWithOneKey(t *testing.T) {
	b := newBench(t)
	const n = 50
	answers := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			status, answer := b.post(boxA, "ann", "k1", `{"text":"hello","tags":["x"]}`)
			if status != 201 {
				t.Errorf("%d %s", status, answer)
			}
			answers[i] = answer
		})
	}
	all.Wait()
	for _, answer := range answers {
		if answer != answers[0] {
			t.Errorf("answers differ: %s and %s", answers[0], answer)
		}
	}
	if got := b.rows(t); got != 1 {
		t.Errorf("%d effects", got)
	}
	// the same request, written differently
	if _, answer := b.post(boxA, "ann", `"k1"`, ` {"tags":[ "x" ],"wait_seconds":0, "text":"hell\u006f"}`); answer != answers[0] {
		t.Errorf("another spelling answers %s", answer)
	}
	caller := auth.Caller{Kind: auth.Owner, OwnerID: uuid.NewSHA1(uuid.Nil, []byte("ann")), Scopes: []string{auth.AllScopes}}
	res, err := b.op.Call(t.Context(), caller, json.RawMessage(`{"box":"a","text":"hello","tags":"[\"x\"]","idempotency_key":"k1"}`), op.CallInfo{Face: "mcp"})
	if err != nil || string(res.JSON) != answers[0] {
		t.Errorf("MCP answers %s %v", res.JSON, err)
	}
	if got := b.rows(t); got != 1 {
		t.Errorf("%d effects", got)
	}
}

// Case L4: another body is refused; another path, operation or owner is another
// key.
func TestKeyBelongsToOneRequest(t *testing.T) {
	b := newBench(t)
	status, first := b.post(boxA, "ann", "k", `{"text":"one"}`)
	if status != 201 {
		t.Fatal(first)
	}
	for _, body := range []string{`{"text":"two"}`, `{"text":"one","tags":["x"]}`, `{"text":"one","keep":null}`} {
		status, answer := b.post(boxA, "ann", "k", body)
		wantCode(t, status, answer, 422, "idempotency_key_reused")
	}
	for _, other := range [][3]string{{boxB, "ann", "k"}, {"/v1/other/a", "ann", "k"}, {boxA, "bob", "k"}, {boxA, "ann", "K"}} {
		if status, answer := b.post(other[0], other[1], other[2], `{"text":"one"}`); status != 201 || answer == first {
			t.Errorf("%v: %d %s", other, status, answer)
		}
	}
	if got := b.rows(t); got != 5 {
		t.Errorf("%d effects, want 5", got)
	}
	if status, answer := b.post(boxA, "ann", "k", `{"text":"one"}`); status != 201 || answer != first {
		t.Errorf("%d %s, want %s", status, answer, first)
	}
}

// Case L4: what failed left nothing, the key included.
func TestFailedTryRunsAfresh(t *testing.T) {
	b := newBench(t)
	for name, before := range map[string]func(context.Context, effectIn) error{
		"fault": func(context.Context, effectIn) error { return fault.New(fault.Unavailable, "busy", "Busy.") },
		"error": func(context.Context, effectIn) error { return errors.New("broken") },
		"panic": func(context.Context, effectIn) error { panic("broken") },
	} {
		b.before = before
		if status, answer := b.post(boxA, "ann", name, `{"text":"x"}`); status < 500 {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if got := b.rows(t); got != 0 {
		t.Errorf("%d effects of failed tries", got)
	}
	b.before = nil
	for _, key := range []string{"fault", "error", "panic"} {
		// a failed try reserves the key for no body either
		if status, answer := b.post(boxA, "ann", key, `{"text":"y"}`); status != 201 {
			t.Errorf("%s: %d %s", key, status, answer)
		}
	}
	if got := b.rows(t); got != 3 {
		t.Errorf("%d effects, want 3", got)
	}
}

// An answer that was lost after the commit is made again from what was stored.
func TestLostAnswerReplays(t *testing.T) {
	b := newBench(t)
	b.answering = func(context.Context) error { return context.DeadlineExceeded }
	status, answer := b.post(boxA, "ann", "k", `{"text":"x"}`)
	wantCode(t, status, answer, 503, "saved_unanswered")
	b.answering = nil
	status, answer = b.post(boxA, "ann", "k", `{"text":"x"}`)
	var out effectOut
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 201 {
		t.Fatalf("%d %s", status, answer)
	}
	var id uuid.UUID
	if err := b.db.QueryRow(t.Context(), `SELECT id FROM effects`).Scan(&id); err != nil || id != out.ID {
		t.Errorf("the row is %s (%v), the answer %s", id, err, answer)
	}
	if n := b.commits.Load(); n != 1 {
		t.Errorf("committed %d times", n)
	}
}

func TestKeyInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inside, leave := make(chan struct{}), make(chan struct{})
	b.before = func(context.Context, effectIn) error {
		close(inside)
		<-leave
		return nil
	}
	first := make(chan string)
	go func() {
		_, answer := b.post(boxA, "ann", "k", `{"text":"x"}`)
		first <- answer
	}()
	<-inside
	status, answer := b.post(boxA, "ann", "k", `{"text":"x"}`)
	wantCode(t, status, answer, 409, "idempotency_in_flight")
	close(leave)
	want := <-first
	if status, answer := b.post(boxA, "ann", "k", `{"text":"x"}`); status != 201 || answer != want {
		t.Errorf("%d %s, want %s", status, answer, want)
	}
}

// The lock timeout is the claim's alone: the write must not inherit it.
func TestClaimLeavesNoLockTimeout(t *testing.T) {
	db := pgtest.DB(t)
	o := op.NewWrite(op.Spec{Name: "test.setting", Method: "POST", Path: "/v1/setting", Scope: "test:write", Summary: "Read a setting."}, db,
		func(ctx context.Context, tx *pg.Tx, _ auth.Caller, _ struct{}) (s string, err error) {
			err = tx.QueryRow(ctx, `SHOW lock_timeout`).Scan(&s)
			return s, err
		},
		func(_ context.Context, _ auth.Caller, s string) (struct {
			Setting string `json:"setting"`
		}, error) {
			return struct {
				Setting string `json:"setting"`
			}{s}, nil
		})
	caller := auth.Caller{Kind: auth.Owner, Scopes: []string{auth.AllScopes}}
	for range 2 {
		res, err := o.Call(t.Context(), caller, json.RawMessage(`{"idempotency_key":"k"}`), op.CallInfo{})
		if err != nil || string(res.JSON) != `{"setting":"0"}` {
			t.Errorf("%s %v", res.JSON, err)
		}
	}
}

func TestWithoutAKeyNothingIsKept(t *testing.T) {
	b := newBench(t)
	for range 2 {
		if status, answer := b.post(boxA, "ann", "", `{"text":"x"}`); status != 201 {
			t.Fatal(answer)
		}
	}
	var keys int
	if err := b.db.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys`).Scan(&keys); err != nil || keys != 0 || b.rows(t) != 2 {
		t.Errorf("%d keys (%v), %d effects", keys, err, b.rows(t))
	}
}

func TestBadKeys(t *testing.T) {
	b := newBench(t)
	for key, code := range map[string]string{
		strings.Repeat("x", 256): "too_long",
		"a\tb":                   "invalid_format",
		"é":                      "invalid_format",
	} {
		status, answer := b.post(boxA, "ann", key, `{"text":"x"}`)
		wantCode(t, status, answer, 400, code)
	}
	for range 2 {
		if status, answer := b.post(boxA, "ann", strings.Repeat("x", 255), `{"text":"x"}`); status != 201 {
			t.Errorf("%d %s", status, answer)
		}
	}
	status, answer := b.post(boxA, "ann", "k", `{"text":"x","idempotency_key":"k"}`)
	wantCode(t, status, answer, 400, "duplicate_field")
	if got := b.rows(t); got != 1 {
		t.Errorf("%d effects", got)
	}
}
