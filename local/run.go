package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"standmeet/functions"
	"standmeet/local/stack"
	"standmeet/shared/auth"
	"standmeet/shared/blob"
	"standmeet/shared/config"
	"standmeet/shared/egress"
	"standmeet/shared/pg"
	"standmeet/shared/pgserver"
	"standmeet/shared/secret"
	"standmeet/shared/telemetry"
	"standmeet/workers"
)

// Options configure Run.
type Options struct {
	Config config.Config
	// Dir keeps the data, the token and run.json between runs; made when missing.
	Dir string
	// Owner is made by the first run.
	Owner auth.Profile
	// Out is told the addresses once everything answers.
	Out    io.Writer
	Logger *slog.Logger
}

const (
	linkLife     = 24 * time.Hour
	readyTimeout = 2 * time.Second
	// drainTime is what requests get to finish, twice: the second time those that
	// wait for other work stop waiting.
	drainTime = 5 * time.Second
	// databaseStop is what PostgreSQL gets to write everything out.
	databaseStop = 30 * time.Second
	// telemetryStop is what the collector gets to take the last of it.
	telemetryStop = time.Second
)

// Run starts the parts that o.Config asks for and keeps them going until ctx
// ends; then it stops them in order: no new requests, the requests under way, the
// relay and the workers, PostgreSQL. It returns early when something can't be
// started or a part fails. A port that is taken is an error before anything else
// is started.
func Run(ctx context.Context, o Options) (err error) {
	began := time.Now()
	c := o.Config
	var listener net.Listener
	if c.Parts.Gateway {
		if listener, err = listen(c); err != nil {
			return err
		}
		defer listener.Close()
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	facts := RunFile{MailDir: filepath.Join(dir, "mail"), BlobDir: filepath.Join(dir, "blobs"), DatabaseURL: c.DatabaseURL}
	if c.DatabaseURL == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{Dir: filepath.Join(dir, "postgres"), Fsync: true, Logf: func(format string, args ...any) {
			fmt.Fprintf(o.Out, format+"\n", args...)
		}})
		if err != nil {
			return err
		}
		alive, letDie := context.WithCancel(context.WithoutCancel(ctx))
		revived := make(chan struct{})
		go func() {
			defer close(revived)
			revive(alive, server, o.Logger)
		}()
		defer func() {
			letDie()
			<-revived
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseStop)
			defer cancel()
			err = errors.Join(err, server.Stop(stopping))
		}()
		if err := server.EnsureDatabase(ctx, "standmeet"); err != nil {
			return err
		}
		facts.DatabaseURL = server.URL("standmeet")
	}
	if err := pg.Migrate(ctx, facts.DatabaseURL); err != nil {
		return fmt.Errorf("the database could not be brought up to date: %w", err)
	}

	keys, err := secretKeys(c, filepath.Join(dir, "secret-key"))
	if err != nil {
		return err
	}
	publicURL := c.PublicURL
	if listener != nil {
		publicURL = base(c, listener.Addr())
	} else if publicURL == "" {
		publicURL = fmt.Sprintf("http://127.0.0.1:%d", c.Port) // where `make gateway` is
	}
	blobs, err := blob.Open(ctx, c, facts.BlobDir, keys, publicURL)
	if err != nil {
		return err
	}
	var mailer workers.Mailer
	if c.Parts.Workers {
		if mailer, err = workers.NewMailer(ctx, c, facts.MailDir); err != nil {
			return err
		}
	}
	t, err := telemetry.Setup(ctx, telemetry.Config{Endpoint: c.OTLPEndpoint, Part: c.Parts.String(), Version: functions.Version, Logger: o.Logger})
	if err != nil {
		return err
	}
	defer func() {
		sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), telemetryStop)
		defer cancel()
		if err := t.Shutdown(sending); err != nil {
			o.Logger.LogAttrs(ctx, slog.LevelWarn, "the last telemetry was not sent", slog.Any("error", err))
		}
	}()
	parts, err := stack.Start(ctx, stack.Options{URL: facts.DatabaseURL, Logger: o.Logger, Mail: mailer, Keys: keys, PublicURL: publicURL, Blobs: blobs, Egress: egress.New(c.Egress), SourceBases: c.SourceBaseURL, Telemetry: t},
		stack.Parts{Gateway: c.Parts.Gateway, Relay: c.Parts.Relay, Workers: c.Parts.Workers})
	if err != nil {
		return err
	}
	tokens := &auth.Store{DB: parts.DB}
	defer func() {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		tokens.Flush(flushing)
		err = errors.Join(err, parts.Stop())
	}()

	failed := make(chan error, 1)
	if c.Parts.Gateway {
		facts.BaseURL = publicURL
		facts.MCPURL = facts.BaseURL + "/mcp"
		if facts.Owner, err = welcome(ctx, parts.DB, tokens, o.Owner, filepath.Join(dir, "token")); err != nil {
			return err
		}
		facts.Owner.SignInURL = facts.BaseURL + "/sign-in?token=" + facts.Owner.SignInURL
		handler, err := gateway(functions.New(functions.Deps{
			DB: parts.DB, Waiter: parts.Waiter, Receipts: parts.Receipts, Auth: tokens, Logger: o.Logger, Telemetry: t,
			Keys: keys, PublicURL: publicURL, Blobs: blobs, Egress: egress.New(c.Egress), Mail: c.MailSupplier != config.MailNone, MaxWait: c.MaxWait, HTTPS: strings.HasPrefix(facts.BaseURL, "https:"),
		}), parts.DB, blobs)
		if err != nil {
			return err
		}
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		}
		go func() { failed <- server.Serve(listener) }()
		defer drain(ctx, server, parts)
	}

	if c.Parts.Gateway || c.DatabaseURL == "" {
		remove, err := facts.write(filepath.Join(dir, "run.json"))
		if err != nil {
			return err
		}
		defer remove()
	}
	facts.print(o.Out, c.Parts, time.Since(began))
	o.Logger.LogAttrs(ctx, slog.LevelDebug, "ready", slog.Duration("took", time.Since(began)))
	select {
	case <-ctx.Done():
		fmt.Fprintln(o.Out, "Stopping …")
		return nil
	case <-parts.Failed():
		return nil // parts.Stop tells why
	case err := <-failed:
		return fmt.Errorf("the gateway stopped: %w", err)
	}
}

func listen(c config.Config) (net.Listener, error) {
	address := net.JoinHostPort(c.BindAddress.String(), strconv.Itoa(c.Port))
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is in use: stop what uses it, or choose another with PORT=%d make run", c.Port, c.Port%65535+1)
	}
	if err != nil {
		return nil, fmt.Errorf("can't listen on %s: %w", address, err)
	}
	return l, nil
}

// base is where people reach the gateway, as far as this process can tell.
func base(c config.Config, address net.Addr) string {
	if c.PublicURL != "" {
		return c.PublicURL
	}
	host, port, err := net.SplitHostPort(address.String())
	if err != nil || c.BindAddress.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// secretKeys are what c says, or else one key that is kept in file, which
// processes that start at once share.
func secretKeys(c config.Config, file string) (secret.Keys, error) {
	if !c.SecretKey.Zero() {
		return c.SecretKey, nil
	}
	key := make([]byte, secret.MinKey)
	_, _ = rand.Read(key) // never fails
	f, err := os.CreateTemp(filepath.Dir(file), ".*.tmp")
	if err != nil {
		return secret.Keys{}, err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return secret.Keys{}, err
	}
	// a link is there whole or not at all, and never in place of another
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, os.ErrExist) {
		return secret.Keys{}, err
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		return secret.Keys{}, err
	}
	keys, err := secret.ParseKeys(string(kept))
	if err != nil {
		return keys, fmt.Errorf("%s %w", file, err)
	}
	return keys, nil
}

// drain stops accepting, lets requests finish, and then cuts them off.
func drain(ctx context.Context, server *http.Server, parts *stack.Stack) {
	shutdown := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		return server.Shutdown(ctx)
	}
	if shutdown() != nil {
		parts.Waiter.Close()
		if shutdown() != nil {
			_ = server.Close()
		}
	}
}

// revive starts the server again when it ends by itself, until ctx ends.
func revive(ctx context.Context, server *pgserver.Server, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-server.Done():
		}
		if ctx.Err() != nil {
			return
		}
		log.LogAttrs(ctx, slog.LevelWarn, "PostgreSQL ended by itself; starting it again")
		if err := server.Restart(ctx); err != nil {
			log.LogAttrs(ctx, slog.LevelError, "PostgreSQL did not start again", slog.Any("error", err))
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}
}
