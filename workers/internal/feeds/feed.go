package feeds

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mmcdole/gofeed"
	"golang.org/x/net/html/charset"
)

// feed reads an RSS, Atom or JSON feed; which of them it is, it tells itself.
func (r *Reader) feed(ctx context.Context, s Source) (Answer, error) {
	p, err := r.get(ctx, r.Client, s.URL, "application/rss+xml, application/atom+xml, application/feed+json, application/xml;q=0.9, application/json;q=0.9, */*;q=0.5", &s)
	if err != nil || p.unchanged {
		return answer(p, nil), err
	}
	listings, err := parseFeed(p)
	return answer(p, listings), err
}

func parseFeed(p reply) ([]Listing, error) {
	content := decode(p.body, p.contentType)
	head := strings.TrimLeft(content, " \t\r\n")
	switch {
	case strings.HasPrefix(head, "{"):
		return jsonFeed(p.url, content)
	case p.isHTML() && !strings.Contains(head, "<rss") && !strings.Contains(head, "<feed") && !strings.Contains(head, "<rdf:RDF"):
		return nil, broken("The address leads to a web page, not to a feed.")
	}
	parsed, err := gofeed.NewParser().ParseString(repair(content))
	if err != nil {
		return nil, &Fault{Reason: "The source answered with something that can't be read as a feed.", Err: err}
	}
	base := p.url
	if site, err := url.Parse(strings.TrimSpace(parsed.Link)); err == nil && site.IsAbs() {
		base = site
	}
	var all []Listing
	for _, i := range parsed.Items {
		l := Listing{ID: strings.TrimSpace(clean(i.GUID)), URL: link(base, i.Link), Title: line(i.Title), Description: plain(longer(i.Content, i.Description))}
		for _, a := range i.Authors {
			if a != nil && l.Company == "" {
				l.Company = line(a.Name)
			}
		}
		for _, at := range []*time.Time{i.PublishedParsed, i.UpdatedParsed} {
			if at != nil && l.PublishedAt.IsZero() {
				l.PublishedAt = sane(*at)
			}
		}
		if l.Title == "" && l.Description == "" && l.URL == "" {
			continue
		}
		all = append(all, l)
	}
	return all, nil
}

func longer(a, b string) string {
	if len(a) >= len(b) {
		return a
	}
	return b
}

// jsonFeed reads a JSON Feed (jsonfeed.org/version/1.1) as leniently as its
// writers are: ids are numbers, titles null.
func jsonFeed(from *url.URL, content string) ([]Listing, error) {
	var in struct {
		Version text `json:"version"`
		Home    text `json:"home_page_url"`
		Items   *[]struct {
			ID            text            `json:"id"`
			URL           text            `json:"url"`
			ExternalURL   text            `json:"external_url"`
			Title         text            `json:"title"`
			ContentText   text            `json:"content_text"`
			ContentHTML   text            `json:"content_html"`
			Summary       text            `json:"summary"`
			DatePublished text            `json:"date_published"`
			Authors       json.RawMessage `json:"authors"`
			Author        json.RawMessage `json:"author"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(content), &in); err != nil || in.Items == nil {
		return nil, &Fault{Reason: "The source answered with something that can't be read as a feed.", Err: err}
	}
	if home, err := url.Parse(string(in.Home)); err == nil && home.IsAbs() {
		from = home
	}
	var all []Listing
	for _, i := range *in.Items {
		l := Listing{ID: strings.TrimSpace(clean(string(i.ID))), URL: link(from, string(i.URL)), Title: line(string(i.Title)), PublishedAt: moment(string(i.DatePublished))}
		if l.URL == "" {
			l.URL = link(from, string(i.ExternalURL))
		}
		if l.Company = author(i.Authors); l.Company == "" {
			l.Company = author(i.Author)
		}
		if l.Description = plain(string(i.ContentHTML)); l.Description == "" {
			l.Description = paragraphs(longer(string(i.ContentText), string(i.Summary)))
		}
		if l.Title == "" { // JSON Feed has none where an item is only a text
			l.Title, _, _ = strings.Cut(l.Description, "\n")
			l.Title = cut(l.Title, 100)
		}
		all = append(all, l)
	}
	return all, nil
}

// author is the first name in an author, a list of them, or plain text.
func author(raw json.RawMessage) string {
	var one struct {
		Name text `json:"name"`
	}
	var list []json.RawMessage
	var name string
	switch {
	case json.Unmarshal(raw, &name) == nil:
		return line(name)
	case json.Unmarshal(raw, &list) == nil && len(list) > 0:
		return author(list[0])
	case json.Unmarshal(raw, &one) == nil:
		return line(string(one.Name))
	}
	return ""
}

var declared = regexp.MustCompile(`^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._:-]+)["']`)

// decode gives the body as UTF-8. What it says of itself in its XML declaration
// counts where HTTP says nothing, as RFC 7303 has it.
func decode(body []byte, contentType string) string {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	label := ""
	if m := declared.FindSubmatch(body[:min(len(body), 1024)]); m != nil {
		label = string(m[1])
	}
	if !strings.Contains(strings.ToLower(contentType), "charset") {
		if label == "" && utf8.Valid(body) {
			return string(body)
		}
		if label != "" {
			contentType = "text/xml; charset=" + label
		}
	}
	if r, err := charset.NewReader(bytes.NewReader(body), contentType); err == nil {
		if out, err := io.ReadAll(r); err == nil {
			return string(out)
		}
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

var (
	xmlDeclaration = regexp.MustCompile(`^\s*<\?xml[^>]*\?>`)
	doctype        = regexp.MustCompile(`(?is)<!DOCTYPE[^>\[]*(\[[^\]]*\])?[^>]*>`)
	reference      = regexp.MustCompile(`&(#[0-9]{1,7};|#[xX][0-9a-fA-F]{1,6};|[A-Za-z][A-Za-z0-9]{1,31};)?`)
)

// repair makes XML of what feeds often are: names of HTML that XML doesn't know,
// an & that means itself, characters that XML forbids. CDATA stays as it is.
func repair(content string) string {
	content = xmlDeclaration.ReplaceAllString(content, "")
	content = doctype.ReplaceAllString(content, "")
	content = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, content)
	var b strings.Builder
	for content != "" {
		before, rest, found := strings.Cut(content, "<![CDATA[")
		b.WriteString(reference.ReplaceAllStringFunc(before, referenced))
		if !found {
			break
		}
		inside, after, _ := strings.Cut(rest, "]]>")
		b.WriteString("<![CDATA[" + inside + "]]>")
		content = after
	}
	return b.String()
}

func referenced(ref string) string {
	switch ref {
	case "&amp;", "&lt;", "&gt;", "&quot;", "&apos;":
		return ref
	case "&":
		return "&amp;"
	}
	if is := html.UnescapeString(ref); is != ref {
		// a character that XML forbids can't be written as a number either
		if is = clean(is); is == "" || strings.ContainsAny(is, "<>&") {
			return html.EscapeString(is)
		}
		return is
	}
	return "&amp;" + ref[1:]
}
