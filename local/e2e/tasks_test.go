package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/outbox"
	"standmeet/shared/task"
)

func (s *site) exec(sql string, args ...any) {
	s.Helper()
	if tag, err := s.db.Exec(s.Context(), sql, args...); err != nil {
		s.Fatalf("%s: %v, %v", sql, tag, err)
	}
}

// quick creates a note without waiting and gives its receipt.
func (s *site) quick(body string) (note, receipt string) {
	s.Helper()
	a := s.create(object{"genre": "raw", "body": body}, "Prefer: wait=0")
	return a.text("note.id"), a.text("index_job_id")
}

func eventOf(receipt string) string { id, _, _ := strings.Cut(receipt, ":"); return id }

// alerts are the codes of what needs attention.
func (s *site) alerts(face string) []string {
	s.Helper()
	a := s.over(face, "tasks.overview", object{})
	list, ok := a.at("alerts").([]any)
	if !ok {
		s.Fatalf("overview over %s: %d %s", face, a.status, a.raw)
	}
	codes := []string{}
	for _, alert := range list {
		o, _ := alert.(object)
		codes = append(codes, answer{body: o}.text("code"))
	}
	return codes
}

// Each alert comes with its cause, not before it, and goes with it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// What takes minutes or gigabytes is put before the limits instead: a
	// transaction's age is told as minutes more, and the queue's use as a row says.
	s.exec(`
		CREATE TABLE pretended (usage float8);
		INSERT INTO pretended VALUES (0);
		CREATE FUNCTION public.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT usage FROM pretended';
		CREATE VIEW public.pg_stat_activity AS SELECT pid, datname, backend_xmin, xact_start - interval '200 seconds' AS xact_start FROM pg_catalog.pg_stat_activity;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$`)
	s.start("gateway")
	owner := `(SELECT id FROM owners WHERE handle = '` + s.handle + `')`
	events := func(n int) {
		s.exec(`SELECT record_event('token.created', `+owner+`, 'x', '{}') FROM generate_series(1, $1::int)`, n)
	}
	discarded := func(owner, age string) {
		s.exec(`INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES (gen_random_uuid(), 'mail.test', ` + owner + `, 'x', 'discarded', now() - interval '` + age + `')`)
	}
	var release func()
	steps := []struct {
		name, alert string
		before      func() // not yet enough
		cause, mend func()
	}{
		{
			"many events", "events_backlog",
			func() { events(1000) },
			func() { events(1) },
			func() { s.exec(`DELETE FROM event_queue`) },
		},
		{
			"an old event", "events_backlog",
			func() { events(1); s.exec(`UPDATE events SET occurred_at = now() - interval '4 minutes'`) },
			func() { s.exec(`UPDATE events SET occurred_at = now() - interval '6 minutes'`) },
			func() { s.exec(`DELETE FROM event_queue`) },
		},
		{
			"an event set aside", "events_poisoned",
			func() { events(1); s.exec(`UPDATE event_queue SET attempts = 4`) },
			func() { s.exec(`UPDATE event_queue SET attempts = 5, poisoned_at = now()`) },
			func() { s.exec(`DELETE FROM event_queue`) },
		},
		{
			"a task that failed for good", "tasks_discarded",
			func() { discarded(owner, "25 hours"); discarded("gen_random_uuid()", "1 hour") },
			func() { discarded(owner, "23 hours") },
			func() { s.exec(`UPDATE tasks SET state = 'completed'`) },
		},
		{
			"a notification queue that fills", "notify_queue",
			func() { s.exec(`UPDATE pretended SET usage = 0.05`) },
			func() { s.exec(`UPDATE pretended SET usage = 0.06`) },
			func() { s.exec(`UPDATE pretended SET usage = 0`) },
		},
		{
			"a held transaction", "xmin_held",
			func() {
				tx, err := s.db.Pool().Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
					t.Fatal(err)
				}
				// it is idle on purpose
				if _, err := tx.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), `SELECT 1 FROM owners`); err != nil {
					t.Fatal(err)
				}
				release = func() { _ = tx.Rollback(t.Context()) } // it has written nothing
			},
			func() {
				s.exec(`CREATE OR REPLACE VIEW public.pg_stat_activity AS SELECT pid, datname, backend_xmin, xact_start - interval '310 seconds' AS xact_start FROM pg_catalog.pg_stat_activity WHERE state = 'idle in transaction'`)
			},
			func() { release() },
		},
	}
	for _, step := range steps {
		for i, do := range []func(){step.before, step.cause, step.mend} {
			do()
			want := []string{}
			if i == 1 {
				want = []string{step.alert}
			}
			for _, face := range faces {
				if got := s.alerts(face); !slices.Equal(got, want) {
					t.Errorf("%s, %s over %s: alerts %v, want %v", step.name, []string{"not yet", "now", "mended"}[i], face, got, want)
				}
			}
		}
	}
}

// The lists of tasks and events, through every filter that they offer and page by
// page, before a relay has run and after.
func TestListsOfTasksAndEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway")
	from := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	var receipts []string
	note, _ := s.quick("the first")
	for i := range 4 {
		_, r := s.quick(fmt.Sprint("note ", i))
		receipts = append(receipts, r)
	}
	mail := s.must("POST", "/v1/mail/send-test", object{}, "Prefer: wait=0").text("mail.job_id")
	run := s.must("POST", "/v1/periodic/relay.sweep/run", object{}).text("task.id")
	bulk := s.must("POST", "/v1/tasks/retry", object{"state": "discarded"}).text("task.id")
	s.must("POST", "/v1/tasks/cancel", object{"id": receipts[0]})
	s.must("POST", "/v1/tokens", object{"name": "n", "scopes": []string{"corpus:read"}})
	other := s.stranger("other")
	other.quick("another owner's")

	want := map[string][]string{"corpus.index": slices.Clone(receipts), "mail.test": {mail}, "periodic.run": {run}, "tasks.bulk": {bulk}}
	check := func(when string, states map[string]int) {
		t.Helper()
		for _, face := range faces {
			first := s.over(face, "tasks.list", object{})
			kinds, _ := first.at("kinds").([]any)
			if len(kinds) != len(task.Kinds()) {
				t.Errorf("%s: kinds %v", when, kinds)
			}
			sum := 0
			for _, kind := range kinds {
				got := s.pages(face, "tasks.list", object{"kind": kind}, 2)
				sum += len(got)
				for _, id := range want[kind.(string)] {
					if !slices.Contains(got, id) {
						t.Errorf("%s, over %s: %s is not among %v", when, face, id, got)
					}
				}
				for _, id := range got {
					if !strings.HasSuffix(id, ":"+kind.(string)) {
						t.Errorf("%s, over %s: %s is no %s", when, face, id, kind)
					}
				}
			}
			all := s.pages(face, "tasks.list", object{}, 3)
			unique := slices.Compact(slices.Sorted(slices.Values(all)))
			if len(all) != 8 || sum != 8 || len(unique) != 8 {
				t.Errorf("%s, over %s: %d tasks, %d by kind, %d different", when, face, len(all), sum, len(unique))
			}
			if !slices.IsSortedFunc(all, func(a, b string) int { return strings.Compare(b, a) }) {
				t.Errorf("%s, over %s: not the newest first: %v", when, face, all)
			}
			got := map[string]int{}
			for _, state := range task.States() {
				if n := len(s.pages(face, "tasks.list", object{"state": string(state)}, 3)); n > 0 {
					got[string(state)] = n
				}
			}
			if !maps.Equal(got, states) {
				t.Errorf("%s, over %s: states %v, want %v", when, face, got, states)
			}
			if n := len(s.pages(face, "tasks.list", object{"subject": note}, 3)); n != 1 {
				t.Errorf("%s, over %s: %d tasks about the note", when, face, n)
			}
			if n := len(s.pages(face, "tasks.list", object{"since": from}, 3)); n != 8 {
				t.Errorf("%s, over %s: %d since a minute before", when, face, n)
			}
			if n := len(s.pages(face, "tasks.list", object{"since": time.Now().Add(time.Minute).UTC().Format(time.RFC3339)}, 3)); n != 0 {
				t.Errorf("%s, over %s: %d of the future", when, face, n)
			}
			overview := s.over(face, "tasks.overview", object{"kind": "corpus.index"})
			rows, _ := overview.at("kinds").([]any)
			if len(rows) != 1 {
				t.Fatalf("overview: %s", overview.raw)
			}
			of := answer{body: rows[0].(object)}
			if of.at("cancelled") != 1.0 || of.at("pending").(float64)+of.at("completed").(float64) != 4 {
				t.Errorf("%s, over %s: %v", when, face, of.body)
			}

			events := s.over(face, "events.list", object{})
			types, _ := events.at("types").([]any)
			if len(types) != len(outbox.Types()) {
				t.Errorf("%s: types %v", when, types)
			}
			sum = 0
			for _, kind := range types {
				sum += len(s.pages(face, "events.list", object{"type": kind}, 2))
			}
			ids := s.pages(face, "events.list", object{}, 3)
			if unique := slices.Compact(slices.Sorted(slices.Values(ids))); len(ids) != 10 || sum != 10 || len(unique) != 10 {
				t.Errorf("%s, over %s: %d events, %d by type, %d different", when, face, len(ids), sum, len(unique))
			}
			queued, fanned := len(s.pages(face, "events.list", object{"status": "queued"}, 3)), len(s.pages(face, "events.list", object{"status": "fanned_out"}, 3))
			if (when == "without a relay") != (queued == 10) || queued+fanned != 10 {
				t.Errorf("%s, over %s: %d queued, %d fanned out", when, face, queued, fanned)
			}
			if n := len(s.pages(face, "events.list", object{"subject": note}, 3)); n != 1 {
				t.Errorf("%s, over %s: %d events about the note", when, face, n)
			}
			if n := len(s.pages(face, "events.list", object{"since": time.Now().Add(time.Minute).UTC().Format(time.RFC3339)}, 3)); n != 0 {
				t.Errorf("%s, over %s: %d events of the future", when, face, n)
			}
			if e := s.over(face, "events.get", object{"id": eventOf(mail)}); e.text("event.type") != "mail.test_requested" || e.at("event.data") == nil || len(e.at("tasks").([]any)) != 1 {
				t.Errorf("%s, over %s: %s", when, face, e.raw)
			}
		}
	}
	check("without a relay", map[string]int{"pending": 7, "cancelled": 1})
	s.start("relay")
	s.eventually("fan-out", func() bool { return s.count(`SELECT count(*) FROM event_queue`) == 0 })
	check("without workers", map[string]int{"pending": 7, "cancelled": 1})
	s.start("workers")
	s.eventually("rest", func() bool { return s.count(`SELECT count(*) FROM tasks WHERE state IN ('pending', 'running')`) == 0 })
	check("at rest", map[string]int{"completed": 7, "cancelled": 1})

	for _, face := range faces {
		for name, bad := range map[string][]object{
			"tasks.list":     {{"kind": "no.such"}, {"state": "done"}, {"since": "yesterday"}, {"cursor": "x"}, {"limit": 0}, {"nonsense": 1}},
			"events.list":    {{"type": "no.such"}, {"status": "done"}, {"since": "yesterday"}, {"cursor": "x"}, {"limit": 201}},
			"tasks.overview": {{"kind": "no.such"}},
			"tasks.retry":    {{}, {"kind": "no.such"}},
			"tasks.cancel":   {{}, {"state": "done"}},
		} {
			for _, arguments := range bad {
				if a := s.over(face, name, arguments); a.status != 400 || a.text("code") == "" {
					t.Errorf("%s %v over %s: %d %s", name, arguments, face, a.status, a.raw)
				}
			}
		}
		for _, name := range []string{"tasks.get", "tasks.retry", "tasks.cancel", "events.get", "events.requeue"} {
			for _, id := range []string{"x", uuid.NewString(), uuid.NewString() + ":corpus.index", eventOf(mail) + ":corpus.index", "123456789", "-1"} {
				if name == "events.get" && id == eventOf(mail) {
					continue
				}
				// over MCP a malformed UUID is the field's fault
				if a := s.over(face, name, object{"id": id}); a.status != 404 && (face != "mcp" || a.status != 400) {
					t.Errorf("%s %s over %s: %d %s", name, id, face, a.status, a.raw)
				}
			}
		}
	}
}

// A task followed to its end: with and without a wait, by its id and by the number
// of its job.
func TestFollowingATask(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway", "relay")
	_, receipt := s.quick("to be followed")
	s.eventually("its job", func() bool { return s.must("GET", "/v1/tasks/"+receipt, nil).text("task.job_id") != "" })
	job := s.must("GET", "/v1/tasks/"+receipt, nil).text("task.job_id")
	for _, face := range faces {
		for _, id := range []string{receipt, job} {
			if a := s.over(face, "tasks.get", object{"id": id}); a.text("task.id") != receipt || a.text("task.state") != "pending" || a.at("wait") != nil || a.at("task.timeline.fanned_out_at") == nil || a.at("task.timeline.finished_at") != nil {
				t.Errorf("%s over %s: %s", id, face, a.raw)
			}
			a := s.over(face, "tasks.get", object{"id": id, "wait_seconds": 1})
			if a.text("task.state") != "pending" || a.text("wait.ended") != "timeout" || a.at("wait.asked_ms") != 1000.0 || a.took < 800*time.Millisecond {
				t.Errorf("%s over %s, waited for: %s after %v", id, face, a.raw, a.took)
			}
		}
	}
	followed := make(chan answer, len(faces))
	for _, face := range faces {
		go func() { followed <- s.over(face, "tasks.get", object{"id": receipt, "wait_seconds": 20}) }()
	}
	s.start("workers")
	for range faces {
		if a := <-followed; a.text("task.state") != "completed" || a.text("wait.ended") != "observed" || a.at("task.timeline.finished_at") == nil || a.text("task.sentence") != task.Say(task.CorpusIndex, task.Completed) {
			t.Errorf("followed: %s", a.raw)
		}
	}
	if a := s.must("GET", "/v1/tasks/"+receipt+"?wait_seconds=20", nil); a.took > 10*time.Second || a.text("wait.ended") != "observed" {
		t.Errorf("what has ended is not waited for: %s after %v", a.raw, a.took)
	}
}

// Retry and cancel, by id and by filter: all that match, and nothing else.
func TestRetryAndCancelByFilter(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway", "relay")
	const n = 12
	var ids []string
	for i := range n {
		_, receipt := s.quick(fmt.Sprintf("filterword%d", i))
		ids = append(ids, receipt)
	}
	spared := s.must("POST", "/v1/mail/send-test", object{}, "Prefer: wait=0").text("mail.job_id")
	stranger := s.stranger("other")
	_, theirs := stranger.quick("another owner's")
	s.eventually("fan-out", func() bool { return s.count(`SELECT count(*) FROM tasks`) == n+2 })
	// none can run, and all have failed for good
	s.exec(`UPDATE river_job SET state = 'discarded', finalized_at = now(), attempt = 3, errors = ARRAY['{"at": "2026-01-02T03:04:05Z", "attempt": 3, "error": "the disk is full", "trace": ""}']::jsonb[]`)
	state := func(of *site, id string) string {
		s.Helper()
		return of.must("GET", "/v1/tasks/"+id, nil).text("task.state")
	}
	if a := s.must("GET", "/v1/tasks/"+ids[0], nil); a.text("task.state") != "discarded" || a.text("task.last_error") != "the disk is full" || len(a.at("task.errors").([]any)) != 1 {
		t.Fatalf("discarded: %s", a.raw)
	}
	// by id, over each face, while nothing works
	for i, face := range faces {
		// The relay may have revived the job, failures and all, before the answer is read.
		if a := s.over(face, "tasks.retry", object{"id": ids[i]}); a.status != 200 || !slices.Contains([]string{"pending", "retryable"}, a.text("task.state")) || a.at("bulk") != false {
			t.Errorf("retried over %s: %d %s", face, a.status, a.raw)
		}
		if a := s.over(face, "tasks.cancel", object{"id": ids[i]}); a.status != 200 || a.text("task.state") != "cancelled" {
			t.Errorf("cancelled over %s: %d %s", face, a.status, a.raw)
		}
		if a := s.over(face, "tasks.cancel", object{"id": ids[i]}); a.status != 409 || a.text("code") != "task_ended" {
			t.Errorf("cancelled twice over %s: %d %s", face, a.status, a.raw)
		}
	}
	s.eventually("the commands", func() bool { return s.count(`SELECT count(*) FROM event_queue`) == 0 })
	s.start("workers")
	bulk := s.over("mcp", "tasks.retry", object{"kind": "corpus.index", "state": "discarded"})
	if bulk.at("bulk") != true || bulk.text("task.kind") != "tasks.bulk" {
		t.Fatalf("by filter: %s", bulk.raw)
	}
	completes(s, bulk.text("task.id"))
	if done := s.must("GET", "/v1/tasks/"+bulk.text("task.id"), nil); done.at("task.progress.done") != float64(n-2) {
		t.Errorf("it went through %v, want %d: %s", done.at("task.progress.done"), n-2, done.raw)
	}
	for i, id := range ids[2:] {
		completes(s, id)
		if found := s.found(fmt.Sprintf("filterword%d", i+2)); len(found) == 0 {
			t.Errorf("note %d was retried and is not found", i+2)
		}
	}
	for _, id := range ids[:2] {
		if is := state(s, id); is != "cancelled" {
			t.Errorf("a cancelled one, which did not match, is %s", is)
		}
	}
	if is := state(s, spared); is != "discarded" {
		t.Errorf("one of another kind is %s", is)
	}
	if is := state(stranger, theirs); is != "discarded" {
		t.Errorf("another owner's is %s", is)
	}

	// those that match wait for a later time
	var later []string
	s.exec(`CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.state := 'scheduled'; NEW.scheduled_at := now() + interval '1 hour'; RETURN NEW; END $$;
		CREATE TRIGGER later BEFORE INSERT ON river_job FOR EACH ROW WHEN (NEW.kind IN ('corpus.index', 'mail.test')) EXECUTE FUNCTION later()`)
	note, about := s.quick("to be cancelled by its subject")
	later = append(later, about)
	for range 4 {
		_, receipt := s.quick("later")
		later = append(later, receipt)
	}
	mail := s.must("POST", "/v1/mail/send-test", object{}, "Prefer: wait=0").text("mail.job_id")
	s.eventually("fan-out", func() bool { return s.count(`SELECT count(*) FROM event_queue`) == 0 })
	completes(s, s.over("http", "tasks.cancel", object{"subject": note}).text("task.id"))
	for i, id := range later {
		if is := state(s, id); (i == 0) != (is == "cancelled") {
			t.Errorf("by subject: %d is %s", i, is)
		}
	}
	completes(s, s.over("http", "tasks.cancel", object{"kind": "corpus.index"}).text("task.id"))
	for i, id := range later {
		if is := state(s, id); is != "cancelled" {
			t.Errorf("by kind: %d is %s", i, is)
		}
	}
	if is := state(s, mail); is != "pending" {
		t.Errorf("by kind: one of another kind is %s", is)
	}
	completes(s, ids[2]) // what had completed still has
}

func TestPeriodicJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway", "relay")
	jobs := func(face string) map[string]answer {
		t.Helper()
		all := map[string]answer{}
		for _, j := range s.over(face, "tasks.periodic", object{}).items() {
			all[j.text("name")] = j
		}
		if len(all) != len(task.Periodics()) {
			t.Fatalf("over %s: %v", face, all)
		}
		return all
	}
	for _, face := range faces {
		for name, j := range jobs(face) {
			if j.at("last_started_at") != nil || j.at("next_at") != nil || j.text("title") == "" || j.at("every_seconds") == 0.0 {
				t.Errorf("%s, which never ran, over %s: %v", name, face, j.body)
			}
		}
	}
	var queued []string
	for _, face := range faces {
		a := s.over(face, "tasks.run_periodic", object{"name": "tasks.retention"})
		if a.status != 202 || a.text("task.kind") != "periodic.run" || a.text("task.state") != "pending" || a.text("task.subject") != "tasks.retention" {
			t.Errorf("over %s: %d %s", face, a.status, a.raw)
		}
		queued = append(queued, a.text("task.id"))
		if a := s.over(face, "tasks.run_periodic", object{"name": "no.such"}); a.status != 404 {
			t.Errorf("no such job over %s: %d %s", face, a.status, a.raw)
		}
	}
	s.exec(`INSERT INTO tasks (event_id, subscriber, owner_id, subject, state, finished_at) VALUES ($1, 'mail.test', gen_random_uuid(), 'old', 'completed', now() - interval '31 days')`, outbox.Before(time.Now().Add(-31*24*time.Hour)))
	s.start("workers")
	for _, id := range queued {
		completes(s, id)
	}
	if n := s.count(`SELECT count(*) FROM tasks WHERE subject = 'old'`); n != 0 {
		t.Error("the run removed nothing")
	}
	s.eventually("every job's first run", func() bool {
		for _, j := range jobs("http") {
			if j.at("last_finished_at") == nil {
				return false
			}
		}
		return true
	})
	before := jobs("http")["events.retention"]
	started, err := time.Parse(time.RFC3339, before.text("last_started_at"))
	next, nextErr := time.Parse(time.RFC3339, before.text("next_at"))
	if err != nil || nextErr != nil || next.Sub(started) != time.Hour || before.at("last_error") != nil || before.text("last_note") == "" {
		t.Errorf("after a run: %v", before.body)
	}
	again := s.over("mcp", "tasks.run_periodic", object{"name": "events.retention"}).text("task.id")
	completes(s, again)
	if after := jobs("mcp")["events.retention"]; after.text("last_started_at") <= before.text("last_started_at") {
		t.Errorf("asked for, it did not run again: %v, before %v", after.body, before.body)
	}
}

// An event that can't be fanned out: tried, set aside, told, mended, put back.
func TestPoisonedEventFromEndToEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway", "relay,workers")
	note, _ := s.quick("whose index event is broken")
	var id string
	if err := s.db.QueryRow(t.Context(), `SELECT record_event('corpus.note.changed', (SELECT id FROM owners WHERE handle = $1), 'no note id', '{}')::text`, s.handle).Scan(&id); err != nil {
		t.Fatal(err)
	}
	receipt := id + ":corpus.index"
	s.eventually("the first failure", func() bool { return s.must("GET", "/v1/events/"+id, nil).at("event.attempts") != nil })
	if a := s.must("GET", "/v1/events/"+id, nil); a.text("event.status") != "queued" || a.at("event.next_attempt_at") == nil || !strings.Contains(a.text("event.last_error"), "is no id") {
		t.Errorf("after a failure: %s", a.raw)
	}
	if a := s.call("POST", "/v1/events/"+id+"/requeue", object{}); a.status != 409 || a.text("code") != "event_not_poisoned" {
		t.Errorf("put back before it was set aside: %d %s", a.status, a.raw)
	}
	poison := func() {
		t.Helper()
		s.eventually("its last failure", func() bool {
			s.exec(`UPDATE event_queue SET due_at = clock_timestamp() WHERE event_id = $1 AND poisoned_at IS NULL`, id)
			return s.must("GET", "/v1/events/"+id, nil).text("event.status") == "poisoned"
		})
	}
	poison()
	for _, face := range faces {
		if got := s.alerts(face); !slices.Equal(got, []string{"events_poisoned"}) {
			t.Errorf("alerts over %s: %v", face, got)
		}
		if ids := s.pages(face, "events.list", object{"status": "poisoned"}, 5); !slices.Equal(ids, []string{id}) {
			t.Errorf("set aside over %s: %v", face, ids)
		}
		a := s.over(face, "events.get", object{"id": id})
		tasks, _ := a.at("tasks").([]any)
		if a.at("event.attempts") != 5.0 || len(tasks) != 1 || (answer{body: tasks[0].(object)}).text("id") != receipt {
			t.Errorf("over %s: %s", face, a.raw)
		}
		if a := s.over(face, "tasks.get", object{"id": receipt}); a.text("task.state") != "pending" || a.text("task.sentence") == "" {
			t.Errorf("its receipt over %s: %s", face, a.raw)
		}
	}
	// put back unmended, it fails again, and nobody is told otherwise
	if a := s.over("mcp", "events.requeue", object{"id": id, "wait_seconds": 1}); a.status != 200 || a.text("event.status") != "queued" || a.text("wait.ended") != "timeout" {
		t.Errorf("put back unmended: %d %s", a.status, a.raw)
	}
	poison()
	s.exec(`UPDATE events SET subject = $2 WHERE id = $1`, id, note)
	a := s.over("http", "events.requeue", object{"id": id})
	if a.status != 200 || a.text("event.status") != "fanned_out" || a.text("wait.ended") != "observed" {
		t.Errorf("put back mended: %d %s", a.status, a.raw)
	}
	completes(s, receipt)
	for _, face := range faces {
		if got := s.alerts(face); len(got) != 0 {
			t.Errorf("alerts at the end over %s: %v", face, got)
		}
	}
}
