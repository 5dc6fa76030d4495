package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

func escape(s string) string { return url.QueryEscape(s) }

// pending checks what an answer must say while the work is not done, and that it
// came within the budget that it was asked with.
func pending(s *site, a answer, ended string) (receipt string) {
	s.Helper()
	if a.at("indexed") != false || a.text("wait.ended") != ended || a.text("index_job_id") == "" {
		s.Errorf("the answer: %s; want indexed false, ended %s and a receipt", a.raw, ended)
	}
	asked, _ := a.at("wait.asked_ms").(float64)
	if ended == "capacity" {
		asked = 0
	}
	if most := time.Duration(asked)*time.Millisecond + allowance; a.took > most {
		s.Errorf("it took %v, want %v at most", a.took, most)
	}
	// the end of the budget is kept for a last look
	if waited, _ := a.at("wait.waited_ms").(float64); ended == "timeout" && (waited < asked-500 || asked != float64(budget.Milliseconds())) {
		s.Errorf("it waited %v ms of %v", waited, asked)
	}
	receipt = a.text("index_job_id")
	if state := s.must("GET", "/v1/tasks/"+receipt, nil).text("task.state"); state != "pending" {
		s.Errorf("its receipt is %s at once, want pending", state)
	}
	return receipt
}

func completes(s *site, receipt string) {
	s.Helper()
	s.eventually(receipt+" completed", func() bool {
		return s.must("GET", "/v1/tasks/"+receipt+"?wait_seconds=5", nil).text("task.state") == "completed"
	})
}

// The tests that measure times don't run beside each other.

func TestNoWorkerRuns(t *testing.T) {
	s := newPlainSite(t, "gateway,relay")
	a := s.create(object{"genre": "raw", "body": "the quick brown fox"})
	receipt := pending(s, a, "timeout")
	if ids := s.found("quick brown fox"); len(ids) != 0 {
		t.Errorf("found %v before it was indexed", ids)
	}
	s.start("workers")
	completes(s, receipt)
	if ids := s.found("quick brown fox"); !slices.Contains(ids, a.text("note.id")) {
		t.Errorf("found %v after it was indexed", ids)
	}
}

func TestNoRelayRuns(t *testing.T) {
	s := newPlainSite(t, "gateway", "workers")
	a := s.create(object{"genre": "raw", "body": "the quick brown fox"})
	receipt := pending(s, a, "timeout")
	s.start("relay")
	completes(s, receipt)
	if ids := s.found("quick brown fox"); !slices.Contains(ids, a.text("note.id")) {
		t.Errorf("found %v after it was indexed", ids)
	}
}

func TestEverythingRestartedInBetween(t *testing.T) {
	s := newPlainSite(t)
	gateway, relay := s.start("gateway"), s.start("relay")
	first := s.create(object{"genre": "raw", "body": "alpha note"})
	receipts := []string{pending(s, first, "timeout")}
	relay.kill()
	gateway.kill()
	s.start("gateway")
	second := s.create(object{"genre": "raw", "body": "beta note"})
	receipts = append(receipts, pending(s, second, "timeout"))
	workers := s.start("workers")
	completes(s, receipts[0])
	workers.stop()
	s.start("relay")
	s.start("workers")
	completes(s, receipts[1])
	for word, a := range map[string]answer{"alpha": first, "beta": second} {
		if ids := s.found(word); !slices.Contains(ids, a.text("note.id")) {
			t.Errorf("%s: found %v", word, ids)
		}
	}
}

func TestNoWaitAsked(t *testing.T) {
	s := newPlainSite(t, "gateway")
	for name, a := range map[string]answer{
		"Prefer":       s.create(object{"genre": "raw", "body": "x"}, "Prefer: wait=0"),
		"wait_seconds": s.create(object{"genre": "raw", "body": "x", "wait_seconds": 0}),
	} {
		pending(s, a, "not_asked")
		if a.at("wait.waited_ms") != 0.0 {
			t.Errorf("%s: %s", name, a.raw)
		}
	}
	a := s.create(object{"genre": "raw", "body": "x"}, "Prefer: wait=1")
	if a.header.Get("Preference-Applied") != "wait=1" || a.at("wait.asked_ms") != 1000.0 {
		t.Errorf("Prefer: wait=1 was answered %v %s", a.header, a.raw)
	}
}

func TestSixtyFifthWaiterGetsItsReceiptAtOnce(t *testing.T) {
	s := newPlainSite(t, "gateway")
	s.create(object{"genre": "raw", "body": "warm"}, "Prefer: wait=0")
	var waiting sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range 64 {
		waiting.Go(func() {
			a := s.call("POST", "/v1/corpus", object{"genre": "raw", "body": fmt.Sprint("note ", i)})
			mu.Lock()
			defer mu.Unlock()
			ends[a.text("wait.ended")]++
		})
	}
	s.eventually("64 committed notes", func() bool { return s.count(`SELECT count(*) FROM notes`) == 65 })
	// what the machine does besides must not count: the best of ten
	best := time.Minute
	for range 10 {
		a := s.create(object{"genre": "raw", "body": "one more"})
		pending(s, a, "capacity")
		best = min(best, a.took)
	}
	if best > 50*time.Millisecond {
		t.Errorf("the 65th was answered after %v at best", best)
	}
	waiting.Wait()
	if ends["timeout"] != 64 {
		t.Errorf("the 64 ended as %v", ends)
	}
}

func TestThreeQuickEditsTheLastWins(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway", "relay,workers")
	id := s.create(object{"genre": "wiki", "title": "Edits", "body": "first"}).text("note.id")
	var edits sync.WaitGroup
	for i := range 3 {
		edits.Go(func() {
			a := s.call("PATCH", "/v1/corpus/"+id, object{"body": fmt.Sprintf("draft%d", i)})
			if a.status != 200 || a.at("indexed") != true {
				t.Errorf("edit %d: %s", i, a.raw)
			}
		})
	}
	edits.Wait()
	last := s.must("PATCH", "/v1/corpus/"+id, object{"body": "final words"})
	if last.at("indexed") != true {
		t.Fatalf("the last edit: %s", last.raw)
	}
	if ids := s.found("final"); !slices.Equal(ids, []string{id}) {
		t.Errorf("final: %v", ids)
	}
	for _, old := range []string{"first", "draft0", "draft1", "draft2"} {
		if ids := s.found(old); len(ids) != 0 {
			t.Errorf("%s is still found: %v", old, ids)
		}
	}
}
