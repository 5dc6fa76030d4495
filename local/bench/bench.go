// Package bench measures the product against the goals that were set for it:
// side by side with the floor, four bare commits, and with the reference
// design, in rounds on one private PostgreSQL that flushes every commit.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"standmeet/local/bench/reference"
	"standmeet/shared/pg"
	"standmeet/shared/pgserver"
)

// Options choose what is measured. The zero value is the full run, of about
// five minutes, that writes local/.run/bench.json.
type Options struct {
	// Quick takes about a minute, and says less.
	Quick bool
	// Only names the figures to measure ("B1", "B5"); nil is all.
	Only []string
	// Dir is where bench.json goes; empty is local/.run.
	Dir string
	// Profile, when set, is a directory for CPU profiles of this process while the
	// product is measured, one for each figure, and for PostgreSQL's statement
	// statistics.
	Profile string
	// Out takes the table; nil is os.Stdout.
	Out io.Writer
}

// ParseFlags reads the arguments of `standmeet bench`. BENCH_QUICK=1 is -quick.
func ParseFlags(args []string, lookup func(string) (string, bool)) (o Options, err error) {
	f := flag.NewFlagSet("standmeet bench", flag.ContinueOnError)
	only := f.String("only", "", "comma list of figures, like B1,B5")
	f.BoolVar(&o.Quick, "quick", false, "about a minute")
	f.StringVar(&o.Dir, "dir", "", "where bench.json goes [local/.run]")
	f.StringVar(&o.Profile, "profile", "", "directory for CPU profiles and statement statistics")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	if v, _ := lookup("BENCH_QUICK"); v == "1" {
		o.Quick = true
	}
	return o, nil
}

// Figure is one result.
type Figure struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Baseline and Floor are what the reference design and the bare commits reached
	// in the same rounds, in the same unit; 0 where there is none.
	Baseline float64 `json:"baseline,omitempty"`
	Floor    float64 `json:"floor,omitempty"`
	// Ratio is Value by Floor, and Gain how many times better than the reference,
	// both as the median of the rounds.
	Ratio  float64 `json:"ratio,omitempty"`
	Gain   float64 `json:"gain,omitempty"`
	P99    float64 `json:"p99,omitempty"`
	Rounds int     `json:"rounds"`
	Goal   string  `json:"goal"`
	Met    bool    `json:"met"`
	// Detail is whatever else the measurement says.
	Detail map[string]any `json:"detail,omitempty"`
}

// Report is bench.json.
type Report struct {
	Machine Machine           `json:"machine"`
	Figures map[string]Figure `json:"figures"`
}

// Machine is where it ran.
type Machine struct {
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	CPUs       int     `json:"cpus"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	CommitMS   float64 `json:"commit_ms"`
	Load       string  `json:"load,omitempty"`
	Notes      string  `json:"notes"`
	Quick      bool    `json:"quick"`
	At         string  `json:"at"`
}

type bench struct {
	Options
	server *pgserver.Server
	sample sample
	report Report
}

// figures are in the order of measuring.
var figures = []struct {
	names   []string
	measure func(*bench, context.Context) error
}{
	{[]string{"B1", "B2", "B3"}, (*bench).receipts},
	{[]string{"B4", "B5"}, (*bench).backlog},
	{[]string{"B7"}, (*bench).search},
	{[]string{"B8"}, (*bench).vaults},
	{[]string{"B9"}, (*bench).webhooks},
	{[]string{"B10"}, (*bench).held},
}

// Run measures, prints a table and writes bench.json. Its error says that
// something could not be measured; a goal that was missed is none.
func Run(ctx context.Context, o Options) (err error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Dir == "" {
		o.Dir = filepath.Join("local", ".run")
	}
	if o.Profile != "" {
		if err := os.MkdirAll(o.Profile, 0o755); err != nil {
			return err
		}
	}
	b := &bench{Options: o, report: Report{Figures: map[string]Figure{}}}
	if b.sample, err = readSample(); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	dir, err := os.MkdirTemp("", "standmeet-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil { // the server may be another user
		return err
	}
	settings := map[string]string{}
	if o.Profile != "" {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		settings["track_io_timing"] = "on"
	}
	if b.server, err = pgserver.Start(ctx, pgserver.Options{Dir: dir, Fsync: true, Settings: settings}); err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, b.server.Stop(stopping), os.RemoveAll(b.server.DataDir()))
	}()
	if err := b.describe(ctx); err != nil {
		return err
	}
	var failed error
	for _, f := range figures {
		if !slices.ContainsFunc(f.names, b.wants) {
			continue
		}
		if err := f.measure(b, ctx); err != nil {
			failed = errors.Join(failed, fmt.Errorf("bench: %s: %w", strings.Join(f.names, ", "), err))
			if ctx.Err() != nil {
				break
			}
		}
	}
	b.print()
	return errors.Join(failed, b.write())
}

func (b *bench) wants(figure string) bool { return b.Only == nil || slices.Contains(b.Only, figure) }

// pick is full, or quick in a quick run.
func pick[T any](b *bench, full, quick T) T {
	if b.Quick {
		return quick
	}
	return full
}

func (b *bench) logf(format string, args ...any) { _, _ = fmt.Fprintf(b.Out, format+"\n", args...) }

// database is a fresh migrated one, with the floor's and the reference's tables;
// drop removes it, and with it what autovacuum would otherwise do beside the
// next measurement.
func (b *bench) database(ctx context.Context, name string) (url string, drop func() error, err error) {
	if err := b.server.EnsureDatabase(ctx, name); err != nil {
		return "", nil, err
	}
	url = b.server.URL(name)
	if err := pg.Migrate(ctx, url); err != nil {
		return "", nil, err
	}
	if err := reference.Migrate(ctx, url); err != nil {
		return "", nil, err
	}
	db, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return "", nil, err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, floorSchema); err != nil {
		return "", nil, err
	}
	if b.Profile != "" {
		if _, err := db.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return "", nil, err
		}
	}
	return url, func() error {
		return b.admin(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// admin runs a statement that no transaction may hold.
func (b *bench) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, b.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// profiled runs f, and keeps what this process and PostgreSQL did meanwhile.
func (b *bench) profiled(ctx context.Context, figure, url string, f func() error) error {
	if b.Profile == "" {
		return f()
	}
	db, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(b.Profile, figure+".pprof"))
	if err != nil {
		return err
	}
	defer out.Close()
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	err = f()
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	rows, err := db.Query(ctx, `
		SELECT format('%s ms, %s calls, %s rows, %s ms each, %s blocks, %s WAL bytes: %s', total_exec_time::int, calls, rows, mean_exec_time::numeric(10, 3),
			shared_blks_hit + shared_blks_read, wal_bytes, regexp_replace(query, '\s+', ' ', 'g'))
		FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 25`)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Profile, figure+".statements.txt"), []byte(strings.Join(lines, "\n\n")+"\n"), 0o644)
}

func (b *bench) describe(ctx context.Context) error {
	url := b.server.URL("postgres")
	db, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	m := &b.report.Machine
	*m = Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Quick: b.Quick, At: time.Now().UTC().Format(time.RFC3339)}
	if err := db.QueryRow(ctx, `SHOW server_version`).Scan(&m.PostgreSQL); err != nil {
		return err
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.TrimSpace(string(load))
	}
	if _, err := db.Exec(ctx, `CREATE TABLE flush (n int)`); err != nil {
		return err
	}
	r, err := b.closedLoop(ctx, 1, 300*time.Millisecond, func(ctx context.Context) error {
		_, err := db.Exec(ctx, `INSERT INTO flush VALUES (1)`)
		return err
	})
	m.CommitMS = round(r.p50(), 3)
	middling, mean := b.sample.sizes(len(b.sample.notes))
	m.Notes = fmt.Sprintf("%d pieces of Markdown from the Go module cache, median %d bytes, mean %d", len(b.sample.notes), middling, mean)
	b.logf("%s, %d CPUs, %s, PostgreSQL %s, a bare commit takes %.2f ms, load %s", m.OS, m.CPUs, m.Go, m.PostgreSQL, m.CommitMS, m.Load)
	b.logf("notes: %s", m.Notes)
	return err
}

func (b *bench) print() {
	t := tabwriter.NewWriter(b.Out, 0, 4, 2, ' ', 0)
	num := func(v float64) string {
		if v == 0 {
			return "–"
		}
		return fmt.Sprintf("%.4g", v)
	}
	_, _ = fmt.Fprintln(t, "\nid\twhat\tvalue\tunit\tp99 ms\tfloor\t× floor\treference\tgain\trounds\tgoal\t")
	for _, name := range b.names() {
		f := b.report.Figures[name]
		met := "missed"
		if f.Met {
			met = "met"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s: %s\t\n", name, f.What, f.Value, f.Unit,
			num(f.P99), num(f.Floor), num(f.Ratio), num(f.Baseline), num(f.Gain), f.Rounds, f.Goal, met)
	}
	_ = t.Flush()
}

func (b *bench) names() (names []string) {
	for _, f := range figures {
		for _, name := range f.names {
			if _, ok := b.report.Figures[name]; ok {
				names = append(names, name)
			}
		}
	}
	return names
}

func (b *bench) write() error {
	body, err := json.MarshalIndent(b.report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, "bench.json"), append(body, '\n'), 0o644)
}
