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

// PostgreSQL is killed while eight write, and comes back: requests fail with 503
// and Retry-After while it is down, everything resumes by itself, and every answer
// that was given holds.
func TestPostgresKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	s := newSiteOf(t, raced, server.URL("standmeet"), "gateway", "relay,workers")
	type try struct {
		word, key string
		answers   []answer
	}
	const writers = 8
	var mu sync.Mutex
	var tries []*try
	answered := func(since time.Time) (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, t := range tries {
			for _, a := range t.answers {
				if a.status/100 == 2 && a.ended.After(since) {
					n++
				}
			}
		}
		return n
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for n := 0; ; n++ {
				one := &try{word: fmt.Sprintf("crash%dword%d", w, n)}
				if w%2 == 0 { // these repeat what failed, under its key
					one.key = one.word
				}
				mu.Lock()
				tries = append(tries, one)
				mu.Unlock()
				for {
					select {
					case <-stop:
						return
					case <-pause.C:
					}
					headers := []string{}
					if one.key != "" {
						headers = append(headers, "Idempotency-Key: "+one.key)
					}
					a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": one.word}, headers...)
					mu.Lock()
					one.answers = append(one.answers, a)
					mu.Unlock()
					if a.status/100 == 2 || one.key == "" {
						break
					}
				}
			}
		})
	}
	s.eventually("answers", func() bool { return answered(time.Time{}) >= 5*writers })
	server.Kill()
	s.eventually("503", func() bool { return s.call("GET", "/readyz", nil).status == 503 })
	if a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": "during the crash"}); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("while it is down: %d %v %s", a.status, a.header, a.raw)
	}
	if r := s.call("GET", "/healthz", nil); r.status != 200 {
		t.Errorf("healthz: %d", r.status)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	s.eventually("answers after the restart", func() bool { return answered(restarted) >= 5*writers })
	close(stop)
	writing.Wait()

	codes := map[string]int{}
	for _, one := range tries {
		var kept, unknown, denied int
		ids := map[string]bool{}
		for _, a := range one.answers {
			codes[fmt.Sprint(a.status, a.text("code"), a.at("indexed"))]++
			switch {
			case a.status/100 == 2:
				kept++
				id := a.text("note.id")
				ids[id] = true
				if a.at("indexed") != true {
					completes(s, a.text("index_job_id"))
				}
				if found := s.found(one.word); !slices.Contains(found, id) {
					t.Errorf("%s, %s of %s, is not among %v", one.word, a.at("indexed"), id, found)
				}
			case a.status == 503 && a.text("code") == "commit_unknown":
				unknown++
			case a.status == 503 && a.header.Get("Retry-After") != "":
				denied++
			case a.status == 409 && a.text("code") == "idempotency_in_flight" && one.key != "":
			default:
				t.Errorf("%s: %d %v %s", one.word, a.status, a.err, a.raw)
			}
		}
		n := s.count(`SELECT count(*) FROM notes WHERE body = $1`, one.word)
		switch {
		case len(ids) > 1 || n > 1:
			t.Errorf("%s: %d notes, answered as %v", one.word, n, ids)
		case kept > 0 && n == 0:
			t.Errorf("%s was answered, and is lost", one.word)
		case kept == 0 && unknown == 0 && denied > 0 && n > 0:
			t.Errorf("%s was denied, and is there: %s", one.word, one.answers[0].raw)
		}
	}
	t.Log(codes)
	s.eventually("rest", func() bool {
		return s.count(`SELECT (SELECT count(*) FROM event_queue) + (SELECT count(*) FROM tasks WHERE state IN ('pending', 'running'))`) == 0
	})
	if n := s.count(`SELECT count(*) FROM notes n WHERE NOT EXISTS (SELECT FROM note_search i WHERE i.note_id = n.id AND i.version >= n.version)`); n != 0 {
		t.Errorf("%d notes are not indexed", n)
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
