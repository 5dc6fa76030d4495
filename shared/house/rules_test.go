package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A rule returns one complaint for each breach, with its place.
type rule func(file) []string

func fileRules() []rule {
	return []rule{arrows, transactions, riverTables, nolints, inits, habits}
}

// topNames are all that may lie at the top of the tree.
var topNames = []string{
	"functions", "shared", "relay", "workers", "infra", "migrations", "local",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE",
	".ci", ".golangci.yml", ".gitignore", ".gitattributes", ".dockerignore",
}

// domains are the folders of shared that hold one domain's types, rules and
// SQL. What else is in shared serves every domain, and knows none.
var domains = []string{"corpus", "access", "booking", "vault", "microsite", "jobfeed", "webhook"}

const riverModule = "github.com/riverqueue/river"

// exceptions to the arrows: files in dir may import what begins with prefix.
var exceptions = []struct{ dir, prefix, reason string }{
	{"shared/pg", riverModule + "/rivermigrate", "Migrate brings River's tables to where our trigger on them expects them"},
	{"shared/pg", riverModule + "/riverdriver/riverpgxv5", "rivermigrate speaks to the database through it"},
	{"local/bench/reference", riverModule, "the design that the benchmark compares with is one on River; nothing else links it"},
}

// An arrow says who may not import what. from and to are directories of this
// module, or to is another module's path; only (if set) names the directories
// that are free of it.
type arrow struct {
	from []string
	only []string
	to   []string
	// tests are bound too
	tests bool
	why   string
}

func arrowTable() []arrow {
	table := []arrow{
		{from: []string{"functions"}, to: []string{module + "/relay", module + "/workers", module + "/local"}, tests: true,
			why: "functions commit and wait; they cannot cause a side effect"},
		{from: []string{"shared"}, to: []string{module + "/functions", module + "/relay", module + "/workers", module + "/local"}, tests: true,
			why: "shared is below everything"},
		{from: []string{"relay", "workers", "functions", "shared"}, to: []string{module + "/local"}, tests: true,
			why: "local is above everything"},
		{from: []string{""}, only: []string{"relay", "workers"}, to: []string{riverModule}, tests: true,
			why: "only relay and workers know River"},
		{from: []string{""}, to: []string{module + "/shared/pgtest", module + "/shared/golden"},
			why: "only tests may link it"},
	}
	var all []string
	for _, d := range domains {
		all = append(all, "shared/"+d)
	}
	for _, d := range all {
		others := []string{"github.com/aws/", "github.com/riverqueue/"}
		for _, o := range all {
			if o != d {
				others = append(others, module+"/"+o)
			}
		}
		table = append(table, arrow{from: []string{d}, to: others, tests: true, why: "a domain knows no other domain, River, Lambda or AWS"})
	}
	var below []string
	for _, d := range all {
		below = append(below, module+"/"+d)
	}
	return append(table, arrow{from: []string{"shared"}, only: all, to: below,
		why: "what serves every domain knows none"})
}

func arrows(f file) (complaints []string) {
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{err.Error()}
		}
		for _, a := range arrowTable() {
			in := func(tree string) bool { return tree == "" || under(f.dir(), tree) }
			if f.test() && !a.tests || !slices.ContainsFunc(a.from, in) || slices.ContainsFunc(a.only, in) {
				continue
			}
			reaches := func(to string) bool { return under(path, strings.TrimSuffix(to, "/")) }
			if slices.ContainsFunc(a.to, reaches) && !excepted(f.dir(), path) {
				complaints = append(complaints, fmt.Sprintf("%s: imports %s: %s", f.at(spec), path, a.why))
			}
		}
	}
	return complaints
}

func excepted(dir, path string) bool {
	for _, e := range exceptions {
		if dir == e.dir && under(path, e.prefix) {
			return true
		}
	}
	return false
}

// transactions: shared/pg alone begins one. Tests may, to interleave two; and
// tx.Begin hands out what shared/pg has begun.
func transactions(f file) (complaints []string) {
	if f.test() || f.dir() == "shared/pg" {
		return nil
	}
	begins := []string{"Begin", "BeginTx", "BeginFunc", "BeginTxFunc"}
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(begins, s.Sel.Name) && !isIdent(s.X, "tx") {
				complaints = append(complaints, fmt.Sprintf("%s: %s: only shared/pg begins a transaction", f.at(n), s.Sel.Name))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && regexp.MustCompile("^[\"`]\\s*(BEGIN|START TRANSACTION)\\b").MatchString(n.Value) {
				complaints = append(complaints, fmt.Sprintf("%s: %s: only shared/pg begins a transaction", f.at(n), n.Value))
			}
		}
		return true
	})
	return complaints
}

// riverTables: who knows River's tables by name. Tests may, to play River.
func riverTables(f file) (complaints []string) {
	if f.test() || under(f.dir(), "relay") || under(f.dir(), "workers") || f.dir() == "shared/task" || f.dir() == "migrations" || under(f.dir(), "local/bench") {
		return nil
	}
	table := regexp.MustCompile(`\briver_[a-z_]+`)
	ast.Inspect(f.File, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name := table.FindString(lit.Value); name != "" {
				complaints = append(complaints, fmt.Sprintf("%s: names %s: only relay, workers, shared/task and the benchmark know River's tables", f.at(lit), name))
			}
		}
		return true
	})
	return complaints
}

func nolints(f file) (complaints []string) {
	is, good := regexp.MustCompile(`^//\s*nolint\b`), regexp.MustCompile(`^//nolint:[a-z0-9,]+ // \S`)
	for _, group := range f.Comments {
		for _, c := range group.List {
			if is.MatchString(c.Text) && !good.MatchString(c.Text) {
				complaints = append(complaints, fmt.Sprintf("%s: write //nolint:linter // reason", f.at(c)))
			}
		}
	}
	return complaints
}

// inits: functions run nothing before main does.
func inits(f file) (complaints []string) {
	if f.test() || !under(f.dir(), "functions") {
		return nil
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			complaints = append(complaints, f.at(fn)+": functions/ has no init")
		}
	}
	return complaints
}

// habits: a test waits for conditions and says why it skips; nothing is left
// to be done.
func habits(f file) (complaints []string) {
	if f.test() {
		ast.Inspect(f.File, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch {
			case isIdent(s.X, "time") && s.Sel.Name == "Sleep":
				complaints = append(complaints, f.at(n)+": time.Sleep in a test: wait for a condition")
			case s.Sel.Name == "SkipNow", isIdent(s.X, "t") && s.Sel.Name == "Skip" && len(call.Args) == 0:
				complaints = append(complaints, f.at(n)+": a test that skips says why")
			}
			return true
		})
	}
	undone := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	for _, group := range f.Comments {
		for _, c := range group.List {
			if w := undone.FindString(c.Text); w != "" && f.dir() != "shared/house" {
				complaints = append(complaints, fmt.Sprintf("%s: %s", f.at(c), w))
			}
		}
	}
	return complaints
}

// globals: functions/ has no package-level variable that changes. Allowed are
// error values, compiled regular expressions and templates, embedded files,
// interface assertions, and tables that no code of their package assigns to or
// takes the address of.
func globals(files []file) (complaints []string) {
	changed := map[string]bool{} // "dir name"
	for _, f := range files {
		if !under(f.dir(), "functions") {
			continue
		}
		touch := func(e ast.Expr) {
			if id := rootIdent(e); id != nil {
				changed[f.dir()+" "+id.Name] = true
			}
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					for _, e := range n.Lhs {
						touch(e)
					}
				}
			case *ast.IncDecStmt:
				touch(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					touch(n.X)
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear" || fn.Name == "copy") && len(n.Args) > 0 {
					touch(n.Args[0])
				}
			}
			return true
		})
	}
	for _, f := range files {
		if f.test() || !under(f.dir(), "functions") {
			continue
		}
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if name.Name == "_" || embeds(decl.Doc) || embeds(spec.Doc) {
						continue
					}
					if len(spec.Values) != len(spec.Names) || !fixed(spec.Values[i]) || changed[f.dir()+" "+name.Name] {
						complaints = append(complaints, fmt.Sprintf("%s: package variable %s: functions/ has no global that changes", f.at(name), name.Name))
					}
				}
			}
		}
	}
	return complaints
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// fixed: a value that nothing changes once it is made.
func fixed(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		if s, ok := e.Fun.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				return x.Name == "errors" && s.Sel.Name == "New" || x.Name == "fault" ||
					x.Name == "regexp" && s.Sel.Name == "MustCompile" || x.Name == "template" && s.Sel.Name == "Must"
			}
		}
	}
	return false
}

// rootIdent is the x of x, x.f, x[i], *x and (x).
func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// topLevel takes the paths of all committed files.
func topLevel(paths []string) (complaints []string) {
	seen := map[string]bool{}
	for _, p := range paths {
		name, _, _ := strings.Cut(p, "/")
		if !seen[name] && !slices.Contains(topNames, name) {
			complaints = append(complaints, name+": not a name of the top level")
		}
		seen[name] = true
	}
	return complaints
}
