package sitebuild

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"standmeet/shared/microsite"
)

// files are given as path, content, path, content.
func site(pairs ...string) (in Input) {
	in.Name = "A site"
	for i := 0; i < len(pairs); i += 2 {
		in.Files = append(in.Files, microsite.File{Path: pairs[i], Content: []byte(pairs[i+1])})
	}
	return in
}

func built(t *testing.T, in Input) map[string]string {
	t.Helper()
	out := Build(in)
	if out.Failed() || len(out.Log) > 0 {
		t.Fatalf("log: %+v", out.Log)
	}
	return byPath(out)
}

func byPath(out Output) map[string]string {
	files := map[string]string{}
	for _, f := range out.Files {
		files[f.Path] = string(f.Content)
	}
	return files
}

// assets joins what was made with that ending.
func assets(files map[string]string, ending string) (all string) {
	for p, content := range files {
		if strings.HasPrefix(p, "_a/") && strings.HasSuffix(p, ending) {
			all += content
		}
	}
	return all
}

const dot = `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" fill="red"/></svg>`

var references = regexp.MustCompile(`(?:src|href)="([^"]*)"`)

// whole checks that all that pages load is there.
func whole(t *testing.T, files map[string]string) {
	t.Helper()
	for p, content := range files {
		if !strings.HasSuffix(p, ".html") {
			continue
		}
		for _, m := range references.FindAllStringSubmatch(content, -1) {
			to, _, _ := strings.Cut(m[1], "#")
			if i := strings.Index(to, "_a/"); i >= 0 {
				if _, ok := files[to[i:]]; !ok || to[:i] != up(p) {
					t.Errorf("%s loads %s", p, m[1])
				}
			}
		}
	}
}

func TestAPage(t *testing.T) {
	t.Parallel()
	files := built(t, site(
		"index.tsx", `import { useState } from "react"; import "./look.css"; import Hero from "./parts/Hero"; import facts from "./facts.json";
			interface P { n: number }
			export default function Page() { const [n, set] = useState<number>(1); return <main><Hero n={n} /><p style={{color: "red"}} onClick={() => set(n + 1)}>{facts.word}</p></main> }`,
		"parts/Hero.tsx", `import dot from "../img/dot.svg"; export default ({ n }: { n: number }) => <><h1>Hello {n}</h1><img src={dot} /></>;`,
		"look.css", "body { background: url(img/dot.svg?x#y) } h1 { color: green }",
		"img/dot.svg", dot, "facts.json", `{"word": "zanzibar"}`,
	))
	whole(t, files)
	page, script, style := files["index.html"], assets(files, ".js"), assets(files, ".css")
	if !strings.Contains(page, `<div id="root">`) || !strings.Contains(page, `<title>A site</title>`) || !strings.Contains(page, `<script type="module" src="_a/`) || !strings.Contains(page, `<link rel="stylesheet" href="_a/`) {
		t.Error(page)
	}
	if !strings.Contains(script, "zanzibar") || !strings.Contains(script, `import.meta.url`) || !strings.Contains(script, "MIT licence") {
		t.Error(script)
	}
	if !regexp.MustCompile(`url\(\./dot-[0-9a-f]{20}\.svg#y\)`).MatchString(style) {
		t.Error(style)
	}
	if files["img/dot.svg"] != dot || files["facts.json"] == "" {
		t.Errorf("%v", files)
	}
	again := Build(site("index.html", "<p>a")).Files
	if !slices.EqualFunc(again, Build(site("index.html", "<p>a")).Files, func(a, b File) bool { return a.Path == b.Path && string(a.Content) == string(b.Content) }) {
		t.Error("the same files make another build")
	}
}

// S1: what a script holds never ends it, or swallows the page.
func TestScriptsThatHoldTags(t *testing.T) {
	t.Parallel()
	const strange = `"<!-- <script> </script> ]]> -->"`
	for name, in := range map[string]Input{
		"file":   site("index.html", `<body><script src="a.tsx"></script><footer>seen</footer>`, "a.tsx", `document.title = `+strange),
		"inline": site("index.html", `<body><script>document.title = "<!-- <script> x <\/script> </scr" + "ipt>"; // --></script><footer>seen</footer>`),
		"page":   site("index.tsx", `const s = `+strange+`; export default () => <p>{s}</p>`),
		"words":  site("index.md", "`"+strange+"`\n\n<footer>seen</footer>\n"),
	} {
		files := built(t, in)
		whole(t, files)
		if page := files["index.html"]; strings.Contains(page, "<!--") || name != "page" && strings.Count(page, "<footer>seen</footer>") != 1 || strings.Count(page, "<script") != strings.Count(page, "></script>") {
			t.Errorf("%s: %s", name, page)
		}
	}
}

// S2: addresses are right at every depth.
func TestDepths(t *testing.T) {
	t.Parallel()
	page := `<link rel=stylesheet href="/styles/deep/x.css"><link rel=icon href="/img/a.svg"><img src="/img/a.svg" srcset="/img/a.svg 2x"><a href="/about">x</a><a href="/p/x.md#y">y</a><svg><use href="/img/a.svg#z"/></svg>`
	files := built(t, site("index.html", page, "about.html", page, "p/x.md", page, "p/x/y/index.html", page,
		"styles/deep/x.css", `@import "../base.css"; b { background: url(../../img/a.svg) } i { background: url("/img/a.svg") }`, "styles/base.css", "u { background: url(data:image/gif;base64,x) }", "img/a.svg", dot))
	whole(t, files)
	for p, root := range map[string]string{"index.html": "", "about.html": "", "p/x.html": "../", "p/x/y/index.html": "../../../"} {
		for _, want := range []string{`href="` + root + `_a/x-`, `src="` + root + `_a/a-`, `srcset="` + root + `_a/a-`, `href="` + root + `about"`, `href="` + root + `p/x.html#y"`, `.svg#z"`} {
			if !strings.Contains(files[p], want) {
				t.Errorf("%s lacks %s: %s", p, want, files[p])
			}
		}
	}
	if style := assets(files, ".css"); strings.Count(style, "url(./a-") != 2 || !strings.Contains(style, "url(data:") {
		t.Error(style)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string) Input {
		return site("index.html", `<script src="a.ts"></script>`, "a.ts", "\n  "+text)
	}
	style := func(text string) Input {
		return site("index.html", `<link rel=stylesheet href=a.css>`, "a.css", "\n  "+text, "hero.tsx", "", "img/a.svg", dot)
	}
	page := func(text string) Input { return site("index.html", "<p>\n"+text, "hero.tsx", "") }
	for _, c := range []struct {
		in   Input
		file string
		line int
		text string
	}{
		{script(`import x from "../../../../etc/hostname"`), "a.ts", 2, "leads out of the site"},
		{script(`import x from "/etc/hostname"; console.log(x)`), "a.ts", 2, "absolute path"},
		{script(`import x from "file:///etc/hostname"`), "a.ts", 2, "none of the site"},
		{script(`import x from "https://example.com/x.js"`), "a.ts", 2, "another server"},
		{script(`await import("//example.com/x.js")`), "a.ts", 2, "another server"},
		{script(`import x from "lodash"`), "a.ts", 2, "no packages"},
		{script(`import x from "node:fs"`), "a.ts", 2, "no packages"},
		{script(`require("../../etc/hostname")`), "a.ts", 2, "leads out"},
		{script(`import x from "./nothing"`), "a.ts", 2, "There is no file"},
		{script(`document.title = process.env.FOO`), "a.ts", 2, "process.env.FOO"},
		{script(`const { FOO } = process.env; alert(FOO)`), "a.ts", 2, "process.env"},
		{script(`alert(import.meta.env.VITE_FOO)`), "a.ts", 2, "import.meta.env.VITE_FOO"},
		{script(`const x: = 1`), "a.ts", 2, "Unexpected"},
		{style(`@import "file:///etc/hostname";`), "a.css", 2, "none of the site"},
		{style(`@import url(https://example.com/x.css);`), "a.css", 2, "another server"},
		{style(`@import "../../../../etc/hostname";`), "a.css", 2, "leads out"},
		{style(`b { background: url(../../../../etc/hostname) }`), "a.css", 2, "leads out"},
		{style(`b { background: url(http://example.com/x.png) }`), "a.css", 2, "another server"},
		{style(`b { background: url(hero.tsx) }`), "a.css", 2, "no image"},
		{style(`b { background: url(img/A.svg) }`), "a.css", 2, "upper and lower case"},
		{page(`<script src="../../etc/hostname"></script>`), "index.html", 2, "leads out"},
		{page(`<script src="https://example.com/x.js"></script>`), "index.html", 2, "another server"},
		{page(`<img src="file:///etc/hostname">`), "index.html", 2, "another server"},
		{page(`<img src="http://example.com/x.png">`), "index.html", 2, "another server"},
		{page(`<link rel="stylesheet" href="//example.com/x.css">`), "index.html", 2, "another server"},
		{page(`<button onclick="x()">`), "index.html", 2, "onclick"},
		{page(`<a href="javascript:x()">`), "index.html", 2, "javascript:"},
		{page(`<iframe src="/"></iframe>`), "index.html", 2, "iframe"},
		{page(`<base href="/">`), "index.html", 2, "base"},
		{page(`<script>const a = "<!-- <script>";</script><p>lost`), "index.html", 2, "no browser sees its end"},
		{page(`<script type="importmap">{}</script>`), "index.html", 2, "import map"},
		{page(`<script>
			let = ;</script>`), "index.html", 3, "Unexpected"},
		{page(`<script type=module>import "./Hero"</script>`), "index.html", 2, "upper and lower case"},
		{page(`<style>@import "x.css"; b { color: red; }</style>`), "index.html", 2, "There is no file"},
		{site("index.html", "", "tsconfig.json", "{\n \"extends\": \"/etc/tsconfig.json\"}"), "tsconfig.json", 2, "can't extend"},
		{site("index.md", "# a\n\n![x](gone.png)"), "index.md", 3, "There is no file"},
		{site("index.md", "# a\n\n```query\nwhat: x\n```"), "index.md", 4, "none of tag"},
		{site("index.html", "", "index.md", ""), "index.md", 0, "both be the page"},
		{site("a.css", ""), "", 0, "no page"},
		{site("index.tsx", "import x from './Hero'; export default x", "hero.tsx", ""), "index.tsx", 1, "upper and lower case"},
	} {
		out := Build(c.in)
		i := slices.IndexFunc(out.Log, func(m microsite.Message) bool {
			return m.Severity == "error" && m.File == c.file && m.Line == c.line && strings.Contains(m.Text, c.text)
		})
		if i < 0 || len(out.Files) > 0 {
			t.Errorf("%q at %s:%d: %+v", c.text, c.file, c.line, out.Log)
			continue
		}
		if m := out.Log[i]; c.line > 0 && (m.Column < 1 || m.Source == "") {
			t.Errorf("no place: %+v", m)
		}
		if strings.Contains(fmt.Sprint(out), host) {
			t.Errorf("the host's name is told: %+v", out.Log)
		}
	}
}

// What only speaks of an environment is no use of it.
func TestEnvironmentInWords(t *testing.T) {
	t.Parallel()
	files := built(t, site("index.html", `<script src=a.js></script>`, "a.js", "// process.env.FOO\nconst text = 'process.env.FOO is ' + process.env.NODE_ENV; document.title = import.meta.env.PROD ? text : 'no';"))
	if script := assets(files, ".js"); !strings.Contains(script, "process.env.FOO is production") {
		t.Error(script)
	}
}

// The disk of the machine is not looked at, whatever lies there.
func TestNoDisk(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, content := range map[string]string{"tsconfig.json": `{"compilerOptions": {"jsx": "react", "jsxFactory": "stolen"}}`, "package.json": `{"browser": {"preact": "./stolen.js"}}`, "b.ts": `export const x = "stolen"`} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := Build(site("index.tsx", `import {x} from "./b"; export default () => <p>{x}</p>`))
	if !out.Failed() || strings.Contains(fmt.Sprint(out), "stolen") {
		t.Errorf("%+v", out)
	}
	if files := built(t, site("index.tsx", `export default () => <p>x</p>`)); strings.Contains(assets(files, ".js"), "stolen") {
		t.Error("the configuration of this machine counts")
	}
}

func TestStyleAttributes(t *testing.T) {
	t.Parallel()
	files := built(t, site("index.html", `<html><head><title>x</title></head><p style="color: red">a<p style="margin: 0; background: url(a.svg)">b`, "a.svg", dot))
	whole(t, files)
	if page := files["index.html"]; strings.Contains(page, " style=") || !strings.Contains(page, `<p data-style="1">a`) || !strings.Contains(page, `<head><link rel="stylesheet"`) {
		t.Error(page)
	}
	bare := built(t, site("index.html", "<!DOCTYPE html>\n<p style='color: red'>a"))["index.html"]
	if !strings.HasPrefix(bare, "<!DOCTYPE html><link") {
		t.Error(bare)
	}
	if style := assets(files, ".css"); !strings.Contains(style, `[data-style="1"]`) || !strings.Contains(style, "color:red") {
		t.Error(style)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	in := site("index.md", "---\ntitle: Ants & bees\n---\n# No title\n\nSee [[Ants|these]] and [[Ants]].\n\n![[Ants]]\n\n![[Ants#Legs]]\n\n```query\ntag: insects\n```\n\n```js\n<b>\n```\n\n[about](about.md) ![x](img/dot.svg)\n\n| a |\n|:-:|\n| b |\n",
		"about.md", "no heading", "img/dot.svg", dot)
	in.Notes = map[string]Note{"Ants": {Title: "Ants", URL: "/@me/notes/ants", Body: "---\nx: y\n---\nThey <script>alert(1)</script> *crawl* to [[Secret|there]] ![](http://x/y.png).\n\n## Legs\nsix\n## Other\nno"}}
	in.Lists = map[string][]Note{"tag: insects\n": {{Title: "Bees", URL: "/@me/notes/bees", Snippet: "buzz <b>"}}}
	files := built(t, in)
	whole(t, files)
	page := files["index.html"]
	for _, want := range []string{"<title>Ants &amp; bees</title>", `<a href="/@me/notes/ants">these</a>`, "<em>crawl</em> to there", "<li><a href=\"/@me/notes/bees\">Bees</a><br>buzz &lt;b&gt;</li>", "&lt;b&gt;\n</code>", `<a href="about.html">`, `<img src="_a/dot-`, "<section class=\"note\">\n<h2>Legs</h2>\n<p>six</p>\n<p><a"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in %s", want, page)
		}
	}
	for _, not := range []string{"<script>alert", "x: y", "y.png", " style="} {
		if strings.Contains(page, not) {
			t.Errorf("%s in %s", not, page)
		}
	}
	if !strings.Contains(files["about.html"], "<title>A site</title>") || !strings.Contains(files["about.html"], `rel="stylesheet"`) {
		t.Error(files["about.html"])
	}
	targets, queries := Wanted(in.Files)
	if !slices.Equal(targets, []string{"Ants"}) || !slices.Equal(queries, []string{"tag: insects\n"}) {
		t.Errorf("%q %q", targets, queries)
	}
	out := Build(site("index.md", "# a\n\n`[[no]]` ![[Gone]] text"))
	if out.Failed() || len(out.Log) != 1 || out.Log[0].Line != 3 || !strings.Contains(byPath(out)["index.html"], "<code>[[no]]</code> Gone text") {
		t.Errorf("%+v %s", out.Log, byPath(out)["index.html"])
	}
}

func TestNotFoundPage(t *testing.T) {
	t.Parallel()
	files := built(t, site("index.html", "x", "404.html", `<html><head><title>x</title></head><img src="a.svg">`, "a.svg", dot))
	if !strings.Contains(files["404.html"], "<head>"+BaseMark+"<title>") || strings.Contains(files["index.html"], "<base") {
		t.Error(files["404.html"])
	}
}

func FuzzBuild(f *testing.F) {
	f.Add("<p style='x'><script>a</script>", "# a [[b]]", "a{}", "x = <a/>")
	f.Fuzz(func(t *testing.T, page, words, style, script string) {
		Build(site("index.html", page, "a.md", words, "a.css", style, "a.tsx", script))
	})
}
