package vault

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"standmeet/shared/text"
)

// Publishing is what a note's front matter says of who may read it.
type Publishing string

// The words for it. Unsaid keeps what is stored.
const (
	Unsaid  Publishing = ""
	Public  Publishing = "public"
	Private Publishing = "private"
	Coded   Publishing = "coded"
)

// Note is what a note's file says.
type Note struct {
	// Head is all that stands before Body: a byte order mark, the front matter.
	Head string
	Body string
	// Title is nil where the front matter has none, or an empty one if it is that.
	Title   *string
	Slug    string
	Aliases []string
	// Tags are those of the front matter, then those in the text.
	Tags    []string
	Publish Publishing
	// ID and Version name the note that an export made the file of.
	ID      string
	Version int64
	// Links are those in the text.
	Links []text.Link
	// Warnings are about front matter that was not understood in part.
	Warnings []string

	front, inline []string
}

// ErrText is a file that is no text as PostgreSQL keeps it.
var ErrText = errors.New("It is not UTF-8, or holds U+0000, so it can't be stored.") //nolint:staticcheck // a sentence for the answer

// BrokenError says why front matter could not be read. The note that comes with it
// has the whole file as its body.
type BrokenError struct{ Reason string }

func (e *BrokenError) Error() string { return "Its front matter can't be read: " + e.Reason }

// idKey is the key of the front matter that names the note here: id, '/' and
// version.
const idKey = "standmeet"

// Parse reads a note's file. The error is ErrText, or a *BrokenError with a note.
func Parse(source []byte) (Note, error) {
	if !utf8.Valid(source) || bytes.IndexByte(source, 0) >= 0 {
		return Note{}, ErrText
	}
	front, body := text.SplitFrontMatter(source)
	n := Note{Head: string(source[:len(source)-len(body)]), Body: string(body)}
	if err := n.readFront(front); err != nil {
		n = Note{Body: string(source)}
		n.readText()
		return n, &BrokenError{err.Error()}
	}
	n.readText()
	return n, nil
}

func (n *Note) readText() {
	doc := text.Extract([]byte(n.Body))
	n.Links, n.inline = doc.Links, doc.Tags
	n.Tags = n.names("tags", append(slices.Clip(n.front), n.inline...), MaxTags, MaxTag)
	n.Aliases = n.names("aliases", n.Aliases, MaxAliases, MaxAlias)
}

// names keeps of a list what a note can have, and warns of the rest.
func (n *Note) names(what string, names []string, most, longest int) (kept []string) {
	known := map[string]bool{}
	dropped := 0
	for _, s := range names {
		s = strings.TrimSpace(s)
		key := keyOf(s)
		switch {
		case key == "" || known[key]:
		case len(kept) == most || utf8.RuneCountInString(s) > longest || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
			dropped++
		default:
			known[key] = true
			kept = append(kept, s)
		}
	}
	if dropped > 0 {
		n.warn("Of the %s, %d are too long or too many for a note, and stay in its file alone.", what, dropped)
	}
	return kept
}

func keyOf(name string) string { return text.TitleKey(strings.Trim(strings.TrimSpace(name), "#/ ")) }

// mapping gives the root of front matter; nil for an empty one.
func mapping(front []byte) (*yaml.Node, error) {
	if len(front) > MaxFrontMatter {
		return nil, fmt.Errorf("it has more than %d KiB.", MaxFrontMatter>>10) //nolint:staticcheck // a sentence's end
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(front, &doc); err != nil {
		return nil, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ") + ".")
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("it has no keys.") //nolint:staticcheck // a sentence's end
	}
	return root, nil
}

// readFront reads the keys that are known. Aliases are followed once and never
// expanded, so that they cost nothing.
func (n *Note) readFront(front []byte) error {
	root, err := mapping(front)
	if err != nil || root == nil {
		return err
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		value := follow(root.Content[i+1])
		switch key := strings.ToLower(root.Content[i].Value); key {
		case "title":
			if s, ok := n.scalar(key, value); ok {
				n.Title = &s
			}
		case "slug":
			n.Slug, _ = n.scalar(key, value)
		case "tags", "tag":
			n.front = append(n.front, n.list(key, value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })...)
		case "aliases", "alias":
			n.Aliases = append(n.Aliases, n.list(key, value, func(r rune) bool { return r == ',' })...)
		case "publish":
			s, ok := n.scalar(key, value)
			switch strings.ToLower(s) {
			case "true", "yes", "on", "public":
				n.Publish = Public
			case "false", "no", "off", "private":
				n.Publish = Private
			case "coded":
				n.Publish = Coded
			default:
				if ok && s != "" {
					n.warn("publish is neither true nor false, so who may read the note was not changed.")
				}
			}
		case idKey:
			s, _ := n.scalar(key, value)
			id, version, _ := strings.Cut(s, "/")
			n.ID = id
			_, _ = fmt.Sscan(version, &n.Version) // 0 matches no version
		}
	}
	return nil
}

func (n *Note) warn(format string, args ...any) {
	n.Warnings = append(n.Warnings, fmt.Sprintf(format, args...))
}

func follow(v *yaml.Node) *yaml.Node {
	if v.Kind == yaml.AliasNode {
		return v.Alias
	}
	return v
}

func (n *Note) scalar(key string, v *yaml.Node) (string, bool) {
	switch {
	case v.Kind != yaml.ScalarNode:
		n.warn("%s is no text, so it was not read.", key)
		return "", false
	case v.Tag == "!!null":
		return "", false
	}
	return strings.TrimSpace(v.Value), true
}

// list reads a list of texts, or one text that sep parts.
func (n *Note) list(key string, v *yaml.Node, sep func(rune) bool) (items []string) {
	switch v.Kind {
	case yaml.ScalarNode:
		if v.Tag != "!!null" {
			for _, s := range strings.FieldsFunc(v.Value, sep) {
				items = append(items, strings.TrimSpace(s))
			}
		}
	case yaml.SequenceNode:
		for _, item := range v.Content {
			if item = follow(item); item.Kind != yaml.ScalarNode {
				n.warn("An entry of %s is no text, so it was not read.", key)
			} else if item.Tag != "!!null" {
				items = append(items, strings.TrimSpace(item.Value))
			}
		}
	default:
		n.warn("%s is neither a list nor text, so it was not read.", key)
	}
	return items
}

// Facts are what a note is here, for the file that tells it.
type Facts struct {
	// Publish leaves alone what the file says of it, when it is Unsaid. ID and
	// Version are given for a note whose file says who it is.
	ID      string
	Version int64
	// Title is the note's, FileTitle what its file's name says.
	Title, FileTitle string
	Tags, Aliases    []string
	Publish          Publishing
	Source           string
	Body             string
}

// Render gives the file of a note whose front matter is head: byte by byte as it
// was, where the note is still what the file says. What differs is changed in the
// front matter, and its unknown keys stay.
func Render(head string, f Facts) []byte {
	was, err := Parse([]byte(head + f.Body))
	if err != nil || was.Body != f.Body {
		// The text begins like front matter, so it needs some before it. Of a file
		// whose own is broken the whole is the text.
		if err == nil || head != "" {
			head += "---\n---\n"
		}
		was = Note{Head: head, Body: f.Body}
		was.readText()
	}
	sets := was.changes(f)
	if len(sets) == 0 {
		return []byte(head + f.Body)
	}
	front, _ := text.SplitFrontMatter([]byte(head))
	root, err := mapping(front)
	if root == nil || err != nil {
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	for _, s := range sets {
		set(root, s.keys, s.value)
	}
	var out bytes.Buffer
	if strings.HasPrefix(head, "\uFEFF") {
		out.WriteString("\uFEFF")
	}
	out.WriteString("---\n")
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if len(root.Content) > 0 {
		_ = enc.Encode(root) // into memory, of what was read or made here
	}
	out.WriteString("---\n" + f.Body)
	return out.Bytes()
}

type change struct {
	keys  []string
	value *yaml.Node
}

func (n *Note) changes(f Facts) (sets []change) {
	title := f.FileTitle
	if n.Title != nil {
		title = *n.Title
	}
	if title != f.Title {
		sets = append(sets, change{[]string{"title"}, scalar(f.Title)})
	}
	if !Same(n.Tags, f.Tags) {
		sets = append(sets, change{[]string{"tags", "tag"}, sequence(without(f.Tags, n.inline))})
	}
	aliases := n.Aliases
	if alias := fileAlias(f.Title, f.FileTitle); alias != "" {
		aliases = append(slices.Clip(aliases), alias)
	}
	if !Same(aliases, f.Aliases) {
		sets = append(sets, change{[]string{"aliases", "alias"}, sequence(without(f.Aliases, []string{f.FileTitle}))})
	}
	if f.Publish != Unsaid && n.Publish != f.Publish && (n.Publish != Unsaid || f.Publish != Private) {
		value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(f.Publish == Public)}
		if f.Publish == Coded {
			value = scalar(string(Coded))
		}
		sets = append(sets, change{[]string{"publish"}, value})
	}
	if f.Source != "" {
		sets = append(sets, change{[]string{"source"}, scalar(f.Source)})
	}
	if f.ID != "" {
		if id := fmt.Sprintf("%s/%d", f.ID, f.Version); id != fmt.Sprintf("%s/%d", n.ID, n.Version) {
			sets = append(sets, change{[]string{idKey}, scalar(id)})
		}
	}
	return sets
}

// FileAlias is the alias that a note gets whose title is not its file's name, by
// which links call it; empty for any other.
func fileAlias(title, fileTitle string) string {
	if title == "" || fileTitle == "" || text.TitleKey(title) == text.TitleKey(fileTitle) {
		return ""
	}
	return fileTitle
}

// AllAliases are the aliases of a note with that title in a file of that name.
func (n *Note) AllAliases(title, fileTitle string) []string {
	if alias := fileAlias(title, fileTitle); alias != "" {
		return append(slices.Clip(n.Aliases), alias)
	}
	return n.Aliases
}

func keysOf(names []string) []string {
	var keys []string
	for _, s := range names {
		if k := keyOf(s); k != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// Same reports whether two lists name the same things.
func Same(a, b []string) bool {
	x, y := keysOf(a), keysOf(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func without(names, gone []string) (kept []string) {
	keys := keysOf(gone)
	for _, s := range names {
		if k := keyOf(s); k != "" && !slices.Contains(keys, k) {
			kept = append(kept, s)
		}
	}
	return kept
}

var plainScalar = regexp.MustCompile(`^[\p{L}][\p{L}\p{N} _/-]*$`)

func scalar(s string) *yaml.Node {
	v := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if !plainScalar.MatchString(s) {
		v.Style = yaml.DoubleQuotedStyle
	}
	return v
}

func sequence(items []string) *yaml.Node {
	v := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for _, s := range items {
		v.Content = append(v.Content, scalar(s))
	}
	return v
}

// set gives a key of a mapping a value, under the first of its spellings, and
// takes the others away. An empty list takes all away.
func set(root *yaml.Node, keys []string, value *yaml.Node) {
	found := false
	for i := 0; i+1 < len(root.Content); {
		switch known := slices.Contains(keys, strings.ToLower(root.Content[i].Value)); {
		case known && !found && (value.Kind != yaml.SequenceNode || len(value.Content) > 0):
			found = true
			root.Content[i+1] = value
			i += 2
		case known:
			root.Content = slices.Delete(root.Content, i, i+2)
		default:
			i += 2
		}
	}
	if !found && (value.Kind != yaml.SequenceNode || len(value.Content) > 0) {
		root.Content = append(root.Content, scalar(keys[0]), value)
	}
}

// NoteHash is the hash of what an import makes of a note.
func NoteHash(title, body string, tags, aliases []string) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q ", title, tags, aliases)
	h.Write([]byte(body))
	return h.Sum(nil)
}
