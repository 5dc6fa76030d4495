package workers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	rules "standmeet/shared/egress"
	"standmeet/shared/secret"
	"standmeet/shared/task"
	"standmeet/shared/telemetry"
	"standmeet/shared/webhook"
	attempt "standmeet/workers/internal/deliver"
	"standmeet/workers/internal/egress"
)

const (
	// sendFor bounds one request. With tardy it stays within webhook.Lease, so
	// that no two are ever in flight to one endpoint.
	sendFor = 15 * time.Second
	// tardy: a process that was frozen for so long between its claim and the
	// request doesn't make it.
	tardy = 4 * time.Second
	// drainFor is how long one job goes on with what else is due at its endpoint.
	drainFor = 8 * time.Second
	// hookConns is how many of the pool's connections webhooks use at a time, so
	// that a crowd of them leaves some for the rest.
	hookConns = 6
)

// hooks delivers to webhooks. Whatever River says of a job, the rows of the
// deliveries tell what is due: a job only brings a worker to an endpoint.
type hooks struct {
	*env
	keys   secret.Keys
	client *egress.Client
	conns  chan struct{}
	// wait is attempt.Wait, shorter in tests
	wait func(made int, random float64) (time.Duration, bool)
}

func newHooks(e *env, keys secret.Keys, r rules.Rules) *hooks {
	return &hooks{env: e, keys: keys, conns: make(chan struct{}, hookConns), wait: attempt.Wait,
		client: egress.New(egress.Options{Rules: r, Timeout: sendFor})}
}

// onConn runs what talks to the database.
func (h *hooks) onConn(ctx context.Context, f func() error) error {
	select {
	case h.conns <- struct{}{}:
		defer func() { <-h.conns }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work delivers what is due at the job's endpoint, and has itself called again
// while a task of its own is open.
func (h *hooks) work(ctx context.Context, job *river.Job[task.WebhookDeliverArgs]) error {
	j, endpoint, holder := record(job, nil), job.Args.EndpointID, uuid.New()
	var until time.Time
	for tidied := false; ; {
		var s webhook.Standing
		err := h.onConn(ctx, func() (err error) {
			if s, err = webhook.Look(ctx, h.db, j, endpoint, holder); err != nil {
				return err
			}
			if s.Open > 0 && !tidied && (s.Closed || s.Cancelling > 0 || s.Lost > 0) {
				return webhook.Tidy(ctx, h.db, j, endpoint, s)
			}
			tidied = true
			return nil
		})
		switch {
		case err != nil:
			return err
		case !tidied:
			tidied = true
			continue
		case s.Open == 0:
			return nil
		case s.Closed:
			return river.JobSnooze(time.Second) // something held it up
		case s.Busy:
			return river.JobSnooze(pause(job.Metadata))
		}
		if wait := time.Until(s.Next); wait > 0 {
			return river.JobSnooze(wait)
		}
		if until.IsZero() {
			until = time.Now().Add(drainFor)
		}
		n, err := h.drain(ctx, endpoint, holder, until)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return river.JobSnooze(0)
		case n == 0:
			return river.JobSnooze(time.Second) // somebody was faster
		}
	}
}

// pause is how long a job waits for another to leave its endpoint, about 4 s and
// longer the more often it has waited: the other delivers for it meanwhile.
func pause(metadata []byte) time.Duration {
	var m struct {
		Snoozes int `json:"snoozes"`
	}
	_ = json.Unmarshal(metadata, &m) // of River's own making; else it counts as new
	return time.Duration(float64(min(4*time.Second<<min(m.Snoozes/4, 3), 20*time.Second)) * (0.75 + rand.Float64()/2))
}

// drain makes the attempts that are due at an endpoint, one after the other, for
// as long as until says, and reports how many. Having given the endpoint back it
// looks once more: who came a moment before went away again.
func (h *hooks) drain(ctx context.Context, endpoint, holder uuid.UUID, until time.Time) (n int, err error) {
	for {
		var a *webhook.Attempt
		if err := h.onConn(ctx, func() (err error) { a, err = webhook.Claim(ctx, h.db, endpoint, holder); return err }); err != nil || a == nil {
			return n, err
		}
		for a != nil {
			n++
			if a, err = h.send(ctx, a, until); err != nil {
				return n, err
			}
		}
		if ctx.Err() != nil || time.Now().After(until) {
			return n, nil //nolint:nilerr // the end of its time is no failure
		}
	}
}

// send makes an attempt, records how it went, and gives the next one. A job that
// is cancelled, or whose process is to stop, still ends its attempt: what is under
// way at the receiver can't be called back.
func (h *hooks) send(ctx context.Context, a *webhook.Attempt, until time.Time) (next *webhook.Attempt, err error) {
	working := context.WithoutCancel(ctx)
	secrets, err := a.Secrets(h.keys)
	if err != nil {
		h.log.LogAttrs(ctx, slog.LevelError, "workers: the secret of a webhook can't be opened", slog.String("endpoint", a.Endpoint.String()), slog.Any("error", err))
		return nil, webhook.Unsent(working, h.db, a, "The signing secret can't be read any more, because the installation's key was changed. Rotate the secret, then enable the webhook.")
	}
	if time.Since(a.Claimed) > tardy {
		return nil, webhook.Forget(working, h.db, a)
	}
	sending, span := telemetry.Start(working, "webhook attempt")
	sending, cancel := context.WithTimeout(sending, sendFor)
	sent, err := attempt.Send(sending, h.client, attempt.Attempt{URL: a.URL, Secrets: secrets, EventID: a.EventID.String(), Payload: []byte(a.Payload)})
	cancel()
	if errors.Is(err, attempt.ErrSecrets) {
		span.End(err)
		return nil, webhook.Unsent(working, h.db, a, "The signing secret is damaged. Rotate the secret, then enable the webhook.")
	}
	span.End(err)
	h.telemetry.Webhook(ctx, string(sent.Outcome), sent.Duration)
	var final webhook.Verdict
	recording, cancel := context.WithTimeout(working, recordTimeout)
	defer cancel()
	err = h.onConn(recording, func() (err error) {
		next, final, err = webhook.Record(recording, h.db, a, h.judge(a, sent), ctx.Err() == nil && time.Now().Before(until))
		return err
	})
	if err == nil && final != webhook.Delivered || err != nil {
		h.log.LogAttrs(ctx, slog.LevelWarn, "workers: webhook attempt failed", slog.String("owner", a.OwnerID.String()), slog.String("endpoint", a.Endpoint.String()),
			slog.String("task", a.Task.String()), slog.String("event", a.EventID.String()), slog.Int("attempt", a.Number), slog.String("outcome", string(sent.Outcome)),
			slog.Int("status", sent.Status), slog.String("error", sent.Error), slog.String("becomes", string(final)), slog.Any("unrecorded", err))
	}
	return next, err
}

// judge says what becomes of a delivery.
func (h *hooks) judge(a *webhook.Attempt, sent attempt.Result) webhook.Result {
	r := webhook.Result{Outcome: string(sent.Outcome), Status: sent.Status, Duration: sent.Duration, Response: sent.Response, Error: sent.Error, Most: attempt.Attempts}
	switch sent.Outcome {
	case attempt.Delivered:
		r.Verdict = webhook.Delivered
	case attempt.Discard:
		r.Verdict = webhook.Discard
	case attempt.Gone:
		r.Verdict = webhook.Disable
	case attempt.Later:
		r.Verdict, r.Next, r.Asked = webhook.Retry, sent.RetryAt, true
	case attempt.Failed:
		r.Verdict = webhook.Retry
		wait, _ := h.wait(a.Spent+1, rand.Float64()) // after the last one Most decides
		r.Next = time.Now().Add(wait)
	}
	return r
}
