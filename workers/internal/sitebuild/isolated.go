package sitebuild

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"standmeet/shared/microsite"
)

// Limits bound a build.
type Limits struct {
	Time time.Duration
	// Memory in bytes.
	Memory int64
}

// DefaultLimits are above what 200 files of 64 KiB take on two cores: 14 s and 750 MiB
// where all of them are TypeScript.
func DefaultLimits() Limits { return Limits{30 * time.Second, 1 << 30} }

// childEnv holds a child's memory limit, and makes a process one.
const childEnv = "STANDMEET_BUILD_MEMORY"

// tooMuch is the exit code of a child that needs more memory than it may.
const tooMuch = 3

// Isolated is Build in a process of its own, this very program again, which has
// nothing of the environment and is killed when the time is up: a build in this
// process could be stopped by nobody. The program's main must begin with [Child].
// What the files make go wrong is in the log; an error is ours, and may be gone the
// next time.
func Isolated(ctx context.Context, in Input, l Limits) (out Output, err error) {
	program, err := os.Executable()
	if err != nil {
		return out, err
	}
	var stdin, stdout, stderr bytes.Buffer
	if err := gob.NewEncoder(&stdin).Encode(in); err != nil {
		return out, err
	}
	limited, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	// a test's program that knows nothing of children runs no test
	cmd := exec.CommandContext(limited, program, "-test.run=^$")
	cmd.Env = []string{childEnv + "=" + strconv.FormatInt(l.Memory, 10), "GOMAXPROCS=2", "GOTRACEBACK=none"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &stdin, &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case limited.Err() != nil:
		return refusal(fmt.Sprintf("The build took longer than %s and was ended.", l.Time)), nil
	case errors.As(err, &exit) && exit.ExitCode() == tooMuch:
		return refusal(fmt.Sprintf("The build needed more memory than %d MiB and was ended.", l.Memory>>20)), nil
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return refusal("The bundler broke down over these files. If they are deeply nested, make them simpler."), nil
	case err != nil:
		return out, fmt.Errorf("sitebuild: the builder ended: %w", err)
	}
	if err := gob.NewDecoder(&stdout).Decode(&out); err != nil {
		return out, fmt.Errorf("sitebuild: the builder's answer could not be read: %w", err)
	}
	return out, nil
}

func refusal(text string) Output {
	return Output{Log: []microsite.Message{{Severity: severityError, Text: text}}}
}

// Child builds what [Isolated] asked for and ends the process, if it is a child.
func Child() {
	limit, err := strconv.ParseInt(os.Getenv(childEnv), 10, 64)
	if err != nil {
		return
	}
	debug.SetMemoryLimit(limit / 4 * 3)
	go watch(limit)
	os.Exit(serve(os.Stdin, os.Stdout))
}

// watch ends the process when it holds too much.
func watch(limit int64) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(10 * time.Millisecond) {
		metrics.Read(sample)
		if int64(sample[0].Value.Uint64()-sample[1].Value.Uint64()) > limit {
			os.Exit(tooMuch)
		}
	}
}

func serve(r io.Reader, w io.Writer) int {
	var in Input
	if err := gob.NewDecoder(r).Decode(&in); err != nil {
		return 1
	}
	if err := gob.NewEncoder(w).Encode(Build(in)); err != nil {
		return 1
	}
	return 0
}
