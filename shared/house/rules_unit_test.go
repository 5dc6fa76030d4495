package house

import (
	"strings"
	"testing"
)

// TestRulesCanFail runs each rule on made-up files that break it and on close
// neighbours that do not.
func TestRulesCanFail(t *testing.T) {
	imports := func(path string) string { return "package p\nimport _ \"" + path + "\"\n" }
	inFunc := func(stmt string) string { return "package p\nfunc f() { " + stmt + " }\n" }
	for _, c := range []struct {
		path, src string
		want      string // part of the one complaint; "" is none
	}{
		{"functions/corpus/a.go", imports("standmeet/relay"), "cannot cause a side effect"},
		{"functions/corpus/a.go", imports("standmeet/workers/internal/mail"), "cannot cause a side effect"},
		{"functions/corpus/a_test.go", imports("standmeet/workers"), "cannot cause a side effect"},
		{"functions/corpus/a.go", imports("standmeet/shared/corpus"), ""},
		{"functions/bootstrap/main.go", imports("standmeet/functions"), ""},
		{"functions/corpus/a.go", imports("github.com/riverqueue/river"), "only relay and workers"},
		{"functions/a.go", imports("standmeet/relaying"), ""},
		{"local/main.go", imports("github.com/riverqueue/river"), "only relay and workers"},
		{"relay/relay.go", imports("github.com/riverqueue/river/rivertype"), ""},
		{"workers/internal/mail/a.go", imports("github.com/riverqueue/river"), ""},
		{"shared/pg/migrate.go", imports("github.com/riverqueue/river/rivermigrate"), ""},
		{"shared/pg/tx.go", imports("github.com/riverqueue/river"), "only relay and workers"},
		{"shared/pg/sub/a.go", imports("github.com/riverqueue/river/rivermigrate"), "only relay and workers"},
		{"shared/op/a.go", imports("standmeet/functions/corpus"), "below everything"},
		{"shared/op/a.go", imports("standmeet/shared/corpus"), "knows none"},
		{"shared/op/a.go", imports("github.com/aws/aws-lambda-go/events"), ""},
		{"shared/corpus/a.go", imports("standmeet/shared/webhook"), "no other domain"},
		{"shared/corpus/sub/a.go", imports("standmeet/shared/webhook/sub"), "no other domain"},
		{"shared/corpus/a.go", imports("standmeet/shared/corpus/sub"), ""},
		{"shared/corpus/a.go", imports("standmeet/shared/pg"), ""},
		{"shared/corpus/a.go", imports("github.com/aws/aws-lambda-go/events"), "no other domain, River, Lambda"},
		{"relay/relay.go", imports("standmeet/local"), "local is above"},
		{"workers/a.go", imports("standmeet/shared/pgtest"), "only tests"},
		{"local/local.go", imports("standmeet/shared/pgtest"), "only tests"},
		{"workers/a_test.go", imports("standmeet/shared/pgtest"), ""},
		{"shared/outbox/a_test.go", imports("standmeet/shared/pgtest"), ""},

		{"functions/corpus/a.go", inFunc(`db.Begin(ctx)`), "only shared/pg begins"},
		{"workers/a.go", inFunc(`pgx.BeginTxFunc(ctx, db, o, f)`), "only shared/pg begins"},
		{"workers/a.go", inFunc("db.Exec(ctx, `\n\tBEGIN; DELETE`)"), "only shared/pg begins"},
		{"workers/a.go", inFunc(`log("Begin at the BEGIN")`), ""},
		{"workers/a.go", inFunc(`tx.Begin(ctx)`), ""},
		{"shared/pg/tx.go", inFunc(`db.Begin(ctx)`), ""},
		{"shared/outbox/a_test.go", inFunc(`db.Begin(ctx)`), ""},

		{"shared/corpus/a.go", inFunc("db.Exec(`DELETE FROM river_job`)"), "names river_job"},
		{"functions/tasks/get.go", inFunc(`db.Exec("SELECT 1 FROM public.river_queue")`), "names river_queue"},
		{"shared/corpus/a.go", inFunc(`log("driver_job, river, river_")`), ""},
		{"shared/task/read.go", inFunc("db.Exec(`SELECT FROM river_job`)"), ""},
		{"workers/a.go", inFunc("db.Exec(`SELECT FROM river_job`)"), ""},

		{"local/a.go", "package p //nolint\n", "reason"},
		{"local/a.go", "package p // nolint:gosec // spaced out\n", "reason"},
		{"local/a.go", "package p //nolint:gosec\n", "reason"},
		{"local/a.go", "package p //nolint:gosec,errcheck // the file is ours\n", ""},
		{"local/a.go", "package p // nolinting is fine\n", ""},

		{"functions/web/a.go", "package p\nfunc init() {}\n", "no init"},
		{"functions/web/a.go", "package p\ntype t int\nfunc (t) init() {}\n", ""},
		{"workers/a.go", "package p\nfunc init() {}\n", ""},

		{"workers/a_test.go", inFunc(`time.Sleep(1)`), "wait for a condition"},
		{"workers/a.go", inFunc(`time.Sleep(1)`), ""},
		{"workers/a_test.go", inFunc(`t.Skip()`), "says why"},
		{"workers/a_test.go", inFunc(`t.SkipNow()`), "says why"},
		{"workers/a_test.go", inFunc(`t.Skip("skipped: no engine")`), ""},
		{"workers/a.go", "package p // TODO: later\n", "TODO"},
		{"workers/a.go", "package p // mastodon\n", ""},

		{"functions/web/a.go", "package p\nvar n int\n", "package variable n"},
		{"functions/web/a.go", "package p\nvar n = 3\n", "package variable n"},
		{"functions/web/a.go", "package p\nvar f = open()\n", "package variable f"},
		{"functions/web/a.go", "package p\nvar a, b = both()\n", "package variable"},
		{"functions/web/a.go", "package p\nvar t = map[string]int{}\nfunc f() { t[\"a\"]++ }\n", "package variable t"},
		{"functions/web/a.go", "package p\nvar t = s{}\nfunc f() { t.x.y = 1 }\n", "package variable t"},
		{"functions/web/a.go", "package p\nvar t = s{}\nfunc f() { g(&t) }\n", "package variable t"},
		{"functions/web/a.go", "package p\nvar t = map[string]int{}\nfunc f() { delete(t, \"a\") }\n", "package variable t"},
		{"functions/web/a.go", "package p\nvar t = []string{\"a\"}\nfunc f() string { return t[0] }\n", ""},
		{"functions/web/a.go", "package p\nvar ErrX = errors.New(\"x\")\nvar re = regexp.MustCompile(`x`)\nvar _ I = s{}\n", ""},
		{"functions/web/a.go", "package p\n//go:embed *.html\nvar pages embed.FS\n", ""},
		{"functions/web/a_test.go", "package p\nvar update = flag.Bool(\"u\", false, \"\")\n", ""},
		{"workers/a.go", "package p\nvar n int\n", ""},
	} {
		f, err := parse(c.path, c.src)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range fileRules() {
			got = append(got, rule(f)...)
		}
		got = append(got, globals([]file{f})...)
		all := strings.Join(got, "\n")
		if c.want == "" && all != "" || c.want != "" && (!strings.Contains(all, c.want) || !strings.HasPrefix(all, c.path+":")) {
			t.Errorf("%s:\n%s\ngot %q, want %q", c.path, c.src, all, c.want)
		}
	}
}

func TestTopLevelCanFail(t *testing.T) {
	got := topLevel([]string{"functions/a.go", "go.mod", ".ci/run", "scripts/a.sh", "scripts/b.sh", "notes.md"})
	if want := "scripts: not a name of the top level\nnotes.md: not a name of the top level"; strings.Join(got, "\n") != want {
		t.Errorf("got %q", got)
	}
}
