package sitebuild

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	grender "github.com/yuin/goldmark/renderer/html"
	gtext "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	"go.yaml.in/yaml/v3"

	"standmeet/shared/microsite"
	"standmeet/shared/text"
)

// Query is what a block fenced as query asks for.
type Query struct {
	Tag, Genre, Search string
	Limit              int
}

// maxListed is how many notes a list may show.
const maxListed = 50

// ParseQuery reads a query block; why says in words what is wrong with it.
func ParseQuery(block string) (q Query, why string) {
	q.Limit = 10
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "tag":
			q.Tag = strings.TrimPrefix(value, "#")
		case "genre":
			if value != "wiki" && value != "output" {
				return q, "genre must be wiki or output."
			}
			q.Genre = value
		case "search":
			q.Search = value
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxListed {
				return q, fmt.Sprintf("limit must be from 1 to %d.", maxListed)
			}
			q.Limit = n
		default:
			return q, fmt.Sprintf("%q is none of tag, genre, search and limit.", line)
		}
	}
	return q, ""
}

// Wanted is what the Markdown files of a site ask for: the targets of links and
// embeds, and the texts of query blocks, each once.
func Wanted(files []microsite.File) (targets, queries []string) {
	for _, f := range files {
		if !strings.HasSuffix(f.Path, ".md") {
			continue
		}
		_, body := text.SplitFrontMatter(f.Content)
		root := authored(&notebook{}).Parser().Parse(gtext.NewReader(body))
		_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			switch n := n.(type) {
			case *wikilink:
				targets = append(targets, n.target)
			case *ast.FencedCodeBlock:
				if string(n.Language(body)) == "query" {
					queries = append(queries, string(n.Lines().Value(body)))
				}
			}
			return ast.WalkContinue, nil
		})
	}
	slices.Sort(targets)
	slices.Sort(queries)
	return slices.Compact(targets), slices.Compact(queries)
}

// markdown renders the body of a page.
func (b *build) markdown(p *page, content []byte) (title, body string, styled bool) {
	matter, source := text.SplitFrontMatter(content)
	var front struct {
		Title string `yaml:"title"`
	}
	if err := yaml.Unmarshal(matter, &front); err != nil {
		b.warn(microsite.Message{File: p.source, Line: 1, Text: "The front matter could not be read: " + err.Error()})
	}
	nb := &notebook{build: b, page: p}
	md := authored(nb)
	root := md.Parser().Parse(gtext.NewReader(source))
	for n := root.FirstChild(); n != nil && title == ""; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level == 1 {
			title = text.Extract([]byte("# " + string(h.Lines().Value(source)))).Plain
		}
	}
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, source, root); err != nil {
		b.fail(microsite.Message{File: p.source, Text: "The page could not be made: " + err.Error()})
	}
	return cmp.Or(front.Title, title, b.in.Name), "<main>\n" + out.String() + "</main>", true
}

// authored is the Markdown of the site's own files, which may hold HTML: what that
// may load or run is decided with the rest of the page.
func authored(nb *notebook) goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.GFM, extension.Footnote),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithInlineParsers(util.Prioritized(wikilinks{}, 150))),
		goldmark.WithRendererOptions(grender.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(nb, 10))),
	)
}

// wikilink is [[target#heading|text]], or with ! before it an embedded note.
type wikilink struct {
	ast.BaseInline
	target, heading, shown string
	embed                  bool
}

var kindWikilink = ast.NewNodeKind("SiteWikilink")

func (*wikilink) Kind() ast.NodeKind       { return kindWikilink }
func (n *wikilink) Dump(src []byte, l int) { ast.DumpHelper(n, src, l, nil, nil) }

type wikilinks struct{}

func (wikilinks) Trigger() []byte { return []byte{'[', '!'} }

func (wikilinks) Parse(_ ast.Node, block gtext.Reader, _ parser.Context) ast.Node {
	line, _ := block.PeekLine()
	rest, embed := bytes.CutPrefix(line, []byte("!"))
	rest, ok := bytes.CutPrefix(rest, []byte("[["))
	end := bytes.Index(rest, []byte("]]"))
	if !ok || end < 1 || end > 1000 || bytes.ContainsAny(rest[:end], "[]") {
		return nil
	}
	ref, shown, _ := strings.Cut(string(rest[:end]), "|")
	target, fragment, _ := text.CutFragment(strings.TrimSuffix(ref, `\`))
	n := &wikilink{target: strings.Join(strings.Fields(target), " "), heading: strings.TrimSpace(fragment), shown: strings.TrimSpace(shown), embed: embed}
	if n.target == "" {
		return nil
	}
	block.Advance(len(line) - len(rest) + end + 2)
	return n
}

// notebook shows notes in a page.
type notebook struct {
	build *build
	page  *page
}

// RegisterFuncs implements renderer.NodeRenderer.
func (nb *notebook) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindWikilink, nb.wikilink)
	r.Register(ast.KindFencedCodeBlock, nb.fence)
	r.Register(ast.KindParagraph, nb.paragraph)
}

// paragraph is the renderer's own, but for one that is an embedded note alone.
func (nb *notebook) paragraph(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	link, ok := n.FirstChild().(*wikilink)
	whole := ok && link.embed && n.ChildCount() == 1
	switch {
	case whole && entering:
	case whole:
		_ = w.WriteByte('\n')
	case entering:
		_, _ = w.WriteString("<p>")
	default:
		_, _ = w.WriteString("</p>\n")
	}
	return ast.WalkContinue, nil
}

func (nb *notebook) wikilink(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*wikilink)
	shown := cmp.Or(n.shown, n.target)
	note, ok := nb.build.in.Notes[n.target]
	whole := n.Parent().ChildCount() == 1
	switch {
	case !ok:
		m := nb.build.place(nb.page, 0, "", "[["+n.target, fmt.Sprintf("There is no public note %q, so it is not shown.", n.target))
		nb.build.warn(m)
		_, _ = w.WriteString(html.EscapeString(shown))
	case n.embed && whole:
		body := note.Body
		if n.heading != "" {
			body = section(body, n.heading)
		}
		_, _ = fmt.Fprintf(w, "<section class=\"note\">\n%s<p><a href=\"%s\">%s</a></p>\n</section>", noteHTML(body), html.EscapeString(note.URL), html.EscapeString(note.Title))
	default:
		_, _ = fmt.Fprintf(w, `<a href="%s">%s</a>`, html.EscapeString(note.URL), html.EscapeString(cmp.Or(n.shown, note.Title)))
	}
	return ast.WalkContinue, nil
}

func (nb *notebook) fence(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.FencedCodeBlock)
	language, block := string(n.Language(source)), string(n.Lines().Value(source))
	if language != "query" {
		class := ""
		if language != "" {
			class = ` class="language-` + html.EscapeString(language) + `"`
		}
		_, _ = fmt.Fprintf(w, "<pre><code%s>%s</code></pre>\n", class, html.EscapeString(block))
		return ast.WalkContinue, nil
	}
	if _, why := ParseQuery(block); why != "" {
		first, _, _ := strings.Cut(block, "\n")
		nb.build.fail(nb.build.place(nb.page, 0, "", cmp.Or(first, "```query"), "This query can't be read: "+why))
	}
	_, _ = w.WriteString("<ul class=\"notes\">\n")
	for _, note := range nb.build.in.Lists[block] {
		_, _ = fmt.Fprintf(w, `<li><a href="%s">%s</a>`, html.EscapeString(note.URL), html.EscapeString(note.Title))
		if note.Snippet != "" {
			_, _ = fmt.Fprintf(w, "<br>%s", html.EscapeString(note.Snippet))
		}
		_, _ = w.WriteString("</li>\n")
	}
	_, _ = w.WriteString("</ul>\n")
	return ast.WalkContinue, nil
}

// noteHTML renders a note. Unlike a page it holds no HTML of its own: it may be text
// that its owner only collected.
func noteHTML(body string) string {
	_, source := text.SplitFrontMatter([]byte(body))
	md := goldmark.New(goldmark.WithExtensions(extension.GFM),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(wikilinks{}, 150))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(plainLinks{}, 10))))
	var out bytes.Buffer
	if err := md.Convert(source, &out); err != nil {
		return "<pre>" + html.EscapeString(string(source)) + "</pre>\n"
	}
	return out.String()
}

// plainLinks shows the links of an embedded note as text, and its images by their
// descriptions: where they lead, nobody has looked.
type plainLinks struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (plainLinks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindWikilink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link := n.(*wikilink); entering {
			_, _ = w.WriteString(html.EscapeString(cmp.Or(link.shown, link.target)))
		}
		return ast.WalkContinue, nil
	})
	r.Register(ast.KindImage, func(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) { return ast.WalkContinue, nil })
}

// section is a note from a heading on to the next that is as high.
func section(body, heading string) string {
	_, source := text.SplitFrontMatter([]byte(body))
	var out []string
	level := 0
	for line := range strings.Lines(string(source)) {
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		is := marks > 0 && marks <= 6 && strings.HasPrefix(line[marks:], " ")
		switch {
		case level > 0 && is && marks <= level:
			return strings.Join(out, "")
		case level == 0 && is && text.FoldName(strings.TrimSpace(line[marks:])) == text.FoldName(heading):
			level = marks
		}
		if level > 0 {
			out = append(out, line)
		}
	}
	if level == 0 {
		return string(source)
	}
	return strings.Join(out, "")
}
