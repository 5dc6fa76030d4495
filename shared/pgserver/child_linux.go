package pgserver

import (
	"fmt"
	"os"
	"syscall"
)

// dieWithParent has the kernel shut the child down at once (without loss) when
// the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }

// serves reports whether process pid is a server on data: a postmaster works in
// its data directory.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && cwd == data
}
