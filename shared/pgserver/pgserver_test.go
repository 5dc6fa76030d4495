//go:build unix

package pgserver

import (
	"archive/zip"
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// publicDir is a temporary directory that the server's user can reach, which
// t.TempDir is not.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Logf = t.Logf
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(s.DataDir())
	})
	return s
}

func query[T any](t *testing.T, s *Server, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func exec1(t *testing.T, s *Server, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !cond() {
		if sleep(ctx, 10*time.Millisecond) != nil {
			t.Fatal("not in time: " + what)
		}
	}
}

func TestDataSurvive(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	s, err := Start(t.Context(), Options{Dir: dir, Fsync: true})
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, s, "CREATE TABLE kept AS SELECT 7 AS n")
	url := s.URL("postgres")

	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL("postgres") != url {
		t.Errorf("after Restart the address is %s, was %s", s.URL("postgres"), url)
	}
	if n := query[int](t, s, "SELECT n FROM kept"); n != 7 {
		t.Errorf("after Kill: n = %d", n)
	}
	if got := query[string](t, s, "SHOW fsync"); got != "on" {
		t.Errorf("fsync is %s", got)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart of a running server succeeded")
	}

	pidFile := filepath.Join(s.DataDir(), "postmaster.pid")
	stale, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}

	// What kill -9 leaves behind, its number now borne by a process that lives.
	_, rest, _ := strings.Cut(string(stale), "\n")
	if err := os.WriteFile(pidFile, []byte(fmt.Sprintf("%d\n%s", os.Getpid(), rest)), 0o644); err != nil {
		t.Fatal(err)
	}
	s = start(t, Options{Dir: dir, Settings: map[string]string{"work_mem": "5MB"}})
	if n := query[int](t, s, "SELECT n FROM kept"); n != 7 {
		t.Errorf("after another Start: n = %d", n)
	}
	if got := query[string](t, s, "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	if got := query[string](t, s, "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("it listens on %s", got)
	}
	if pgid, err := syscall.Getpgid(s.Pid()); err != nil || pgid == syscall.Getpgrp() {
		t.Errorf("it is in our process group (%d, %v): Ctrl-C would stop it before us", pgid, err)
	}
	for range 2 {
		if err := s.EnsureDatabase(t.Context(), `odd "name`); err != nil {
			t.Error(err)
		}
	}
	if n := query[int](t, s, `SELECT count(*) FROM pg_database WHERE datname = 'odd "name'`); n != 1 {
		t.Errorf("%d databases", n)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another process is using "+dir) {
		t.Errorf("second server on the same directory: %v", err)
	}
}

// Search depends on it: without a UTF-8 LC_CTYPE pg_trgm drops these letters.
func TestTrigramsOfAllLetters(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: publicDir(t)})
	exec1(t, s, "CREATE EXTENSION pg_trgm")
	exec1(t, s, "CREATE EXTENSION btree_gin")
	if got := query[string](t, s, "SELECT lower('ÄÉ') || (similarity('知负荷', '知负荷'))"); got != "äé1" {
		t.Errorf("got %s", got)
	}
}

func TestPasswordIsAskedFor(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: publicDir(t)})
	conn, err := pgx.Connect(t.Context(), strings.Replace(s.URL("postgres"), s.password, "guess", 1))
	if err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
	info, err := os.Stat(filepath.Join(s.opts.Dir, "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("password: %v, %v", info.Mode(), err)
	}
}

// An unreachable directory (t.TempDir's parent is 0700) as root, any directory otherwise.
func TestUnreachableDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, Options{Dir: dir})
	if os.Geteuid() == 0 && !strings.HasPrefix(s.DataDir(), sharedDir+"/") {
		t.Errorf("data are in %s", s.DataDir())
	}
	if got, err := filepath.EvalSymlinks(filepath.Join(dir, "data")); err != nil || got != s.DataDir() {
		t.Errorf("data leads to %s, %v; want %s", got, err, s.DataDir())
	}
}

func TestErrorsAreOnePlainLine(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	wrong := func(o Options, want string) {
		t.Helper()
		s, err := Start(t.Context(), o)
		if err == nil {
			s.Kill()
			t.Fatalf("started; want an error with %q", want)
		}
		if !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("error %q; want one line with %q", err, want)
		}
	}
	wrong(Options{Dir: dir, Settings: map[string]string{"shared_buffers": "plenty"}}, `invalid value for parameter "shared_buffers": "plenty"`)

	busy := start(t, Options{Dir: publicDir(t)})
	wrong(Options{Dir: dir, Port: busy.port}, "Address already in use")

	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong(Options{Dir: dir}, "start over with `make clean`")

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wrong(Options{Dir: file}, "not a directory")
}

const parentEnv = "PGSERVER_TEST_PARENT_DIR"

// TestServerDiesWithItsParent kills a process that has started a server. The
// process is this test itself, run again.
func TestServerDiesWithItsParent(t *testing.T) {
	if dir := os.Getenv(parentEnv); dir != "" {
		s, err := Start(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("pid %d\n", s.Pid())
		<-s.Done()
		t.Fatal("the server ended before its parent")
	}
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: this system does not tell a child that its parent died")
	}
	dir := publicDir(t)
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerDiesWithItsParent$")
	parent.Env = append(os.Environ(), parentEnv+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil {
		t.Fatal(line)
	}
	if !serves(pid, filepath.Join(dir, "data")) {
		t.Fatal("there is no server to begin with")
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	// At once, while the old server may still be on its way out.
	start(t, Options{Dir: dir})
	await(t, "end of the first server", func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestDownload has embedded-postgres fetch an archive that only stands in for
// PostgreSQL: its programs are scripts that run the machine's own.
func TestDownload(t *testing.T) {
	as, err := serverUser()
	if err != nil {
		t.Fatal(err)
	}
	own, err := findBinaries(t.Context(), as, "", t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("skipped: packing the archive needs xz")
	}
	root := publicDir(t)
	t.Setenv("TMPDIR", root) // the library leaves logs there
	if err := os.MkdirAll(filepath.Join(root, "pack", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s/%s' \"$@\"\n", own.dir, name)
		if err := os.WriteFile(filepath.Join(root, "pack", "bin", name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := exec.CommandContext(t.Context(), "tar", "-C", filepath.Join(root, "pack"), "-cJ", "bin").Output()
	if err != nil {
		t.Fatal(err)
	}
	requests := make(chan string, 10)
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		jar := zip.NewWriter(w)
		f, err := jar.Create("postgres.txz")
		if err == nil {
			_, err = f.Write(archive)
		}
		if err == nil {
			err = jar.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer repository.Close()

	cache := filepath.Join(root, "cache")
	for range 2 { // the second time it is there
		dir, err := downloadTo(t.Context(), cache, repository.URL, as, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		got, err := inspect(t.Context(), dir, as)
		if err != nil || got.major != own.major {
			t.Errorf("got %+v, %v", got, err)
		}
		if out, err := (&Server{binaries: got, runAs: as}).command(t.Context(), "initdb", "--version").CombinedOutput(); err != nil {
			t.Errorf("the server's user cannot run it: %s", out)
		}
	}
	if n := len(requests); n != 2 { // archive and checksum
		t.Errorf("%d requests", n)
	}
	left, err := filepath.Glob(filepath.Join(cache, "download-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	repository.Close()
	if _, err := downloadTo(t.Context(), filepath.Join(root, "other"), repository.URL, as, t.Logf); err == nil ||
		!strings.Contains(err.Error(), "unable to connect") || strings.Contains(err.Error(), "\n") {
		t.Errorf("download from nowhere: %v", err)
	}
}

func TestNewestInstallationWins(t *testing.T) {
	if majorOf("/usr/lib/postgresql/9.6/bin") >= majorOf("/usr/lib/postgresql/10/bin") ||
		majorOf("/usr/lib/postgresql/15/bin") >= majorOf("/usr/lib/postgresql/17/bin") {
		t.Error("versions are compared as text")
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("1\n2\n3\r\n 4 \n5\n6\n"); got != "2 | 3 | 4 | 5 | 6" {
		t.Errorf("got %q", got)
	}
}

func TestLogOfOneRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, want := range []string{"first run", "second"} {
		log, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(log, want); err != nil {
			t.Fatal(err)
		}
		if got := log.tail(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		_ = log.Close()
	}
}
