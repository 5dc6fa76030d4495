package access_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/functions/access"
	"standmeet/shared/auth"
	"standmeet/shared/op"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/waiter"
)

const publicURL = "https://page.test"

func keys(t *testing.T, letters string) secret.Keys {
	t.Helper()
	var list []string
	for _, r := range letters {
		list = append(list, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(r)}, secret.MinKey)))
	}
	k, err := secret.ParseKeys(strings.Join(list, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// world is two owners, and the functions of access on a server. No relay and no
// worker run: the tests play them.
type world struct {
	*testing.T
	db    *pg.DB
	deps  access.Deps
	url   string
	me    auth.Profile
	token string
	other string
}

func setup(t *testing.T) *world {
	t.Helper()
	db := pgtest.DB(t)
	wait := waiter.New(db, waiter.Options{}, task.FinalSource(db), outbox.FanoutSource(db))
	t.Cleanup(wait.Close)
	w := &world{T: t, db: db, deps: access.Deps{
		DB: db, Receipts: task.NewReceipts(db, wait), Keys: keys(t, "a"), PublicURL: publicURL, Mail: true, HTTPS: true,
	}}
	w.url = w.serve(w.deps)
	for handle, token := range map[string]*string{"me": &w.token, "other": &w.other} {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			owner, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: handle, Name: "Name of " + handle, Email: handle + "@example.test"})
			if err != nil {
				return err
			}
			if handle == "me" {
				w.me = owner
			}
			_, *token, err = auth.CreateToken(t.Context(), tx, owner.ID, auth.Token{Name: "first", Scopes: []string{"*"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// serve starts a server for an installation that has d.
func (w *world) serve(d access.Deps) string {
	store := &auth.Store{DB: w.db}
	w.Cleanup(func() { store.Flush(context.Background()) })
	cat := op.NewCatalog(access.Submit(d), access.List(d), access.Get(d), access.Approve(d), access.ResendMail(d), access.Close(d),
		access.CreateCode(d), access.ListCodes(d), access.RevokeCode(d), access.Redeem(d))
	s := httptest.NewServer(cat.Handler(&op.Server{Authenticate: store.Authenticate}))
	w.Cleanup(s.Close)
	return s.URL
}

// with is the world as an installation that differs.
func (w *world) with(change func(*access.Deps)) *world {
	other := *w
	change(&other.deps)
	other.url = w.serve(other.deps)
	return &other
}

type object = map[string]any

type answer struct {
	status int
	header http.Header
	body   object
	raw    string
}

func (a answer) at(path string) any {
	var v any = a.body
	for key := range strings.SplitSeq(path, ".") {
		in, _ := v.(object)
		v = in[key]
	}
	return v
}

func (a answer) text(path string) string { s, _ := a.at(path).(string); return s }

// call may be used by many at once.
func (w *world) call(token, method, path string, body any, headers ...string) (a answer) {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			w.Error(err)
		}
		payload = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, payload)
	if err != nil {
		w.Error(err)
		return a
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Error(err)
		return a
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a = answer{status: res.StatusCode, header: res.Header, raw: string(raw)}
	if err == nil {
		err = json.Unmarshal(raw, &a.body)
	}
	if err != nil {
		w.Errorf("%s %s: %v: %s", method, path, err, raw)
	}
	return a
}

// mine is call by the owner, who doesn't wait.
func (w *world) mine(method, path string, body any, headers ...string) answer {
	return w.call(w.token, method, path, body, append(headers, "Prefer", "wait=0")...)
}

func (w *world) count(query string, args ...any) (n int) {
	w.Helper()
	if err := w.db.QueryRow(w.Context(), query, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

// everything is all that the database holds, as text.
func (w *world) everything() string {
	w.Helper()
	rows, err := w.db.Query(w.Context(), `SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'`)
	if err != nil {
		w.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.Fatal(err)
	}
	var all strings.Builder
	for _, table := range tables {
		var text string
		// when a token was last used is written by itself, a little later
		if err := w.db.QueryRow(w.Context(), fmt.Sprintf(`SELECT coalesce(string_agg((to_jsonb(t) - 'last_used_at')::text, E'\n' ORDER BY t::text), '') FROM %s t`, pgx.Identifier{table}.Sanitize())).Scan(&text); err != nil {
			w.Fatal(err)
		}
		all.WriteString(text)
	}
	return all.String()
}

func eve() object {
	return object{"name": "Eve", "org": "Acme", "email": "eve@visitor.test", "message": "Hello"}
}

const ask = "/v1/public/me/access-requests"

// submitted makes a request and gives its id.
func (w *world) submitted() string {
	w.Helper()
	a := w.call("", "POST", ask, eve())
	if a.status != 201 {
		w.Fatalf("%d %s", a.status, a.raw)
	}
	return a.text("request_id")
}

// settle plays the worker: the task of a receipt ends, or stands, so.
func (w *world) settle(receipt string, s task.State) {
	w.Helper()
	id, err := task.ParseID(receipt)
	if err != nil {
		w.Fatal(err)
	}
	stored, job := s, `NULL`
	if s == task.Retryable {
		stored = task.Pending
	}
	if s == task.Retryable || s == task.Running {
		w.exec(`INSERT INTO river_job (id, kind, state, attempt, max_attempts, args, errors, queue, attempted_at, scheduled_at)
			VALUES ((SELECT coalesce(max(id), 0) + 1 FROM river_job), $1, $2, 1, 8, '{}', ARRAY['{"at":"2026-01-01T00:00:00Z","attempt":1,"error":"x"}'::jsonb], 'notify', now(), now())`, id.Subscriber, string(s))
		job = `(SELECT max(id) FROM river_job)`
	}
	w.exec(`INSERT INTO tasks (event_id, subscriber, owner_id, subject, state) SELECT id, $2, owner_id, subject, 'pending' FROM events WHERE id = $1 ON CONFLICT DO NOTHING`, id.Event, id.Subscriber)
	w.exec(`UPDATE tasks SET state = $3, job_id = `+job+`, finished_at = CASE WHEN $3 IN ('pending', 'running') THEN NULL ELSE now() END WHERE event_id = $1 AND subscriber = $2`, id.Event, id.Subscriber, string(stored))
	w.exec(`DELETE FROM event_queue WHERE event_id = $1`, id.Event)
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.call("", "POST", ask, object{
		"name": "  Eve\r\nBcc: you@a.test\u202e ", "org": "\u2028", "email": " Eve@Bücher.Test ", "message": "\r\n<a href=https://b.test>Reset</a>\r\rline\u0007\u2028end\n", "website": "",
	})
	if a.status != 201 || len(a.body) != 2 || a.text("message") != "Submitted" || a.text("request_id") == "" {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	got := w.mine("GET", "/v1/access-requests/"+a.text("request_id"), nil)
	for field, want := range map[string]any{
		"name": "Eve  Bcc: you@a.test", "org": nil, "email": "Eve@xn--bcher-kva.test", "message": "<a href=https://b.test>Reset</a>\n\nline \nend",
		"state": "open", "mail": nil, "code_id": nil, "notify.state": "pending", "notify.sentence": task.Say(task.OwnerNotify, task.Pending), "notify.job_id": a.text("request_id") + ":owner.notify",
	} {
		if got.at("request."+field) != want {
			t.Errorf("%s: %q, want %q", field, got.at("request."+field), want)
		}
	}
	var data string
	if err := w.db.QueryRow(t.Context(), `SELECT data::text FROM events WHERE type = 'access_request.submitted' AND owner_id = $1 AND subject = $2`, w.me.ID, a.text("request_id")).Scan(&data); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(data, "bcher") || strings.Contains(data, "Reset") || !strings.Contains(data, "Eve") {
		t.Errorf("the event's data: %s", data)
	}
}

// A refused request leaves nothing (R13).
func TestSubmitRefusals(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, c := range []struct {
		change object
		status int
		code   string
		field  string
	}{
		{object{"email": "x@evil.test> <y"}, 400, "invalid_request", "email"},
		{object{"email": "you@a.test>, <evil@b.test"}, 400, "invalid_request", "email"},
		{object{"email": "Eve <x@b.test>"}, 400, "invalid_request", "email"},
		{object{"email": "a@b.test,c@d.test"}, 400, "invalid_request", "email"},
		{object{"email": "x@b.test\r\nBcc: y@b.test"}, 400, "invalid_request", "email"},
		{object{"email": "x"}, 400, "invalid_request", "email"},
		{object{"email": ""}, 400, "too_short", "email"},
		{object{"name": ""}, 400, "too_short", "name"},
		{object{"name": " \r\n\u200b"}, 400, "invalid_request", "name"},
		{object{"name": strings.Repeat("x", 201)}, 400, "too_long", "name"},
		{object{"org": strings.Repeat("x", 201)}, 400, "too_long", "org"},
		{object{"message": "\n\n"}, 400, "invalid_request", "message"},
		{object{"message": strings.Repeat("x", 10_001)}, 400, "too_long", "message"},
		{object{"message": "\x00"}, 400, "invalid_text", "message"},
		{object{"state": "approved"}, 400, "unknown_field", "state"},
		{object{"website": "https://b.test"}, 422, "website_filled", ""},
	} {
		body := eve()
		for k, v := range c.change {
			body[k] = v
		}
		a := w.call("", "POST", ask, body, "Idempotency-Key", "k")
		if a.status != c.status || a.text("code") != c.code || c.field != "" && !strings.Contains(a.raw, `"field":"`+c.field+`"`) {
			t.Errorf("%v: %d %s", c.change, a.status, a.raw)
		}
	}
	if a := w.call("", "POST", "/v1/public/nobody/access-requests", eve()); a.status != 404 || a.text("code") != "not_found" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	for _, table := range []string{"access_requests", "event_queue", "idempotency_keys", "rate_limits", "tasks", "river_job"} {
		if n := w.count(`SELECT count(*) FROM ` + table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
	// the longest that is taken
	long := object{"name": strings.Repeat("𝔵", 200), "org": strings.Repeat("ü", 200), "email": "x@b.test", "message": strings.Repeat("\u0001\u00e9", 5000)}
	if a := w.call("", "POST", ask, long); a.status != 201 {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestSubmitLimit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 130 {
		all.Go(func() {
			a := w.call("", "POST", ask, eve())
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
			if a.status == 429 && (a.text("code") != "rate_limited" || a.header.Get("Retry-After") == "") {
				t.Errorf("%v %s", a.header, a.raw)
			}
		})
	}
	all.Wait()
	if statuses[201] != 120 || statuses[429] != 10 {
		t.Errorf("%v", statuses)
	}
	if requests, events := w.count(`SELECT count(*) FROM access_requests`), w.count(`SELECT count(*) FROM events WHERE type = 'access_request.submitted'`); requests != 120 || events != 120 {
		t.Errorf("%d requests, %d events", requests, events)
	}
}

func TestSubmitRepeated(t *testing.T) {
	t.Parallel()
	w := setup(t)
	first := w.call("", "POST", ask, eve(), "Idempotency-Key", "k")
	again := w.call("", "POST", ask, eve(), "Idempotency-Key", "k")
	if first.status != 201 || again.raw != first.raw || again.status != 201 || w.count(`SELECT count(*) FROM access_requests`) != 1 {
		t.Errorf("%s\n%s", first.raw, again.raw)
	}
	changed := eve()
	changed["name"] = "Mallory"
	if a := w.call("", "POST", ask, changed, "Idempotency-Key", "k"); a.status != 422 || a.text("code") != "idempotency_key_reused" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var ids []string
	for range 5 {
		ids = append(ids, w.submitted())
	}
	slices.Reverse(ids)
	w.mine("POST", "/v1/access-requests/"+ids[0]+"/approve", nil)
	w.mine("POST", "/v1/access-requests/"+ids[1]+"/close", nil)
	w.exec(`DELETE FROM event_queue`)
	w.exec(`INSERT INTO tasks (event_id, subscriber, owner_id, subject, state) SELECT id, 'owner.notify', owner_id, subject, 'cancelled' FROM events WHERE subject = $1 AND type = 'access_request.submitted'`, ids[2])
	page := w.mine("GET", "/v1/access-requests?limit=3", nil)
	items, _ := page.at("items").([]any)
	if len(items) != 3 || page.at("total") != 5.0 || page.text("next_cursor") == "" {
		t.Fatal(page.raw)
	}
	for i, want := range []struct{ state, mail, notify any }{{"approved", "sending", nil}, {"closed", nil, nil}, {"open", nil, "cancelled"}} {
		item := answer{body: items[i].(object)}
		if item.text("id") != ids[i] || item.at("state") != want.state || item.at("mail.state") != want.mail || item.at("notify.state") != want.notify {
			t.Errorf("%d: %v", i, item.body)
		}
	}
	rest := w.mine("GET", "/v1/access-requests?limit=3&cursor="+page.text("next_cursor"), nil)
	if items, _ := rest.at("items").([]any); len(items) != 2 || items[1].(object)["id"] != ids[4] || rest.at("next_cursor") != nil {
		t.Error(rest.raw)
	}
	for state, n := range map[string]float64{"open": 3, "approved": 1, "replied": 0, "closed": 1} {
		if a := w.mine("GET", "/v1/access-requests?state="+state, nil); a.at("total") != n || strings.Count(a.raw, `"state":"`+state+`"`) < int(n) {
			t.Errorf("%s: %s", state, a.raw)
		}
	}
	for _, path := range []string{"/v1/access-requests?cursor=x", "/v1/access-requests?state=any", "/v1/codes?cursor=x"} {
		if a := w.mine("GET", path, nil); a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := w.call(w.other, "GET", "/v1/access-requests", nil); a.at("total") != 0.0 {
		t.Error(a.raw)
	}
}

func TestAnotherOwners(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted()
	code := w.mine("POST", "/v1/codes", object{"label": "x"}).text("details.id")
	for _, c := range [][2]string{
		{"GET", "/v1/access-requests/" + id},
		{"POST", "/v1/access-requests/" + id + "/approve"},
		{"POST", "/v1/access-requests/" + id + "/close"},
		{"POST", "/v1/access-requests/" + id + "/resend-mail"},
		{"POST", "/v1/codes/" + code + "/revoke"},
		{"POST", "/v1/access-requests/" + uuid.NewString() + "/approve"},
		{"POST", "/v1/access-requests/junk/approve"},
	} {
		for _, world := range []*world{w, w.with(func(d *access.Deps) { d.Mail = false })} {
			if a := world.call(w.other, c[0], c[1], nil); a.status != 404 || a.text("code") != "not_found" {
				t.Errorf("%s: %d %s", c[1], a.status, a.raw)
			}
		}
		if a := w.call("", c[0], c[1], nil); a.status != 401 {
			t.Errorf("%s, by nobody: %d %s", c[1], a.status, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM access_requests WHERE state = 'open'`); n != 1 {
		t.Error("another owner changed it")
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted()
	for range 2 {
		if a := w.mine("POST", "/v1/access-requests/"+id+"/close", nil); a.status != 200 || a.at("request.state") != "closed" || a.at("request.closed_at") == nil {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'access_request.closed' AND subject = $1`, id); n != 1 {
		t.Errorf("%d events", n)
	}
	if a := w.mine("POST", "/v1/access-requests/"+id+"/approve", nil); a.status != 409 || a.text("code") != "request_closed" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.mine("POST", "/v1/access-requests/"+id+"/resend-mail", nil); a.status != 409 || a.text("code") != "request_not_approved" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	approved := w.submitted()
	w.mine("POST", "/v1/access-requests/"+approved+"/approve", nil)
	if a := w.mine("POST", "/v1/access-requests/"+approved+"/close", nil); a.status != 409 || a.text("code") != "request_approved" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if n := w.count(`SELECT count(*) FROM codes`); n != 1 {
		t.Errorf("%d codes", n)
	}
}

func TestApprove(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted()
	path := "/v1/access-requests/" + id + "/approve"
	for name, change := range map[string]func(*access.Deps){
		"mail_not_configured":       func(d *access.Deps) { d.Mail = false },
		"keys_not_configured":       func(d *access.Deps) { d.Keys = secret.Keys{} },
		"public_url_not_configured": func(d *access.Deps) { d.PublicURL = "" },
	} {
		if a := w.with(change).mine("POST", path, nil); a.status != 409 || a.text("code") != name {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	for _, body := range []object{
		{"expires_at": time.Now().Add(-time.Second)}, {"member_limit": 0}, {"booking_quota": -1}, {"label": strings.Repeat("x", 201)}, {"code": "0000-0000-0000-0000"},
	} {
		if a := w.mine("POST", path, body); a.status != 400 {
			t.Errorf("%v: %d %s", body, a.status, a.raw)
		}
	}
	if n := w.count(`SELECT (SELECT count(*) FROM codes) + (SELECT count(*) FROM events WHERE type = 'access_request.approved') + (SELECT count(*) FROM access_requests WHERE state <> 'open')`); n != 0 {
		t.Fatal("a refused approval left something")
	}

	began := time.Now()
	first := w.call(w.token, "POST", path, object{"expires_at": "2999-01-02T03:04:05Z", "member_limit": 3, "booking_quota": 0}, "Prefer", "wait=1")
	code := first.text("code")
	if first.status != 200 || !regexp.MustCompile(`^[0-9A-Z]{4}(-[0-9A-Z]{4}){3}$`).MatchString(code) || first.text("link") != publicURL+"/@me/code?code="+code ||
		first.at("mail.state") != "sending" || first.text("sentence") != task.Say(task.ApprovalMail, task.Pending) ||
		first.at("wait.ended") != "timeout" || first.at("wait.asked_ms") != 1000.0 || time.Since(began) < time.Second {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	got := w.mine("GET", "/v1/access-requests/"+id, nil)
	if got.text("request.state") != "approved" || got.text("request.mail.job_id") != first.text("mail.job_id") || got.at("request.code_id") != first.at("code_id") || strings.Contains(got.raw, code) {
		t.Error(got.raw)
	}
	list := w.mine("GET", "/v1/codes", nil)
	item := answer{body: list.at("items").([]any)[0].(object)}
	if item.text("label") != "Eve" || item.text("hint") != code[15:] || item.at("member_limit") != 3.0 || item.at("booking_quota") != 0.0 || item.text("expires_at") != "2999-01-02T03:04:05Z" ||
		item.text("state") != "active" || item.at("members") != 0.0 || item.text("request_id") != id || strings.Contains(list.raw, code) {
		t.Error(list.raw)
	}
	if all := w.everything(); strings.Contains(all, code) || strings.Contains(all, strings.ReplaceAll(code, "-", "")) {
		t.Error("the database holds the code")
	}

	// again, with other terms, by another installation of the same keys: the first
	for _, world := range []*world{w, w.with(func(d *access.Deps) { d.Keys = keys(t, "ba") }), w.with(func(d *access.Deps) { d.Mail = false })} {
		again := world.mine("POST", path, object{"label": "Mallory", "member_limit": 9}, "Idempotency-Key", "k")
		if again.status == 422 {
			again = world.mine("POST", path, object{"label": "Mallory", "member_limit": 9})
		}
		if again.status != 200 || again.text("code") != code || again.at("mail.job_id") != first.at("mail.job_id") || again.at("code_id") != first.at("code_id") || again.at("terms_ignored") != true {
			t.Errorf("%d %s", again.status, again.raw)
		}
	}
	// what it asks for beside is said, and what it has or isn't asked is not
	for name, c := range map[string]struct {
		body    object
		ignored any
	}{
		"nothing": {object{}, nil}, "the same": {object{"label": " Eve ", "expires_at": "2999-01-02T04:04:05+01:00", "member_limit": 3, "booking_quota": 0}, nil},
		"a label": {object{"label": "Eva"}, true}, "an end": {object{"expires_at": "2999-01-02T03:04:06Z"}, true}, "a limit": {object{"member_limit": 2}, true}, "a quota": {object{"booking_quota": 1}, true},
	} {
		if a := w.mine("POST", path, c.body); a.status != 200 || a.at("terms_ignored") != c.ignored {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	lost := w.with(func(d *access.Deps) { d.Keys = keys(t, "b") })
	if a := lost.mine("POST", path, nil); a.status != 409 || a.text("code") != "code_key_gone" {
		t.Errorf("without the key: %d %s", a.status, a.raw)
	}
	// a repetition tells what it can
	if a := lost.mine("POST", path, object{"label": "Mallory", "member_limit": 9}, "Idempotency-Key", "k"); a.status != 200 || a.at("code") != nil || a.at("link") != nil || a.at("mail.job_id") != first.at("mail.job_id") {
		t.Errorf("without the key, repeated: %d %s", a.status, a.raw)
	}
	if codes, events := w.count(`SELECT count(*) FROM codes`), w.count(`SELECT count(*) FROM events WHERE type = 'access_request.approved'`); codes != 1 || events != 1 {
		t.Errorf("%d codes, %d events", codes, events)
	}
}

// However many approve at once, under keys and without, there is one code.
func TestApprovedAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	path := "/v1/access-requests/" + w.submitted() + "/approve"
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for i := range 40 {
		all.Go(func() {
			var headers []string
			if i%2 == 0 {
				headers = []string{"Idempotency-Key", fmt.Sprint("k", i%3)}
			}
			a := w.mine("POST", path, nil, headers...)
			mu.Lock()
			defer mu.Unlock()
			if a.status == 409 && a.text("code") == "idempotency_in_flight" {
				return
			}
			answers[fmt.Sprint(a.status, a.text("code"), a.text("mail.job_id"))]++
		})
	}
	all.Wait()
	if len(answers) != 1 {
		t.Errorf("%v", answers)
	}
	if codes, events := w.count(`SELECT count(*) FROM codes`), w.count(`SELECT count(*) FROM events WHERE type = 'access_request.approved'`); codes != 1 || events != 1 {
		t.Errorf("%d codes, %d events", codes, events)
	}
}

// claims are the words that only a completed task may be spoken of with.
var claims = regexp.MustCompile(`(?i)\b(sent|told|mailed|invited|notified|informed|delivered)\b`)

// In every state of its task, every answer about the mail says what is so (R15),
// and the request's row says it when the task is no longer kept.
func TestWhatIsSaidOfTheMail(t *testing.T) {
	t.Parallel()
	w := setup(t)
	server := &op.Server{}
	caller := auth.Caller{Kind: auth.Owner, OwnerID: w.me.ID, Handle: "me", Scopes: []string{"*"}}
	for _, first := range []bool{true, false} {
		for _, state := range task.States() {
			id := w.submitted()
			path := "/v1/access-requests/" + id
			a := w.mine("POST", path+"/approve", nil)
			code, replied := a.text("code"), false
			if !first {
				w.settle(a.text("mail.job_id"), task.Completed)
				if a = w.mine("POST", path+"/resend-mail", nil); a.status != 200 || a.text("code") != code {
					t.Fatalf("%d %s", a.status, a.raw)
				}
				replied = true
			}
			if claims.MatchString(a.text("sentence")) || a.text("mail.state") != "sending" {
				t.Errorf("at first: %s", a.raw)
			}
			receipt := a.text("mail.job_id")
			if state != task.Pending {
				w.settle(receipt, state)
			}
			w.settle(id+":owner.notify", state)
			want := task.MailOf(task.ID{}, state).State
			done := state == task.Completed
			look := func(what string, got answer, mail, sentence string) {
				t.Helper()
				if got.status != 200 || got.text(mail+".state") != want || got.text(mail+".job_id") != receipt || claims.MatchString(got.text(sentence)) != done {
					t.Errorf("%s, %s: %d %s", state, what, got.status, got.raw)
				}
			}
			again := w.mine("POST", path+"/approve", nil)
			look("approving again", again, "mail", "sentence")
			if again.text("sentence") != task.Say(task.ApprovalMail, state) || again.text("code") != code {
				t.Errorf("%s: %s", state, again.raw)
			}
			waited := w.call(w.token, "POST", path+"/approve", nil, "Prefer", "wait=1")
			look("approving again, with a wait", waited, "mail", "sentence")
			if ended := waited.at("wait.ended"); (ended == "observed") != state.Terminal() {
				t.Errorf("%s: the wait ended as %v", state, ended)
			}
			res, err := server.Call(t.Context(), access.MailAnswer(w.deps), caller, json.RawMessage(`{"id":"`+receipt+`"}`), op.CallInfo{})
			later := answer{status: 200, raw: string(res.JSON)}
			if err != nil || json.Unmarshal(res.JSON, &later.body) != nil {
				t.Error(err, later.raw)
			}
			look("the task's answer", later, "mail", "sentence")
			if pending := res.Value.(access.Approval).PendingReceipt(); (pending == "") != state.Terminal() {
				t.Errorf("%s: pending receipt %q", state, pending)
			}
			get := func() answer { return w.mine("GET", path, nil) }
			look("reading", get(), "request.mail", "request.mail.sentence")
			if n := get(); n.text("request.notify.state") != string(state) || claims.MatchString(n.text("request.notify.sentence")) != (done || state == task.Cancelled && claims.MatchString(task.Say(task.OwnerNotify, state))) {
				t.Errorf("%s: %s", state, n.raw)
			}
			if s := get().text("request.state"); (s == "replied") != (replied || done) {
				t.Errorf("%s: the request is %s", state, s)
			}
			listed := answer{status: 200, body: w.mine("GET", "/v1/access-requests?limit=1", nil).at("items").([]any)[0].(object)}
			look("listing", listed, "mail", "mail.sentence")
			resent := w.mine("POST", path+"/resend-mail", nil)
			switch {
			case !state.Terminal():
				if resent.status != 409 || resent.text("code") != "mail_pending" {
					t.Errorf("%s: %d %s", state, resent.status, resent.raw)
				}
				continue
			case resent.status != 200 || resent.text("mail.state") != "sending" || claims.MatchString(resent.text("sentence")) || resent.text("mail.job_id") == receipt:
				t.Errorf("%s, another mail: %d %s", state, resent.status, resent.raw)
			}
			receipt = resent.text("mail.job_id")
			w.settle(receipt, state)
			// an earlier mail's task that changes now says nothing of this one
			w.exec(`UPDATE tasks SET state = 'pending' WHERE event_id::text || ':' || subscriber = $1`, a.text("mail.job_id"))
			w.exec(`DELETE FROM tasks WHERE subject = $1`, id)
			w.exec(`DELETE FROM events WHERE subject = $1`, id)
			forgotten := get()
			look("without its task", forgotten, "request.mail", "request.mail.sentence")
			if forgotten.at("request.notify") != nil {
				t.Error(forgotten.raw)
			}
			look("approving again, without its task", w.mine("POST", path+"/approve", nil), "mail", "sentence")
		}
	}
}

func TestResend(t *testing.T) {
	t.Parallel()
	w := setup(t)
	id := w.submitted()
	path := "/v1/access-requests/" + id
	refused := func(w *world, code string) {
		t.Helper()
		if a := w.mine("POST", path+"/resend-mail", nil); a.status != 409 || a.text("code") != code {
			t.Errorf("%d %s, want %s", a.status, a.raw, code)
		}
	}
	refused(w, "request_not_approved")
	a := w.mine("POST", path+"/approve", nil)
	refused(w, "mail_pending")
	w.settle(a.text("mail.job_id"), task.Discarded)
	refused(w.with(func(d *access.Deps) { d.Mail = false }), "mail_not_configured")
	refused(w.with(func(d *access.Deps) { d.Keys = keys(t, "b") }), "code_key_gone")
	w.exec(`UPDATE codes SET expires_at = now()`)
	refused(w, "code_expired")
	w.exec(`UPDATE codes SET expires_at = NULL`)
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 10 {
		all.Go(func() {
			a := w.mine("POST", path+"/resend-mail", nil, "Idempotency-Key", "again")
			b := w.mine("POST", path+"/resend-mail", nil)
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(a.status)+a.text("mail.job_id")]++
			answers[b.text("code")]++
		})
	}
	all.Wait()
	// ten times the same mail, or ten times refused because of another's; the
	// others refused, or one of them that mail
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'access_request.mail_requested'`); n != 1 {
		t.Errorf("%d mails asked for: %v", n, answers)
	}
	w.mine("POST", "/v1/codes/"+a.text("code_id")+"/revoke", nil)
	w.exec(`UPDATE access_requests SET mail_state = 'failed'`)
	refused(w, "code_revoked")
}

func TestCodes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if a := w.with(func(d *access.Deps) { d.Keys = secret.Keys{} }).mine("POST", "/v1/codes", object{"label": "x"}); a.status != 409 || a.text("code") != "keys_not_configured" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	for _, body := range []object{{}, {"label": ""}, {"label": " \u200b"}, {"label": "x", "expires_at": "2020-01-01T00:00:00Z"}, {"label": "x", "member_limit": 0}} {
		if a := w.mine("POST", "/v1/codes", body); a.status != 400 {
			t.Errorf("%v: %d %s", body, a.status, a.raw)
		}
	}
	if n := w.count(`SELECT count(*) FROM codes`); n != 0 {
		t.Fatalf("%d codes of refused requests", n)
	}
	// no mail is needed
	first := w.with(func(d *access.Deps) { d.Mail = false }).mine("POST", "/v1/codes", object{"label": "Book club", "member_limit": 12}, "Idempotency-Key", "k")
	code := first.text("code")
	if first.status != 201 || first.text("link") != publicURL+"/@me/code?code="+code || first.text("details.hint") != code[15:] || first.text("details.state") != "active" || first.at("details.member_limit") != 12.0 {
		t.Fatalf("%d %s", first.status, first.raw)
	}
	if again := w.mine("POST", "/v1/codes", object{"label": "Book club", "member_limit": 12}, "Idempotency-Key", "k"); again.status != 201 || again.raw != first.raw {
		t.Errorf("repeated: %d %s", again.status, again.raw)
	}
	if strings.Contains(w.everything(), code) {
		t.Error("the database holds the code")
	}
	for range 3 {
		w.mine("POST", "/v1/codes", object{"label": "more"})
	}
	page := w.mine("GET", "/v1/codes?limit=3", nil)
	rest := w.mine("GET", "/v1/codes?limit=3&cursor="+page.text("next_cursor"), nil)
	if items, _ := rest.at("items").([]any); page.at("total") != 4.0 || len(items) != 1 || items[0].(object)["id"] != first.at("details.id") || rest.at("next_cursor") != nil {
		t.Errorf("%s\n%s", page.raw, rest.raw)
	}
	for range 2 {
		if a := w.mine("POST", "/v1/codes/"+first.text("details.id")+"/revoke", nil); a.status != 200 || a.text("details.state") != "revoked" || a.at("details.revoked_at") == nil {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
	if made, revoked := w.count(`SELECT count(*) FROM events WHERE type = 'code.created'`), w.count(`SELECT count(*) FROM events WHERE type = 'code.revoked'`); made != 4 || revoked != 1 {
		t.Errorf("%d and %d events", made, revoked)
	}
}

const redeem = "/v1/public/me/codes/redeem"

func TestRedeem(t *testing.T) {
	t.Parallel()
	w := setup(t)
	made := w.mine("POST", "/v1/codes", object{"label": "secret label", "expires_at": "2999-01-01T00:00:00Z"})
	code := made.text("code")
	a := w.call("", "POST", redeem, object{"code": strings.ToLower(strings.ReplaceAll(code, "-", " "))})
	session := a.text("session")
	if a.status != 200 || !strings.HasPrefix(session, "smv_") || a.text("handle") != "me" || a.text("owner") != "Name of me" || strings.Contains(a.raw, "label") {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	cookie := (&http.Response{Header: a.header}).Cookies()[0]
	if cookie.Name != "sm_visitor" || cookie.Value != session || cookie.Path != "/" || !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteLaxMode || cookie.Domain != "" ||
		time.Duration(cookie.MaxAge)*time.Second < auth.VisitorLife-time.Minute {
		t.Errorf("%v", cookie)
	}
	if ends, err := time.Parse(time.RFC3339, a.text("expires_at")); err != nil || time.Until(ends) > auth.VisitorLife || time.Until(ends) < auth.VisitorLife-time.Minute {
		t.Errorf("%v, %v", ends, err)
	}
	plain := w.with(func(d *access.Deps) { d.HTTPS = false }).call(session, "POST", redeem, object{"code": code})
	if c := (&http.Response{Header: plain.header}).Cookies()[0]; c.Secure || c.Value != session {
		t.Errorf("%v", c)
	}
	members := func() any {
		return answer{body: w.mine("GET", "/v1/codes", nil).at("items").([]any)[0].(object)}.at("members")
	}
	// again by bearer and by cookie: the same session, no new member
	if b := w.call("", "POST", redeem, object{"code": code}, "Cookie", "sm_visitor="+session); b.text("session") != session || members() != 1.0 {
		t.Errorf("%s, %v members", b.raw, members())
	}
	// a session that has ended is none
	if b := w.call("", "POST", redeem, object{"code": code}, "Cookie", "sm_visitor=smv_"+strings.Repeat("A", 43)); b.status != 200 || b.text("session") == session || members() != 2.0 {
		t.Errorf("%d %s, %v members", b.status, b.raw, members())
	}
	if n := w.count(`SELECT count(*) FROM events WHERE type = 'code.redeemed'`); n != 2 {
		t.Errorf("%d events", n)
	}
	// a code that ends before the session
	w.exec(`UPDATE codes SET expires_at = now() + interval '1 hour'`)
	if b := w.call("", "POST", redeem, object{"code": code}); b.status != 200 {
		t.Error(b.raw)
	} else if ends, err := time.Parse(time.RFC3339, b.text("expires_at")); err != nil || time.Until(ends) > time.Hour {
		t.Errorf("%v, %v", ends, err)
	}
	if all := w.everything(); strings.Contains(all, session) || strings.Contains(all, session[4:]) {
		t.Error("the database holds the session")
	}
}

// However often the answer is lost, a repetition under its key is one member, who
// gets the one session; nobody else does.
func TestRedeemRepeated(t *testing.T) {
	t.Parallel()
	w := setup(t)
	code := w.mine("POST", "/v1/codes", object{"label": "x", "member_limit": 1}).text("code")
	key := []string{"Idempotency-Key", uuid.NewString()}
	var all sync.WaitGroup
	var mu sync.Mutex
	sessions := map[string]int{}
	for range 10 {
		all.Go(func() {
			a := w.call("", "POST", redeem, object{"code": code}, key...)
			mu.Lock()
			defer mu.Unlock()
			sessions[fmt.Sprint(a.status, " ", a.text("session"), " ", a.text("code"))]++
			if a.status == 200 && !strings.Contains(a.header.Get("Set-Cookie"), "sm_visitor="+a.text("session")+";") {
				t.Errorf("%v", a.header)
			}
		})
	}
	all.Wait()
	first := w.call("", "POST", redeem, object{"code": code}, key...)
	session := first.text("session")
	if len(sessions) != 1 || sessions["200 "+session+" "] != 10 {
		t.Fatalf("%v", sessions)
	}
	if m, g, e := w.count(`SELECT count(*) FROM visitor_sessions`), w.count(`SELECT count(*) FROM visitor_grants`), w.count(`SELECT count(*) FROM events WHERE type = 'code.redeemed'`); m != 1 || g != 1 || e != 1 {
		t.Errorf("%d sessions, %d grants, %d events", m, g, e)
	}
	// who has moved to another network meanwhile, or has the session already, is the same
	w.exec(`UPDATE idempotency_keys SET scope = replace(scope, 'from=', 'from=x')`)
	if a := w.call("", "POST", redeem, object{"code": code}, key...); a.text("session") != session {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(session, "POST", redeem, object{"code": code}, key...); a.text("session") != session {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// once the key that derives secrets is no longer the first
	rotated := w.with(func(d *access.Deps) { d.Keys = keys(t, "ba") })
	if a := rotated.call("", "POST", redeem, object{"code": code}, key...); a.text("session") != session {
		t.Errorf("after a rotation: %d %s", a.status, a.raw)
	}
	lost := w.with(func(d *access.Deps) { d.Keys = keys(t, "b") })
	if a := lost.call("", "POST", redeem, object{"code": code}, key...); a.status != 200 || a.at("session") != nil || a.header.Get("Set-Cookie") != "" {
		t.Errorf("without the key: %d %s", a.status, a.raw)
	}
	// another code under the key, another key, and one that may be guessed
	other := w.mine("POST", "/v1/codes", object{"label": "y"}).text("code")
	for name, c := range map[string]struct {
		code, key string
		status    int
		want      string
	}{
		"another code": {other, key[1], 422, "idempotency_key_reused"}, "another key": {code, uuid.NewString(), 409, "code_full"},
		"short": {other, "0123456789abcde", 400, "invalid_request"}, "wrong": {"0000-0000-0000-0000", uuid.NewString(), 403, "code_not_accepted"},
	} {
		if a := w.call("", "POST", redeem, object{"code": c.code}, "Idempotency-Key", c.key); a.status != c.status || a.text("code") != c.want || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	// the same key with another code from elsewhere is another session
	w.exec(`DELETE FROM idempotency_keys`)
	if a := w.call("", "POST", redeem, object{"code": other}, key...); a.status != 200 || a.text("session") == session || a.text("session") == "" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if n := w.count(`SELECT count(*) FROM rate_limits WHERE bucket = 'wrong_code'`); n != 1 {
		t.Errorf("wrong codes are counted %d times", n)
	}
	// a session that has ended begins anew, as a member, with this code alone
	w.exec(`DELETE FROM idempotency_keys`)
	w.call(session, "POST", redeem, object{"code": other})
	w.exec(`UPDATE visitor_sessions SET expires_at = now() - interval '1 second'`)
	if a := w.call("", "POST", redeem, object{"code": code}, key...); a.status != 200 || a.text("session") != session {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if n := w.count(`SELECT count(*) FROM visitor_grants g JOIN visitor_sessions v ON v.id_hash = g.session_hash WHERE v.expires_at > now()`); n != 1 {
		t.Errorf("%d grants go on", n)
	}
	if all := w.everything(); strings.Contains(all, session) || strings.Contains(all, session[4:]) {
		t.Error("the database holds the session")
	}
}

// Every code that isn't good here is refused in the same words, and leaves
// nothing but its count.
func TestRedeemRefusals(t *testing.T) {
	t.Parallel()
	w := setup(t)
	code := func(token string) (id, code string) {
		a := w.call(token, "POST", "/v1/codes", object{"label": "x"})
		return a.text("details.id"), a.text("code")
	}
	revokedID, revoked := code(w.token)
	w.mine("POST", "/v1/codes/"+revokedID+"/revoke", nil)
	expiredID, expired := code(w.token)
	w.exec(`UPDATE codes SET expires_at = now() WHERE id = $1`, expiredID)
	_, others := code(w.other)
	_, good := code(w.token)
	before := w.everything()
	var first answer
	for name, typed := range map[string]string{
		"unknown": "0000-0000-0000-0000", "malformed": "x", "long": strings.Repeat("7", 200), "odd": "\u0130\x01'; DROP", "revoked": revoked, "expired": expired,
		"another owner's": others, "almost": good[:18] + string(good[18]^1),
	} {
		a := w.call("", "POST", redeem, object{"code": typed})
		a.raw = regexp.MustCompile(`"instance":"[^"]*"`).ReplaceAllString(a.raw, "")
		if first.status == 0 {
			first = a
		}
		if a.status != 403 || a.text("code") != "code_not_accepted" || a.raw != first.raw || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	w.exec(`DELETE FROM rate_limits`)
	if after := w.everything(); after != before {
		t.Error("wrong codes left something")
	}
	if a := w.call("", "POST", "/v1/public/nobody/codes/redeem", object{"code": good}); a.status != 404 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// another owner's page refuses it, and that one takes its own
	if a := w.call("", "POST", "/v1/public/other/codes/redeem", object{"code": others}); a.status != 200 || a.text("handle") != "other" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestWrongCodesAreLimited(t *testing.T) {
	t.Parallel()
	w := setup(t)
	good := w.mine("POST", "/v1/codes", object{"label": "x"}).text("code")
	// right ones are not counted
	for range 35 {
		if a := w.call("", "POST", redeem, object{"code": good}); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 40 {
		all.Go(func() {
			a := w.call("", "POST", redeem, object{"code": "0000-0000-0000-0000"})
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	all.Wait()
	if statuses[403] != 30 || statuses[429] != 10 {
		t.Errorf("%v", statuses)
	}
	if a := w.call("", "POST", redeem, object{"code": good}); a.status != 429 || a.text("code") != "rate_limited" || a.header.Get("Retry-After") == "" {
		t.Errorf("after 30 wrong ones: %d %v %s", a.status, a.header, a.raw)
	}
	w.exec(`UPDATE rate_limits SET tat = tat - interval '10 minutes'`)
	if a := w.call("", "POST", redeem, object{"code": good}); a.status != 200 {
		t.Errorf("10 minutes later: %d %s", a.status, a.raw)
	}
}

// 100 redeem at once what takes 5: five do. The others learn that the code is
// right, and leave no session.
func TestMemberLimit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	made := w.mine("POST", "/v1/codes", object{"label": "x", "member_limit": 5})
	code := made.text("code")
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[string]int{}
	var sessions []string
	for range 100 {
		all.Go(func() {
			a := w.call("", "POST", redeem, object{"code": code})
			mu.Lock()
			defer mu.Unlock()
			statuses[fmt.Sprint(a.status, a.text("code"))]++
			if a.status == 200 {
				sessions = append(sessions, a.text("session"))
			}
		})
	}
	all.Wait()
	if statuses["200"] != 5 || statuses["409code_full"] != 95 {
		t.Fatalf("%v", statuses)
	}
	if s, g, e := w.count(`SELECT count(*) FROM visitor_sessions`), w.count(`SELECT count(*) FROM visitor_grants`), w.count(`SELECT count(*) FROM events WHERE type = 'code.redeemed'`); s != 5 || g != 5 || e != 5 {
		t.Errorf("%d sessions, %d grants, %d events", s, g, e)
	}
	// a member may come again, one whose session has ended makes room
	if a := w.call(sessions[0], "POST", redeem, object{"code": code}); a.status != 200 || a.text("session") != sessions[0] {
		t.Errorf("%d %s", a.status, a.raw)
	}
	w.exec(`UPDATE visitor_sessions SET expires_at = now() - interval '1 second' WHERE id_hash = (SELECT id_hash FROM visitor_sessions ORDER BY id_hash LIMIT 1)`)
	for _, want := range []int{200, 409} {
		if a := w.call("", "POST", redeem, object{"code": code}); a.status != want {
			t.Errorf("%d %s, want %d", a.status, a.raw, want)
		}
	}
	// somebody with a session of another code is a new member too
	session := w.call("", "POST", redeem, object{"code": w.mine("POST", "/v1/codes", object{"label": "y"}).text("code")}).text("session")
	if a := w.call(session, "POST", redeem, object{"code": code}); a.status != 409 || a.text("code") != "code_full" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}
