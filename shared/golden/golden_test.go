package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that is allowed to fail.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	panic(r)
}

func check(t *testing.T, file, got string) (failed string) {
	r := &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != r {
			panic(p)
		}
		failed = r.failed
	}()
	Check(r, file, []byte(got))
	return ""
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "x.txt")
	if f := check(t, file, "a\nb\n"); !strings.Contains(f, "make generate") {
		t.Errorf("missing file: %q", f)
	}
	t.Setenv("UPDATE_GOLDEN", "1")
	if f := check(t, file, "a\nb\n"); f != "" {
		t.Errorf("update: %q", f)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "a\nb\n" {
		t.Errorf("wrote %q, %v", content, err)
	}
	t.Setenv("UPDATE_GOLDEN", "")
	for _, c := range []struct{ got, want string }{
		{"a\nb\n", ""},
		{"a\nc\n", "line 2:\n file b\n  now c"},
		{"a\nb\nc", "line 3:\n file \n  now c"},
		{"a\nb", "line 3:\n file \n  now (ends)"},
		{"", "line 1:\n file a\n  now "},
	} {
		if f := check(t, file, c.got); !strings.HasSuffix(f, c.want) || (f == "") != (c.want == "") {
			t.Errorf("%q: failed with %q, want %q", c.got, f, c.want)
		}
	}
}
