package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"standmeet/shared/auth"
	"standmeet/shared/config"
	"standmeet/shared/pgtest"
	"standmeet/workers"
)

// asMain in the environment makes the test binary the program itself.
const asMain = "STANDMEET_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	workers.Builder()
	if os.Getenv(asMain) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// home is a directory that other users can reach, as PostgreSQL's must when we
// are root.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// await waits until ok answers true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}

// buffer may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a Run under way.
type running struct {
	t    *testing.T
	dir  string
	out  buffer
	log  buffer
	stop func() error
	RunFile
}

func defaults(t *testing.T) config.Config {
	t.Helper()
	c, err := config.Load(func(name string) (string, bool) { return "0", name == "PORT" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start returns once run.json is there.
func start(t *testing.T, dir string, c config.Config) *running {
	t.Helper()
	r := &running{t: t, dir: dir}
	ctx, cancel := context.WithCancel(t.Context())
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = Run(ctx, Options{
			Config: c, Dir: dir, Out: &r.out, Logger: slog.New(slog.NewTextHandler(&r.log, nil)),
			Owner: auth.Profile{Handle: "me", Name: "Ada", Email: "ada@example.test"},
		})
	}()
	r.stop = func() error {
		cancel()
		<-ended
		return result
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	await(t, "run.json", func() bool {
		select {
		case <-ended:
			t.Fatalf("Run ended: %v", result)
		default:
		}
		return readRunFile(t, dir, &r.RunFile)
	})
	return r
}

func readRunFile(t *testing.T, dir string, into *RunFile) bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

type reply struct {
	status int
	raw    string
	body   map[string]any
}

func (r *running) call(method, path, body string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.BaseURL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Owner.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	return r.do(http.DefaultClient, req)
}

func (r *running) do(c *http.Client, req *http.Request) (out reply) {
	r.t.Helper()
	res, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	out.status, out.raw = res.StatusCode, string(raw)
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &out.body); err != nil {
			r.t.Fatalf("%v: %s", err, raw)
		}
	}
	return out
}

// postmaster is the process id of the embedded server in dir.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	pid, err := readPostmaster(dir)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// readPostmaster fails for a moment while a server starts: its file is made anew.
func readPostmaster(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strconv.Atoi(first)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// pasted runs the curl line that was printed.
func (r *running) pasted() reply {
	r.t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		r.t.Fatal("this test pastes the printed line: install curl")
	}
	line := regexp.MustCompile(`(?m)^curl .*$`).FindString(r.out.String())
	out, err := exec.CommandContext(r.t.Context(), "/bin/sh", "-c", line).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%q: %v: %s", line, err, out)
	}
	a := reply{raw: string(out)}
	if err := json.Unmarshal(out, &a.body); err != nil {
		r.t.Fatalf("%q answers %s", line, out)
	}
	return a
}

// The whole of make run: it answers as it prints, keeps what it was given, and
// leaves nothing behind.
func TestRun(t *testing.T) {
	dir := filepath.Join(home(t), "local", ".run")
	first := start(t, dir, defaults(t))
	info, err := os.Stat(filepath.Join(dir, "run.json"))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("run.json: %v, %v", info.Mode(), err)
	}
	if first.MCPURL != first.BaseURL+"/mcp" || first.Owner.Handle != "me" || first.Owner.Email != "ada@example.test" ||
		!strings.HasPrefix(first.DatabaseURL, "postgres://") || first.MailDir != filepath.Join(dir, "mail") || first.BlobDir != filepath.Join(dir, "blobs") {
		t.Errorf("%+v", first.RunFile)
	}
	for _, printed := range []string{first.BaseURL + "/", first.Owner.SignInURL, first.Owner.Token, first.MCPURL} {
		if !strings.Contains(first.out.String(), " "+printed+"\n") {
			t.Errorf("%s is not printed:\n%s", printed, first.out.String())
		}
	}
	for range 2 { // pasting it twice works as well
		if a := first.pasted(); a.body["indexed"] != true {
			t.Errorf("the printed line answers %s", a.raw)
		}
	}
	if a := first.call("GET", "/v1/corpus/search?q=note", ""); a.status != 200 || a.body["total"] != 2.0 {
		t.Errorf("search: %d %s", a.status, a.raw)
	}
	if a := first.call("POST", "/v1/mail/send-test", ""); a.body["mail"].(map[string]any)["state"] != "sent" {
		t.Errorf("mail: %s", a.raw)
	}
	if mails, err := filepath.Glob(filepath.Join(first.MailDir, "*.eml")); err != nil || len(mails) != 1 {
		t.Errorf("captured mails: %v, %v", mails, err)
	}
	for path, want := range map[string]string{"/healthz": `"ok"`, "/readyz": `"ok"`, "/openapi.json": `"openapi": "3.1.0"`, "/": "not signed in"} {
		if a := first.call("GET", path, ""); a.status != 200 || !strings.Contains(a.raw, want) {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := first.call("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`); a.status != 200 || !strings.Contains(a.raw, `"account_get"`) {
		t.Errorf("mcp: %d %s", a.status, a.raw)
	}
	for path, code := range map[string]string{"/nothing": "not_found", "/v1//account": "not_found", "/v1/account/../account": "not_found", "/healthz/": "not_found"} {
		if a := first.call("GET", path, ""); a.status != 404 || a.body["code"] != code {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
	}
	if a := first.call("PUT", "/v1/account", ""); a.status != 405 || a.body["code"] != "method_not_allowed" {
		t.Errorf("PUT: %d %s", a.status, a.raw)
	}
	signIn(t, first)

	pid := postmaster(t, dir)
	if err := first.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if alive(pid) {
		t.Errorf("PostgreSQL is still running as %d", pid)
	}
	if _, err := os.Stat(filepath.Join(dir, "run.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("run.json after the stop: %v", err)
	}
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(first.BaseURL, "http://"), time.Second); err == nil {
		t.Error("something still listens")
	}

	second := start(t, dir, defaults(t))
	if second.Owner.Token != first.Owner.Token || second.Owner.SignInURL == first.Owner.SignInURL {
		t.Errorf("%+v, after %+v", second.Owner, first.Owner)
	}
	if a := second.call("GET", "/v1/corpus/search?q=note", ""); a.status != 200 || a.body["total"] != 2.0 {
		t.Errorf("after a restart: %d %s", a.status, a.raw)
	}
	signIn(t, second)
	if a := second.call("GET", "/v1/tokens", ""); a.body["total"] != 1.0 {
		t.Errorf("a token for each start: %s", a.raw)
	}
}

// signIn follows the printed link as a person does.
func signIn(t *testing.T, r *running) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(address string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.do(browser, req)
	}
	page := get(r.Owner.SignInURL)
	found := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page.raw)
	if page.status != 200 || found == nil {
		t.Fatalf("%d %s", page.status, page.raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.BaseURL+"/sign-in", strings.NewReader(url.Values{"token": {found[1]}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", r.BaseURL)
	if a := r.do(browser, req); a.status != 200 || !strings.Contains(a.raw, "Signed in as <strong>me</strong>") {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if a := get(r.BaseURL + "/v1/account"); a.status != 200 {
		t.Errorf("the session's account: %d %s", a.status, a.raw)
	}
}

// A port that is taken is said in one line, before anything is started.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := defaults(t)
	c.Port = l.Addr().(*net.TCPAddr).Port
	dir := filepath.Join(home(t), ".run")
	err = Run(t.Context(), Options{Config: c, Dir: dir, Out: io.Discard, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d is in use", c.Port)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it made %s first: %v", dir, err)
	}
}

// A second run on the same directory is refused and leaves the first alone.
func TestSecondRun(t *testing.T) {
	dir := filepath.Join(home(t), ".run")
	first := start(t, dir, defaults(t))
	err := Run(t.Context(), Options{Config: defaults(t), Dir: dir, Out: io.Discard, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if a := first.call("GET", "/readyz", ""); a.status != 200 || !readRunFile(t, dir, &RunFile{}) {
		t.Errorf("the first run is hurt: %d %s", a.status, a.raw)
	}
}

// The parts as processes of their own on a database that is there already.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	c := defaults(t)
	c.DatabaseURL = pgtest.URL(t)
	c.BindAddress = netip.IPv4Unspecified()
	c.Parts = config.Parts{Gateway: true}
	gateway := start(t, filepath.Join(dir, "gateway"), c)
	if _, err := os.Stat(filepath.Join(dir, "gateway", "postgres")); !errors.Is(err, os.ErrNotExist) || gateway.DatabaseURL != c.DatabaseURL {
		t.Errorf("it started a server of its own: %v, %s", err, gateway.DatabaseURL)
	}
	if !strings.HasPrefix(gateway.BaseURL, "http://127.0.0.1:") {
		t.Error(gateway.BaseURL)
	}
	a := gateway.call("POST", "/v1/mail/send-test", `{"wait_seconds":0.1}`)
	mail, _ := a.body["mail"].(map[string]any)
	if mail["state"] != "sending" || a.body["wait"].(map[string]any)["ended"] != "timeout" {
		t.Fatalf("without relay and workers: %s", a.raw)
	}

	c.Parts = config.Parts{Relay: true, Workers: true}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: c, Dir: filepath.Join(dir, "workers"), Out: io.Discard, Logger: slog.New(slog.DiscardHandler)})
	}()
	await(t, "the mail's task completed", func() bool {
		a := gateway.call("GET", "/v1/tasks/"+mail["job_id"].(string)+"?wait_seconds=1", "")
		task, ok := a.body["task"].(map[string]any)
		if !ok {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		return task["state"] == "completed"
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("relay and workers: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "workers", "run.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part without a gateway on a database of others wrote run.json: %v", err)
	}
}

// PostgreSQL killed: requests fail with 503 for a while, and it comes back.
func TestDatabaseKilled(t *testing.T) {
	dir := filepath.Join(home(t), ".run")
	r := start(t, dir, defaults(t))
	before := postmaster(t, dir)
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another server that answers", func() bool {
		a := r.call("GET", "/v1/account", "")
		if a.status != 200 && a.status != 503 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		if a.status != 200 {
			return false
		}
		now, err := readPostmaster(dir)
		return err == nil && now != before
	})
}

// process is the program itself, as another process.
type process struct {
	*exec.Cmd
	dir  string
	out  buffer
	done chan struct{}
	RunFile
}

// launch runs the program in a directory of its own, as another user when
// credential is set.
func launch(t *testing.T, credential *syscall.Credential, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := home(t)
	if credential != nil {
		// the test binary lies where others can't reach it
		content, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		self = filepath.Join(home, "standmeet")
		if err := os.WriteFile(self, content, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(home, int(credential.Uid), int(credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), self), dir: filepath.Join(home, "local", ".run"), done: make(chan struct{})}
	p.Dir = home
	p.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "PORT=0", asMain + "=1"}, env...)
	p.Stdout, p.Stderr = &p.out, &p.out
	p.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if credential != nil {
		if err := os.Chown(filepath.Dir(p.dir), int(credential.Uid), int(credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	await(t, "run.json", func() bool {
		select {
		case <-p.done:
			t.Fatalf("it ended: %s", p.out.String())
		default:
		}
		return readRunFile(t, p.dir, &p.RunFile)
	})
}

// Whatever ends the program, no PostgreSQL outlives it.
func TestSignals(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		clean  bool
	}{
		"Ctrl-C":  {syscall.SIGINT, true},
		"SIGTERM": {syscall.SIGTERM, true},
		"kill -9": {syscall.SIGKILL, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := launch(t, nil)
			p.ready(t)
			pid := postmaster(t, p.dir)
			if err := syscall.Kill(-p.Process.Pid, c.signal); err != nil {
				t.Fatal(err)
			}
			<-p.done
			if c.clean && (p.ProcessState.ExitCode() != 0 || alive(pid)) {
				t.Errorf("exit code %d, PostgreSQL running: %t\n%s", p.ProcessState.ExitCode(), alive(pid), p.out.String())
			}
			if _, err := os.Stat(filepath.Join(p.dir, "run.json")); c.clean != errors.Is(err, os.ErrNotExist) {
				t.Errorf("run.json: %v", err)
			}
			await(t, "PostgreSQL gone", func() bool { return !alive(pid) })
		})
	}
}

// As root PostgreSQL runs as another user; as anybody else as themselves.
func TestNotRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can become another user, and every other test here ran as one")
	}
	p := launch(t, &syscall.Credential{Uid: 65534, Gid: 65534})
	p.ready(t)
	r := running{t: t, RunFile: p.RunFile}
	if a := r.call("POST", "/v1/mail/send-test", ""); a.body["mail"].(map[string]any)["state"] != "sent" {
		t.Errorf("%s", a.raw)
	}
	info, err := os.Stat(filepath.Join(p.dir, "postgres", "data"))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestBadEnvironment(t *testing.T) {
	p := launch(t, nil, "PORT=x", "LOG_LEVEL=loud")
	<-p.done
	if p.ProcessState.ExitCode() != 2 || strings.Count(p.out.String(), "\n") != 2 || !strings.Contains(p.out.String(), "PORT ") || !strings.Contains(p.out.String(), "LOG_LEVEL ") {
		t.Errorf("exit code %d: %s", p.ProcessState.ExitCode(), p.out.String())
	}
}
