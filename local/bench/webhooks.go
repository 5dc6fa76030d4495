package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"standmeet/local/stack"
	"standmeet/shared/config"
	"standmeet/shared/egress"
	"standmeet/shared/outbox"
	"standmeet/shared/pg"
	"standmeet/shared/secret"
	"standmeet/shared/webhook"
)

// sink is a receiver that knows each delivery by endpoint and webhook-id.
type sink struct {
	mu   sync.Mutex
	got  map[string]int
	want int
	all  chan struct{}
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Host + " " + r.Header.Get("webhook-id")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[key]++
	if len(s.got) == s.want && s.got[key] == 1 {
		close(s.all)
	}
	w.WriteHeader(http.StatusNoContent)
}

// webhooks measures B9: events committed at once, until each has reached each
// endpoint and the log says so.
func (b *bench) webhooks(ctx context.Context) error {
	const endpoints = 20
	events, times := pick(b, 500, 100), pick(b, 3, 1)
	var rate, cpu []float64
	var lost, doubled, logged int
	for i := range times {
		err := b.inDatabase(ctx, fmt.Sprintf("webhooks_%d", i), func(url string, db *pg.DB) (err error) {
			keys, err := secret.ParseKeys(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("b"), secret.MinKey)))
			if err != nil {
				return err
			}
			s := &sink{got: map[string]int{}, want: events * endpoints, all: make(chan struct{})}
			owner, err := b.owner(ctx, db)
			if err != nil {
				return err
			}
			for range endpoints { // each is somebody else's server
				server := httptest.NewServer(s)
				defer server.Close()
				if err := db.InTx(ctx, func(tx *pg.Tx) error {
					_, _, err := webhook.Create(ctx, tx, keys, owner, webhook.Endpoint{URL: server.URL, EventTypes: []string{"code.*"}})
					return err
				}); err != nil {
					return err
				}
			}
			allow := egress.New(config.Egress{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			running, err := stack.Start(ctx, stack.Options{URL: url, Keys: keys, Egress: allow}, stack.Parts{Relay: true, Workers: true})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, running.Stop()) }()
			var all []outbox.Event
			for range events {
				code := uuid.New()
				all = append(all, outbox.Event{ID: outbox.NewID(), Type: outbox.CodeRevoked, OwnerID: owner, Subject: code.String(), Data: []byte(`{}`)})
			}
			began, spent := time.Now(), b.cpuTime()
			return b.profile1(ctx, i, "B9", url, func() error {
				if err := running.DB.InTx(ctx, func(tx *pg.Tx) error { return outbox.RecordAll(ctx, tx, all) }); err != nil {
					return err
				}
				select {
				case <-s.all:
				case <-time.After(2 * time.Minute):
					return fmt.Errorf("%d of %d deliveries came", len(s.got), s.want)
				}
				open := 1
				for open > 0 {
					if err := db.QueryRow(ctx, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`).Scan(&open); err != nil {
						return err
					}
				}
				rate, cpu = append(rate, float64(s.want)/time.Since(began).Seconds()), append(cpu, ms(b.cpuTime()-spent)/float64(s.want))
				var attempts int
				if err := db.QueryRow(ctx, `SELECT count(*) FROM webhook_attempts WHERE outcome = 'delivered'`).Scan(&attempts); err != nil {
					return err
				}
				logged += attempts
				for _, n := range s.got {
					doubled += n - 1
				}
				lost += s.want - len(s.got)
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	b.report.Figures["B9"] = Figure{
		What: fmt.Sprintf("deliveries of %d events to each of %d webhooks", events, endpoints), Unit: "deliveries/s", Value: round(middle(rate), 0), Rounds: times,
		Goal:   "≥ 1000 deliveries/s, none lost, none double in the log",
		Detail: map[string]any{"each_round": rate, "cpu_ms": round(middle(cpu), 4), "lost": lost, "received_twice": doubled, "logged": logged},
	}.judge(func(f Figure) bool {
		return f.Value >= 1000 && lost == 0 && doubled == 0 && logged == events*endpoints*times
	})
	return nil
}
