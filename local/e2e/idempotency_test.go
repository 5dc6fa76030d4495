package e2e

import (
	"sync"
	"testing"
)

func TestSameKeySameAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "gateway,relay,workers")
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

// The gateway dies after the commit and before its answer: the same request
// under the same key gets the first one's note and receipt.
func TestKilledBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gateway := s.start("gateway")
	note, key := object{"genre": "raw", "body": "written once"}, "Idempotency-Key: lost"
	asked := make(chan answer)
	go func() { asked <- s.call("POST", "/v1/corpus", note, key) }()
	s.eventually("the commit", func() bool { return s.count(`SELECT count(*) FROM notes`) == 1 })
	gateway.kill()
	if a := <-asked; a.err == nil {
		t.Fatalf("it was answered: %s", a.raw)
	}
	s.start("gateway")
	s.start("relay,workers")
	a := s.must("POST", "/v1/corpus", note, key)
	if a.at("indexed") != true || s.count(`SELECT count(*) FROM notes WHERE id = $1`, a.text("note.id")) != 1 ||
		s.count(`SELECT count(*) FROM events WHERE id::text || ':corpus.index' = $1`, a.text("index_job_id")) != 1 {
		t.Errorf("the repetition: %s", a.raw)
	}
	if n := s.count(`SELECT count(*) FROM notes`); n != 1 {
		t.Errorf("%d notes", n)
	}
}
