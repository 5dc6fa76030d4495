// Package deliver makes one attempt at one webhook, as Standard Webhooks asks,
// and judges what came of it. It knows no database: when to try again, and
// whether at all, is kept by whoever calls.
package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"standmeet/workers/internal/egress"
)

// Outcome is what an attempt means for its delivery.
type Outcome string

const (
	// Delivered: the endpoint answered 2xx. What its body then did doesn't matter.
	Delivered Outcome = "delivered"
	// Failed: the attempt is spent, and another follows as Wait says. That is so
	// for each answer that isn't one of the others, redirects among them, and when
	// there was none: a name that can't be looked up or leads inside, bad TLS, a
	// time limit. Any of these may be mended.
	Failed Outcome = "failed"
	// Discard: the endpoint said that the request is wrong (4xx other than 408,
	// 410 and 429); the same bytes will be no better later.
	Discard Outcome = "discard"
	// Gone: the endpoint answered 410; it wants no event any more.
	Gone Outcome = "gone"
	// Later: the endpoint answered 429 or 503 and said when to come again. The
	// attempt isn't spent; the next is due at Result.RetryAt.
	Later Outcome = "later"
)

const (
	// MaxResponse is how much of a response is kept, in bytes.
	MaxResponse = 4 << 10
	// MinLater and MaxLater bound what an endpoint may ask for. As an attempt that
	// is put off isn't spent, less than MinLater would be a hot loop.
	MinLater = 5 * time.Second
	MaxLater = 24 * time.Hour

	// bodyTime is how long a body is waited for, for what of it is kept.
	bodyTime = 5 * time.Second
)

// Attempt is what is sent.
type Attempt struct {
	// URL as rules.URL gave it. It is checked again.
	URL string
	// Secrets sign, newest first: one, or two while a rotation lasts. Each is
	// "whsec_" and base64.
	Secrets []string
	// EventID is the webhook-id, the same on every attempt, which receivers know
	// repetitions by.
	EventID string
	// Time of this attempt, which receivers refuse when it is old; zero is now.
	Time time.Time
	// Payload is sent as it is, byte for byte, and is JSON.
	Payload []byte
}

// Result of an attempt, in the form that the log keeps.
type Result struct {
	Outcome Outcome
	// Status is the HTTP status, 0 when there was no answer.
	Status   int
	Duration time.Duration
	// Response is the beginning of the answer's body, at most MaxResponse bytes of
	// UTF-8 without NUL.
	Response string
	// Error is one plain sentence for the owner; empty when delivered.
	Error string
	// RetryAt is set when the outcome is Later, and never sooner than MinLater.
	RetryAt time.Time
}

// ErrSecrets is that there is no secret, or one that isn't base64.
var ErrSecrets = errors.New("deliver: no secret that can sign")

// Send makes the attempt. There is an error when ctx ended before there was an
// answer (the endpoint may have got the event; the result says what is known) and
// ErrSecrets when nothing was sent; neither is the endpoint's fault.
func Send(ctx context.Context, client *egress.Client, a Attempt) (Result, error) {
	if a.Time.IsZero() {
		a.Time = time.Now()
	}
	signatures, err := sign(a)
	if err != nil {
		return Result{}, err
	}
	begin := time.Now()
	failed := func(err error) (Result, error) {
		return Result{Outcome: Failed, Duration: time.Since(begin), Error: text(egress.Explain(err))}, ctx.Err()
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	req, err := http.NewRequestWithContext(sending, http.MethodPost, a.URL, bytes.NewReader(a.Payload))
	if err != nil {
		return failed(&egress.Refused{Code: "url_malformed", Reason: "The endpoint's address is not a complete one."})
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "StandMeet-Webhooks/1")
	req.Header.Set(webhooks.HeaderWebhookID, a.EventID)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(a.Time.Unix(), 10))
	req.Header.Set(webhooks.HeaderWebhookSignature, signatures)
	resp, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	outcome, wait := classify(resp.StatusCode, resp.Header, time.Now())
	// The status has decided. How the body ends, or that it doesn't, changes nothing.
	defer time.AfterFunc(bodyTime, stop).Stop()
	head, _ := io.ReadAll(io.LimitReader(resp.Body, MaxResponse+1))
	r := Result{
		Outcome: outcome, Status: resp.StatusCode, Duration: time.Since(begin),
		Response: response(head), Error: text(explain(outcome, resp)),
	}
	if outcome == Later {
		r.RetryAt = time.Now().Add(wait)
	}
	return r, nil
}

// sign gives the value of webhook-signature.
func sign(a Attempt) (string, error) {
	var signatures []string
	for _, secret := range a.Secrets {
		// The library takes the empty key, which everybody knows.
		w, err := webhooks.NewWebhook(secret)
		if err != nil || strings.TrimPrefix(secret, "whsec_") == "" {
			return "", ErrSecrets // without the cause, which may hold a part of the secret
		}
		signature, err := w.Sign(a.EventID, a.Time, a.Payload)
		if err != nil {
			return "", fmt.Errorf("deliver: sign: %w", err)
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) == 0 {
		return "", ErrSecrets
	}
	return strings.Join(signatures, " "), nil
}

// classify judges an answer; wait is what Later waits.
func classify(status int, header http.Header, now time.Time) (o Outcome, wait time.Duration) {
	switch {
	case status >= 200 && status <= 299:
		return Delivered, 0
	case status == http.StatusGone:
		return Gone, 0
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		if wait, ok := retryAfter(header.Get("Retry-After"), now); ok {
			return Later, wait
		}
		return Failed, 0
	case status == http.StatusRequestTimeout:
		return Failed, 0
	case status >= 400 && status <= 499:
		return Discard, 0
	}
	return Failed, 0
}

// retryAfter reads seconds or an HTTP date. Junk, no time at all, and a time that
// isn't ahead don't count; the rest is brought between MinLater and MaxLater.
func retryAfter(value string, now time.Time) (wait time.Duration, ok bool) {
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxLater/time.Second) { // too many digits are many seconds
			seconds = int64(MaxLater / time.Second)
		}
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	if wait <= 0 {
		return 0, false
	}
	return min(max(wait, MinLater), MaxLater), true
}

// explain says what an answer other than 2xx means.
func explain(o Outcome, resp *http.Response) string {
	status := strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	switch {
	case o == Delivered:
		return ""
	case o == Gone:
		return fmt.Sprintf("The endpoint answered %s: it wants no more events.", status)
	case o == Discard:
		return fmt.Sprintf("The endpoint answered %s: it does not take this event.", status)
	case o == Later:
		return fmt.Sprintf("The endpoint answered %s and asked to come later.", status)
	case resp.StatusCode >= 300 && resp.StatusCode <= 399:
		if to := resp.Header.Get("Location"); to != "" {
			return fmt.Sprintf("The endpoint answered %s, to %.200s; redirects are not followed.", status, to)
		}
		return fmt.Sprintf("The endpoint answered %s; redirects are not followed.", status)
	}
	return fmt.Sprintf("The endpoint answered %s.", status)
}

// response is the part of a body that is kept. A letter that the cut went through
// is left out.
func response(head []byte) string {
	cut := len(head) > MaxResponse
	head = head[:min(len(head), MaxResponse)]
	if cut {
		for i := range min(utf8.UTFMax, len(head)) {
			if last := head[len(head)-1-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					head = head[:len(head)-1-i]
				}
				break
			}
		}
	}
	kept := text(string(head))
	for len(kept) > MaxResponse { // signs for what can't be read take more room
		_, size := utf8.DecodeLastRuneInString(kept)
		kept = kept[:len(kept)-size]
	}
	return kept
}

// text is s as PostgreSQL and JSON take it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
