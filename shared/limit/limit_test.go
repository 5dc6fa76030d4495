package limit_test

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// wait is how long a refusal asks to wait; 0 for none.
func wait(t *testing.T, err error) time.Duration {
	t.Helper()
	if err == nil {
		return 0
	}
	f := fault.From(err)
	if f.Code != "rate_limited" || f.Status() != 429 || f.RetrySeconds() < 1 {
		t.Fatal(err)
	}
	return f.RetryAfter
}

// later lets time pass for every key.
func later(t *testing.T, db *pg.DB, d time.Duration) {
	t.Helper()
	if _, err := db.Exec(t.Context(), `UPDATE rate_limits SET tat = tat - $1::interval`, d); err != nil {
		t.Fatal(err)
	}
}

func TestExactlyMostAreTaken(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "x", Most: 7, Per: time.Hour}
	var all sync.WaitGroup
	var taken atomic.Int32
	for range 50 {
		all.Go(func() {
			switch err := r.Take(t.Context(), db, "k"); {
			case err == nil:
				taken.Add(1)
			case fault.From(err).Code != "rate_limited":
				t.Error(err)
			}
		})
	}
	all.Wait()
	if taken.Load() != 7 {
		t.Errorf("%d were taken of 7", taken.Load())
	}
}

func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "x", Most: 3, Per: time.Hour, Detail: "Too much."}
	for i := range 3 {
		if err := errors.Join(r.Check(t.Context(), db, "k"), r.Take(t.Context(), db, "k")); err != nil {
			t.Fatalf("use %d: %v", i, err)
		}
	}
	refused := r.Take(t.Context(), db, "k")
	d := wait(t, refused)
	if d < 19*time.Minute || d > 20*time.Minute || fault.From(refused).Detail != "Too much. Try again in 20 minutes." {
		t.Errorf("after %v: %v", d, refused)
	}
	if c := wait(t, r.Check(t.Context(), db, "k")); c < 19*time.Minute || c > d {
		t.Errorf("Check says %v, Take %v", c, d)
	}
	later(t, db, d-10*time.Second)
	if again := wait(t, r.Take(t.Context(), db, "k")); again <= 0 || again > 10*time.Second {
		t.Errorf("10 s before its time it says %v", again)
	}
	later(t, db, 10*time.Second)
	if err := errors.Join(r.Check(t.Context(), db, "k"), r.Take(t.Context(), db, "k")); err != nil {
		t.Error("after the time that it said:", err)
	}
	if wait(t, r.Take(t.Context(), db, "k")) == 0 {
		t.Error("two were allowed for the wait of one")
	}

	// after a long time all of them, and no more
	later(t, db, 100*time.Hour)
	for i := range 3 {
		if err := r.Take(t.Context(), db, "k"); err != nil {
			t.Fatalf("use %d, later: %v", i, err)
		}
	}
	if wait(t, r.Take(t.Context(), db, "k")) == 0 {
		t.Error("what was not used was saved up")
	}
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r, other := limit.Rule{Name: "x", Most: 1, Per: time.Hour}, limit.Rule{Name: "y", Most: 1, Per: time.Hour}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	ok(r.GiveBack(t.Context(), db, "k")) // nothing to give back
	ok(r.Take(t.Context(), db, "k"))
	// other keys and rules are apart
	ok(r.Take(t.Context(), db, "l"))
	ok(other.Take(t.Context(), db, "k"))
	if wait(t, r.Take(t.Context(), db, "k")) == 0 {
		t.Error("two of one")
	}
	ok(r.GiveBack(t.Context(), db, "k"))
	ok(r.Take(t.Context(), db, "k"))

	// what a transaction took that failed is not taken
	undo := errors.New("undo")
	third := limit.Rule{Name: "z", Most: 1, Per: time.Hour}
	for range 2 {
		if err := db.InTx(t.Context(), func(tx *pg.Tx) error { return errors.Join(third.Take(t.Context(), tx, "k"), undo) }); !errors.Is(err, undo) || fault.From(err).Code == "rate_limited" {
			t.Error(err)
		}
	}
	ok(third.Check(t.Context(), db, "k"))
}

func TestDeleteOld(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "x", Most: 2, Per: time.Hour}
	for i := range 3 {
		if err := r.Take(t.Context(), db, fmt.Sprint("old", i)); err != nil {
			t.Fatal(err)
		}
	}
	later(t, db, time.Hour)
	if err := r.Take(t.Context(), db, "new"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{2, 1, 0} {
		if n, err := limit.DeleteOld(t.Context(), db, 2); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if err := r.Take(t.Context(), db, "new"); err != nil {
		t.Fatal(err)
	}
	if wait(t, r.Take(t.Context(), db, "new")) == 0 {
		t.Error("a row that limits was removed")
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.7":                 "192.0.2.7",
		"::ffff:192.0.2.7":          "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":      "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::1%eth0": "2001:db8:1:2::/64",
		"2001:db8:1:3::1":           "2001:db8:1:3::/64",
		"":                          "",
		"no address":                "no address",
	} {
		if got := limit.Address(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// A refusal says in words when to try again, rounded up.
func TestWaitInWords(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	for per, want := range map[time.Duration]string{
		time.Second: `1 second`, 45 * time.Second: `4\d seconds`, 10 * time.Minute: `10 minutes`, time.Hour: `60 minutes`, 3 * time.Hour: `3 hours`, 48 * time.Hour: `48 hours`,
	} {
		r := limit.Rule{Name: per.String(), Most: 1, Per: per}
		if err := r.Take(t.Context(), db, "k"); err != nil {
			t.Fatal(err)
		}
		err := r.Take(t.Context(), db, "k")
		if err == nil && per == time.Second {
			continue // it took longer than that
		}
		if f := fault.From(err); f == nil || !regexp.MustCompile(`^That was too often from this address\. Try again in `+want+`\.$`).MatchString(f.Detail) {
			t.Errorf("%s: %v", per, f)
		}
	}
}
