package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"standmeet/shared/outbox"
	"standmeet/shared/pg"
)

// hall is twenty receivers that watch each other's order.
type hall struct {
	mu       sync.Mutex
	got      []map[string]int // by receiver, then webhook-id
	order    [][]string       // by receiver: webhook-ids in the order of their first arrival
	inFlight []int
	crowded  int
}

func (h *hall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
	id := r.Header.Get("webhook-id")
	h.mu.Lock()
	if h.inFlight[n]++; h.inFlight[n] > 1 {
		h.crowded++
	}
	first := h.got[n][id] == 0
	if h.got[n][id]++; first {
		h.order[n] = append(h.order[n], id)
	}
	h.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	work := time.NewTimer(time.Duration(rand.IntN(4)) * time.Millisecond)
	<-work.C
	h.mu.Lock()
	h.inFlight[n]--
	h.mu.Unlock()
}

func (h *hall) distinct() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.got {
		n += len(g)
	}
	return n
}

// Workers are killed while they deliver: each event arrives at each endpoint at
// least once, the log has a row for each attempt, never are two in flight to one
// endpoint, and where order is kept it is. WEBHOOK_EVENTS=250 is the long run,
// of 5,000 deliveries.
func TestWebhooksSurviveKilledWorkers(t *testing.T) {
	t.Parallel()
	const endpoints = 20
	events, kills := 40, 2
	if n, err := strconv.Atoi(os.Getenv("WEBHOOK_EVENTS")); err == nil {
		events, kills = n, n/25
	}
	s := newSite(t)
	env := []string{"EGRESS_ALLOW=127.0.0.0/8", "SECRET_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32))}
	s.start("gateway,relay", env...)
	h := &hall{got: make([]map[string]int, endpoints), order: make([][]string, endpoints), inFlight: make([]int, endpoints)}
	receiver := httptest.NewServer(h)
	t.Cleanup(receiver.Close)
	ids := make([]string, endpoints)
	for n := range endpoints {
		h.got[n] = map[string]int{}
		a := s.must("POST", "/v1/webhooks", object{"url": fmt.Sprintf("%s/%d", receiver.URL, n), "event_types": []string{"code.revoked"}, "ordered": n%2 == 0})
		ids[n] = a.text("endpoint.id")
	}
	var owner uuid.UUID
	if err := s.db.QueryRow(t.Context(), `SELECT id FROM owners WHERE handle = $1`, s.handle).Scan(&owner); err != nil {
		t.Fatal(err)
	}

	workers := []*process{s.start("workers", env...), s.start("workers", env...)}
	var sent []string
	killed := 0
	for i := range events {
		id := outbox.NewID()
		sent = append(sent, id.String())
		if err := s.db.InTx(t.Context(), func(tx *pg.Tx) error {
			return outbox.Record(t.Context(), tx, id, outbox.CodeRevoked, owner, uuid.NewString(), struct{}{})
		}); err != nil {
			t.Fatal(err)
		}
		// somewhere in the middle of what the last events caused
		if killed < kills && (i+1)%(events/(kills+1)) == 0 {
			at := i*endpoints - rand.IntN(endpoints)
			s.eventually("deliveries to be under way", func() bool { return h.distinct() >= at || killed > 0 })
			victim := killed % len(workers)
			workers[victim].kill()
			workers[victim] = s.start("workers", env...)
			killed++
		}
	}
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for s.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`) < events*endpoints {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d of %d deliveries after %d kills", h.distinct(), events*endpoints, killed)
		}
	}
	if h.crowded > 0 {
		t.Errorf("%d times two were in flight to one endpoint", h.crowded)
	}
	interrupted, again := 0, 0
	for n, id := range ids {
		if n%2 == 0 && !slices.Equal(h.order[n], sent) {
			t.Errorf("endpoint %d keeps order and got %v, not %v", n, h.order[n], sent)
		}
		logged := map[string]int{}
		for cursor := ""; ; {
			a := s.must("GET", "/v1/webhooks/"+id+"/deliveries?limit=200&cursor="+cursor, nil)
			var page struct {
				Items []struct {
					EventID  string `json:"event_id"`
					State    string
					Attempts []struct {
						Number  int
						Outcome string
					}
				}
			}
			if err := json.Unmarshal([]byte(a.raw), &page); err != nil {
				t.Fatal(err)
			}
			for _, d := range page.Items {
				logged[d.EventID]++
				delivered, unknown := 0, 0
				for _, try := range d.Attempts {
					switch try.Outcome {
					case "delivered":
						delivered++
					case "interrupted":
						unknown++
					default:
						t.Errorf("an attempt that was %s", try.Outcome)
					}
				}
				interrupted += unknown
				got := h.got[n][d.EventID]
				again += got - 1
				if d.State != "delivered" || delivered < 1 || got < delivered || got > delivered+unknown {
					t.Errorf("endpoint %d, event %s: it arrived %d times, the log has %d and %d unknown (%s)", n, d.EventID, got, delivered, unknown, d.State)
				}
			}
			if cursor = a.text("next_cursor"); cursor == "" {
				break
			}
		}
		if len(logged) != events || len(h.got[n]) != events {
			t.Errorf("endpoint %d: %d events in the log, %d arrived, of %d", n, len(logged), len(h.got[n]), events)
		}
	}
	if n := s.count(`SELECT count(*) FROM tasks WHERE subscriber = 'webhook.deliver' AND state <> 'completed'`); n != 0 {
		t.Errorf("%d tasks are not completed", n)
	}
	t.Logf("%d deliveries, %d kills, %d attempts interrupted, %d arrived again", events*endpoints, killed, interrupted, again)
}
