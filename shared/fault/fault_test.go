package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFrom(t *testing.T) {
	own := NotFound("note")
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"own":      {own, 404, "not_found"},
		"wrapped":  {fmt.Errorf("corpus: %w", own), 404, "not_found"},
		"deadline": {fmt.Errorf("query: %w", context.DeadlineExceeded), 503, "timeout"},
		"cancel":   {context.Canceled, 503, "timeout"},
		"unknown":  {errors.New("relation \"notes\" does not exist"), 500, "internal"},
	} {
		f := From(c.err)
		if f.Status() != c.status || f.Code != c.code {
			t.Errorf("%s: %d %s, want %d %s", name, f.Status(), f.Code, c.status, c.code)
		}
		if !errors.Is(f, c.err) && !errors.Is(c.err, f) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if From(nil) != nil {
		t.Error("From(nil) is not nil")
	}
}

func TestProblemHidesTheCause(t *testing.T) {
	f := From(errors.New("password=hunter2"))
	body, err := json.Marshal(f.Problem("a/b"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "hunter2") {
		t.Errorf("the cause is shown: %s", body)
	}
	if !strings.Contains(f.Error(), "hunter2") {
		t.Errorf("the cause is not logged: %s", f.Error())
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if got["type"] != "/problems/internal" || got["status"] != 500.0 || got["instance"] != "/requests/a%2Fb" {
		t.Errorf("problem %s", body)
	}
	if list, ok := got["errors"].([]any); !ok || len(list) != 0 {
		t.Errorf("errors is not an empty list: %s", body)
	}
}

func TestKindsAreStatuses(t *testing.T) {
	for kind := Kind(0); kind < 600; kind++ {
		f := New(kind, "x", "X.")
		if kind == 0 && f.Status() != 500 || kind != 0 && f.Status() != int(kind) {
			t.Errorf("Kind %d answers %d", kind, f.Status())
		}
	}
	for _, kind := range []Kind{Invalid, Unauthorized, Forbidden, NotFoundKind, MethodNotAllowed, NotAcceptable, Conflict, PreconditionFailed, TooLarge, UnsupportedMedia, Unprocessable, RateLimited, Internal, Unavailable} {
		if http.StatusText(int(kind)) == "" {
			t.Errorf("Kind %d has no title", kind)
		}
	}
}

func TestRetrySeconds(t *testing.T) {
	for _, c := range []struct {
		f    Fault
		want int
	}{
		{Fault{Kind: Unavailable}, 1},
		{Fault{Kind: RateLimited, RetryAfter: 1500 * time.Millisecond}, 2},
		{Fault{Kind: Conflict}, 0},
		{Fault{Kind: Conflict, RetryAfter: time.Second}, 1},
		{Fault{Kind: Conflict, RetryAfter: -time.Second}, 0},
	} {
		if got := c.f.RetrySeconds(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.f, got, c.want)
		}
	}
}
