//go:build unix

package pgtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	const n = 12
	var databases sync.Map
	t.Run("clones", func(t *testing.T) {
		for i := range n {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				db := DB(t)
				var name string
				var notes, jobs int
				if err := db.QueryRow(t.Context(), "SELECT current_database(), (SELECT count(*) FROM notes), (SELECT count(*) FROM river_job)").
					Scan(&name, &notes, &jobs); err != nil {
					t.Fatal(err)
				}
				if notes+jobs > 0 {
					t.Errorf("%d notes, %d jobs in a new database", notes, jobs)
				}
				if _, again := databases.LoadOrStore(name, true); again {
					t.Errorf("two tests share %s", name)
				}
				if _, err := db.Exec(t.Context(), "INSERT INTO owners (id, handle, email) VALUES (gen_random_uuid(), 'only', 'a@b.test')"); err != nil {
					t.Error(err)
				}
			})
		}
	})
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), c.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	databases.Range(func(name, _ any) bool {
		var left bool
		if err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&left); err != nil || left {
			t.Errorf("%s is still there: %v, %v", name, left, err)
		}
		return true
	})
}

func TestCloneWaitsForTheTemplate(t *testing.T) {
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	// a template of its own, which no other test waits for
	name := "standmeet_test_" + strings.ToLower(rand.Text()[:12])
	busy := &cluster{admin: c.admin, template: name + "_template"}
	if err := c.clone(t.Context(), busy.template); err != nil {
		t.Fatal(err)
	}
	visitor, err := pgx.Connect(t.Context(), c.url(busy.template))
	if err != nil {
		t.Fatal(err)
	}
	cloned := make(chan error, 1)
	go func() { cloned <- busy.clone(t.Context(), name) }()
	// It must have been refused: PostgreSQL itself waits 5 s for visitors to go.
	time.AfterFunc(5500*time.Millisecond, func() { _ = visitor.Close(context.WithoutCancel(t.Context())) })
	if err := <-cloned; err != nil {
		t.Error(err)
	}
	for _, db := range []string{name, busy.template} {
		if err := c.exec(t.Context(), "DROP DATABASE "+db+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	}
}

func TestTemplateIsSharedByProcesses(t *testing.T) {
	t.Parallel()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	other := &cluster{admin: c.admin}
	if err := other.makeTemplate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if other.template != c.template {
		t.Errorf("%s and %s", other.template, c.template)
	}
	one, err := hashFiles(fstest.MapFS{"1.sql": {Data: []byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := hashFiles(fstest.MapFS{"1.sql": {Data: []byte("b")}})
	if err != nil {
		t.Fatal(err)
	}
	if one == two {
		t.Error("a changed migration has the same hash")
	}
}

func TestServerSurvivesKill(t *testing.T) {
	t.Parallel()
	s := Server(t)
	db := Open(t, s.URL("standmeet"), pg.Options{})
	if _, err := db.Exec(t.Context(), "INSERT INTO owners (id, handle, email) VALUES (gen_random_uuid(), 'kept', 'a@b.test')"); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := Open(t, s.URL("standmeet"), pg.Options{})
	var n int
	if err := again.QueryRow(t.Context(), "SELECT count(*) FROM owners WHERE handle = 'kept'").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}

// TestSilentEngine: an engine that takes the connection and says nothing costs
// no more than engineTimeout. In a process of its own, because testcontainers
// remembers the first engine that it was told of.
func TestSilentEngine(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		begun := time.Now()
		if engineAnswers(t.Context()) {
			t.Error("silence is no answer")
		}
		if took := time.Since(begun); took > engineTimeout+time.Second {
			t.Errorf("took %v", took)
		}
		return
	}
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSilentEngine$")
	child.Env = append(os.Environ(), childEnv+"=1", "DOCKER_HOST=tcp://"+silent.Addr().String())
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const childEnv = "PGTEST_TEST_CHILD"

// TestNothingIsLeft kills a process that has started servers, and looks for
// them and their files. The process is this test itself, run again.
func TestNothingIsLeft(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		for _, durable := range []bool{false, true} {
			s, err := startServer(t.Context(), durable)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("pid", s.Pid())
		}
		select {}
	}
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: this system does not tell a server that its parent died")
	}
	dir, err := os.MkdirTemp("", "pgtest-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingIsLeft$")
	child.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	lines := bufio.NewReader(out)
	for i := range pids {
		if _, err := fmt.Fscanf(lines, "pid %d\n", &pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	gone := func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0 && syscall.Kill(pids[0], 0) != nil && syscall.Kill(pids[1], 0) != nil
	}
	for deadline := time.Now().Add(20 * time.Second); !gone(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("servers %v or their files in %s are still there", pids, dir)
		}
	}
}
