package text

import (
	"bytes"
	"strings"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var (
	commentKey  = parser.NewContextKey()
	footnoteKey = parser.NewContextKey()

	kindWikilink  = ast.NewNodeKind("Wikilink")
	kindComment   = ast.NewNodeKind("Comment")
	kindHighlight = ast.NewNodeKind("Highlight")
	kindNothing   = ast.NewNodeKind("Nothing")
)

// maxWikilink bounds the search for "]]", so that "[[" costs constant time.
const maxWikilink = 1024

type wikilink struct {
	ast.BaseInline
	link    Link
	display []byte
}

func (*wikilink) Kind() ast.NodeKind       { return kindWikilink }
func (n *wikilink) Dump(src []byte, l int) { ast.DumpHelper(n, src, l, nil, nil) }
func (l *Link) setFragment(fragment string) {
	if i := strings.LastIndexByte(fragment, '#'); i >= 0 {
		fragment = fragment[i+1:]
	}
	fragment = strings.TrimSpace(fragment)
	if id, ok := strings.CutPrefix(fragment, "^"); ok {
		l.Block = id
	} else {
		l.Heading = fragment
	}
}

// nothing stands for markup that shows no text: a footnote's reference, a
// task's box.
type nothing struct{ ast.BaseInline }

func (*nothing) Kind() ast.NodeKind       { return kindNothing }
func (n *nothing) Dump(src []byte, l int) { ast.DumpHelper(n, src, l, nil, nil) }

// bracketParser reads what starts with '[' and is no Markdown link: wikilinks
// and embeds, footnote references, task boxes.
type bracketParser struct{}

func (bracketParser) Trigger() []byte { return []byte{'[', '!'} }

func (bracketParser) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, _ := block.PeekLine()
	embed := line[0] == '!'
	inner := line[1:]
	if embed {
		if len(inner) == 0 || inner[0] != '[' {
			return nil
		}
		inner = inner[1:]
	}
	if len(inner) == 0 {
		return nil
	}
	switch {
	case inner[0] == '[':
		n := newWikilink(inner[1:], embed)
		if n == nil {
			return nil
		}
		block.Advance(len(line) - len(inner) + 1 + n.size() + 2)
		return n.wikilink
	case embed:
		return nil
	case inner[0] == '^':
		end := bytes.IndexByte(inner[:min(len(inner), 256)], ']')
		defined, _ := pc.Get(footnoteKey).(map[string]bool)
		if end < 0 || !defined[string(inner[1:end])] {
			return nil
		}
		block.Advance(end + 2)
		return &nothing{}
	case len(inner) > 2 && inner[1] == ']' && (inner[0] == ' ' || inner[0]|0x20 == 'x') && spaceTable[inner[2]] == 1 && startsTask(parent):
		block.Advance(3)
		return &nothing{}
	}
	return nil
}

func startsTask(parent ast.Node) bool {
	item := parent.Parent()
	return item != nil && item.Kind() == ast.KindListItem && item.FirstChild() == parent && !parent.HasChildren()
}

type parsedWikilink struct {
	*wikilink
	inner []byte
}

func (p *parsedWikilink) size() int { return len(p.inner) }

// newWikilink reads the inside of a wikilink from what follows "[[".
func newWikilink(s []byte, embed bool) *parsedWikilink {
	end := -1
	for i, c := range s[:min(len(s), maxWikilink)] {
		if c == ']' && i+1 < len(s) && s[i+1] == ']' {
			end = i
			break
		}
		if c == '[' || c == '\n' {
			return nil
		}
	}
	if end < 0 || len(bytes.TrimSpace(s[:end])) == 0 {
		return nil
	}
	inner := s[:end]
	ref, alias, piped := bytes.Cut(inner, []byte("|"))
	if piped {
		// In a table the pipe is escaped.
		ref = bytes.TrimSuffix(ref, []byte(`\`))
	}
	link := Link{Embed: embed, Text: collapse(string(alias))}
	target, fragment, cut := CutFragment(string(ref))
	link.Target = collapse(target)
	link.setFragment(fragment)
	if cut && link.Target != "" {
		link.Whole = collapse(string(ref))
	}
	if link.Target == "" && link.Heading == "" && link.Block == "" {
		return nil
	}
	display := link.Text
	if display == "" || embed && imageSize(display) {
		display = link.Target
		if link.Heading != "" {
			if display != "" {
				display += " > "
			}
			display += link.Heading
		} else if strings.HasSuffix(link.Whole, "#") {
			display = link.Whole // C#
		}
		if display == "" {
			display = link.Block
		}
		if link.Text == "" {
			link.Text = display
		}
	}
	return &parsedWikilink{&wikilink{link: link, display: []byte(display)}, inner}
}

// CutFragment parts a wikilink's target from the heading behind its first '#',
// or the block from its '^' on.
func CutFragment(ref string) (target, fragment string, found bool) {
	if target, fragment, found = strings.Cut(ref, "#"); found {
		return target, fragment, true
	}
	if i := strings.IndexByte(ref, '^'); i >= 0 {
		return ref[:i], ref[i:], true
	}
	return ref, "", false
}

func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// imageSize reports whether s is the "200" or "200x100" of an embedded image.
func imageSize(s string) bool {
	for _, c := range []byte(s) {
		if c != 'x' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// comment is one "%%"; two of them hide what lies between, across blocks.
type comment struct{ ast.BaseInline }

func (*comment) Kind() ast.NodeKind       { return kindComment }
func (n *comment) Dump(src []byte, l int) { ast.DumpHelper(n, src, l, nil, nil) }

type commentParser struct{}

func (commentParser) Trigger() []byte { return []byte{'%'} }

func (commentParser) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, _ := block.PeekLine()
	if len(line) < 2 || line[1] != '%' {
		return nil
	}
	block.Advance(2)
	n, _ := pc.Get(commentKey).(int)
	pc.Set(commentKey, n+1)
	return &comment{}
}

// highlight is Obsidian's ==text==.
type highlight struct{ ast.BaseInline }

func (*highlight) Kind() ast.NodeKind       { return kindHighlight }
func (n *highlight) Dump(src []byte, l int) { ast.DumpHelper(n, src, l, nil, nil) }

type highlightParser struct{}

func (highlightParser) Trigger() []byte { return []byte{'='} }

func (highlightParser) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	n := parser.ScanDelimiter(line, before, 2, highlightDelimiter{})
	if n == nil || n.OriginalLength != 2 || before == '=' {
		return nil
	}
	n.Segment = segment.WithStop(segment.Start + 2)
	block.Advance(2)
	pc.PushDelimiter(n)
	return n
}

type highlightDelimiter struct{}

func (highlightDelimiter) IsDelimiter(b byte) bool { return b == '=' }
func (highlightDelimiter) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}
func (highlightDelimiter) OnMatch(int) ast.Node { return &highlight{} }

// footnoteBlocks is the library's parser of footnote definitions, which also
// remembers the labels: its own parser of references walks all definitions for
// each reference.
type footnoteBlocks struct{ parser.BlockParser }

func (b footnoteBlocks) Close(n ast.Node, r text.Reader, pc parser.Context) {
	defined, _ := pc.Get(footnoteKey).(map[string]bool)
	if defined == nil {
		defined = map[string]bool{}
		pc.Set(footnoteKey, defined)
	}
	defined[string(n.(*extast.Footnote).Ref)] = true
	b.BlockParser.Close(n, r, pc)
}
