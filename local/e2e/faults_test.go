package e2e

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"standmeet/shared/pgtest"
)

// answerWithin is how long a write may take whose process finds its connections
// dead: the budget of its wait, what finding that takes (a read that is not
// answered, a ping, a dial), and an allowance for a busy machine.
const answerWithin = budget + 2500*time.Millisecond + allowance

// truthful sends a write and checks that it is answered in time, and that the
// answer holds.
func (s *site) truthful(body string) answer {
	s.Helper()
	a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": body})
	if a.took > answerWithin {
		s.Errorf("%s: it took %v", body, a.took)
	}
	switch {
	case a.status/100 == 2 && a.at("indexed") == true:
		if ids := s.found(body); !slices.Contains(ids, a.text("note.id")) {
			s.Errorf("%s: indexed, but not found", body)
		}
	case a.status/100 == 2:
		completes(s, a.text("index_job_id"))
	case a.status == 503 && a.text("code") == "database_unavailable" || a.status == 503 && a.text("code") == "timeout":
		if n := s.count(`SELECT count(*) FROM notes WHERE body = $1`, body); n != 0 {
			s.Errorf("%s: %s, but the note is there", body, a.raw)
		}
	default:
		s.Errorf("%s: %d %v %s", body, a.status, a.err, a.raw)
	}
	return a
}

// The gateway's connections fall silent, those that were just used and are still
// trusted among them.
func TestGatewaysConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	s := newSiteOf(t, plain, direct, "relay,workers")
	s.startOn(proxy.URL, "gateway")
	for round := range 3 {
		var several sync.WaitGroup
		for i := range 4 { // as many connections
			several.Go(func() {
				s.call("POST", "/v1/corpus", object{"genre": "raw", "body": fmt.Sprintf("before %d of round %d", i, round)})
			})
		}
		several.Wait()
		proxy.Silence()
		if a := s.truthful(fmt.Sprint("silence", round)); a.status/100 != 2 || a.at("indexed") != true {
			t.Errorf("round %d: %d %s", round, a.status, a.raw)
		}
	}
}

// A frozen gateway, as a function between two requests: its connections are
// terminated or fall silent meanwhile, and so is the one that it listens on for a
// request under way. Real ones stay frozen for longer.
func TestGatewayFrozen(t *testing.T) {
	t.Parallel()
	direct := pgtest.URL(t)
	proxy := pgtest.NewProxy(t, direct)
	s := newSiteOf(t, plain, direct, "relay")
	gateway := s.startOn(proxy.URL, "gateway")
	signal := func(sig syscall.Signal) {
		if err := gateway.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = gateway.cmd.Process.Signal(syscall.SIGCONT) }) // or it could not stop
	const its = `FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'standmeet-requests' AND client_port = ANY ($1)`
	for name, cut := range map[string]func(){
		"terminated": func() {
			if _, err := s.db.Exec(t.Context(), `SELECT pg_terminate_backend(pid) `+its, proxy.Ports()); err != nil {
				t.Fatal(err)
			}
			s.eventually("the end of its connections", func() bool { return s.count(`SELECT count(*) `+its, proxy.Ports()) == 0 })
		},
		"silent": proxy.Silence,
	} {
		underWay := make(chan answer)
		go func() { underWay <- s.call("POST", "/v1/corpus", object{"genre": "raw", "body": "under way " + name}) }()
		s.eventually("the wait", func() bool {
			return s.count(`SELECT count(*) `+its+` AND query LIKE 'LISTEN%' AND (SELECT count(*) FROM notes WHERE body = $2) = 1`, proxy.Ports(), "under way "+name) == 1
		})
		signal(syscall.SIGSTOP)
		frozen := time.Now()
		s.eventually("a few seconds to pass", func() bool {
			return s.count(`SELECT count(*) `+its+` AND state_change > clock_timestamp() - interval '3 seconds'`, proxy.Ports()) == 0
		})
		cut()
		signal(syscall.SIGCONT)
		thawed := time.Now()
		a := <-underWay
		workers := s.start("workers")
		if a.status/100 != 2 || a.at("indexed") != false || a.took > thawed.Sub(frozen)+answerWithin {
			t.Errorf("%s: what was under way, frozen for %v, was answered %d %s after %v", name, thawed.Sub(frozen), a.status, a.raw, a.took)
		} else {
			completes(s, a.text("index_job_id"))
		}
		if a := s.truthful("thawed" + name); a.status/100 != 2 || a.at("indexed") != true {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
		workers.stop()
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
