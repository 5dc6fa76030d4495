//go:build unix && !linux

package pgserver

import (
	"errors"
	"syscall"
)

// dieWithParent does nothing: only Linux has a signal for it.
func dieWithParent(*syscall.SysProcAttr) {}

// serves reports whether process pid may be a server on data.
func serves(pid int, _ string) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
