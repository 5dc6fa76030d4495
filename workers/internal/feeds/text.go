package feeds

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Limits of texts, in code points; what is longer is cut.
const (
	maxLine        = 500
	maxDescription = 20_000
	maxURL         = 2_000
)

// line is markup or text as one line of text.
func line(s string) string {
	if strings.ContainsAny(s, "<&") {
		s = plain(s)
	}
	return cut(strings.Join(strings.Fields(clean(s)), " "), maxLine)
}

// places joins the parts of a place that are there.
func places(parts ...string) string {
	var there []string
	for _, p := range parts {
		if p = line(p); p != "" {
			there = append(there, p)
		}
	}
	return cut(strings.Join(there, ", "), maxLine)
}

// paragraphs joins the texts that are there.
func paragraphs(texts ...string) string {
	var there []string
	for _, s := range texts {
		if s = strings.TrimSpace(tidy(clean(s))); s != "" {
			there = append(there, s)
		}
	}
	return cut(strings.Join(there, "\n\n"), maxDescription)
}

// plain is the text of HTML: no markup of it is left, and of scripts and styles
// nothing.
func plain(markup string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(markup))
	skip := 0
	for {
		switch z.Next() {
		case html.ErrorToken:
			return paragraphs(b.String())
		case html.TextToken:
			if skip == 0 {
				b.WriteString(strings.Map(func(r rune) rune {
					if unicode.IsSpace(r) {
						return ' '
					}
					return r
				}, string(z.Text())))
			}
		case html.StartTagToken:
			name, _ := z.TagName()
			switch a := atom.Lookup(name); {
			case hidden(a):
				skip++
			case a == atom.Li:
				b.WriteString("\n- ")
			case a == atom.Br:
				b.WriteString("\n")
			case block(a):
				b.WriteString("\n\n")
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			switch a := atom.Lookup(name); {
			case hidden(a):
				skip = max(skip-1, 0)
			case block(a):
				b.WriteString("\n\n")
			}
		case html.SelfClosingTagToken:
			if name, _ := z.TagName(); atom.Lookup(name) == atom.Br {
				b.WriteString("\n")
			}
		}
	}
}

func hidden(a atom.Atom) bool {
	switch a {
	case atom.Script, atom.Style, atom.Template, atom.Noscript, atom.Iframe, atom.Object, atom.Svg, atom.Title, atom.Textarea, atom.Select:
		return true
	}
	return false
}

func block(a atom.Atom) bool {
	switch a {
	case atom.P, atom.Div, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Table, atom.Tr, atom.Section, atom.Article, atom.Blockquote, atom.Pre, atom.Hr:
		return true
	}
	return false
}

// tidy leaves single spaces, and one empty line between paragraphs at most.
func tidy(s string) string {
	var out []string
	for l := range strings.SplitSeq(s, "\n") {
		l = strings.Join(strings.Fields(l), " ")
		if l == "" && (len(out) == 0 || out[len(out)-1] == "") {
			continue
		}
		out = append(out, l)
	}
	return strings.Join(out, "\n")
}

// clean drops what is no text: control characters, and bytes that are no UTF-8.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r == '\ufeff' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// link is a listing's address, made absolute; empty for what no browser should
// follow.
func link(from *url.URL, s string) string {
	s = strings.TrimSpace(clean(s))
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	if from != nil {
		u = from.ResolveReference(u)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	if s = u.String(); len(s) > maxURL {
		return ""
	}
	return s
}
