package sitebuild

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"standmeet/shared/microsite"
)

//go:embed preact/*.js
var preact embed.FS

//go:embed page.css
var pageStyle string

// builtins are what can be imported that is no file of the site.
func builtins() map[string]string {
	return map[string]string{
		"preact": "preact", "preact/hooks": "hooks", "preact/compat": "compat", "preact/compat/client": "client",
		"preact/jsx-runtime": "jsx-runtime", "preact/jsx-dev-runtime": "jsx-runtime",
		"react": "compat", "react-dom": "compat", "react-dom/client": "client", "react/jsx-runtime": "jsx-runtime", "react/jsx-dev-runtime": "jsx-runtime",
	}
}

// The namespaces of what is bundled: files of the site, scripts and styles that
// stand in pages, pages that are the default export of a script, images, and what
// comes with the builder.
const (
	nsFile    = "site"
	nsInline  = "inline"
	nsPage    = "page"
	nsAsset   = "asset"
	nsBuiltin = "builtin"
)

// entry is a script or style that a page loads.
type entry struct{ namespace, path string }

func (e entry) String() string { return e.namespace + ":" + e.path }

// name is what its output is called, before the hash of its content.
func (e entry) name() string {
	base := path.Base(strings.TrimSuffix(e.path, path.Ext(e.path)))
	return plainName(base)
}

func (b *build) want(e entry) {
	for _, other := range b.entries {
		if other == e {
			return
		}
	}
	b.entries = append(b.entries, e)
}

// bundled is what became of an entry: names below microsite.Assets.
type bundled struct{ script, style string }

func loader(p string) api.Loader {
	if strings.HasSuffix(p, ".module.css") {
		return api.LoaderLocalCSS
	}
	switch path.Ext(p) {
	case ".ts":
		return api.LoaderTS
	case ".tsx":
		return api.LoaderTSX
	case ".js", ".jsx":
		return api.LoaderJSX
	case ".css":
		return api.LoaderCSS
	case ".json":
		return api.LoaderJSON
	case ".md", ".html":
		return api.LoaderText
	}
	return api.LoaderNone
}

// bundle makes what the pages load. esbuild is given every file by hand: it looks
// at no disk and asks no server.
func (b *build) bundle() {
	if len(b.entries) == 0 {
		return
	}
	entries := make([]api.EntryPoint, len(b.entries))
	for i, e := range b.entries {
		entries[i] = api.EntryPoint{InputPath: e.String(), OutputPath: e.name()}
	}
	r := api.Build(api.BuildOptions{
		EntryPointsAdvanced: entries,
		Bundle:              true, Splitting: true, Format: api.FormatESModule, Platform: api.PlatformBrowser, Target: api.ES2022,
		AbsWorkingDir: "/", Outdir: "/" + microsite.Assets, EntryNames: "[name]-[hash]", ChunkNames: "[name]-[hash]",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
		// the file that may lie around on this machine is not looked for then
		TsconfigRaw: "{}",
		Define:      known(),
		Charset:     api.CharsetUTF8, LegalComments: api.LegalCommentsEndOfFile,
		Metafile: true, LogLevel: api.LogLevelSilent, LogLimit: microsite.MaxLog,
		Plugins: []api.Plugin{{Name: "site", Setup: b.plug}},
	})
	b.relay(r.Errors, b.fail)
	b.relay(r.Warnings, b.warn)
	if b.failed() {
		return
	}
	var meta struct {
		Outputs map[string]struct {
			EntryPoint string `json:"entryPoint"`
			CSSBundle  string `json:"cssBundle"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(r.Metafile), &meta); err != nil {
		b.fail(microsite.Message{Text: "The bundler's answer could not be read."})
		return
	}
	found := map[string]bundled{}
	for out, o := range meta.Outputs {
		if o.EntryPoint == "" {
			continue
		}
		made := found[o.EntryPoint]
		if path.Ext(out) == ".css" {
			made.style = path.Base(out)
		} else {
			made.script = path.Base(out)
			if o.CSSBundle != "" {
				made.style = path.Base(o.CSSBundle)
			}
		}
		found[o.EntryPoint] = made
	}
	for _, f := range r.OutputFiles {
		b.make(strings.TrimPrefix(f.Path, "/"), microsite.ContentType(f.Path), f.Contents)
	}
	for _, p := range b.pages {
		for i, piece := range p.pieces {
			if piece.entry != (entry{}) {
				p.pieces[i].bundled = found[piece.entry.String()]
			}
		}
	}
}

// relay passes on what esbuild says, in the places that the author knows.
func (b *build) relay(messages []api.Message, say func(microsite.Message)) {
	for _, m := range messages {
		out := microsite.Message{Text: m.Text}
		if l := m.Location; l != nil {
			file := l.File
			for _, ns := range []string{nsFile, nsInline, nsPage, nsBuiltin} {
				file = strings.TrimPrefix(file, ns+":")
			}
			if l.Namespace == nsPage || l.Namespace == nsBuiltin || strings.HasPrefix(l.File, nsPage+":") || strings.HasPrefix(l.File, nsBuiltin+":") {
				continue
			}
			file, _, _ = strings.Cut(file, "#")
			out.File, out.Line, out.Column, out.Source = file, l.Line, l.Column+1, l.LineText
			// what stands in a page is padded to its place
			if lines := strings.Split(string(b.files[file]), "\n"); l.Line >= 1 && l.Line <= len(lines) {
				out.Source = strings.TrimRight(lines[l.Line-1], "\r")
			}
		}
		say(out)
	}
}

func (b *build) plug(p api.PluginBuild) {
	p.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) { return b.resolve(a), nil })
	p.OnLoad(api.OnLoadOptions{Filter: ".*"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) { return b.load(a), nil })
}

func refused(format string, args ...any) api.OnResolveResult {
	return api.OnResolveResult{Errors: []api.Message{{Text: fmt.Sprintf(format, args...)}}}
}

func resolved(namespace, p string) api.OnResolveResult {
	return api.OnResolveResult{Namespace: namespace, Path: p}
}

func (b *build) resolve(a api.OnResolveArgs) api.OnResolveResult {
	if a.Kind == api.ResolveEntryPoint {
		namespace, p, _ := strings.Cut(a.Path, ":")
		return resolved(namespace, p)
	}
	if a.Namespace == nsPage { // our own text
		if name, ok := builtins()[a.Path]; ok {
			return resolved(nsBuiltin, name+".js")
		}
		return resolved(nsFile, a.Path)
	}
	inCSS := a.Kind == api.ResolveCSSURLToken || a.Kind == api.ResolveCSSImportRule || a.Kind == api.ResolveCSSComposesFrom
	from, _, _ := strings.Cut(a.Importer, "#")
	switch {
	case inCSS && (strings.HasPrefix(a.Path, "#") || scheme(a.Path) == "data"):
		return api.OnResolveResult{Path: a.Path, External: true}
	case scheme(a.Path) == "file":
		return refused("%q is a file of a computer, and none of the site.", a.Path)
	case strings.HasPrefix(a.Path, "//") || slices.Contains([]string{"http", "https", "ws", "wss", "ftp", "blob", "data"}, scheme(a.Path)):
		return refused("%q is on another server, and a page here can't load anything from there: put the file into the site.", a.Path)
	}
	relative := strings.HasPrefix(a.Path, "./") || strings.HasPrefix(a.Path, "../") || a.Path == "." || a.Path == ".."
	if !inCSS && !relative && !strings.HasPrefix(a.Path, "/") {
		if name, ok := builtins()[a.Path]; ok {
			return resolved(nsBuiltin, name+".js")
		}
		return refused("There are no packages here, so %q can't be imported: only files of the site (\"./%s\"), react and preact can.", a.Path, path.Base(a.Path))
	}
	var endings []string
	if !inCSS {
		endings = []string{".tsx", ".ts", ".jsx", ".js", ".json", ".css"}
	}
	found, why := b.find(from, a.Path, inCSS, endings...)
	switch {
	case why != "":
		return refused("%s", why)
	case a.Kind == api.ResolveCSSURLToken:
		if !microsite.IsImage(found) {
			return refused("%q is no image.", a.Path)
		}
		b.emits(found)
		_, fragment, ok := strings.Cut(a.Path, "#")
		name := "./" + b.names[found]
		if ok {
			name += "#" + fragment
		}
		return api.OnResolveResult{Path: name, External: true}
	case microsite.IsImage(found):
		b.emits(found)
		return resolved(nsAsset, found)
	}
	return resolved(nsFile, found)
}

func (b *build) load(a api.OnLoadArgs) api.OnLoadResult {
	var text string
	as := loader(a.Path)
	switch a.Namespace {
	case nsBuiltin:
		if a.Path == styleName {
			return api.OnLoadResult{Contents: &pageStyle, Loader: api.LoaderCSS}
		}
		raw, err := preact.ReadFile("preact/" + a.Path)
		if err != nil {
			return api.OnLoadResult{Errors: []api.Message{{Text: err.Error()}}}
		}
		text = string(raw)
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}
	case nsAsset:
		// all that is bundled lies in one directory, wherever the page does
		text = fmt.Sprintf("export default new URL(%q, import.meta.url).href", "./"+b.names[a.Path])
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}
	case nsPage:
		text = fmt.Sprintf("import * as page from %q;\nimport { h, render } from \"preact\";\n"+
			"const it = page[\"default\"];\nif (it !== undefined) render(typeof it === \"function\" ? h(it, {}) : it, document.getElementById(\"root\"));\n", a.Path)
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}
	case nsInline:
		text = b.inline[a.Path]
	default:
		text = string(b.files[a.Path])
	}
	if as == api.LoaderNone {
		return api.OnLoadResult{Errors: []api.Message{{Text: fmt.Sprintf("%s can't be imported.", a.Path)}}}
	}
	errors := environment(a, text, as)
	if as == api.LoaderTS || as == api.LoaderTSX {
		errors = append(errors, b.unused(a, text, as)...)
	}
	return api.OnLoadResult{Contents: &text, Loader: as, Errors: errors}
}

// unused looks at the imports of TypeScript that nothing uses, too: they may be of
// types, so the bundler drops them unseen.
func (b *build) unused(a api.OnLoadArgs, text string, as api.Loader) []api.Message {
	r := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: text, Loader: as, Sourcefile: a.Path},
		Bundle: true, Format: api.FormatESModule, Target: api.ES2022, AbsWorkingDir: "/", JSX: api.JSXPreserve,
		TsconfigRaw: `{"compilerOptions": {"verbatimModuleSyntax": true}}`, LogLevel: api.LogLevelSilent,
		Plugins: []api.Plugin{{Name: "site", Setup: func(p api.PluginBuild) {
			p.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(in api.OnResolveArgs) (api.OnResolveResult, error) {
				in.Importer, in.Namespace = a.Path, a.Namespace
				if found := b.resolve(in); len(found.Errors) > 0 {
					return found, nil
				}
				return api.OnResolveResult{Path: in.Path, External: true}, nil
			})
		}}},
	})
	for i := range r.Errors {
		if l := r.Errors[i].Location; l != nil {
			l.File, l.Namespace = a.Path, a.Namespace
		}
	}
	return r.Errors
}

// known is what a script is told of the environment that it has not.
func known() map[string]string {
	return map[string]string{"process.env.NODE_ENV": `"production"`, "import.meta.env.MODE": `"production"`, "import.meta.env.PROD": "true", "import.meta.env.DEV": "false"}
}

var (
	envUse   = regexp.MustCompile(`\b(process|import\s*\.\s*meta)\s*\??\.\s*env\b(\s*\??\.\s*[A-Za-z_$][\w$]*)?`)
	envKnown = regexp.MustCompile(`\.\s*(NODE_ENV|MODE|PROD|DEV)$`)
)

// environment refuses what a page can't have: a script that reads a variable of an
// environment would be built, and fail in the browser.
func environment(a api.OnLoadArgs, text string, as api.Loader) (errors []api.Message) {
	var uses [][]int
	for _, use := range envUse.FindAllStringIndex(text, -1) {
		if !envKnown.MatchString(text[use[0]:use[1]]) {
			uses = append(uses, use)
		}
	}
	if len(uses) == 0 {
		return nil
	}
	const marker = "standmeet_environment"
	define := known()
	define["process.env"], define["import.meta.env"] = marker, marker
	code := api.Transform(text, api.TransformOptions{Loader: as, TsconfigRaw: "{}", LogLevel: api.LogLevelSilent, Define: define})
	if !strings.Contains(string(code.Code), marker) {
		return nil // in comments or texts alone
	}
	for _, use := range uses {
		m := at(a.Path, []byte(text), use[0], "")
		if before := strings.TrimSpace(m.Source[:min(m.Column-1, len(m.Source))]); strings.HasPrefix(before, "//") || strings.HasPrefix(before, "*") || strings.HasPrefix(before, "/*") {
			continue
		}
		errors = append(errors, api.Message{
			Text:     fmt.Sprintf("A page has no environment, so there is no %s: write the value itself.", text[use[0]:use[1]]),
			Location: &api.Location{File: a.Path, Namespace: a.Namespace, Line: m.Line, Column: m.Column - 1, Length: use[1] - use[0], LineText: m.Source},
		})
	}
	return errors
}
