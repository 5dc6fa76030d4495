package bench

import (
	"os"
	"strings"
	"testing"
)

func TestScratch(t *testing.T) {
	o, err := ParseFlags(strings.Fields(os.Getenv("BENCH_ARGS")), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = "/tmp/bench"
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
