package corpus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/auth"
	notes "standmeet/shared/corpus"
	"standmeet/shared/fault"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

// house serves the operations to an owner over both faces. Its worker stands in
// for relay and workers, which functions can't reach: it indexes each event's
// note and completes the task in one transaction.
type house struct {
	t       testing.TB
	db      *pg.DB
	catalog op.Catalog
	handler http.Handler
	owner   auth.Caller
	maxWait time.Duration
	deps    Deps
}

func newHouse(t testing.TB, maxWait time.Duration) *house {
	db := pgtest.DB(t)
	w := waiter.New(db, waiter.Options{}, task.FinalSource(db), outbox.FanoutSource(db))
	t.Cleanup(w.Close)
	d := Deps{DB: db, Receipts: task.NewReceipts(db, w)}
	h := &house{t: t, db: db, deps: d, maxWait: maxWait, catalog: op.NewCatalog(
		Create(d), Update(d), Promote(d), Delete(d), Restore(d), Trash(d), Get(d), List(d), Search(d), PublicList(d), PublicGet(d), PublicSearch(d))}
	h.owner = h.newOwner("ada")
	h.handler = h.catalog.Handler(&op.Server{MaxWait: maxWait, Authenticate: func(_ context.Context, c auth.Credentials) (auth.Caller, error) {
		caller := auth.Caller{Kind: auth.Owner, Scopes: []string{auth.AllScopes}}
		kind, id, _ := strings.Cut(c.Bearer, " ")
		if kind == "" {
			return auth.Caller{}, nil
		}
		owner, err := uuid.Parse(id)
		if kind == "visitor" {
			return auth.Caller{Kind: auth.Visitor, Grants: []auth.Grant{{OwnerID: owner}}}, err
		}
		caller.OwnerID = owner
		return caller, err
	}})
	return h
}

func (h *house) newOwner(handle string) auth.Caller {
	h.t.Helper()
	id := uuid.Must(uuid.NewV7())
	if _, err := h.db.Exec(h.t.Context(), `INSERT INTO owners (id, handle, email) VALUES ($1, $2, $3)`, id, handle, handle+"@example.test"); err != nil {
		h.t.Fatal(err)
	}
	return auth.Caller{Kind: auth.Owner, OwnerID: id, Handle: handle, Scopes: []string{auth.AllScopes}}
}

// work runs the worker until the returned function is called.
func (h *house) work() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			n, err := h.round(ctx)
			if err != nil && ctx.Err() == nil {
				h.t.Error(err)
				return
			}
			if n == 0 {
				select {
				case <-time.After(3 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); done.Wait() }) }
	h.t.Cleanup(stop)
	return stop
}

func (h *house) round(ctx context.Context) (n int, err error) {
	err = h.db.InTx(ctx, func(tx *pg.Tx) error {
		// the race detector makes the analysis of long notes slow
		if _, err := tx.Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
			return err
		}
		events, err := outbox.Claim(ctx, tx, uuid.Nil, 100)
		if err != nil || len(events) == 0 {
			return err
		}
		var ids []uuid.UUID
		for _, e := range events {
			ids = append(ids, uuid.MustParse(e.Subject))
		}
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		sources, err := notes.ReadForIndex(ctx, tx, slices.Compact(ids), 0)
		if err != nil {
			return err
		}
		var rows []notes.IndexRow
		for _, s := range sources {
			rows = append(rows, notes.BuildIndexRow(s))
		}
		for _, e := range events {
			if _, err := tx.Exec(ctx, `INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES ($1, $2, $3, $4, 'completed', clock_timestamp())`,
				e.ID, task.CorpusIndex, e.OwnerID, e.Subject); err != nil {
				return err
			}
			tx.Notify(task.Final, task.ID{Event: e.ID, Subscriber: task.CorpusIndex}.String())
		}
		n = len(events)
		return notes.WriteIndex(ctx, tx, nil, rows)
	})
	return n, err
}

type answer struct {
	status     int
	body       []byte
	header     http.Header
	Note       notes.Note
	Indexed    bool
	IndexJobID string `json:"index_job_id"`
	Wait       waiter.Wait
	Sentence   string
	Made       bool
	Deleted    int
	Restored   int
	Index      *Index
	Truncated  bool `json:"index_truncated"`
	Links      []notes.Link
	Backlinks  []notes.Named
	Items      []json.RawMessage
	Total      int
	NextCursor string `json:"next_cursor"`
	Body       string
	// of a problem
	Code   string
	Detail string
	Errors []fault.Field
}

type headers map[string]string

// http calls a route as the owner, or as who the header says.
func (h *house) http(method, path string, body any, hs headers) (a answer) {
	h.t.Helper()
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			h.t.Fatal(err)
		}
	}
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, &b)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer owner "+h.owner.OwnerID.String())
	for k, v := range hs {
		if r.Header.Set(k, v); v == "" {
			r.Header.Del(k)
		}
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	a.status, a.body, a.header = w.Code, w.Body.Bytes(), w.Header()
	if err := json.Unmarshal(a.body, &a); err != nil {
		h.t.Fatalf("%s %s: %v: %s", method, path, err, a.body)
	}
	return a
}

func (h *house) ok(method, path string, body any, hs headers) answer {
	h.t.Helper()
	a := h.http(method, path, body, hs)
	if a.status >= 300 {
		h.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

// tool calls an operation as an MCP client does.
func (h *house) tool(caller auth.Caller, name, args string) (a answer, err error) {
	h.t.Helper()
	res, err := h.catalog.ByName(name).Call(h.t.Context(), caller, json.RawMessage(args), op.CallInfo{Face: "mcp", MaxWait: h.maxWait})
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(res.JSON, &a); err != nil {
		h.t.Fatal(err)
	}
	return a, nil
}

type object map[string]any

func (h *house) found(query string) (titles []string) {
	h.t.Helper()
	for _, item := range h.ok("GET", "/v1/corpus/search?q="+url.QueryEscape(query), nil, nil).Items {
		var hit notes.Hit
		if err := json.Unmarshal(item, &hit); err != nil {
			h.t.Fatal(err)
		}
		titles = append(titles, hit.Note.Title)
	}
	return titles
}

func TestLifeOfANote(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	made := h.ok("POST", "/v1/corpus", object{"genre": "raw", "title": nil, "body": "A thought about otters\n\nthey hold hands", "tags": []string{"animals"}}, nil)
	if made.status != 201 || !made.Indexed || made.Wait.Ended != waiter.Observed || !strings.HasSuffix(made.IndexJobID, ":corpus.index") || made.Sentence != task.Say(task.CorpusIndex, task.Completed) {
		t.Fatalf("%s", made.body)
	}
	if e, l := made.header.Get("ETag"), made.header.Get("Location"); e != `"1"` || l != "/v1/corpus/"+made.Note.ID.String() || h.ok("GET", l, nil, nil).header.Get("ETag") != e {
		t.Errorf("ETag %s, Location %s", e, l)
	}
	if got := h.found("otters"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	promoted := h.ok("POST", "/v1/corpus/"+made.Note.ID.String()+"/promote", nil, nil)
	if !promoted.Indexed || !promoted.Made || promoted.Note.URI != "wiki://a-thought-about-otters" {
		t.Errorf("%s", promoted.body)
	}
	again := h.ok("POST", "/v1/corpus/"+made.Note.ID.String()+"/promote", object{"title": "Other"}, nil)
	if !again.Indexed || again.Made || again.Note.ID != promoted.Note.ID || again.IndexJobID != promoted.IndexJobID {
		t.Errorf("%s", again.body)
	}
	path := "/v1/corpus/" + promoted.Note.ID.String()
	changed := h.ok("PATCH", path, object{"body": "about beavers, see [[A thought about otters]]", "title": "Beavers"}, headers{"If-Match": promoted.header.Get("ETag")})
	if !changed.Indexed || changed.header.Get("ETag") != `"2"` || changed.Note.Version != 2 || changed.Note.Path != "beavers" {
		t.Errorf("%s", changed.body)
	}
	if got := h.found("otters hold hands"); len(got) != 1 || got[0] != "" {
		t.Errorf("the old words still find %q", got)
	}
	same := h.ok("PATCH", path, object{"title": "Beavers"}, nil)
	if !same.Indexed || same.Note.Version != 2 || same.IndexJobID != changed.IndexJobID {
		t.Errorf("nothing changed: %s", same.body)
	}
	for _, hs := range []headers{{"If-Match": "1"}, {"If-Match": `W/"1"`}} {
		if a := h.http("PATCH", path, object{"title": "x"}, hs); a.status != 409 || a.Code != "version_conflict" || !strings.Contains(a.Detail, "version 2") {
			t.Errorf("%s", a.body)
		}
	}
	if a := h.http("PATCH", path, object{"title": "x", "version": 1}, nil); a.Code != "version_conflict" {
		t.Errorf("%s", a.body)
	}
	if a := h.http("PATCH", path, object{"title": "x"}, headers{"If-Match": "abc"}); a.status != 400 {
		t.Errorf("%s", a.body)
	}
	got := h.ok("GET", path, nil, nil)
	if len(got.Links) != 1 || got.Links[0].State != notes.Unresolved || *got.Note.Body != *changed.Note.Body {
		t.Errorf("%s", got.body)
	}
	for _, stale := range []answer{h.http("DELETE", path, nil, headers{"If-Match": `"1"`}), h.http("DELETE", path+"?version=1", nil, nil), h.http("POST", path+"/promote", object{"version": 1}, nil)} {
		if stale.status != 409 || stale.Code != "version_conflict" || !strings.Contains(stale.Detail, "version 2") {
			t.Errorf("%s", stale.body)
		}
	}
	gone := h.ok("DELETE", path, nil, headers{"If-Match": `"2"`})
	if !gone.Indexed || gone.header.Get("ETag") != "" || gone.Deleted != 1 || gone.Sentence != "The note is in the trash. "+task.Say(task.CorpusIndex, task.Completed) {
		t.Errorf("%s", gone.body)
	}
	if got := h.found("beavers"); len(got) != 0 {
		t.Errorf("deleted, and found: %q", got)
	}
	for _, a := range []answer{h.http("GET", path, nil, nil), h.http("DELETE", path, nil, headers{"If-Match": `"3"`})} {
		if a.status != 404 || a.Code != "not_found" {
			t.Errorf("%s", a.body)
		}
	}
	if a := h.http("POST", path+"/restore", nil, headers{"If-Match": `"2"`}); a.status != 409 || a.Code != "version_conflict" {
		t.Errorf("%s", a.body)
	}
	if a := h.ok("GET", "/v1/corpus/trash", nil, nil); a.Total != 1 || len(a.Items) != 1 {
		t.Errorf("%s", a.body)
	}
	back := h.ok("POST", path+"/restore", object{"version": gone.Note.Version}, nil)
	if got := h.found("beavers"); !back.Indexed || back.Restored != 1 || len(got) != 1 {
		t.Errorf("%q %s", got, back.body)
	}
}

func TestNobodyWorks(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 800*time.Millisecond)
	a := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "waiting"}, nil)
	if a.Indexed || a.Wait.Ended != waiter.Timeout || a.IndexJobID == "" || a.Wait.AskedMS != 800 || a.Sentence != task.Say(task.CorpusIndex, task.Pending) {
		t.Errorf("%s", a.body)
	}
	a = h.ok("PATCH", "/v1/corpus/"+a.Note.ID.String(), object{"body": "x"}, headers{"Prefer": "wait=0"})
	if a.Indexed || a.Wait.Ended != waiter.NotAsked || a.IndexJobID == "" || a.Sentence != task.Say(task.CorpusIndex, task.Pending) {
		t.Errorf("%s", a.body)
	}
	// the same receipt later, when it is true
	if n, err := h.round(t.Context()); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	b := h.ok("PATCH", "/v1/corpus/"+a.Note.ID.String(), object{"body": "x"}, headers{"Prefer": "wait=0"})
	if !b.Indexed || b.Wait.Ended != waiter.NotAsked || b.IndexJobID != a.IndexJobID {
		t.Errorf("%s", b.body)
	}
	// so long ago that event and task are gone
	if _, err := h.db.Exec(t.Context(), `WITH e AS (DELETE FROM events) DELETE FROM tasks`); err != nil {
		t.Fatal(err)
	}
	if b = h.ok("PATCH", "/v1/corpus/"+a.Note.ID.String(), object{"body": "x"}, nil); !b.Indexed || b.IndexJobID != "" {
		t.Errorf("%s", b.body)
	}
}

// TestSubtrees: R1. What a write says of many notes is so of all of them.
func TestSubtrees(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 700*time.Millisecond)
	root := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "Root"}, headers{"Prefer": "wait=0"}).Note
	const children = 150
	for i := range children {
		h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprint("okapi ", i), "parent_id": root.ID}, headers{"Prefer": "wait=0"})
	}
	rounds := func() {
		t.Helper()
		for n := 1; n > 0; {
			var err error
			if n, err = h.round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	rounds()
	path := "/v1/corpus/" + root.ID.String()
	for _, c := range []struct {
		method, path string
		body         any
		found        int
	}{{"PATCH", path, object{"title": "Stem"}, children}, {"DELETE", path, nil, 0}, {"POST", path + "/restore", nil, children}} {
		// the first round is of 100 events, the root's own among them
		answers := make(chan answer)
		go func() { answers <- h.http(c.method, c.path, c.body, nil) }()
		for n := 0; n == 0; {
			var err error
			if n, err = h.round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		a := <-answers
		if a.status != 200 || a.Indexed || a.Index == nil || a.Index.Pending != children+1-100 || a.Wait.Ended != waiter.Timeout || !strings.HasSuffix(a.Sentence, task.IndexedInPart()) || c.method != "PATCH" && !strings.HasPrefix(a.Sentence, "151 notes are ") {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
		if a.Wait.WaitedMS < 700 || a.Wait.WaitedMS >= 2*700 {
			t.Errorf("waited for %d ms of 700", a.Wait.WaitedMS)
		}
		later := func() (w Written) {
			t.Helper()
			res, err := Answer(h.deps).Call(t.Context(), h.owner, fmt.Appendf(nil, `{"id": %q}`, a.IndexJobID), op.CallInfo{})
			if err != nil || json.Unmarshal(res.JSON, &w) != nil {
				t.Fatalf("%v %s", err, res.JSON)
			}
			return w
		}
		if w := later(); w.Indexed || w.Index == nil || w.Index.Pending != children+1-100 {
			t.Errorf("%+v", w)
		}
		rounds()
		if w := later(); !w.Indexed || w.Index != nil || w.Sentence != task.Say(task.CorpusIndex, task.Completed) {
			t.Errorf("%+v", w)
		}
		if got := h.ok("GET", "/v1/corpus/search?q=okapi&limit=50", nil, nil); got.Total != c.found {
			t.Errorf("%s %s: %d of %d found", c.method, c.path, got.Total, c.found)
		}
	}
	h.work()
	a := h.ok("PATCH", path, object{"title": "Branch"}, nil)
	for n := 0; n < 60 && !a.Indexed; n++ { // a busy machine may need longer than an answer waits
		a = h.ok("PATCH", path, object{"title": fmt.Sprintf("Branch %d", n)}, nil)
	}
	if !a.Indexed || a.Index != nil || a.Wait.Ended != waiter.Observed || h.ok("GET", "/v1/corpus/search?q=branch+okapi", nil, nil).Total != children {
		t.Errorf("%s", a.body)
	}
}

// TestVersionsDecide: an event's id may be older than that of the version before.
func TestVersionsDecide(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300*time.Millisecond)
	first := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "one"}, headers{"Prefer": "wait=0"})
	if _, err := h.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := "/v1/corpus/" + first.Note.ID.String()
	second := h.ok("PATCH", path, object{"title": "two"}, headers{"Prefer": "wait=0"})
	event := strings.TrimSuffix(first.IndexJobID, ":corpus.index")
	if _, err := h.db.Exec(t.Context(), `WITH t AS (UPDATE tasks SET event_id = $2 WHERE event_id = $1) UPDATE events SET id = $2 WHERE id = $1`, event, uuid.Max); err != nil {
		t.Fatal(err)
	}
	for _, hs := range []headers{nil, {"Prefer": "wait=0"}} {
		if a := h.ok("PATCH", path, object{"title": "two"}, hs); a.Indexed || a.IndexJobID != second.IndexJobID || a.Sentence != task.Say(task.CorpusIndex, task.Pending) {
			t.Errorf("%s", a.body)
		}
	}
	if _, err := h.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := h.ok("PATCH", path, object{"title": "two"}, nil); !a.Indexed || a.IndexJobID != second.IndexJobID || a.Wait.Ended != waiter.Observed {
		t.Errorf("%s", a.body)
	}
}

// TestFailedWritesGiveTheirPlaceBack: there are 64 places among the waiters.
func TestFailedWritesGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	first := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "taken"}, nil)
	for range 3 * waiter.PerChannel {
		if a := h.http("POST", "/v1/corpus", object{"genre": "wiki", "title": "Taken"}, nil); a.Code != "sibling_name_taken" {
			t.Fatalf("%s", a.body)
		}
		if a := h.ok("PATCH", "/v1/corpus/"+first.Note.ID.String(), object{"title": "taken"}, nil); !a.Indexed {
			t.Fatalf("%s", a.body)
		}
	}
	// a place is given back when its call has ended, on a goroutine of its own
	for {
		a := h.ok("POST", "/v1/corpus", object{"genre": "raw", "body": "x"}, nil)
		if a.Wait.Ended == waiter.Observed {
			break
		}
		if t.Context().Err() != nil {
			t.Fatalf("%s", a.body)
		}
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	key := headers{"Idempotency-Key": "k1"}
	parent := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "parent"}, headers{"Idempotency-Key": "k0"})
	body := object{"genre": "wiki", "title": "once", "body": "b", "parent_id": parent.Note.ID}
	answers := make([]answer, 9)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() { answers[i] = h.http("POST", "/v1/corpus", body, key) })
	}
	group.Wait()
	last := h.ok("POST", "/v1/corpus", body, key)
	answers[8] = last
	for _, a := range answers {
		if a.Code == "idempotency_in_flight" {
			continue
		}
		if a.status != 201 || a.Note.ID != last.Note.ID || a.IndexJobID != last.IndexJobID || !a.Indexed || *a.Note.Body != "b" || a.Note.Path != "parent/once" {
			t.Errorf("%s", a.body)
		}
	}
	if a := h.http("POST", "/v1/corpus", object{"genre": "wiki", "title": "other"}, key); a.status != 422 {
		t.Errorf("%s", a.body)
	}
	// a refused write leaves the key free; the slug of another title is no refusal
	for _, title := range []string{"once", "once!"} {
		body["title"] = title
		a := h.http("POST", "/v1/corpus", body, headers{"Idempotency-Key": "k2"})
		if title == "once" && a.Code != "sibling_name_taken" || title != "once" && a.status != 201 {
			t.Errorf("%s", a.body)
		}
	}
	for _, c := range []struct {
		method, path string
		body         any
	}{{"PATCH", "", object{"title": "twice"}}, {"POST", "/promote", object{"genre": "output"}}, {"DELETE", "", nil}, {"POST", "/restore", nil}} {
		path := "/v1/corpus/" + last.Note.ID.String() + c.path
		a, b := h.ok(c.method, path, c.body, headers{"Idempotency-Key": "k3 " + c.method + c.path}), h.ok(c.method, path, c.body, headers{"Idempotency-Key": "k3 " + c.method + c.path})
		if a.Note.ID != b.Note.ID || a.IndexJobID != b.IndexJobID || a.Note.Version != b.Note.Version || a.Deleted != b.Deleted || a.Restored != b.Restored || a.Made != b.Made {
			t.Errorf("%s %s: %s, then %s", c.method, c.path, a.body, b.body)
		}
	}
}

func TestArgumentsOfAnAI(t *testing.T) { // P4
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	for i := range 7 {
		h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprint("n", i)}, nil)
	}
	a, err := h.tool(h.owner, "corpus.list", `{"genre": "wiki", "limit": "5"}`)
	if err != nil || len(a.Items) != 5 || a.Total != 7 || a.NextCursor == "" {
		t.Errorf("%+v %v", a, err)
	}
	if b, err := h.tool(h.owner, "corpus.list", fmt.Sprintf(`{"genre": "wiki", "cursor": %q, "parent_id": "root"}`, a.NextCursor)); err != nil || len(b.Items) != 2 || b.NextCursor != "" {
		t.Errorf("%+v %v", b, err)
	}
	a, err = h.tool(h.owner, "corpus.create", `{"genre": "wiki", "title": "00713", "body": "x", "tags": "[\"a\",\"b\"]", "parent_id": null, "visibility": null}`)
	if err != nil || a.Note.Title != "00713" || !slices.Equal(a.Note.Tags, []string{"a", "b"}) {
		t.Fatalf("%+v %v", a, err)
	}
	parent := a.Note.ID
	a, err = h.tool(h.owner, "corpus.create", fmt.Sprintf(`{"genre": "wiki", "title": "child", "parent_id": %q}`, parent))
	if err != nil {
		t.Fatal(err)
	}
	a, err = h.tool(h.owner, "corpus.update", fmt.Sprintf(`{"genre": "wiki", "id": %q, "title": "t", "body": "b", "parent_id": null}`, a.Note.ID))
	if err != nil || a.Note.ParentID == nil || *a.Note.ParentID != parent || a.Note.Path != "00713/t" {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = h.tool(h.owner, "corpus.update", fmt.Sprintf(`{"id": %q, "parent_id": "", "body": ""}`, a.Note.ID)); err != nil || a.Note.ParentID != nil || *a.Note.Body != "" {
		t.Errorf("%+v %v", a, err)
	}
	_, err = h.tool(h.owner, "corpus.create", `{"genre": "wiki", "title": "", "body": ""}`)
	if f := fault.From(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != "title" || !strings.Contains(f.Detail, "title") {
		t.Errorf("%+v", f)
	}
	for name, args := range map[string]string{
		"corpus.search": `{"q": "  "}`, "corpus.create": `{"genre": "raw"}`, "corpus.list": `{"parent_id": "x"}`,
	} {
		if _, err := h.tool(h.owner, name, args); fault.From(err) == nil || fault.From(err).Kind != fault.Invalid || len(fault.From(err).Fields) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range h.catalog.Ops() {
		if s := o.Spec(); (s.Access == op.Owner) != (s.Tool != nil) {
			t.Errorf("%s: owner operations are tools, public ones are not", s.Name)
		}
	}
}

func TestLargestNote(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	body := strings.Repeat("语\n", notes.MaxBody/4)
	a := h.ok("POST", "/v1/corpus", object{"genre": "raw", "body": body}, headers{"Prefer": "wait=0"})
	if got := h.ok("GET", "/v1/corpus/"+a.Note.ID.String(), nil, nil); *got.Note.Body != body {
		t.Error("the body changed")
	}
	// all of it escaped, as some clients do
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/corpus", strings.NewReader(`{"genre":"raw","body":"`+strings.Repeat(`\u8bed\n`, notes.MaxBody/4)+`"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer owner "+h.owner.OwnerID.String())
	w := httptest.NewRecorder()
	if h.handler.ServeHTTP(w, r); w.Code != 201 {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
	if a := h.http("POST", "/v1/corpus", object{"genre": "raw", "body": body + "语"}, nil); a.status != 400 || a.Errors[0].Name != "body" || a.Errors[0].Code != "too_long" {
		t.Errorf("%d %.300s", a.status, a.body)
	}
}

// TestNotesTooLongForTheIndex: what search can't know of a note is said.
func TestNotesTooLongForTheIndex(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	r := rand.New(rand.NewPCG(5, 6))
	letters := func(size, from, count, length int, space string) string {
		var b strings.Builder
		for b.Len() < size {
			for range length {
				b.WriteRune(rune(from + r.IntN(count)))
			}
			b.WriteString(space)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		body      string
		truncated bool
	}{
		"random Chinese": {letters(600_000, 0x4E00, 20_000, 50, "\n") + " zorblax", true},
		"random numbers": {letters(300_000, '0', 10, 9, " ") + " zorblax", false},
	} {
		a := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": name, "body": c.body}, nil)
		for range 20 { // a big note takes longer than a write waits
			if a.Indexed {
				break
			}
			a = h.ok("PATCH", "/v1/corpus/"+a.Note.ID.String(), object{"title": name}, nil)
		}
		want := task.Say(task.CorpusIndex, task.Completed)
		if c.truncated {
			want = task.IndexedTruncated()
		}
		if got := h.ok("GET", "/v1/corpus/"+a.Note.ID.String(), nil, nil); !a.Indexed || a.Truncated != c.truncated || a.Sentence != want || got.Truncated != c.truncated {
			t.Errorf("%s: indexed %v, truncated %v, %q; read: %v", name, a.Indexed, a.Truncated, a.Sentence, got.Truncated)
		}
		if found := slices.Contains(h.found("zorblax"), name); found == c.truncated {
			t.Errorf("%s: found by its last word: %v", name, found)
		}
	}
}

func TestVisitors(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	other := h.newOwner("bob")
	create := func(o object) notes.Note {
		t.Helper()
		o["body"] = "walrus " + fmt.Sprint(o["body"])
		return h.ok("POST", "/v1/corpus", o, nil).Note
	}
	secret := create(object{"genre": "wiki", "title": "Layoffs"})
	shown := create(object{"genre": "wiki", "title": "Shown", "parent_id": secret.ID, "visibility": "public", "body": "[[Layoffs]] [[Key]]", "source": "my diary", "aliases": []string{"Seen"}})
	create(object{"genre": "wiki", "title": "Key", "visibility": "coded", "body": "[[Shown]]"})
	create(object{"genre": "output", "title": "Shown", "visibility": "public", "source": "a book", "show_as_source": true})
	scrap := create(object{"genre": "raw", "title": "Scrap", "body": "[[Shown]]"})
	for _, v := range []string{"public", "coded"} {
		if a := h.http("POST", "/v1/corpus", object{"genre": "raw", "body": "x", "visibility": v}, nil); a.status != 400 || a.Code != "not_allowed" || a.Errors[0].Name != "visibility" {
			t.Errorf("%s", a.body)
		}
		if a := h.http("PATCH", "/v1/corpus/"+scrap.ID.String(), object{"visibility": v}, nil); a.status != 400 || a.Code != "not_allowed" || a.Errors[0].Name != "visibility" {
			t.Errorf("%s", a.body)
		}
	}
	// also if one got it otherwise
	if _, err := h.db.Exec(t.Context(), `UPDATE notes SET visibility = 'public' WHERE id = $1`, scrap.ID); err != nil {
		t.Fatal(err)
	}

	me, them := h.owner.OwnerID.String(), other.OwnerID.String()
	for who, want := range map[string]struct {
		auth  string
		count int
	}{
		"anybody": {"", 2}, "visitor": {"Bearer visitor " + me, 3}, "owner": {"Bearer owner " + me, 3},
		"another's visitor": {"Bearer visitor " + them, 2}, "another owner": {"Bearer owner " + them, 2},
	} {
		hs := headers{"Authorization": want.auth}
		list, hits := h.ok("GET", "/v1/public/ada/notes", nil, hs), h.ok("GET", "/v1/public/ada/search?q=walrus", nil, hs)
		if list.Total != want.count || len(list.Items) != want.count || hits.Total != want.count || len(hits.Items) != want.count {
			t.Errorf("%s: %d listed, %d found, want %d", who, list.Total, hits.Total, want.count)
		}
		read := h.ok("GET", "/v1/public/ada/notes/"+shown.Path, nil, hs)
		for _, a := range []answer{list, hits, read} {
			for _, word := range []string{"diary", secret.ID.String(), "parent_id", "raw://", "Scrap", "promoted"} {
				if bytes.Contains(a.body, []byte(word)) {
					t.Errorf("%s is shown %s: %s", who, word, a.body)
				}
			}
		}
		states := ""
		for _, l := range read.Links {
			if states += l.State + " "; l.Target == "Layoffs" && l.Note != nil {
				t.Errorf("%s: %s", who, read.body)
			}
		}
		wantStates, wantBack := "unresolved unresolved ", 0
		if want.count == 3 {
			wantStates, wantBack = "unresolved resolved ", 1
		}
		if read.Body == "" || states != wantStates || len(read.Backlinks) != wantBack {
			t.Errorf("%s: links %q, %d backlinks", who, states, len(read.Backlinks))
		}
	}
	none := headers{"Authorization": ""}
	for _, path := range []string{"layoffs", "key", "scrap", "nothing", "layoffs/", shown.ID.String(), "shown?genre=wiki"} {
		if a := h.http("GET", "/v1/public/ada/notes/"+path, nil, none); a.status != 404 || a.Code != "not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := h.ok("GET", "/v1/public/ada/notes/shown", nil, none); !bytes.Contains(a.body, []byte("output://shown")) || !bytes.Contains(a.body, []byte("a book")) {
		t.Errorf("%s", a.body)
	}
	for _, path := range []string{"notes", "notes/shown", "search?q=walrus"} {
		if a := h.http("GET", "/v1/public/nobody/"+path, nil, none); a.status != 404 {
			t.Errorf("%s: %s", path, a.body)
		}
		if a := h.http("GET", "/v1/public/bob/"+path, nil, none); a.Total != 0 || path == "notes/shown" && a.status != 404 {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if a := h.http("GET", "/v1/corpus/"+shown.ID.String(), nil, none); a.status != 401 {
		t.Errorf("%s", a.body)
	}
	// withdrawn: gone at once
	h.ok("PATCH", "/v1/corpus/"+shown.ID.String(), object{"visibility": nil}, headers{"Prefer": "wait=0"})
	if list := h.ok("GET", "/v1/public/ada/notes", nil, none); list.Total != 1 {
		t.Errorf("%s", list.body)
	}
	if a := h.http("GET", "/v1/public/ada/notes/"+shown.Path, nil, none); a.status != 404 {
		t.Errorf("%s", a.body)
	}
}

// TestAnotherOwnersNotes: each operation that takes an id, with one of another
// owner.
func TestAnotherOwnersNotes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	mine := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": "mine"}, nil).Note
	other := h.newOwner("bob")
	counts := func() (n int) {
		if err := h.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM notes) + (SELECT count(*) FROM events) + (SELECT sum(version) FROM notes)`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := counts()
	for _, o := range h.catalog.Ops() {
		s := o.Spec()
		if !strings.Contains(s.Path, "{id}") {
			continue
		}
		for _, id := range []string{mine.ID.String(), uuid.NewString()} {
			if _, err := h.tool(other, s.Name, fmt.Sprintf(`{"id": %q}`, id)); fault.From(err) == nil || fault.From(err).Code != "not_found" {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
	for _, args := range []string{`{"genre": "wiki", "title": "child", "parent_id": %q}`} {
		if _, err := h.tool(other, "corpus.create", fmt.Sprintf(args, mine.ID)); fault.From(err) == nil || fault.From(err).Code != "parent_missing" {
			t.Errorf("%v", err)
		}
	}
	if a, err := h.tool(other, "corpus.list", fmt.Sprintf(`{"parent_id": %q}`, mine.ID)); err != nil || a.Total != 0 {
		t.Errorf("%+v %v", a, err)
	}
	if after := counts(); after != before {
		t.Errorf("something changed: %d, then %d", before, after)
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 0)
	h.work()
	for i := range 7 {
		h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprint("lynx ", i), "visibility": "public"}, nil)
	}
	for i := range 3 {
		n := h.ok("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprint("gone ", i)}, nil).Note
		h.ok("DELETE", "/v1/corpus/"+n.ID.String(), nil, nil)
	}
	for path, want := range map[string]int{
		"/v1/corpus?limit=3&genre=wiki": 7, "/v1/corpus/search?q=lynx&limit=3": 7, "/v1/public/ada/notes?limit=2": 7, "/v1/public/ada/search?q=lynx&limit=2": 7, "/v1/corpus/trash?limit=1": 3,
	} {
		seen := map[string]bool{}
		cursor := ""
		for range 20 {
			a := h.ok("GET", path+cursor, nil, nil)
			for _, item := range a.Items {
				seen[string(item)] = true
			}
			if a.Total != want {
				t.Errorf("%s: total %d", path, a.Total)
			}
			if a.NextCursor == "" {
				break
			}
			cursor = "&cursor=" + a.NextCursor
		}
		if len(seen) != want {
			t.Errorf("%s: %d items on all pages, want %d", path, len(seen), want)
		}
		if a := h.http("GET", path+"&cursor=eyJ4IjoxfQ", nil, nil); a.status != 400 || a.Code != "bad_cursor" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}
