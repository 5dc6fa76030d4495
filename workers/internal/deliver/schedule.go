package deliver

import "time"

// Attempts is how many a delivery has before it is discarded.
const Attempts = 18

// jitter is how far a wait is from the schedule, at most, either way: many
// deliveries that failed together don't come back together.
const jitter = 0.15

// Wait is how long after attempt number made (1 is the first) the next is due; ok
// is false when made was the last. random is from 0 to 1 (math/rand/v2's
// Float64); 0.5 gives the schedule without jitter.
func Wait(made int, random float64) (wait time.Duration, ok bool) {
	if made >= Attempts {
		return 0, false
	}
	schedule := []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour}
	wait = schedule[min(max(made, 1), len(schedule))-1]
	return time.Duration(float64(wait) * (1 - jitter + 2*jitter*random)), true
}
