// Package house holds no code: its test enforces the arrows and habits of this
// module, listed in rules_test.go, on every Go file of the tree.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "standmeet"
)

// file is one parsed Go file. Build constraints are ignored, so that a rule
// holds on every system.
type file struct {
	path string // from the module's root, with slashes
	*ast.File
	fset *token.FileSet
}

// dir is the package's directory from the module's root.
func (f file) dir() string { return path.Dir(f.path) }

func (f file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// at is where node begins.
func (f file) at(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	return f.path + ":" + strings.TrimPrefix(p.String(), p.Filename+":")
}

// under reports whether dir is tree or lies in it.
func under(dir, tree string) bool { return dir == tree || strings.HasPrefix(dir, tree+"/") }

func parse(path string, src any) (file, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	return file{path, f, fset}, err
}

func TestHouse(t *testing.T) {
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		name := d.Name()
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parse(p, nil)
		if err != nil {
			return err
		}
		f.path = rel
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(files, func(f file) bool { return f.path == "shared/house/house_test.go" }) {
		t.Fatalf("the module is not at %s", root)
	}
	for _, f := range files {
		for _, rule := range fileRules() {
			for _, complaint := range rule(f) {
				t.Error(complaint)
			}
		}
	}
	for _, complaint := range globals(files) {
		t.Error(complaint)
	}
}

func TestTopLevel(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("skipped: git does not know this tree: %v", err)
	}
	for _, complaint := range topLevel(strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })) {
		t.Error(complaint)
	}
}
