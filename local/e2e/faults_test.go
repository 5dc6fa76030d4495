package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"standmeet/shared/pgtest"
)

// The gateway's connections fall silent: the write is answered within the
// budget and the time that finding a dead socket may take.
func TestGatewaysConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	s := newSiteAt(t, direct, "relay,workers")
	s.startOn(proxy.URL, "gateway")
	s.create(object{"genre": "raw", "body": "before"})
	proxy.Silence()
	// a connection that the pool still trusts may cost a request, never a lie
	s.eventually("an answer", func() bool {
		a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": "after the silence"})
		return a.status/100 == 2 && a.at("indexed") == true
	})
	if ids := s.found("after the silence"); len(ids) == 0 {
		t.Error("not found")
	}
}

func TestListenersTerminatedUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
	stop := make(chan struct{})
	var hits sync.WaitGroup
	hits.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := s.db.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query = 'SELECT 1')`); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 15 {
				a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": fmt.Sprintf("load %d of %d", j, i)})
				if a.status/100 != 2 || a.at("indexed") != true {
					t.Errorf("%d %v %s", a.status, a.err, a.raw)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	hits.Wait()
}

// PostgreSQL is killed and comes back: requests fail with 503 and Retry-After
// while it is down, everything resumes by itself, and nothing that was promised
// is missing.
func TestPostgresKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	s := newSiteAt(t, server.URL("standmeet"), "gateway", "relay,workers")
	before := s.create(object{"genre": "raw", "body": "before the crash"})
	server.Kill()
	a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": "during the crash"})
	if a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("while it is down: %d %v %s", a.status, a.header, a.raw)
	}
	if r := s.call("GET", "/readyz", nil); r.status != 503 {
		t.Errorf("readyz: %d", r.status)
	}
	if r := s.call("GET", "/healthz", nil); r.status != 200 {
		t.Errorf("healthz: %d", r.status)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	var after answer
	s.eventually("a write that is indexed", func() bool {
		after = s.call("POST", "/v1/corpus", object{"genre": "raw", "body": "after the crash"})
		return after.status/100 == 2 && after.at("indexed") == true
	})
	ids := s.found("the crash")
	for _, want := range []answer{before, after} {
		if !slices.Contains(ids, want.text("note.id")) {
			t.Errorf("%s is not among %v", want.text("note.id"), ids)
		}
	}
}

// JavaScript rounds integers above 2^53: a job's number is told as text, and
// the exact one is acted on.
func TestJobNumbersBeyondJavaScript(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay")
	const number = "9007199254740993"
	if _, err := s.db.Exec(t.Context(), `SELECT setval('river_job_id_seq', 9007199254740992)`); err != nil {
		t.Fatal(err)
	}
	a := s.create(object{"genre": "raw", "body": "x"}, "Prefer: wait=0")
	b := s.create(object{"genre": "raw", "body": "y"}, "Prefer: wait=0")
	receipt := a.text("index_job_id")
	var job string
	s.eventually("its job's number", func() bool {
		job = s.must("GET", "/v1/tasks/"+receipt, nil).text("task.job_id")
		return job != ""
	})
	if s.count(`SELECT count(*) FROM river_job WHERE id = `+number) != 1 {
		t.Fatal("the sequence did not start where it should")
	}
	byNumber := s.must("GET", "/v1/tasks/"+job, nil)
	if byNumber.text("task.id") != receipt {
		t.Errorf("%s is %s, want %s", job, byNumber.text("task.id"), receipt)
	}
	if c := s.must("POST", "/v1/tasks/cancel", object{"id": job}); c.text("task.id") != receipt || c.text("task.state") != "cancelled" {
		t.Errorf("cancelled by number: %s", c.raw)
	}
	if other := s.must("GET", "/v1/tasks/"+b.text("index_job_id"), nil); other.text("task.state") != "pending" {
		t.Errorf("the other one: %s", other.raw)
	}
	if c := s.must("POST", "/v1/tasks/"+job+"/retry", nil); c.text("task.id") != receipt {
		t.Errorf("retried by number: %s", c.raw)
	}
	s.start("workers")
	completes(s, receipt)
}
