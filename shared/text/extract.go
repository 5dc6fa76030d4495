package text

import (
	"bytes"
	"html"
	"net/url"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

var markdownParser = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(append(parser.DefaultBlockParsers(),
			util.Prioritized(footnoteBlocks{extension.NewFootnoteBlockParser()}, 999))...),
		parser.WithInlineParsers(append(parser.DefaultInlineParsers(),
			util.Prioritized(bracketParser{}, 100),
			util.Prioritized(commentParser{}, 101),
			util.Prioritized(highlightParser{}, 499),
			util.Prioritized(extension.NewStrikethroughParser(), 500))...),
		parser.WithParagraphTransformers(append(parser.DefaultParagraphTransformers(),
			util.Prioritized(extension.NewTableParagraphTransformer(), 200))...),
	)
})

// Extract reads a Markdown note: CommonMark with GitHub's tables, strikethrough
// and task lists, footnotes, and Obsidian's wikilinks, comments, highlights and
// callouts. It takes time linear in the note's length.
func Extract(markdown []byte) Document {
	_, body := SplitFrontMatter(markdown)
	source := guard(clean(body))
	pc := parser.NewContext()
	root := markdownParser().Parse(text.NewReader(source), parser.WithContext(pc))

	e := extractors.Get().(*extractor)
	defer e.release()
	e.source = source
	e.toggles, _ = pc.Get(commentKey).(int)
	e.block(root)
	for _, u := range e.urls {
		e.space()
		e.write(u)
	}
	e.doc.Plain = strings.TrimRight(string(e.buf), " \n")
	return e.doc
}

// SplitFrontMatter parts a note into its YAML front matter, without the '---'
// lines, and the rest. A note without front matter is all rest.
func SplitFrontMatter(markdown []byte) (yaml, body []byte) {
	rest := bytes.TrimPrefix(markdown, []byte("\uFEFF"))
	first, after, _ := bytes.Cut(rest, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return nil, rest
	}
	keyed := false
	for pos := 0; pos < len(after); {
		line, _, _ := bytes.Cut(after[pos:], []byte("\n"))
		next := min(pos+len(line)+1, len(after))
		trimmed := bytes.TrimRight(line, " \t\r")
		switch {
		case string(trimmed) == "---" || string(trimmed) == "...":
			return after[:pos], after[next:]
		case keyed || len(trimmed) == 0 || trimmed[0] == '#':
		case bytes.HasSuffix(trimmed, []byte(":")) || bytes.Contains(trimmed, []byte(": ")) || trimmed[0] == '{':
			keyed = true
		default:
			// A thematic break with text below it.
			return nil, rest
		}
		pos = next
	}
	return nil, rest
}

var extractors = sync.Pool{New: func() any {
	return &extractor{seen: map[string]struct{}{}, tagged: map[string]struct{}{}, local: map[string]Link{}}
}}

type extractor struct {
	source []byte
	doc    Document
	buf    []byte
	urls   [][]byte
	seen   map[string]struct{}
	tagged map[string]struct{}
	// local holds the local links by their destination as written.
	local map[string]Link
	// line is where the current line of buf starts.
	line int
	// gap says that white space came since the last write; soft, that it was
	// only the end of a source line.
	gap, soft bool
	hidden    bool
	toggles   int
	inCell    bool
}

// release gives e back without anything of the note.
func (e *extractor) release() {
	clear(e.seen)
	clear(e.tagged)
	clear(e.local)
	clear(e.urls)
	*e = extractor{buf: e.buf[:0], urls: e.urls[:0], seen: e.seen, tagged: e.tagged, local: e.local}
	if cap(e.buf) <= maxIdle {
		extractors.Put(e)
	}
}

func (e *extractor) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Paragraph, *ast.TextBlock:
		start := len(e.buf)
		e.inlines(n)
		if n.PreviousSibling() == nil && n.Parent().Kind() == ast.KindBlockquote {
			e.dropCallout(start)
		}
		e.newline()
	case *ast.Heading:
		start := len(e.buf)
		e.inlines(n)
		if s := e.since(start); s != "" {
			e.doc.Headings = append(e.doc.Headings, Heading{Level: n.Level, Text: s})
		}
		e.newline()
	case *ast.CodeBlock, *ast.FencedCodeBlock:
		for i, lines := 0, n.Lines(); i < lines.Len(); i++ {
			s := lines.At(i)
			e.write(s.Value(e.source))
			e.newline()
		}
	case *ast.HTMLBlock:
		// A tag may span lines, which in a quotation are not contiguous.
		var raw []byte
		lines := n.Lines()
		for i := range lines.Len() {
			s := lines.At(i)
			raw = append(raw, s.Value(e.source)...)
		}
		if n.HasClosure() {
			raw = append(raw, n.ClosureLine.Value(e.source)...)
		}
		e.html(raw)
		e.newline()
	case *extast.TableCell:
		e.inCell = true
		e.inlines(n)
		e.inCell = false
		e.space()
	case *extast.TableHeader, *extast.TableRow:
		e.blocks(n)
		e.newline()
	case *ast.LinkReferenceDefinition, *ast.ThematicBreak:
	default:
		e.blocks(n)
	}
}

func (e *extractor) blocks(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		e.block(c)
	}
}

func (e *extractor) inlines(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		e.inline(c)
	}
}

func (e *extractor) inline(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		if n.IsRaw() {
			e.write(n.Segment.Value(e.source))
		} else {
			e.tags(n.Segment)
			e.unescape(n.Segment.Value(e.source))
		}
		switch {
		case n.HardLineBreak():
			e.space()
		case n.SoftLineBreak() && !e.gap:
			e.gap, e.soft = true, true
		}
	case *ast.String:
		e.write(n.Value)
	case *ast.CodeSpan:
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			t, ok := c.(*ast.Text)
			if !ok {
				continue
			}
			code := t.Segment.Value(e.source)
			if e.inCell && bytes.Contains(code, []byte(`\|`)) {
				code = bytes.ReplaceAll(code, []byte(`\|`), []byte("|"))
			}
			e.write(code)
		}
	case *ast.Link:
		start := len(e.buf)
		e.inlines(n)
		e.link(n.Destination, start, false)
	case *ast.Image:
		start := len(e.buf)
		e.inlines(n)
		e.link(n.Destination, start, true)
	case *ast.AutoLink:
		e.write(n.Label(e.source))
	case *ast.RawHTML:
		for i := range n.Segments.Len() {
			s := n.Segments.At(i)
			e.html(s.Value(e.source))
		}
	case *wikilink:
		if !e.hidden {
			e.doc.Links = append(e.doc.Links, n.link)
			e.write(n.display)
		}
	case *comment:
		if e.hidden || e.toggles > 1 {
			e.hidden = !e.hidden
		} else {
			// An odd one at the end opens nothing.
			e.write([]byte("%%"))
		}
		e.toggles--
	default:
		e.inlines(n)
	}
}

// maxTags bounds the different tags that a text may have.
const maxTags = 1_000

// tags finds the tags that begin in a stretch of text. A tag follows white space
// or begins a line, and holds more than digits.
func (e *extractor) tags(s text.Segment) {
	if e.hidden {
		return
	}
	for i := s.Start; i < s.Stop; i++ {
		next := bytes.IndexByte(e.source[i:s.Stop], '#')
		if next < 0 {
			return
		}
		i += next
		if before, _ := utf8.DecodeLastRune(e.source[:i]); i > 0 && !unicode.IsSpace(before) {
			continue
		}
		// emphasis may part the text, not the tag
		rest := e.source[i+1:]
		end := bytes.IndexFunc(rest[:min(len(rest), maxTarget)], endsTag)
		if end < 0 {
			end = min(len(rest), maxTarget)
		}
		tag := strings.Trim(string(rest[:end]), "/")
		if tag == "" || strings.IndexFunc(tag, func(r rune) bool { return r < '0' || r > '9' }) < 0 {
			continue
		}
		if _, again := e.tagged[tag]; !again && len(e.doc.Tags) < maxTags {
			e.tagged[tag] = struct{}{}
			e.doc.Tags = append(e.doc.Tags, tag)
		}
		i += end
	}
}

// endsTag reports whether Obsidian ends a tag before r.
func endsTag(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r <= ' ' || r == 0x7F || strings.ContainsRune("!\"#$%&'()*+,.:;<=>?@[\\]^`{|}~", r)
	case 0x2000 <= r && r <= 0x206F && r != 0x200D: // joined emoji
		return true
	}
	return unicode.IsSpace(r) || 0x2E00 <= r && r <= 0x2E7F || 0x3000 <= r && r <= 0x3003 || 0x3008 <= r && r <= 0x3011 || r == 0xFF0C || r == utf8.RuneError
}

// maxTarget is the length in bytes above which a link's destination is none.
const maxTarget = 2048

// link records a Markdown link or image whose text was written from start on.
func (e *extractor) link(dest []byte, start int, embed bool) {
	if e.hidden || len(dest) == 0 || len(dest) > maxTarget {
		return
	}
	// One long definition may serve very many references.
	if l, known := e.local[string(dest)]; known {
		l.Text, l.Embed = e.since(start), embed
		e.doc.Links = append(e.doc.Links, l)
		return
	}
	written := dest
	dest = util.UnescapePunctuations(dest)
	if bytes.IndexByte(dest, '&') >= 0 {
		dest = []byte(html.UnescapeString(string(dest)))
	}
	if !localTarget(dest) {
		address, _, _ := bytes.Cut(dest, []byte("#"))
		address, _, _ = bytes.Cut(address, []byte("?"))
		if embed || bytes.HasPrefix(dest, []byte("data:")) || bytes.HasSuffix(e.buf, address) {
			return
		}
		if _, again := e.seen[string(address)]; !again {
			e.seen[string(address)] = struct{}{}
			e.urls = append(e.urls, address)
		}
		return
	}
	target, fragment, _ := strings.Cut(string(dest), "#")
	link := Link{Target: unescapePath(target), Text: e.since(start), Embed: embed}
	link.setFragment(unescapePath(fragment))
	e.local[string(written)] = link
	e.doc.Links = append(e.doc.Links, link)
}

func unescapePath(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	u, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return string(clean([]byte(u)))
}

// localTarget reports whether dest names something of the corpus: a URI of its
// own schemes, or a reference without scheme and host.
func localTarget(dest []byte) bool {
	if bytes.HasPrefix(dest, []byte("//")) {
		return false
	}
	for i, c := range dest {
		switch {
		case c == ':':
			switch string(bytes.ToLower(dest[:i])) {
			case "wiki", "output", "raw":
				return bytes.HasPrefix(dest[i:], []byte("://"))
			}
			// A one-letter scheme is a drive, and nothing is a scheme without letters.
			return i == 0
		case 'a' <= c|0x20 && c|0x20 <= 'z', i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return true
		}
	}
	return true
}

func (e *extractor) since(start int) string {
	return string(bytes.TrimSpace(e.buf[min(start, len(e.buf)):]))
}

// dropCallout removes the "[!type]" that starts an Obsidian or GitHub callout.
func (e *extractor) dropCallout(start int) {
	line := bytes.TrimLeft(e.buf[start:], " ")
	if !bytes.HasPrefix(line, []byte("[!")) {
		return
	}
	end := bytes.IndexByte(line, ']')
	if end < 3 || bytes.IndexByte(line[:end], ' ') >= 0 {
		return
	}
	rest := bytes.TrimLeft(line[end+1:], "+- ")
	e.buf = append(e.buf[:start], rest...)
}

func (e *extractor) space() { e.gap, e.soft = true, false }

func (e *extractor) newline() {
	if len(e.buf) > e.line {
		e.buf = append(e.buf, '\n')
		e.line = len(e.buf)
	}
	e.gap = false
}

// White space by first byte: 1 is a space, 2 may start one of more bytes.
var spaceTable = func() (t [256]uint8) {
	for c := range 0x21 {
		t[c] = 1
	}
	t[0x7F], t[0xC2], t[0xE2], t[0xE3] = 1, 2, 2, 2
	return t
}()

func spaceRune(r rune) bool {
	switch r {
	case 0x85, 0xA0, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000:
		return true
	}
	return 0x2000 <= r && r <= 0x200A || 0x80 <= r && r < 0xA0
}

// write appends text, white space collapsed.
func (e *extractor) write(s []byte) {
	if e.hidden {
		return
	}
	for i := 0; i < len(s); {
		switch spaceTable[s[i]] {
		case 1:
			e.space()
			i++
			continue
		case 2:
			if r, n := utf8.DecodeRune(s[i:]); spaceRune(r) {
				e.space()
				i += n
				continue
			}
		}
		j := i + 1
		for j < len(s) && (spaceTable[s[j]] == 0 || spaceTable[s[j]] == 2 && !startsSpace(s[j:])) {
			j++
		}
		if e.gap {
			if len(e.buf) > e.line && (!e.soft || !denseBorder(e.buf, s[i:j])) {
				e.buf = append(e.buf, ' ')
			}
			e.gap = false
		}
		e.buf = append(e.buf, s[i:j]...)
		i = j
	}
}

func startsSpace(s []byte) bool {
	r, _ := utf8.DecodeRune(s)
	return spaceRune(r)
}

// denseBorder reports whether a line break between before and after stands
// within a text that knows no spaces.
func denseBorder(before, after []byte) bool {
	r, _ := utf8.DecodeRune(after)
	l, _ := utf8.DecodeLastRune(before)
	return spaceless(l) && spaceless(r)
}

// unescape writes text with its backslash escapes and entities resolved.
func (e *extractor) unescape(s []byte) {
	start := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i] {
		case '\\':
			if util.IsPunct(s[i+1]) {
				e.write(s[start:i])
				i++
				start = i
			}
		case '&':
			n := bytes.IndexByte(s[i:min(i+34, len(s))], ';') + 1
			if n < 3 {
				continue
			}
			e.write(s[start:i])
			e.write(util.ResolveNumericReferences(util.ResolveEntityNames(s[i : i+n])))
			i += n - 1
			start = i + 1
		}
	}
	e.write(s[start:])
}

// html writes the text of HTML: no tags, no comments, no scripts, the
// alternative text of images.
func (e *extractor) html(s []byte) {
	quotes := true
	for len(s) > 0 {
		i := bytes.IndexByte(s, '<')
		if i < 0 || i+1 == len(s) {
			e.htmlText(s)
			return
		}
		e.htmlText(s[:i])
		s = s[i:]
		switch c := s[1]; {
		case bytes.HasPrefix(s, []byte("<!--")):
			end := bytes.Index(s[4:], []byte("-->"))
			if end < 0 {
				return
			}
			s = s[end+7:]
		case c == '/' || c == '!' || c == '?' || 'a' <= c|0x20 && c|0x20 <= 'z':
			n := tagEnd(s, quotes)
			if n < 0 && quotes {
				// Without this, every later '<' would be searched to the end again.
				quotes = false
				n = tagEnd(s, false)
			}
			if n < 0 {
				e.htmlText(s)
				return
			}
			name := tagName(s[1:n])
			e.tag(name, s[:n])
			s = s[n:]
			if name == "script" || name == "style" {
				end := indexFold(s, "</"+name)
				if end < 0 {
					return
				}
				s = s[end:]
			}
		default:
			e.write(s[:1])
			s = s[1:]
		}
	}
}

func (e *extractor) htmlText(s []byte) {
	if bytes.IndexByte(s, '&') < 0 {
		e.write(s)
		return
	}
	e.write([]byte(html.UnescapeString(string(s))))
}

func (e *extractor) tag(name string, tag []byte) {
	switch name {
	case "br", "td", "th", "/td", "/th":
		e.space()
	case "p", "/p", "div", "/div", "li", "/li", "tr", "/tr", "table", "/table", "ul", "/ul", "ol", "/ol", "summary", "/summary",
		"h1", "h2", "h3", "h4", "h5", "h6", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6", "hr", "pre", "/pre", "blockquote", "/blockquote", "dt", "dd":
		e.newline()
	case "img":
		if i := indexFold(tag, "alt="); i > 0 && i+5 < len(tag) && spaceTable[tag[i-1]] == 1 {
			quote, value := tag[i+4], tag[i+5:]
			if end := bytes.IndexByte(value, quote); end > 0 && (quote == '"' || quote == '\'') {
				e.htmlText(value[:end])
			}
		}
	}
}

// tagEnd is the length of the tag that s starts with, or -1.
func tagEnd(s []byte, quotes bool) int {
	if !quotes {
		if i := bytes.IndexByte(s, '>'); i >= 0 {
			return i + 1
		}
		return -1
	}
	var quote byte
	for i, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i + 1
		}
	}
	return -1
}

// tagName is the lower-cased name in a tag's inside, with the '/' of an end tag.
func tagName(s []byte) string {
	n := 0
	for n < len(s) && n < 16 && (s[n] == '/' && n == 0 || 'a' <= s[n]|0x20 && s[n]|0x20 <= 'z' || '0' <= s[n] && s[n] <= '9') {
		n++
	}
	return strings.ToLower(string(s[:n]))
}

// indexFold finds an ASCII lower-case pattern in s whatever its case.
func indexFold(s []byte, pattern string) int {
	for i := 0; i+len(pattern) <= len(s); i++ {
		j := 0
		for j < len(pattern) {
			c := s[i+j]
			if 'A' <= c && c <= 'Z' {
				c |= 0x20
			}
			if c != pattern[j] {
				break
			}
			j++
		}
		if j == len(pattern) {
			return i
		}
	}
	return -1
}
