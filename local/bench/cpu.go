package bench

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is the unit of the times in /proc on every Linux architecture.
const tick = 10 * time.Millisecond

// cpuTime is what this process and PostgreSQL's have spent so far; 0 where there
// is no /proc. On a shared machine it says what wall time can't.
func (b *bench) cpuTime() (spent time.Duration) {
	self, postmaster := strconv.Itoa(os.Getpid()), strconv.Itoa(b.server.Pid())
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, p := range processes {
		if p.Name()[0] < '0' || p.Name()[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// behind the name, which may hold anything: state, parent, …
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		ticks := func(from, to int) (d time.Duration) {
			for _, s := range f[from:to] {
				v, _ := strconv.Atoi(string(s))
				d += tick * time.Duration(v)
			}
			return d
		}
		switch {
		case p.Name() == self, string(f[1]) == postmaster:
			spent += ticks(11, 13) // own, user and system
		case p.Name() == postmaster:
			spent += ticks(11, 15) // and that of those that have ended
		}
	}
	return spent
}
