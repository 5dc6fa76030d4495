//go:build unix

package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloadVersion is what a machine without PostgreSQL gets.
const downloadVersion = embeddedpostgres.V17

// binaries are the server's programs of one installation.
type binaries struct {
	dir   string
	major string // "17"
}

// findBinaries takes, of the installations on this machine that as may run,
// the one of major version made, else the newest; without any it downloads one.
func findBinaries(ctx context.Context, as *syscall.Credential, made string, logf func(string, ...any)) (binaries, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return binaries{}, err
	}
	slices.SortFunc(dirs, func(a, b string) int { return majorOf(b) - majorOf(a) })
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if program, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(program))
		}
	}
	var best binaries
	for _, dir := range dirs {
		b, err := inspect(ctx, dir, as)
		if err != nil {
			continue
		}
		if b.major == made {
			return b, nil
		}
		if best == (binaries{}) {
			best = b
		}
	}
	if best != (binaries{}) {
		return best, nil
	}
	dir, err := download(ctx, "", as, logf)
	if err != nil {
		return binaries{}, fmt.Errorf("none in /usr/lib/postgresql/*/bin nor in PATH, and none could be downloaded (install the package postgresql, or set DATABASE_URL): %w", err)
	}
	return inspect(ctx, dir, as)
}

// majorOf reads 15 from /usr/lib/postgresql/15/bin.
func majorOf(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))) // 0 sorts last
	return n
}

// inspect tells whether dir holds a server's programs that as may run, and
// their version.
func inspect(ctx context.Context, dir string, as *syscall.Credential) (binaries, error) {
	if !reachable(dir, as) {
		return binaries{}, fmt.Errorf("%s cannot be reached by the server's user", dir)
	}
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, err
	}
	m := regexp.MustCompile(`\(PostgreSQL\) (\d+)`).FindSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("%s/postgres says it is %q", dir, out)
	}
	return binaries{dir, string(m[1])}, nil
}

// download returns the programs' directory of a PostgreSQL that
// embedded-postgres fetches from repository ("" is its own), once per machine
// and user.
func download(ctx context.Context, repository string, as *syscall.Credential, logf func(string, ...any)) (string, error) {
	cache := "/var/cache"
	if as == nil {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	return downloadTo(ctx, filepath.Join(cache, "standmeet"), repository, as, logf)
}

func downloadTo(ctx context.Context, cache, repository string, as *syscall.Credential, logf func(string, ...any)) (string, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	home := filepath.Join(cache, "postgresql-"+string(downloadVersion))
	bin := filepath.Join(home, "bin")
	held, err := lock(home+".lock", 0)
	if err != nil {
		return "", err
	}
	defer held.Close()
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	logf("downloading PostgreSQL %s, once", downloadVersion)
	work, err := os.MkdirTemp(cache, "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	port, err := freePort()
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(work, "postgresql")
	config := embeddedpostgres.DefaultConfig().Version(downloadVersion).Port(uint32(port)).Logger(io.Discard).
		CachePath(filepath.Join(work, "cache")).RuntimePath(filepath.Join(work, "run")).BinariesPath(fresh)
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	// The library fetches only on the way to a server of its own, which we do
	// not want and which as root cannot start: having the programs is success.
	got := make(chan error, 1)
	go func() {
		server := embeddedpostgres.NewDatabase(config)
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		got <- err
	}()
	select {
	case err = <-got:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if _, statErr := os.Stat(filepath.Join(fresh, "bin", "postgres")); statErr != nil {
		return "", cmp.Or(err, statErr)
	}
	if as != nil {
		if err := openTo(cache, work); err != nil {
			return "", err
		}
	}
	return bin, os.Rename(fresh, home)
}

// openTo lets everyone read what lies under dir and search cache, whatever our
// umask was.
func openTo(cache, dir string) error {
	if err := os.Chmod(cache, 0o755); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}
