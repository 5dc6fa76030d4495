//go:build unix

// Package pgtest gives each test a database of its own, cloned in about 0.1 s
// from a template that has every migration applied. Only _test files may
// import it.
//
// PostgreSQL is the server of TEST_DATABASE_URL (its user may create
// databases); else a container, when a Docker engine answers and has or can get
// the image; else a server that this process starts and that ends with it.
// The last two do not fsync, and no test may depend on what a crash of theirs
// leaves: that is what Server is for.
package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"standmeet/migrations"
	"standmeet/shared/pg"
	"standmeet/shared/pgserver"
)

// templateLock serialises the processes that make the template.
const templateLock = 7236174502874

// DB is a pool on a database of the test's own, closed when the test ends.
func DB(t testing.TB) *pg.DB {
	t.Helper()
	return Open(t, URL(t), pg.Options{})
}

// Open is a pool on the database at url, closed when the test ends. Several
// pools on one database stand for several processes.
func Open(t testing.TB, url string, o pg.Options) *pg.DB {
	t.Helper()
	db, err := pg.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// URL is a migrated, otherwise empty database of the test's own. It is dropped
// when the test ends, whoever is still connected.
func URL(t testing.TB) string {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	name := "standmeet_test_" + strings.ToLower(rand.Text()[:12])
	if err := c.clone(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return c.url(name)
}

// Server is a server of the test's own that keeps what it committed: the test
// may Kill and Restart it. Its database "standmeet" is migrated.
func Server(t testing.TB) *pgserver.Server {
	t.Helper()
	s, err := startServer(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("pgtest: %v", err)
		}
		if err := s.remove(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	if err := s.EnsureDatabase(t.Context(), "standmeet"); err != nil {
		t.Fatal(err)
	}
	if err := pg.Migrate(t.Context(), s.URL("standmeet")); err != nil {
		t.Fatal(err)
	}
	return s.Server
}

// shared is the server of this process's tests, found or started by the first
// of them. A package variable, because nothing else lives as long as a test
// process without its TestMain.
var shared = sync.OnceValues(func() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := findServer(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	if err := c.makeTemplate(ctx); err != nil {
		return nil, fmt.Errorf("pgtest: template database: %w", err)
	}
	return c, nil
})

// findServer finds or starts the server.
func findServer(ctx context.Context) (*cluster, error) {
	if u := os.Getenv("TEST_DATABASE_URL"); u != "" {
		return &cluster{admin: u}, nil
	}
	if u, err := container(ctx); err == nil {
		return &cluster{admin: u}, nil
	} else if !errors.Is(err, errNoEngine) {
		fmt.Fprintf(os.Stderr, "pgtest: no container (%v); starting a server here\n", err)
	}
	s, err := startServer(ctx, false)
	if err != nil {
		return nil, err
	}
	return &cluster{admin: s.URL("postgres"), local: s}, nil
}

// cluster is the server that tests clone their databases on.
type cluster struct {
	admin    string // URL of an existing database
	template string
	// local is held for as long as the process lives: were it collected, the
	// finalizer of its pipe would set the broom going
	local *localServer
}

func (c *cluster) url(db string) string {
	u, err := url.Parse(c.admin)
	if err != nil {
		return c.admin // not a URL: connecting says what is wrong with it
	}
	u.Path = "/" + db
	return u.String()
}

// exec runs one statement on a connection of its own: the commands about
// databases run in no transaction, and an idle pool would hold connections that
// a persistent server's other users lack.
func (c *cluster) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, c.admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// makeTemplate makes the template unless a process before us has. Its name
// holds a hash of our migrations, so that a changed migration gets a template
// of its own; Migrate runs every time, because River may have brought more.
func (c *cluster) makeTemplate(ctx context.Context) error {
	hash, err := hashFiles(migrations.FS)
	if err != nil {
		return err
	}
	c.template = "standmeet_template_" + hash
	conn, err := pgx.Connect(ctx, c.admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+c.template); err != nil && !hasCode(err, "42P04") { // duplicate_database
		return err
	}
	return pg.Migrate(ctx, c.url(c.template))
}

// clone copies the template. PostgreSQL refuses while someone is connected to
// it, which only a process in makeTemplate ever is, and never for long.
func (c *cluster) clone(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := c.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+c.template)
		if !hasCode(err, "55006") { // object_in_use
			if err != nil {
				return fmt.Errorf("pgtest: %w", err)
			}
			return nil
		}
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("pgtest: %w", err)
		}
	}
}

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

// hashFiles is a short hash of every file's name and content.
func hashFiles(files fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(content), content)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil))[:12], err
}
