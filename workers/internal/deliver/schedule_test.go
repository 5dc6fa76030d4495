package deliver

import (
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	t.Parallel()
	want := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour}
	for len(want) < 17 {
		want = append(want, 10*time.Hour)
	}
	var sum time.Duration
	for i, w := range want {
		for _, random := range []float64{0, 0.25, 0.5, 0.75, 0.999999} {
			got, ok := Wait(i+1, random)
			if off := float64(got)/float64(w) - 1; !ok || off < -0.2 || off > 0.2 || random == 0 && off > -0.1 || random > 0.99 && off < 0.1 {
				t.Errorf("after attempt %d, random %v: %v, %v; want about %v", i+1, random, got, ok, w)
			}
		}
		got, _ := Wait(i+1, 0.5)
		if got.Round(time.Millisecond) != w {
			t.Errorf("after attempt %d: %v, want %v", i+1, got, w)
		}
		sum += got
	}
	if sum < 5*24*time.Hour || sum > 6*24*time.Hour {
		t.Errorf("18 attempts last %v, want a little over 5 days", sum)
	}
	for _, made := range []int{18, 19, 1 << 30} {
		if got, ok := Wait(made, 0.5); ok || got != 0 {
			t.Errorf("after attempt %d: %v, %v; want no more", made, got, ok)
		}
	}
	for _, made := range []int{0, -1} {
		if got, ok := Wait(made, 0.5); !ok || got < time.Second {
			t.Errorf("after attempt %d: %v, %v; want no hot loop", made, got, ok)
		}
	}
}
