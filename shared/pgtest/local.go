//go:build unix

package pgtest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"

	"standmeet/shared/pgserver"
)

// localServer is a server in a temporary directory.
type localServer struct {
	*pgserver.Server
	dir    string
	broom  *exec.Cmd
	handle io.Closer // closing it, or our end, sets the broom going
}

// startServer starts a server whose files go away with remove, or else when
// this process ends, however it ends: a small shell waits for that.
func startServer(ctx context.Context, durable bool) (*localServer, error) {
	dir, err := os.MkdirTemp("", "standmeet-pgtest-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the server may be another user
		return nil, err
	}
	s, err := pgserver.Start(ctx, pgserver.Options{Dir: dir, Fsync: durable, Settings: map[string]string{
		"shared_buffers": "128MB",
		"max_wal_size":   "256MB", // the disk of a test run
	}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	const sweep = `read -r _; i=0; while [ -e "$2/postmaster.pid" ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i+1)); done; rm -rf "$1" "$2"`
	broom := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", sweep, "sh", dir, s.DataDir())
	broom.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	handle, err := broom.StdinPipe()
	if err == nil {
		err = broom.Start()
	}
	if err != nil {
		s.Kill()
		return nil, errors.Join(err, os.RemoveAll(s.DataDir()), os.RemoveAll(dir))
	}
	return &localServer{s, dir, broom, handle}, nil
}

// remove deletes the files of a stopped server.
func (s *localServer) remove() error {
	return errors.Join(s.handle.Close(), s.broom.Wait())
}
