package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const suite = "testdata/conformance"

var install = sync.OnceValues(func() (skip string, err error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + " is not on this machine", nil
		}
	}
	lock, err := os.ReadFile(filepath.Join(suite, "package-lock.json"))
	if err != nil {
		return "", err
	}
	// npm writes this file last; it lists what the lock file asked for.
	stamp := filepath.Join(suite, "node_modules", ".standmeet-lock")
	if done, err := os.ReadFile(stamp); err == nil && bytes.Equal(done, lock) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir = suite
	if out, err := npm.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("ENOTFOUND")) || bytes.Contains(out, []byte("EAI_AGAIN")) || ctx.Err() != nil {
			return "npm reaches no registry", nil
		}
		return "", errors.New(string(out))
	}
	return "", os.WriteFile(stamp, lock, 0o644)
})

// node runs a script of the suite's folder; loader flags suit the Node.js that is here.
func node(t *testing.T, env []string, args ...string) (out string, err error) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: -short, and this runs npm packages")
	}
	skip, err := install()
	if err != nil {
		t.Fatal(err)
	}
	if skip != "" {
		t.Skip("skipped: " + skip)
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		t.Skipf("skipped: Node.js %s is older than 20", strings.TrimSpace(string(version)))
	} else if n < 22 {
		args = append([]string{"--import", "./node20.mjs"}, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir, cmd.Env = suite, append(os.Environ(), env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// asSuite makes the endpoint what the suite expects of its own test servers: it
// sends no token, and wants a tool "greet", which is no name of an operation.
func asSuite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = bytes.ReplaceAll(body, []byte(`"name":"greet"`), []byte(`"name":"greet_someone"`))
		if r.Header.Get("Mcp-Name") == "greet" {
			r.Header.Set("Mcp-Name", "greet_someone")
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Authorization", "Bearer "+owner)
		next.ServeHTTP(w, r)
	})
}

// TestConformance runs every server scenario of the official suite at each
// revision, and those of the extensions. A check in not-applicable.json
// ("scenario#check" and why) has to fail and every other has to pass, so that
// the file stays true.
func TestConformance(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(suite, "not-applicable.json"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := decode[map[string]string](t, raw)
	e := endpointOf(t, asSuite)
	failing := map[string]bool{}
	// the number is how many checks pass: a suite that breaks off would not fail
	for revision, least := range map[string]int{"2025-06-18": 31, "2025-11-25": 37, "2026-07-28": 86, "": 135} {
		dir, passed := t.TempDir(), 0
		args := []string{"node_modules/@modelcontextprotocol/conformance/dist/index.js",
			"server", "--suite", "all", "--url", e.URL + "/mcp", "--output-dir", dir}
		if revision != "" {
			args = append(args, "--spec-version", revision)
		}
		out, _ := node(t, nil, args...) // its exit code says less than its checks
		files, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// the folder is "server-<scenario>-<time>"
			scenario := strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "server-")
			scenario = scenario[:len(scenario)-len("-2006-01-02T15-04-05-000Z")]
			for _, c := range decode[[]struct{ ID, Status, ErrorMessage string }](t, raw) {
				key := scenario + "#" + c.ID
				switch c.Status {
				case "FAILURE", "WARNING":
					if failing[key] = true; reasons[key] == "" {
						t.Errorf("%s %s: %s %s", revision, key, c.Status, c.ErrorMessage)
					}
				case "SUCCESS":
					if passed++; reasons[key] != "" {
						t.Errorf("%s %s passes; take it off the list", revision, key)
					}
				}
			}
		}
		if passed < least {
			t.Errorf("revision %q: %d checks passed, fewer than %d: %s", revision, passed, least, out)
		}
		t.Logf("revision %q: %d scenarios, %d checks passed", revision, len(files), passed)
	}
	for key := range reasons {
		if !failing[key] {
			t.Errorf("%s is listed and does not fail", key)
		}
	}
}

// TestTypeScriptClient runs the script that is also meant for the whole product.
func TestTypeScriptClient(t *testing.T) {
	e := endpointOf(t)
	e.world.indexing(300 * time.Millisecond) // longer than the wait: the receipt is followed
	out, err := node(t, []string{"MCP_URL=" + e.URL + "/mcp", "MCP_TOKEN=" + owner}, "client.mjs")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var got struct {
		Tools, Removed int
		First          struct{ Indexed bool }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil || got.Tools != 14 || got.Removed != 2 || got.First.Indexed {
		t.Errorf("%s: %v", out, err)
	}
}
