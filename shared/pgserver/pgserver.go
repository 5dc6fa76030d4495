//go:build unix

// Package pgserver starts and stops a PostgreSQL server of our own: the one
// behind `make run` and behind the tests. It runs as a child of this process,
// listens on 127.0.0.1 alone and never outlives its parent by more than a
// moment (at once on Linux; elsewhere only an orderly Stop ends it).
package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Superuser is the role that URL names; it owns the server.
const Superuser = "standmeet"

// startTimeout bounds a start from the moment that the programs and the cluster
// are there. Recovery after a crash replays about max_wal_size of log at most,
// which takes seconds.
const startTimeout = time.Minute

// Options say where and how a server runs. Only Dir is required.
type Options struct {
	// Dir keeps the cluster (data), its password and server.log between starts;
	// it is made when missing. As root, when the server's user could not reach
	// Dir, data is a link to a directory under /var/lib/standmeet.
	Dir string
	// Port on 127.0.0.1; 0 takes a free one.
	Port int
	// Fsync makes commits survive a crash of the machine. Without it they
	// still survive Kill.
	Fsync bool
	// Settings are added to, and win over, the server's configuration.
	Settings map[string]string
	// Logf, if set, hears about the rare things that take long or surprise: a
	// download, data kept elsewhere.
	Logf func(format string, args ...any)
}

// Server is a running PostgreSQL server. Its methods may be called from any
// goroutine.
type Server struct {
	opts     Options
	binaries binaries
	runAs    *syscall.Credential
	data     string
	password string
	port     int
	lock     *os.File // held for as long as the server may run
	answered bool     // the port is known to others

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been reaped
}

// Start starts a server on o.Dir, making the cluster first when there is none,
// and returns when it answers queries. ctx bounds the start alone. An error is
// one line and ends with the last lines of the server's log.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("postgresql: %w", err)
	}
	if err = os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("postgresql: %w", err)
	}
	s := &Server{opts: o, port: o.Port}
	if s.lock, err = lock(filepath.Join(o.Dir, "lock"), syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("postgresql: another process is using %s: %w", o.Dir, err)
	}
	if err = s.prepare(ctx); err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		_ = s.lock.Close()
		return nil, fmt.Errorf("postgresql: %w", err)
	}
	return s, nil
}

// URL is the connection string of a database on the server. The database
// "postgres" always exists.
func (s *Server) URL(db string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + db,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// DataDir is the directory that holds the cluster.
func (s *Server) DataDir() string { return s.data }

// Pid is the process id of the server's first process, the postmaster; of the
// last one when none is running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Done is closed when the server's process has ended, whoever ended it. After
// Restart it is another channel.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// EnsureDatabase creates an empty database unless it exists.
func (s *Server) EnsureDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("postgresql: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42P04" { // duplicate_database
		return nil
	}
	if err != nil {
		return fmt.Errorf("postgresql: %w", err)
	}
	return nil
}

// Stop ends the server and lets go of its directory: a fast shutdown, which
// cuts connections and writes everything out, and an immediate one if that has
// not ended when ctx does. The data are safe either way. Stopping a stopped
// server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	defer s.lock.Close()
	if s.end(ctx, syscall.SIGINT) {
		return nil
	}
	quit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if s.end(quit, syscall.SIGQUIT) {
		return fmt.Errorf("postgresql: no orderly shutdown in time, stopped it at once: %w", context.Cause(ctx))
	}
	s.Kill()
	return errors.New("postgresql: it did not stop when told to, killed it")
}

// Kill ends the server as a crash would (SIGKILL) and returns when its process
// is gone. Restart may follow.
func (s *Server) Kill() { s.end(context.Background(), syscall.SIGKILL) }

// Restart starts the server again after Kill, on the same port. Bounds and
// errors are those of Start.
func (s *Server) Restart(ctx context.Context) error {
	select {
	case <-s.Done():
	default:
		return errors.New("postgresql: it is running")
	}
	if err := s.launch(ctx); err != nil {
		return fmt.Errorf("postgresql: %w", err)
	}
	return nil
}

// end sends sig and reports whether the server ended before ctx did.
func (s *Server) end(ctx context.Context, sig syscall.Signal) bool {
	s.mu.Lock()
	done := s.done
	_ = s.cmd.Process.Signal(sig) // an error means that it has ended
	s.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// prepare finds the server's programs and user, and makes the cluster if there
// is none.
func (s *Server) prepare(ctx context.Context) (err error) {
	if s.runAs, err = serverUser(); err != nil {
		return err
	}
	if s.data, err = dataDir(s.opts.Dir, s.runAs); err != nil {
		return err
	}
	if s.data != filepath.Join(s.opts.Dir, "data") {
		s.opts.Logf("PostgreSQL's user cannot reach %s; its data are in %s", s.opts.Dir, s.data)
	}
	version, err := os.ReadFile(filepath.Join(s.data, "PG_VERSION"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	made := strings.TrimSpace(string(version)) // "" before initdb
	if s.binaries, err = findBinaries(ctx, s.runAs, made, s.opts.Logf); err != nil {
		return err
	}
	passwordFile := filepath.Join(s.opts.Dir, "password")
	if made == "" {
		return s.initdb(ctx, passwordFile)
	}
	if s.binaries.major != made {
		return fmt.Errorf("the data in %s are of PostgreSQL %s and this machine has %s: install PostgreSQL %s, or start over with `make clean`",
			s.data, made, s.binaries.major, made)
	}
	password, err := os.ReadFile(passwordFile)
	if err != nil {
		return fmt.Errorf("the password of the data in %s is lost (start over with `make clean`): %w", s.data, err)
	}
	s.password = string(password)
	return nil
}

// initdb makes the cluster under another name first, so that an interrupted
// one is never taken for a whole one.
func (s *Server) initdb(ctx context.Context, passwordFile string) error {
	s.password = rand.Text()
	if err := os.WriteFile(passwordFile, []byte(s.password), 0o600); err != nil {
		return err
	}
	fresh, pwfile := s.data+".new", s.data+".pw"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	// initdb cannot read ours as another user.
	if err := os.WriteFile(pwfile, []byte(s.password), 0o600); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	if s.runAs != nil {
		for _, p := range []string{fresh, pwfile} {
			if err := os.Chown(p, int(s.runAs.Uid), int(s.runAs.Gid)); err != nil {
				return err
			}
		}
	}
	// A UTF-8 LC_CTYPE, because pg_trgm sees no letters past ASCII without one;
	// code point order, so that every machine sorts alike.
	locale := "C.UTF-8"
	if runtime.GOOS == "darwin" {
		locale = "en_US.UTF-8"
	}
	args := []string{"--pgdata=" + fresh, "--username=" + Superuser, "--pwfile=" + pwfile, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=" + locale, "--no-instructions"}
	if !s.opts.Fsync {
		args = append(args, "--no-sync")
	}
	if out, err := s.command(ctx, "initdb", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(string(out)))
	}
	return os.Rename(fresh, s.data)
}

// command is one of the server's programs, run as the server's user and cut
// off from our environment and terminal: Ctrl-C reaches our process alone,
// which then stops the server in its own order.
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.binaries.dir, name), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.runAs}
	return cmd
}

// launch runs the server until it answers. A port that was taken meanwhile, and
// children of a killed postmaster that are still on their way out, are waited for.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.clearPidFile(ctx); err != nil {
		return err
	}
	for {
		if s.port == 0 {
			port, err := freePort()
			if err != nil {
				return err
			}
			s.port = port
		}
		log, err := s.run()
		if err != nil {
			return err
		}
		err = s.awaitReady(ctx)
		if err == nil {
			s.answered = true
			return log.Close()
		}
		s.Kill()
		said := log.tail()
		_ = log.Close()
		orphans := strings.Contains(said, "pre-existing shared memory block")
		taken := strings.Contains(said, "Address already in use") && s.opts.Port == 0
		if !orphans && !taken || sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%w: %s", err, lastLines(said))
		}
		if taken && !s.answered {
			s.port = 0
		}
	}
}

// run starts the process; what it says goes to the returned log.
func (s *Server) run() (*serverLog, error) {
	log, err := openLog(filepath.Join(s.opts.Dir, "server.log"))
	if err != nil {
		return nil, err
	}
	args := []string{"-D", s.data}
	settings := s.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	cmd := s.command(context.Background(), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log.File, log.File
	dieWithParent(cmd.SysProcAttr)
	done, started := make(chan struct{}), make(chan error)
	go func() {
		// Linux ties the signal to the thread that forked, not to the process:
		// the thread has to live for as long as the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		_ = log.Close()
		return nil, err
	}
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	return log, nil
}

func (s *Server) settings() map[string]string {
	m := map[string]string{
		"max_connections": "200",
		"shared_buffers":  "256MB",
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"lc_messages":     "C", // launch reads them
		"log_line_prefix": "%m [%p] ",
		"log_checkpoints": "off",
	}
	if !s.opts.Fsync {
		m["fsync"] = "off"
		m["full_page_writes"] = "off"
	}
	maps.Copy(m, s.opts.Settings)
	m["listen_addresses"] = "127.0.0.1"
	m["port"] = strconv.Itoa(s.port)
	m["unix_socket_directories"] = ""
	// A socket's path holds 103 bytes on some systems, and a lock lies beside it.
	if len(s.data)+len("/.s.PGSQL.65535.lock") <= 103 {
		m["unix_socket_directories"] = s.data
	}
	return m
}

// awaitReady returns nil when the server answers, and an error when it ends or
// ctx does. Its own postmaster.pid says when, because another server may be the
// one that answers on the port.
func (s *Server) awaitReady(ctx context.Context) error {
	for !s.ready() {
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-s.Done():
			return errors.New("it ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// ready reads the status line that pg_ctl -w goes by.
func (s *Server) ready() bool {
	content, err := os.ReadFile(s.pidFile())
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(s.Pid()) && strings.TrimSpace(lines[7]) == "ready"
}

func (s *Server) pidFile() string { return filepath.Join(s.data, "postmaster.pid") }

// clearPidFile removes the postmaster.pid of a server that was killed: by now
// its number may belong to someone else, whom PostgreSQL would take for a
// running server. One that is still shutting down is waited for.
func (s *Server) clearPidFile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		content, err := os.ReadFile(s.pidFile())
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(content), "\n")
		pid, err := strconv.Atoi(first)
		if err != nil || !serves(pid, s.data) {
			return os.Remove(s.pidFile())
		}
		if sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("process %d is already a server on %s", pid, s.data)
		}
	}
}
