package sitebuild

import (
	"fmt"
	"html"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	xhtml "golang.org/x/net/html"

	"standmeet/shared/microsite"
)

// page is a page that is being made.
type page struct {
	// path is where it is served, source the file that it is of.
	path, source string
	// written: its HTML stands in the source as it is, place for place
	written bool
	pieces  []piece
	// text is what follows the pieces until the next
	text strings.Builder
	// what style attributes say, which no page may hold: see styles
	styled []string
}

// add puts a piece behind what there is.
func (p *page) add(next piece) {
	p.mark()
	p.pieces = append(p.pieces, next)
}

// mark ends the text so far, and gives the place behind it.
func (p *page) mark() int {
	if p.text.Len() > 0 {
		p.pieces = append(p.pieces, piece{text: p.text.String()})
		p.text.Reset()
	}
	return len(p.pieces)
}

// piece is a part of a page: text, or what an entry has become.
type piece struct {
	text  string
	entry entry
	// style: the entry stands for a style sheet
	style   bool
	attrs   string
	bundled bundled
}

const styleName = "page.css"

// BaseMark stands in 404.html, which is served at every address, for the site's own.
const BaseMark = `<base href="./">`

func (b *build) readPages() {
	sources := map[string]string{}
	add := func(p, source string) bool {
		if other, twice := sources[p]; twice {
			b.fail(microsite.Message{File: source, Text: fmt.Sprintf("%s and %s would both be the page %s.", other, source, p)})
			return false
		}
		sources[p] = source
		return true
	}
	for _, f := range b.in.Files {
		switch path.Ext(f.Path) {
		case ".html":
			if add(f.Path, f.Path) {
				b.scan(&page{path: f.Path, source: f.Path, written: true}, string(f.Content))
			}
		case ".md":
			if p := strings.TrimSuffix(f.Path, ".md") + ".html"; add(p, f.Path) {
				made := &page{path: p, source: f.Path}
				b.scan(made, b.document(b.markdown(made, f.Content)))
			}
		}
	}
	if sources["index.html"] != "" {
		return
	}
	for _, script := range []string{"index.tsx", "index.jsx", "index.ts", "index.js"} {
		if _, ok := b.files[script]; ok {
			e := entry{nsPage, script}
			b.want(e)
			p := &page{path: "index.html", source: script}
			b.scan(p, b.document(b.in.Name, `<div id="root"></div>`+"\n<noscript>This page needs JavaScript.</noscript>", false))
			p.add(piece{entry: e})
			return
		}
	}
}

// document is the page around what a Markdown file or a script makes.
func (b *build) document(title, body string, styled bool) string {
	link := ""
	for _, name := range []string{"style.css", "styles.css"} {
		if _, ok := b.files[name]; ok && link == "" {
			link = `<link rel="stylesheet" href="/` + name + `">` + "\n"
		}
	}
	if link == "" && styled {
		link = `<link rel="stylesheet" href="` + nsBuiltin + ":" + styleName + `">` + "\n"
	}
	return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
		"<title>" + html.EscapeString(title) + "</title>\n" + link + "</head>\n<body>\n" + body + "\n</body>\n</html>\n"
}

// loads are the attributes by which elements load what they show.
func loads() map[string][]string {
	return map[string][]string{
		"img": {"src"}, "source": {"src"}, "video": {"src", "poster"}, "audio": {"src"}, "track": {"src"}, "input": {"src"}, "link": {"href"},
		"image": {"href", "xlink:href"}, "use": {"href", "xlink:href"},
	}
}

var runs = []string{"", "module", "text/javascript", "application/javascript", "text/babel", "text/jsx", "text/tsx", "text/typescript"}

// scan reads a page's HTML as a browser does, and notes what it loads.
func (b *build) scan(p *page, source string) {
	b.pages = append(b.pages, p)
	z := xhtml.NewTokenizer(strings.NewReader(source))
	// head is where in the pieces the page's head begins, as far as it has one
	offset, head, sure := 0, 0, false
	for {
		kind := z.Next()
		raw := string(z.Raw())
		here := offset
		offset += len(raw)
		if kind == xhtml.ErrorToken {
			p.text.WriteString(raw)
			break
		}
		if kind != xhtml.StartTagToken && kind != xhtml.SelfClosingTagToken {
			p.text.WriteString(raw)
			if kind == xhtml.DoctypeToken && !sure {
				head = p.mark()
			}
			continue
		}
		t := z.Token()
		where := func(text, needle string) microsite.Message { return b.place(p, here, raw, needle, text) }
		// the content of a script or style is one text
		content := func() string {
			if kind == xhtml.SelfClosingTagToken || z.Next() != xhtml.TextToken {
				// an empty one: what came is its end
				offset += len(z.Raw())
				return ""
			}
			text := string(z.Raw())
			offset += len(text)
			z.Next()
			offset += len(z.Raw())
			return text
		}
		changed := b.attributes(p, &t, where)
		switch t.Data {
		case "base":
			b.fail(where("A page can't have a base: write paths that are relative to the page.", "<base"))
		case "iframe", "frame", "object", "embed", "applet":
			b.fail(where(fmt.Sprintf("A page can't have the element %s: nothing may be embedded.", t.Data), "<"+t.Data))
		case "script":
			as := strings.ToLower(attr(t, "type"))
			if as == "importmap" {
				b.fail(where("A page can't have an import map: only files of the site, react and preact can be imported.", "importmap"))
			}
			if !slices.Contains(runs, as) {
				break // data
			}
			begin := offset
			text := content()
			if strings.Contains(strings.ToLower(text), "</script") {
				b.fail(where("This script holds <!-- and then <script, so that no browser sees its end, and the page is lost in it. Put the script into a file.", "<script"))
				continue
			}
			if src, ok := has(t, "src"); ok {
				b.wantFile(p, src, false, keep(t), where)
			} else if strings.TrimSpace(text) != "" {
				ending := ".js"
				if strings.Contains(as, "typescript") || strings.Contains(as, "tsx") {
					ending = ".tsx"
				}
				b.wantInline(p, text, ending, source, begin, false, keep(t))
			}
			continue
		case "form":
			if attr(t, "action") != "" {
				b.warn(where("A page here can't send a form anywhere: read it in a script, on the event submit.", "action"))
			}
		case "style":
			begin := offset
			text := content()
			if strings.TrimSpace(text) != "" {
				b.wantInline(p, text, ".css", source, begin, true, keep(t))
			}
			continue
		case "link":
			if rel := strings.Fields(strings.ToLower(attr(t, "rel"))); slices.Contains(rel, "stylesheet") {
				b.wantFile(p, attr(t, "href"), true, keep(t), where)
				continue
			} else if slices.Contains(rel, "modulepreload") || slices.Contains(rel, "preload") || slices.Contains(rel, "preconnect") || slices.Contains(rel, "dns-prefetch") {
				continue // what is preloaded has another name now, and nothing is loaded from elsewhere
			}
		}
		if changed {
			raw = t.String()
		}
		p.text.WriteString(raw)
		if !sure && (t.Data == "head" || t.Data == "html") {
			head, sure = p.mark(), t.Data == "head"
		}
	}
	p.mark()
	if len(p.styled) > 0 {
		b.wantStyles(p, head)
	}
	if p.path == "404.html" {
		p.pieces = slices.Insert(p.pieces, head, piece{text: BaseMark})
	}
}

func has(t xhtml.Token, name string) (string, bool) {
	for _, a := range t.Attr {
		if a.Key == name {
			return strings.TrimSpace(a.Val), true
		}
	}
	return "", false
}

func attr(t xhtml.Token, name string) string { v, _ := has(t, name); return v }

// keep gives the attributes of a script or style that stay as they are.
func keep(t xhtml.Token) string {
	var s strings.Builder
	for _, a := range t.Attr {
		if a.Key == "id" || a.Key == "media" || strings.HasPrefix(a.Key, "data-") {
			fmt.Fprintf(&s, ` %s="%s"`, a.Key, html.EscapeString(a.Val))
		}
	}
	return s.String()
}

// place is a message about a tag: its place in the file if that holds it, else
// that of the needle.
func (b *build) place(p *page, offset int, raw, needle, text string) microsite.Message {
	content := b.files[p.source]
	if p.written {
		if i := strings.Index(raw, needle); i > 0 {
			offset += i
		}
		return at(p.source, content, offset, text)
	}
	if i := strings.Index(string(content), needle); i >= 0 {
		return at(p.source, content, i, text)
	}
	return microsite.Message{File: p.source, Text: text}
}

// attributes looks at what a tag says, and reports whether it changed something.
func (b *build) attributes(p *page, t *xhtml.Token, where func(text, needle string) microsite.Message) (changed bool) {
	loading := loads()[t.Data]
	kept := t.Attr[:0]
	for _, a := range t.Attr {
		name, value := a.Key, strings.TrimSpace(a.Val)
		if a.Namespace != "" {
			name = a.Namespace + ":" + name
		}
		switch {
		case strings.HasPrefix(name, "on") && len(name) > 2:
			b.fail(where(fmt.Sprintf("%s is a script within a tag, which no page may have: use addEventListener in a script.", name), name))
		case scheme(value) == "javascript":
			b.fail(where("A javascript: address is a script within a tag, which no page may have.", a.Val))
		case name == "style":
			changed = true
			if value != "" {
				p.styled = append(p.styled, value)
				a.Key, a.Val = styledBy, fmt.Sprint(len(p.styled))
				kept = append(kept, a)
			}
			continue
		case name == "integrity" || name == "crossorigin" || name == "nonce":
			changed = true
			continue
		case slices.Contains(loading, name) && (t.Data != "link" || b.linkLoads(*t)):
			a.Val = b.load1(p, value, where)
			changed = changed || a.Val != value
		case name == "srcset" && (t.Data == "img" || t.Data == "source"):
			parts := strings.Split(value, ",")
			for i, part := range parts {
				address, size, _ := strings.Cut(strings.TrimSpace(part), " ")
				parts[i] = strings.TrimSpace(b.load1(p, address, where) + " " + size)
			}
			a.Val, changed = strings.Join(parts, ", "), true
		case name == "href" && (t.Data == "a" || t.Data == "area"):
			if to := b.link(p, value, where); to != value {
				a.Val, changed = to, true
			}
		}
		kept = append(kept, a)
	}
	t.Attr = kept
	return changed
}

// linkLoads: it is of a kind that browsers show.
func (b *build) linkLoads(t xhtml.Token) bool {
	rel := strings.ToLower(attr(t, "rel"))
	return strings.Contains(rel, "icon") || strings.Contains(rel, "manifest")
}

// load1 gives the address of an image that a page shows, by its content.
func (b *build) load1(p *page, ref string, where func(text, needle string) microsite.Message) string {
	if ref == "" || strings.HasPrefix(ref, "#") || scheme(ref) == "data" {
		return ref
	}
	if elsewhere(ref) {
		b.fail(where(fmt.Sprintf("%q is on another server, and a page here can't load anything from there: put the file into the site.", ref), ref))
		return ref
	}
	found, why := b.find(p.source, unescape(ref), true)
	if why != "" {
		b.fail(where(why, ref))
		return ref
	}
	if microsite.ContentType(found) == "" || !microsite.IsImage(found) && path.Ext(found) != ".json" {
		b.fail(where(fmt.Sprintf("%q can't be shown here.", ref), ref))
		return ref
	}
	to := up(p.path) + microsite.Assets + "/" + b.emit(found)
	if _, fragment, ok := strings.Cut(ref, "#"); ok {
		to += "#" + fragment
	}
	return to
}

func unescape(ref string) string {
	if s, err := url.PathUnescape(ref); err == nil {
		return s
	}
	return ref
}

// link gives where a link to a page of the site leads, at whatever address the site
// is served.
func (b *build) link(p *page, ref string, where func(text, needle string) microsite.Message) string {
	if ref == "" || strings.HasPrefix(ref, "#") || strings.HasPrefix(ref, "?") || strings.HasPrefix(ref, "//") || scheme(ref) != "" || strings.HasPrefix(ref, "/@") {
		return ref
	}
	bare, rest := ref, ""
	if i := strings.IndexAny(ref, "?#"); i >= 0 {
		bare, rest = ref[:i], ref[i:]
	}
	to := unescape(bare)
	if strings.HasPrefix(to, "/") {
		to = strings.TrimLeft(to, "/")
	} else {
		to = path.Join(path.Dir(p.path), to)
		if strings.HasSuffix(bare, "/") {
			to += "/"
		}
	}
	switch {
	case to == ".." || strings.HasPrefix(to, "../"):
		b.warn(where(fmt.Sprintf("%q leads out of the site.", ref), ref))
		return ref
	case to == "" || to == "." || to == "./":
		to = ""
	case strings.HasSuffix(to, ".md"):
		to = strings.TrimSuffix(to, ".md") + ".html"
	}
	if !b.served(to) {
		b.warn(where(fmt.Sprintf("%q leads to no page of the site.", ref), ref))
	}
	if to = up(p.path) + escaped(to); to == "" {
		to = "./"
	}
	return to + rest
}

// served reports whether something will be served at a path.
func (b *build) served(p string) bool {
	bare := strings.TrimSuffix(p, "/")
	for _, try := range []string{bare, bare + ".html", bare + ".md", path.Join(bare, "index.html"), path.Join(bare, "index.md"), strings.TrimSuffix(bare, ".html") + ".md"} {
		if _, ok := b.files[try]; ok {
			return true
		}
	}
	return bare == "" || bare == "index.html" || bare == "index"
}

// wantFile has a script or style of the site bundled for a page.
func (b *build) wantFile(p *page, ref string, style bool, attrs string, where func(text, needle string) microsite.Message) {
	e := entry{nsBuiltin, styleName}
	if ref != e.String() {
		if elsewhere(ref) || scheme(ref) != "" {
			b.fail(where(fmt.Sprintf("%q is on another server, and a page here can't load anything from there: put the file into the site.", ref), ref))
			return
		}
		endings := []string{".js", ".ts", ".jsx", ".tsx"}
		if style {
			endings = []string{".css"}
		}
		found, why := b.find(p.source, unescape(ref), true)
		switch {
		case why != "":
			b.fail(where(why, ref))
			return
		case !slices.Contains(endings, path.Ext(found)):
			b.fail(where(fmt.Sprintf("%q is of the wrong kind here.", ref), ref))
			return
		}
		e = entry{nsFile, found}
	}
	b.want(e)
	p.add(piece{entry: e, style: style, attrs: attrs})
}

// wantInline has what stands in a page bundled into a file of its own: nothing in it
// can end or swallow the page then.
func (b *build) wantInline(p *page, text, ending, source string, offset int, style bool, attrs string) {
	if p.written {
		before := source[:offset]
		text = strings.Repeat("\n", strings.Count(before, "\n")) + strings.Repeat(" ", offset-strings.LastIndexByte(before, '\n')-1) + text
	}
	e := entry{nsInline, fmt.Sprintf("%s#%d%s", p.source, len(b.inline)+1, ending)}
	b.inline[e.path] = text
	b.want(e)
	p.add(piece{entry: e, style: style, attrs: attrs})
}

// styledBy is the attribute that stands in place of a style attribute.
const styledBy = "data-style"

// wantStyles makes a style sheet of a page's style attributes, as strong as they
// are: pages may hold no styles of their own.
func (b *build) wantStyles(p *page, head int) {
	var css strings.Builder
	for i, s := range p.styled {
		fmt.Fprintf(&css, "[%s=\"%d\"]:not(#_):not(#_):not(#_) { %s }\n", styledBy, i+1, s)
	}
	e := entry{nsInline, fmt.Sprintf("%s#%d.css", p.source, len(b.inline)+1)}
	b.inline[e.path] = css.String()
	b.want(e)
	p.pieces = slices.Insert(p.pieces, head, piece{entry: e, style: true})
}

var doctype = regexp.MustCompile(`(?i)^\s*<!doctype`)

// writePages puts the pages together.
func (b *build) writePages() {
	for _, p := range b.pages {
		var s strings.Builder
		dir := up(p.path) + microsite.Assets + "/"
		for _, piece := range p.pieces {
			s.WriteString(piece.text)
			if piece.entry == (entry{}) {
				continue
			}
			if piece.bundled.style != "" {
				fmt.Fprintf(&s, `<link rel="stylesheet" href="%s%s"%s>`, dir, piece.bundled.style, piece.attrs)
			}
			if piece.bundled.script != "" && !piece.style {
				fmt.Fprintf(&s, `<script type="module" src="%s%s"%s></script>`, dir, piece.bundled.script, piece.attrs)
			}
		}
		out := s.String()
		if !doctype.MatchString(out) {
			out = "<!doctype html>\n" + out
		}
		b.make(p.path, microsite.ContentType(p.path), []byte(out))
	}
}
