package corpus

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"standmeet/shared/fault"
	"standmeet/shared/text"
)

// Limits of a note. Names are counted in code points, the body in bytes.
const (
	MaxTitle   = 300
	MaxBody    = 1 << 20
	MaxSource  = 2_000
	MaxTags    = 50
	MaxTag     = 100
	MaxAliases = 50
	MaxAlias   = 300
	MaxDepth   = 32
	// MaxPath is the length of a path in bytes.
	MaxPath = 2_000

	// what a row of a B-tree index can hold, less the columns beside it
	maxTitleKey = 2_400
)

// Draft is what a note's author decides. The zero Visibility is Private.
type Draft struct {
	Genre        Genre
	Title        string
	Body         string
	ParentID     *uuid.UUID
	Tags         []string
	Aliases      []string
	Visibility   Visibility
	ShowAsSource bool
	Source       string
}

// check applies the rules that need no other note, and trims what they trim.
// Its fault names every field that breaks one.
func (d *Draft) check() error {
	var c checker
	if d.Visibility == "" {
		d.Visibility = Private
	}
	c.oneOf("genre", string(d.Genre), string(Raw), string(Wiki), string(Output))
	c.oneOf("visibility", string(d.Visibility), string(Private), string(Coded), string(Public))
	if d.Genre == Raw && (d.Visibility == Coded || d.Visibility == Public) {
		c.refuse("visibility", "not_allowed", "A raw note is always private. Promote it, and publish what comes of it.")
	}
	d.Title = c.line("title", d.Title, MaxTitle)
	switch key := text.TitleKey(d.Title); {
	case d.Genre != Raw && !strings.ContainsFunc(key, func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }):
		c.refuse("title", "missing_field", "A %s note needs a title.", d.Genre)
	case d.Genre == Raw && d.Title == "" && strings.TrimSpace(d.Body) == "":
		c.refuse("body", "missing_field", "A raw note needs a body or a title.")
	case len(key) > maxTitleKey:
		c.refuse("title", "too_long", "The title is too long.")
	}
	if c.text("body", d.Body); len(d.Body) > MaxBody {
		c.refuse("body", "too_long", "The body has %d bytes; %d are the most.", len(d.Body), MaxBody)
	}
	if d.Genre == Raw && d.ParentID != nil {
		c.refuse("parent_id", "not_allowed", "A raw note has no place, so it can't stand under another.")
	}
	d.Source = strings.TrimSpace(d.Source)
	if c.text("source", d.Source); utf8.RuneCountInString(d.Source) > MaxSource {
		c.refuse("source", "too_long", "The source may have %d letters at most.", MaxSource)
	}
	d.Tags = c.names("tags", d.Tags, trimTag, MaxTags, MaxTag)
	d.Aliases = c.names("aliases", d.Aliases, strings.TrimSpace, MaxAliases, MaxAlias)
	return c.err()
}

type checker struct{ fields []fault.Field }

func (c *checker) refuse(name, code, format string, args ...any) {
	c.fields = append(c.fields, fault.Field{Name: name, Code: code, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) err() error {
	if len(c.fields) == 0 {
		return nil
	}
	f := &fault.Fault{Kind: fault.Invalid, Code: c.fields[0].Code, Detail: c.fields[0].Detail, Fields: c.fields}
	if slices.ContainsFunc(c.fields, func(o fault.Field) bool { return o.Code != f.Code }) {
		f.Code = "invalid_request"
	}
	return f
}

// invalid is the fault of one field that breaks a rule.
func invalid(name, code, detail string) error {
	return &fault.Fault{Kind: fault.Invalid, Code: code, Detail: detail, Fields: []fault.Field{{Name: name, Code: code, Detail: detail}}}
}

func (c *checker) oneOf(name, value string, known ...string) {
	if !slices.Contains(known, value) {
		c.refuse(name, "not_allowed", "%s must be one of %s.", name, strings.Join(known, ", "))
	}
}

// text refuses what PostgreSQL can't store as it is: a body is kept byte by
// byte or not at all.
func (c *checker) text(name, s string) bool {
	ok := utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
	if !ok {
		c.refuse(name, "invalid_text", "%s is not UTF-8, or holds U+0000, which can't be stored.", name)
	}
	return ok
}

// line trims a name and refuses one that is not a single line.
func (c *checker) line(name, s string, most int) string {
	s = strings.TrimSpace(s)
	switch {
	case !c.text(name, s):
	case utf8.RuneCountInString(s) > most:
		c.refuse(name, "too_long", "%s may have %d letters at most.", name, most)
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
		c.refuse(name, "invalid_format", "%s must be one line without control characters.", name)
	}
	return s
}

// names trims each name and drops empty ones and repetitions.
func (c *checker) names(field string, names []string, trim func(string) string, most, longest int) []string {
	if len(names) > most {
		c.refuse(field, "too_many", "There may be %d %s at most.", most, field)
		return names
	}
	kept, seen := make([]string, 0, len(names)), map[string]bool{}
	for i, s := range names {
		s = c.line(fmt.Sprintf("%s[%d]", field, i), trim(s), longest)
		if key := text.TitleKey(s); key != "" && !seen[key] {
			seen[key] = true
			kept = append(kept, s)
		}
	}
	return kept
}

// trimTag takes off the '#' that people write before a tag, and '/' that part
// nothing.
func trimTag(s string) string {
	s = strings.TrimRightFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '/' })
	return strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '/' || r == '#' })
}

// tagKey is the key by which tags compare.
func tagKey(tag string) string { return text.TitleKey(trimTag(tag)) }

// tagKeys are the keys of tags and of the tags that they are nested in.
func tagKeys(tags []string) []string {
	keys := []string{}
	for _, t := range tags {
		t = tagKey(t)
		for i, r := range t {
			if r == '/' {
				keys = append(keys, t[:i])
			}
		}
		keys = append(keys, t)
	}
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == "" })
}
