//go:build unix

package pgserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sharedDir holds data that the server's user cannot reach where they belong.
const sharedDir = "/var/lib/standmeet"

// serverUser is whom the server runs as: nil for ourselves, another user when
// we are root, because PostgreSQL refuses to run as root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("it does not run as root, and there is neither a user postgres nor a user nobody to run it as")
}

// dataDir is where the cluster of dir lives: dir/data, or what that links to
// because as could not reach it there.
func dataDir(dir string, as *syscall.Credential) (string, error) {
	data := filepath.Join(dir, "data")
	if target, err := os.Readlink(data); err == nil {
		return target, nil
	}
	if _, err := os.Lstat(data); err == nil || reachable(dir, as) {
		return data, nil
	}
	target := filepath.Join(sharedDir, fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:16])
	if err := os.MkdirAll(sharedDir, 0o755); err != nil {
		return "", err
	}
	if !reachable(sharedDir, as) { // our umask
		if err := os.Chmod(sharedDir, 0o755); err != nil {
			return "", err
		}
	}
	return target, os.Symlink(target, data)
}

// reachable reports whether as may search path and every directory above it.
// nil is ourselves, and may.
func reachable(path string, as *syscall.Credential) bool {
	if as == nil {
		return true
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return false
		}
		search := os.FileMode(0o001)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			if st.Uid == as.Uid {
				search = 0o100
			} else if st.Gid == as.Gid {
				search = 0o010
			}
		}
		if info.Mode()&search == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
	}
}

// freePort finds a free port on 127.0.0.1 below the ephemeral range. One out of
// that range, as the kernel gives, could become the source port of a client
// that keeps dialling a server which is down: TCP then connects the client to
// itself, and the server cannot come back.
func freePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// lock opens path and locks it for this process alone; how may be LOCK_NB. The
// kernel unlocks it when the file is closed or the process ends.
func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|how); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// serverLog is the server's log from where the present run began.
type serverLog struct {
	*os.File
	start int64
}

func openLog(path string) (*serverLog, error) {
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > 16<<20 {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	start, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &serverLog{f, start}, nil
}

// tail is what the server said in this run, its last 64 KiB at most.
func (l *serverLog) tail() string {
	info, err := l.Stat()
	if err != nil {
		return err.Error()
	}
	from := max(l.start, info.Size()-64<<10)
	said, err := io.ReadAll(io.NewSectionReader(l, from, info.Size()-from))
	if err != nil {
		return err.Error()
	}
	return string(said)
}

// lastLines makes one line of the last few of a text.
func lastLines(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// sleep waits for d, or less when ctx ends, whose error it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
