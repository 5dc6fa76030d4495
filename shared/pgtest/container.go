//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	// image is of a major version that Aurora PostgreSQL runs too.
	image = "postgres:17"
	// engineTimeout is how long an engine may take to say that it is there.
	engineTimeout = 2 * time.Second
	// containerTimeout holds a first pull of the image.
	containerTimeout = 2 * time.Minute
)

// errNoEngine: no Docker engine answers.
var errNoEngine = errors.New("no Docker engine answers")

// container returns the URL of a database in a container that all packages of
// one `go test` share and that testcontainers' reaper removes after it. When it
// cannot be had, the other packages of that `go test` are told so at once.
func container(ctx context.Context) (string, error) {
	tclog.SetDefault(tclog.NewNoopLogger())
	if !engineAnswers(ctx) {
		return "", errNoEngine
	}
	session := testcontainers.SessionID()
	failed := filepath.Join(os.TempDir(), "standmeet-pgtest-nocontainer-"+session[:12])
	if _, err := os.Stat(failed); err == nil {
		return "", errors.New("another package found that none can be had")
	}
	u, err := runContainer(ctx, session)
	if err != nil {
		return "", errors.Join(err, os.WriteFile(failed, nil, 0o600))
	}
	return u, nil
}

func engineAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { // the provider's constructor takes no context
		provider, err := testcontainers.NewDockerProvider()
		if err == nil {
			err = provider.Health(ctx)
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

func runContainer(ctx context.Context, session string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, containerTimeout)
	defer cancel()
	const user = "standmeet"
	password := session // nobody outside this test run knows it
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithReuseByName("standmeet-pgtest-"+session[:12]),
		testcontainers.WithEnv(map[string]string{
			"POSTGRES_USER":        user,
			"POSTGRES_PASSWORD":    password,
			"POSTGRES_DB":          "postgres",
			"POSTGRES_INITDB_ARGS": "--locale=C.UTF-8 --no-sync",
		}),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"),
		testcontainers.WithTmpfs(map[string]string{"/var/lib/postgresql/data": "rw"}),
		testcontainers.WithExposedPorts("5432/tcp"),
		testcontainers.WithWaitStrategy(wait.ForAll(
			// once for the server that initialises, once for the real one
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2),
			wait.ForListeningPort("5432/tcp"),
		)),
	)
	if err != nil {
		return "", fmt.Errorf("container of %s: %w", image, err)
	}
	host, err := c.PortEndpoint(ctx, "5432/tcp", "")
	if err != nil {
		return "", fmt.Errorf("container of %s: %w", image, err)
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: host, Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String(), nil
}
