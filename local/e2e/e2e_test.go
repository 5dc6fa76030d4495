// Package e2e tests the product from outside, as its users meet it: real
// processes on a real database, spoken to over HTTP and MCP, stopped and killed
// at will.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// The product, built once for all tests of this process: with the race detector
// for most, without it (and as fast as it is) where a budget of 2 s has to hold
// for hundreds of requests.
var (
	workshop string
	raced    = sync.OnceValues(func() (string, error) { return build("raced", "-race") })
	plain    = sync.OnceValues(func() (string, error) { return build("plain") })
)

func build(name string, flags ...string) (string, error) {
	path := filepath.Join(workshop, name)
	out, err := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, "standmeet/local")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
}

func TestMain(m *testing.M) {
	code := func() int {
		var err error
		if workshop, err = os.MkdirTemp("", "standmeet-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(workshop)
		return m.Run()
	}()
	os.Exit(code)
}

// site is one installation: a database and the processes on it.
type site struct {
	*testing.T
	url    string
	db     *pg.DB // to look at what is committed
	base   string
	token  string
	handle string
	// binary is raced or plain
	binary func() (string, error)
}

const (
	// budget of a write's wait
	budget = 2 * time.Second
	// allowance is what an answer may take besides, while two cores run other
	// tests too
	allowance = 500 * time.Millisecond
)

// newSite starts an installation with the given processes, each a list of parts
// such as "gateway" or "relay,workers".
func newSite(t *testing.T, processes ...string) *site {
	t.Helper()
	return newSiteAt(t, pgtest.URL(t), processes...)
}

func newSiteAt(t *testing.T, url string, processes ...string) *site {
	t.Helper()
	return newSiteOf(t, raced, url, processes...)
}

// newPlainSite is one whose times are measured.
func newPlainSite(t *testing.T, processes ...string) *site {
	t.Helper()
	return newSiteOf(t, plain, pgtest.URL(t), processes...)
}

func newSiteOf(t *testing.T, binary func() (string, error), url string, processes ...string) *site {
	t.Helper()
	s := &site{T: t, url: url, db: pgtest.Open(t, url, pg.Options{}), binary: binary}
	for _, p := range processes {
		s.start(p)
	}
	return s
}

// process is a running one.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts a process and waits until it is ready.
func (s *site) start(parts string, env ...string) *process {
	s.Helper()
	return s.startOn(s.url, parts, env...)
}

func (s *site) startOn(url, parts string, env ...string) *process {
	s.Helper()
	path, err := s.binary()
	if err != nil {
		s.Fatal(err)
	}
	p := &process{t: s.T, cmd: exec.Command(path), done: make(chan struct{}), log: &lockedBuffer{}}
	p.cmd.Dir = s.TempDir()
	p.cmd.Env = append(os.Environ(), append([]string{"DATABASE_URL=" + url, "PARTS=" + parts, "PORT=0"}, env...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	s.Cleanup(p.stop)
	s.eventually(parts+" to be ready", func() bool {
		select {
		case <-p.done:
			s.Fatalf("%s ended: %v\n%s", parts, p.err, p.log)
		default:
		}
		return strings.Contains(p.log.String(), "is ready")
	})
	if strings.Contains(parts, "gateway") {
		var facts struct {
			BaseURL string `json:"base_url"`
			Owner   struct{ Handle, Token string }
		}
		raw, err := os.ReadFile(filepath.Join(p.cmd.Dir, "local", ".run", "run.json"))
		if err == nil {
			err = json.Unmarshal(raw, &facts)
		}
		if err != nil {
			s.Fatal(err)
		}
		s.base, s.handle = facts.BaseURL, facts.Owner.Handle
		if s.token == "" {
			s.token = facts.Owner.Token
		}
	}
	return p
}

// stop asks the process to end and waits; it must end well.
func (p *process) stop() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have just ended
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		p.t.Errorf("it did not stop:\n%s", p.log)
		return
	}
	if p.err != nil {
		p.t.Errorf("it stopped badly: %v\n%s", p.err, p.log)
	}
	if strings.Contains(p.log.String(), "DATA RACE") {
		p.t.Errorf("a data race:\n%s", p.log)
	}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have just ended
	<-p.done
	if strings.Contains(p.log.String(), "DATA RACE") {
		p.t.Errorf("a data race:\n%s", p.log)
	}
}

func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("never came: %s", what)
		}
	}
}

func (s *site) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.db.QueryRow(s.Context(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

// stranger makes another owner and gives the site seen with their token.
func (s *site) stranger(handle string) *site {
	s.Helper()
	other := *s
	if err := s.db.InTx(s.Context(), func(tx *pg.Tx) error {
		p, err := auth.EnsureOwner(s.Context(), tx, auth.Profile{Handle: handle, Name: handle, Email: handle + "@example.test"})
		if err != nil {
			return err
		}
		_, other.token, err = auth.CreateToken(s.Context(), tx, p.ID, auth.Token{Name: "test", Scopes: []string{auth.AllScopes}})
		return err
	}); err != nil {
		s.Fatal(err)
	}
	other.handle = handle
	return &other
}

type object = map[string]any

// answer is a response: its status, headers and decoded body.
type answer struct {
	status int
	header http.Header
	body   object
	raw    string
	took   time.Duration
	ended  time.Time
	err    error
}

// at reads a dotted path of the body.
func (a answer) at(path string) any {
	var v any = a.body
	for key := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case object:
			v = in[key]
		default:
			return nil
		}
	}
	return v
}

func (a answer) text(path string) string { s, _ := a.at(path).(string); return s }

// call sends a request; headers are "Name: value".
func (s *site) call(method, path string, body any, headers ...string) answer {
	var payload io.Reader
	if body != nil {
		if text, ok := body.(string); ok {
			payload = strings.NewReader(text)
		} else {
			raw, err := json.Marshal(body)
			if err != nil {
				return answer{err: err}
			}
			payload = bytes.NewReader(raw)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, payload)
	if err != nil {
		return answer{err: err}
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(began), ended: time.Now()}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, header: res.Header, raw: string(raw), took: time.Since(began), ended: time.Now(), err: err}
	if len(raw) > 0 && strings.Contains(res.Header.Get("Content-Type"), "json") {
		a.err = errors.Join(err, json.Unmarshal(raw, &a.body))
	}
	return a
}

// must is call for a request that has to succeed.
func (s *site) must(method, path string, body any, headers ...string) answer {
	s.Helper()
	a := s.call(method, path, body, headers...)
	if a.err != nil || a.status/100 != 2 {
		s.Fatalf("%s %s: %d %v %s", method, path, a.status, a.err, a.raw)
	}
	return a
}

func (s *site) create(note object, headers ...string) answer {
	s.Helper()
	return s.must("POST", "/v1/corpus", note, headers...)
}

// found searches and gives the ids of the notes.
func (s *site) found(query string) (ids []string) {
	s.Helper()
	a := s.must("GET", "/v1/corpus/search?limit=50&q="+escape(query), nil)
	items, _ := a.at("items").([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			ids = append(ids, answer{body: o}.text("note.id"))
		}
	}
	return ids
}
