package limit_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"standmeet/shared/fault"
	"standmeet/shared/limit"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

func refused(t *testing.T, err error) bool {
	t.Helper()
	f := fault.From(err)
	if f == nil {
		return false
	}
	if f.Code != "rate_limited" || f.Status() != 429 || f.RetrySeconds() < 1 {
		t.Fatal(err)
	}
	return true
}

func TestRule(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "r", Most: 3, Per: time.Hour, Detail: "Too many."}
	take := func(key string) bool { return !refused(t, r.Take(t.Context(), db, key)) }
	check := func(key string) bool { return !refused(t, r.Check(t.Context(), db, key)) }
	if !check("a") {
		t.Error("the first is refused")
	}
	for i := range 5 {
		if got, want := take("a"), i < 3; got != want {
			t.Errorf("take %d: %v", i, got)
		}
		if got, want := check("a"), i < 2; got != want {
			t.Errorf("check after take %d: %v", i, got)
		}
	}
	if err := r.Take(t.Context(), db, "a"); fault.From(err).RetrySeconds() > 20*60 || fault.From(err).RetrySeconds() < 19*60 || !strings.HasPrefix(fault.From(err).Detail, "Too many. ") {
		t.Errorf("%v, again after %v", err, fault.From(err).RetryAfter)
	}
	if !take("b") {
		t.Error("another key is refused")
	}
	if other := (limit.Rule{Name: "other", Most: 1, Per: time.Hour}); refused(t, other.Take(t.Context(), db, "a")) {
		t.Error("another rule is refused")
	}
	// one given back is one more
	if err := r.GiveBack(t.Context(), db, "a"); err != nil || !check("a") || !take("a") || take("a") {
		t.Error("wrong after one was given back:", err)
	}
	if err := r.GiveBack(t.Context(), db, "never taken"); err != nil {
		t.Error(err)
	}
	// time gives them back too
	if _, err := db.Exec(t.Context(), `UPDATE rate_limits SET tat = tat - interval '20 minutes' WHERE bucket = 'r'`); err != nil {
		t.Fatal(err)
	}
	if !take("a") || take("a") {
		t.Error("wrong after a third of the time")
	}
}

func TestAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "r", Most: 7, Per: time.Hour}
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			if !refused(t, r.Take(t.Context(), db, "a")) {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != 7 {
		t.Errorf("%d taken of 7", taken.Load())
	}
}

// What is rolled back was not counted.
func TestInTx(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "r", Most: 1, Per: time.Hour}
	failed := fault.NotFound("thing")
	for range 2 {
		err := db.InTx(t.Context(), func(tx *pg.Tx) error {
			if err := r.Take(t.Context(), tx, "a"); err != nil {
				return err
			}
			return failed
		})
		if fault.From(err).Code != "not_found" {
			t.Error(err)
		}
	}
}

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8::1": "2001:db8::/64", "2001:db8::2%eth0": "2001:db8::/64", "2001:db8:0:1::1": "2001:db8:0:1::/64", "": "", "junk": "junk",
	} {
		if got := limit.Address(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

func TestDeleteOld(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	r := limit.Rule{Name: "r", Most: 1, Per: time.Hour}
	for _, key := range []string{"a", "b", "c"} {
		if err := r.Take(t.Context(), db, key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), `UPDATE rate_limits SET tat = now() - interval '1 second' WHERE key <> 'c'`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{1, 1, 0} {
		if n, err := limit.DeleteOld(t.Context(), db, 1); n != want || err != nil {
			t.Error(n, err)
		}
	}
	if !refused(t, r.Take(t.Context(), db, "c")) {
		t.Error("one that still limits was removed")
	}
}
