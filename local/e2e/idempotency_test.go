package e2e

import (
	"strings"
	"sync"
	"testing"
)

func TestSameKeySameAnswer(t *testing.T) {
	t.Parallel()
	s := newPlainSite(t, "gateway,relay,workers")
	note, key := object{"genre": "wiki", "title": "Once", "body": "only once"}, "Idempotency-Key: k1"
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 50 {
		all.Go(func() {
			a := s.call("POST", "/v1/corpus", note, key)
			if a.status == 409 && a.text("code") == "idempotency_in_flight" {
				return
			}
			if a.status/100 != 2 || a.at("indexed") != true {
				t.Errorf("%d %s", a.status, a.raw)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[a.text("note.id")+" "+a.text("index_job_id")]++
		})
	}
	all.Wait()
	if len(answers) != 1 {
		t.Errorf("%d different answers: %v", len(answers), answers)
	}
	if n := s.count(`SELECT count(*) FROM notes`); n != 1 {
		t.Errorf("%d notes", n)
	}
	if a := s.call("POST", "/v1/corpus", object{"genre": "wiki", "title": "Other", "body": "y"}, key); a.status != 422 || a.text("code") != "idempotency_key_reused" {
		t.Errorf("another body: %d %s", a.status, a.raw)
	}
	first := s.must("POST", "/v1/corpus", note, key)
	if a := s.stranger("else").must("POST", "/v1/corpus", note, key); a.text("note.id") == first.text("note.id") {
		t.Error("another owner's key gave this owner's note")
	}
	id := first.text("note.id")
	if a := s.must("PATCH", "/v1/corpus/"+id, object{"body": "z"}, key); a.at("note.version") != 2.0 {
		t.Errorf("the key of another operation: %s", a.raw)
	}
}

func TestFailedTryRunsAfresh(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	const key = "Idempotency-Key: again"
	s.create(object{"genre": "wiki", "title": "Taken", "body": "x"})
	child := object{"genre": "wiki", "title": "Taken", "body": "y"}
	if a := s.call("POST", "/v1/corpus", child, key); a.status != 409 || a.text("code") != "sibling_name_taken" {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	if n := s.count(`SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d keys of a request that failed", n)
	}
	if _, err := s.db.Exec(t.Context(), `UPDATE notes SET title = 'Gone', title_key = 'gone', slug = 'gone', path = 'gone'`); err != nil {
		t.Fatal(err)
	}
	s.must("POST", "/v1/corpus", child, key)
}

// keyed is a write under a key.
type keyed struct {
	name, method, path string
	body               any
	// other is another body: under the same key it is refused
	other any
	// once counts what it may do once only
	once  string
	about []any
	// check looks at the answer of a repetition
	check func(a answer) bool
}

func (k keyed) key() string { return "Idempotency-Key: " + k.name }

func (k keyed) repeats(s *site, times int) (a answer) {
	s.Helper()
	for range times {
		a = s.call(k.method, k.path, k.body, k.key())
		if a.err != nil || a.status/100 != 2 || !k.check(a) {
			s.Errorf("%s, repeated: %d %v %s", k.name, a.status, a.err, a.raw)
		}
	}
	if n := s.count(k.once, k.about...); n != 1 {
		s.Errorf("%s happened %d times", k.name, n)
	}
	if k.other != nil {
		if a := s.call(k.method, k.path, k.other, k.key()); a.status != 422 || a.text("code") != "idempotency_key_reused" {
			s.Errorf("%s with another body: %d %s", k.name, a.status, a.raw)
		}
	}
	return a
}

// The gateway dies after the commits and before their answers: the same requests
// under the same keys get the first ones' notes, tasks and receipts, and nothing
// is done twice. With every operation whose answer waits.
func TestKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gateway, relay := s.start("gateway"), s.start("relay")
	exec := func(sql string, args ...any) {
		t.Helper()
		if tag, err := s.db.Exec(t.Context(), sql, args...); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %v, %v", sql, tag, err)
		}
	}
	const now = "Prefer: wait=0"
	id := func(title string) string {
		return s.create(object{"genre": "wiki", "title": title, "body": "x"}, now).text("note.id")
	}
	updated, deleted, restored := id("updated"), id("deleted"), id("restored")
	s.must("DELETE", "/v1/corpus/"+restored, nil, now)
	raw := s.create(object{"genre": "raw", "title": "promoted", "body": "x"}, now).text("note.id")
	// a mail that a worker is handing over, as far as anybody knows
	mail := s.must("POST", "/v1/mail/send-test", object{}, now).text("mail.job_id")
	s.eventually("fan-out", func() bool { return s.count(`SELECT count(*) FROM event_queue`) == 0 })
	relay.stop()
	exec(`UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{gone}' WHERE kind = 'mail.test'`)
	exec(`UPDATE tasks SET state = 'running' WHERE subscriber = 'mail.test'`)
	aside := strings.Split(s.create(object{"genre": "raw", "body": "set aside"}, now).text("index_job_id"), ":")[0]
	exec(`UPDATE event_queue SET attempts = 5, poisoned_at = now(), last_error = 'x' WHERE event_id = $1`, aside)

	receipts := map[string]string{}
	indexed := func(name string) func(a answer) bool {
		return func(a answer) bool {
			same := receipts[name] == "" || receipts[name] == a.text("index_job_id")
			receipts[name] = a.text("index_job_id")
			return same && a.at("indexed") == true && s.count(`SELECT count(*) FROM tasks WHERE event_id::text || ':corpus.index' = $1`, a.text("index_job_id")) == 1
		}
	}
	const changes = `SELECT count(*) FROM events WHERE type = 'corpus.note.changed' AND subject = $1 AND data->>'change' = $2`
	all := []keyed{
		{
			name: "create", method: "POST", path: "/v1/corpus", body: object{"genre": "raw", "body": "written once"}, other: object{"genre": "raw", "body": "twice"},
			once: `SELECT count(*) FROM notes WHERE body = 'written once'`, check: indexed("create"),
		},
		{
			name: "update", method: "PATCH", path: "/v1/corpus/" + updated, body: object{"body": "changed once"}, other: object{"body": "changed twice"},
			once: changes, about: []any{updated, "updated"}, check: func(a answer) bool { return indexed("update")(a) && a.at("note.version") == 2.0 },
		},
		{
			name: "delete", method: "DELETE", path: "/v1/corpus/" + deleted,
			once: changes, about: []any{deleted, "deleted"}, check: indexed("delete"),
		},
		{
			name: "restore", method: "POST", path: "/v1/corpus/" + restored + "/restore", body: object{},
			once: changes, about: []any{restored, "restored"}, check: indexed("restore"),
		},
		{
			name: "promote", method: "POST", path: "/v1/corpus/" + raw + "/promote", body: object{"title": "Promoted"}, other: object{"title": "Else"},
			once: `SELECT count(*) FROM notes WHERE promoted_from = $1`, about: []any{raw},
			check: func(a answer) bool {
				return indexed("promote")(a) && s.count(`SELECT count(*) FROM notes WHERE promoted_from = $1 AND id = $2`, raw, a.text("note.id")) == 1
			},
		},
		{
			name: "mail", method: "POST", path: "/v1/mail/send-test", body: object{},
			once: `SELECT count(*) FROM events WHERE type = 'mail.test_requested' AND id::text || ':mail.test' <> $1`, about: []any{mail},
			check: func(a answer) bool { return a.text("mail.state") == "sent" && a.text("mail.job_id") != mail },
		},
		{
			name: "cancel", method: "POST", path: "/v1/tasks/cancel", body: object{"id": mail}, other: object{"id": mail + "x"},
			once: `SELECT count(*) FROM events WHERE type = 'task.cancel_requested' AND subject = $1`, about: []any{mail},
			check: func(a answer) bool {
				// asked to stop, it has stopped or not
				return a.text("task.id") == mail && (a.text("task.state") == "running" && a.at("task.cancel_requested") == true || a.text("task.state") == "cancelled")
			},
		},
		{
			name: "requeue", method: "POST", path: "/v1/events/" + aside + "/requeue", body: object{},
			once: `SELECT count(*) FROM tasks WHERE event_id = $1`, about: []any{aside},
			check: func(a answer) bool { return a.text("event.id") == aside && a.text("event.status") == "fanned_out" },
		},
	}
	asked := make(chan answer)
	for _, k := range all {
		go func() { asked <- s.call(k.method, k.path, k.body, k.key()) }()
	}
	s.eventually("all commits", func() bool {
		return s.count(`SELECT count(*) FROM idempotency_keys WHERE committed IS NOT NULL`) == len(all)
	})
	gateway.kill()
	for range all {
		if a := <-asked; a.err == nil {
			t.Fatalf("it was answered: %d %s", a.status, a.raw)
		}
	}
	s.start("gateway")
	s.start("relay,workers")
	s.eventually("rest", func() bool {
		return s.count(`SELECT (SELECT count(*) FROM event_queue) + (SELECT count(*) FROM tasks WHERE state = 'pending')`) == 0
	})
	for _, k := range all {
		k.repeats(s, 2)
	}
	if a := s.call("POST", "/v1/events/"+aside+"/requeue", object{}, "Idempotency-Key: another"); a.status != 409 || a.text("code") != "event_not_poisoned" {
		t.Errorf("requeued under another key: %d %s", a.status, a.raw)
	}
}

// Those that answer at once: what they did, they do not do again, and tell what
// became of it.
func TestRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway")
	receipt := s.create(object{"genre": "raw", "body": "x"}, "Prefer: wait=0").text("index_job_id")
	event := strings.Split(receipt, ":")[0]
	act := func(action, state string) keyed {
		return keyed{
			name: action, method: "POST", path: "/v1/tasks/" + action, body: object{"id": receipt}, other: object{"state": "pending"},
			once: `SELECT count(*) FROM events WHERE type = $1 AND subject = $2`, about: []any{"task." + action + "_requested", receipt},
			check: func(a answer) bool { return a.text("task.id") == receipt && a.text("task.state") == state },
		}
	}
	cancel, retry := act("cancel", "cancelled"), act("retry", "pending")
	cancel.repeats(s, 2)
	retry.repeats(s, 2)
	cancel.check = retry.check // the repetition tells what is so now
	cancel.repeats(s, 1)

	byPath := keyed{
		name: "by path", method: "POST", path: "/v1/tasks/" + receipt + "/cancel", body: object{},
		once: `SELECT count(*) - 1 FROM events WHERE type = 'task.cancel_requested' AND subject = $1`, about: []any{receipt},
		check: func(a answer) bool { return a.text("task.state") == "cancelled" },
	}
	byPath.repeats(s, 2)

	var bulk, run string
	keyed{
		name: "bulk", method: "POST", path: "/v1/tasks/cancel", body: object{"kind": "corpus.index"}, other: object{"kind": "mail.test"},
		once: `SELECT count(*) FROM events WHERE type = 'tasks.bulk_requested'`,
		check: func(a answer) bool {
			same := bulk == "" || bulk == a.text("task.id")
			bulk = a.text("task.id")
			return same && a.at("bulk") == true && a.text("task.kind") == "tasks.bulk"
		},
	}.repeats(s, 3)
	keyed{
		name: "run", method: "POST", path: "/v1/periodic/relay.sweep/run", body: object{},
		once: `SELECT count(*) FROM events WHERE type = 'periodic.run_requested'`,
		check: func(a answer) bool {
			same := run == "" || run == a.text("task.id")
			run = a.text("task.id")
			return same && a.text("task.kind") == "periodic.run"
		},
	}.repeats(s, 3)

	// a token is shown once, also when its first answer was lost
	var token string
	first := s.must("POST", "/v1/tokens", object{"name": "n", "scopes": []string{"corpus:read"}}, "Idempotency-Key: token")
	if token = first.text("token.id"); token == "" || first.text("secret") == "" {
		t.Fatalf("the first answer: %s", first.raw)
	}
	keyed{
		name: "token", method: "POST", path: "/v1/tokens", body: object{"name": "n", "scopes": []string{"corpus:read"}}, other: object{"name": "n", "scopes": []string{"*"}},
		once:  `SELECT count(*) FROM tokens WHERE name = 'n'`,
		check: func(a answer) bool { return a.text("token.id") == token && a.at("secret") == nil },
	}.repeats(s, 2)
	if n := s.count(`SELECT count(*) FROM idempotency_keys WHERE committed::text LIKE '%' || $1 || '%'`, first.text("secret")); n != 0 {
		t.Error("the secret is kept with the key")
	}

	// an argument of the tool is the header, of the same operation
	note := object{"genre": "raw", "body": "over both faces"}
	made := s.create(note, "Idempotency-Key: faces", "Prefer: wait=0").text("note.id")
	tool := s.tool("corpus_create", object{"genre": "raw", "body": "over both faces", "idempotency_key": "faces", "wait_seconds": 0}, false)
	if tool.text("result.structuredContent.note.id") != made {
		t.Errorf("over MCP: %s, want note %s", tool.raw, made)
	}
	if n := s.count(`SELECT count(*) FROM events WHERE id <> $1 AND type = 'corpus.note.changed'`, event); n != 1 {
		t.Errorf("%d more notes were made", n)
	}
}
