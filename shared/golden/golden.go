// Package golden compares what a test makes with a committed file. `make
// generate` writes the files and `make verify` fails when one is stale; both run
// the tests whose names contain Golden, so a test that calls Check is named so.
// Only _test files may import it.
package golden

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Check fails the test unless file, from the package's directory, holds got.
// With UPDATE_GOLDEN=1 in the environment it writes the file instead.
func Check(t testing.TB, file string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (`make generate` writes it)", err)
	}
	if bytes.Equal(got, want) {
		return
	}
	gotLines, wantLines := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := 0; ; i++ {
		g, w := line(gotLines, i), line(wantLines, i)
		if g != w {
			t.Fatalf("%s is stale (`make generate` rewrites it). First difference, line %d:\n file %s\n  now %s", file, i+1, w, g)
		}
	}
}

func line(lines [][]byte, i int) string {
	if i >= len(lines) {
		return "(ends)"
	}
	return string(lines[i])
}
