// Command local runs StandMeet on this machine: the functions behind an API
// gateway, the relay and the workers, in one process on a PostgreSQL server that
// it brings along. `local ops` lists the operations instead, `local bench` measures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"standmeet/local/bench"
	"standmeet/shared/auth"
	"standmeet/shared/config"
	"standmeet/shared/email"
	"standmeet/shared/telemetry"
	"standmeet/workers"
)

func main() {
	workers.Builder()
	switch command := strings.Join(os.Args[1:], " "); {
	case command == "":
		os.Exit(run())
	case command == "bench" || strings.HasPrefix(command, "bench -"):
		os.Exit(measure(os.Args[2:]))
	case command == "ops":
		if err := printOps(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "standmeet:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "standmeet: there is no command %q; without one it runs, ops lists the operations, bench measures\n", command)
		os.Exit(2)
	}
}

func measure(args []string) int {
	o, err := bench.ParseFlags(args, os.LookupEnv)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2 // flag has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "standmeet:", err)
		return 1
	}
	return 0
}

func run() int {
	lookup, err := config.WithSecrets(context.Background(), os.LookupEnv)
	var c config.Config
	if err == nil {
		c, err = config.Load(lookup)
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(os.Stderr, "standmeet:", line)
		}
		return 2
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		stop(fmt.Errorf("%s", <-signals))
		first := time.Now()
		for range signals {
			// a group's signal comes twice: to us, and by way of make
			if time.Since(first) > 500*time.Millisecond {
				os.Exit(130)
			}
		}
	}()
	o := Options{
		Config: c, Dir: filepath.Join("local", ".run"), Out: os.Stdout, Owner: whoAmI(ctx),
		Logger: telemetry.NewLogger(os.Stderr, c.LogLevel, c.Production),
	}
	err = Run(ctx, o)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return 0 // stopped while it was starting
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "standmeet:", err)
		return 1
	}
	return 0
}

// whoAmI is the owner of a first run, by what this machine knows of its user.
func whoAmI(ctx context.Context) auth.Profile {
	git := func(name string) string {
		out, err := exec.CommandContext(ctx, "git", "config", "--get", name).Output()
		if err != nil { // no git, or not told
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	p := auth.Profile{Handle: "me", Name: git("user.name"), Email: git("user.email")}
	if p.Name == "" {
		p.Name = os.Getenv("USER")
	}
	if _, err := email.Parse(p.Email); err != nil {
		p.Email = "me@localhost"
	}
	return p
}
