package webhooks_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"standmeet/functions/webhooks"
	"standmeet/shared/auth"
	"standmeet/shared/egress"
	"standmeet/shared/op"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
	"standmeet/shared/secret"
)

type world struct {
	*testing.T
	db        *pg.DB
	url       string
	me, other string
}

func setup(t *testing.T, keyed bool) *world {
	t.Helper()
	w := &world{T: t, db: pgtest.DB(t)}
	d := webhooks.Deps{DB: w.db, Egress: egress.Rules{}}
	if keyed {
		var err error
		if d.Keys, err = secret.ParseKeys(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), secret.MinKey))); err != nil {
			t.Fatal(err)
		}
	}
	store := &auth.Store{DB: w.db}
	t.Cleanup(func() { store.Flush(context.Background()) })
	cat := op.NewCatalog(webhooks.Create(d), webhooks.List(d), webhooks.EventTypes(d), webhooks.Get(d), webhooks.Update(d), webhooks.Delete(d),
		webhooks.RotateSecret(d), webhooks.SendTest(d), webhooks.Redeliver(d), webhooks.Deliveries(d))
	s := httptest.NewServer(cat.Handler(&op.Server{Authenticate: store.Authenticate}))
	t.Cleanup(s.Close)
	w.url = s.URL
	for handle, token := range map[string]*string{"me": &w.me, "other": &w.other} {
		if err := w.db.InTx(t.Context(), func(tx *pg.Tx) error {
			owner, err := auth.EnsureOwner(t.Context(), tx, auth.Profile{Handle: handle, Email: handle + "@example.test"})
			if err != nil {
				return err
			}
			_, *token, err = auth.CreateToken(t.Context(), tx, owner.ID, auth.Token{Name: "t", Scopes: []string{"webhooks:read", "webhooks:write"}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

type answer struct {
	status int
	body   map[string]any
	raw    string
}

func (a answer) at(path string) any {
	var v any = a.body
	for key := range strings.SplitSeq(path, ".") {
		in, _ := v.(map[string]any)
		v = in[key]
	}
	return v
}

func (a answer) text(path string) string { s, _ := a.at(path).(string); return s }

func (w *world) call(token, method, path, body string, headers ...string) (a answer) {
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Error(err)
		return a
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
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
	raw, _ := io.ReadAll(res.Body)
	a = answer{status: res.StatusCode, raw: string(raw)}
	if err := json.Unmarshal(raw, &a.body); err != nil {
		w.Errorf("%v: %s", err, raw)
	}
	return a
}

func (w *world) count(sql string) (n int) {
	w.Helper()
	if err := w.db.QueryRow(w.Context(), sql).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

const hook = `{"url": "https://example.com/hook", "event_types": ["booking.*", "code.created"], "description": "d"}`

func (w *world) create() answer {
	w.Helper()
	a := w.call(w.me, "POST", "/v1/webhooks", hook)
	if a.status != 201 {
		w.Fatalf("%d %s", a.status, a.raw)
	}
	return a
}

func TestTheLifeOfAWebhook(t *testing.T) {
	t.Parallel()
	w := setup(t, true)
	made := w.create()
	path := "/v1/webhooks/" + made.text("endpoint.id")
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.text("secret"), "whsec_"))
	if err != nil || len(key) != 32 || made.at("endpoint.enabled") != true || made.at("endpoint.ordered") != false {
		t.Errorf("%v %s", err, made.raw)
	}
	for _, where := range []string{path, "/v1/webhooks"} {
		if a := w.call(w.me, "GET", where, ""); a.status != 200 || strings.Contains(a.raw, "secret\"") || strings.Contains(a.raw, "whsec_") {
			t.Errorf("%s: %d %s", where, a.status, a.raw)
		}
	}
	// absent keeps, null clears
	a := w.call(w.me, "PATCH", path, `{"ordered": true}`)
	if a.text("endpoint.description") != "d" || a.at("endpoint.ordered") != true || len(a.at("endpoint.event_types").([]any)) != 2 || a.text("endpoint.url") != "https://example.com/hook" {
		t.Error(a.raw)
	}
	a = w.call(w.me, "PATCH", path, `{"description": null, "event_types": ["*"], "url": "https://EXAMPLE.com:443/other"}`)
	if a.text("endpoint.description") != "" || len(a.at("endpoint.event_types").([]any)) != 1 || a.text("endpoint.url") != "https://example.com/other" {
		t.Error(a.raw)
	}
	a = w.call(w.me, "PATCH", path, `{"enabled": false}`)
	if a.at("endpoint.enabled") != false || a.text("endpoint.disabled_reason") == "" || a.text("endpoint.disabled_at") == "" {
		t.Error(a.raw)
	}
	if b := w.call(w.me, "PATCH", path, `{"enabled": false}`); b.text("endpoint.disabled_at") != a.text("endpoint.disabled_at") {
		t.Error("disabled twice")
	}
	if a := w.call(w.me, "POST", path+"/send-test", ""); a.status != 409 || a.text("code") != "webhook_disabled" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(w.me, "PATCH", path, `{"enabled": true}`); a.at("endpoint.enabled") != true || a.at("endpoint.disabled_reason") != nil {
		t.Error(a.raw)
	}
	test := w.call(w.me, "POST", path+"/send-test", "")
	if test.status != 202 || test.text("queued.event_type") != "webhook.test" || !strings.HasSuffix(test.text("queued.job_id"), ":webhook.deliver") {
		t.Errorf("%d %s", test.status, test.raw)
	}
	log := w.call(w.me, "GET", path+"/deliveries", "")
	items, _ := log.at("items").([]any)
	if len(items) != 1 || items[0].(map[string]any)["state"] != "pending" || items[0].(map[string]any)["job_id"] != test.text("queued.job_id") {
		t.Error(log.raw)
	}
	for _, c := range []struct{ body, code string }{{`{}`, "missing_field"}, {`{"all": "pending"}`, "not_allowed"}, {`{"all": "held", "delivery_id": "` + test.text("queued.delivery_id") + `"}`, "missing_field"}} {
		if a := w.call(w.me, "POST", path+"/redeliver", c.body); a.status != 400 || !strings.Contains(a.raw, c.code) {
			t.Errorf("%s: %d %s", c.body, a.status, a.raw)
		}
	}
	if a := w.call(w.me, "GET", "/v1/webhooks/event-types", ""); a.status != 200 || !strings.Contains(a.raw, "booking.created") || strings.Contains(a.raw, "task.retry_requested") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	// another owner's is none
	for _, c := range []struct{ method, path, body string }{
		{"GET", path, ""}, {"PATCH", path, `{}`}, {"DELETE", path, ""}, {"GET", path + "/deliveries", ""}, {"POST", path + "/rotate-secret", ""}, {"POST", path + "/send-test", ""},
		{"POST", path + "/redeliver", `{"all": "held"}`}, {"POST", path + "/redeliver", `{"delivery_id": "` + test.text("queued.delivery_id") + `"}`},
	} {
		if a := w.call(w.other, c.method, c.path, c.body); a.status != 404 || a.text("code") != "not_found" {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.raw)
		}
	}
	if a := w.call(w.other, "GET", "/v1/webhooks", ""); a.at("total") != 0.0 {
		t.Error(a.raw)
	}
	if a := w.call(w.me, "DELETE", path, ""); a.status != 200 || a.at("deleted") != true {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := w.call(w.me, "GET", "/v1/webhooks", ""); a.at("total") != 0.0 {
		t.Error(a.raw)
	}
	if a := w.call(w.me, "GET", path+"/deliveries", ""); a.status != 200 || a.at("total") != 1.0 {
		t.Errorf("the log of a deleted one: %d %s", a.status, a.raw)
	}
}

// A repetition under the key shows the first answer, the secret with it; the
// database never does.
func TestSecretsUnderAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := setup(t, true)
	first := w.call(w.me, "POST", "/v1/webhooks", hook, "Idempotency-Key", "a")
	path := "/v1/webhooks/" + first.text("endpoint.id") + "/rotate-secret"
	rotated := w.call(w.me, "POST", path, "", "Idempotency-Key", "b")
	if rotated.status != 200 || rotated.text("secret") == first.text("secret") || rotated.text("endpoint.old_secret_until") == "" {
		t.Errorf("%d %s", rotated.status, rotated.raw)
	}
	if again := w.call(w.me, "POST", "/v1/webhooks", hook, "Idempotency-Key", "a"); again.raw != first.raw {
		t.Errorf("%s\n%s", again.raw, first.raw)
	}
	if again := w.call(w.me, "POST", path, "", "Idempotency-Key", "b"); again.raw != rotated.raw {
		t.Errorf("%s\n%s", again.raw, rotated.raw)
	}
	if n := w.count(`SELECT count(*) FROM webhook_endpoints`); n != 1 {
		t.Errorf("%d endpoints", n)
	}
	for _, s := range []answer{first, rotated} {
		plain := strings.TrimPrefix(s.text("secret"), "whsec_")
		if n := w.count(`SELECT count(*) FROM idempotency_keys WHERE committed::text LIKE '%` + plain + `%'`); n != 0 {
			t.Error("the secret is kept readable")
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, true)
	for _, c := range []struct{ body, field, code string }{
		{`{"url": "http://example.com", "event_types": ["*"]}`, "url", "url_https"},
		{`{"url": "https://127.0.0.1/", "event_types": ["*"]}`, "url", "address_loopback"},
		{`{"url": "https://[::ffff:10.0.0.1]/", "event_types": ["*"]}`, "url", "address_embedded"},
		{`{"url": "https://user:pw@example.com/", "event_types": ["*"]}`, "url", "url_credentials"},
		{`{"url": "https://example.com", "event_types": []}`, "event_types", "missing_field"},
		{`{"url": "https://example.com", "event_types": ["nothing.*"]}`, "event_types[0]", "unknown_event_type"},
		{`{"url": "https://example.com", "event_types": ["*", "tasks.bulk_requested"]}`, "event_types[1]", "unknown_event_type"},
	} {
		a := w.call(w.me, "POST", "/v1/webhooks", c.body)
		if a.status != 400 || !strings.Contains(a.raw, fmt.Sprintf("%q", c.field)) || !strings.Contains(a.raw, c.code) {
			t.Errorf("%s: %d %s", c.body, a.status, a.raw)
		}
	}
	if n := w.count(`SELECT (SELECT count(*) FROM webhook_endpoints) + (SELECT count(*) FROM events)`); n != 0 {
		t.Errorf("%d rows of what was refused", n)
	}
	path := "/v1/webhooks/" + w.create().text("endpoint.id")
	for _, body := range []string{`{"url": "https://localhost/"}`, `{"event_types": []}`, `{"event_types": null}`, `{"event_types": ["x"]}`} {
		if a := w.call(w.me, "PATCH", path, body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.raw)
		}
	}
	unkeyed := setup(t, false)
	if a := unkeyed.call(unkeyed.me, "POST", "/v1/webhooks", hook); a.status != 409 || a.text("code") != "keys_not_configured" {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestFiftyWebhooks(t *testing.T) {
	t.Parallel()
	w := setup(t, true)
	var made, refused int
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 7 {
				a := w.call(w.me, "POST", "/v1/webhooks", hook)
				mu.Lock()
				switch {
				case a.status == 201:
					made++
				case a.status == 409 && a.text("code") == "too_many_webhooks":
					refused++
				default:
					t.Errorf("%d %s", a.status, a.raw)
				}
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if made != 50 || refused != 6 {
		t.Errorf("%d made, %d refused", made, refused)
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		a := w.call(w.me, "GET", "/v1/webhooks?limit=20&cursor="+cursor, "")
		for _, i := range a.at("items").([]any) {
			seen[i.(map[string]any)["id"].(string)] = true
		}
		if cursor = a.text("next_cursor"); cursor == "" {
			break
		}
	}
	if len(seen) != 50 {
		t.Errorf("%d listed", len(seen))
	}
}
