// Package sitebuild makes pages, scripts and styles of the files of a microsite.
// It reads nothing but what it is given, and writes nothing.
package sitebuild

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"standmeet/shared/microsite"
)

// The limits of what a build makes.
const (
	// MaxOutput is the largest file: what a Lambda function can answer with.
	MaxOutput = 4 << 20
	maxTotal  = 24 << 20
	maxMade   = 1000
)

// Input is what a build is made of.
type Input struct {
	// Name is the site's title, for pages that have none of their own.
	Name  string
	Files []microsite.File
	// Notes are what [[links]] and ![[embeds]] of Markdown files lead to, by their
	// targets as [Wanted] gives them.
	Notes map[string]Note
	// Lists are the notes that a query block asks for, by the block's text.
	Lists map[string][]Note
}

// Note is a note that visitors may read.
type Note struct {
	Title string
	// URL is its own page.
	URL string
	// Body is Markdown.
	Body string
	// Snippet is shown in lists; may be empty.
	Snippet string
}

// File is a file to serve, at a path relative to the site's address.
type File struct {
	Path        string
	ContentType string
	Content     []byte
}

// Output is what came of a build: files, unless the log has an error.
type Output struct {
	Files []File
	Log   []microsite.Message
}

// Failed reports whether the log has an error.
func (o Output) Failed() bool {
	return slices.ContainsFunc(o.Log, func(m microsite.Message) bool { return m.Severity == severityError })
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

type build struct {
	in    Input
	files map[string][]byte
	// folded finds a path without regard to case
	folded map[string]string
	// names are those of images as assets
	names map[string]string
	log   []microsite.Message
	made  map[string]File
	// scripts and styles that stand in pages, by their names
	inline  map[string]string
	entries []entry
	pages   []*page
	// what scripts and styles show; the bundler finds it in many places at once
	mu    sync.Mutex
	shown map[string]bool
}

// Build builds. It may take as long and as much as the files make it.
func Build(in Input) Output {
	b := &build{in: in, files: map[string][]byte{}, folded: map[string]string{}, names: map[string]string{}, made: map[string]File{}, inline: map[string]string{}, shown: map[string]bool{}}
	for _, f := range in.Files {
		b.files[f.Path] = f.Content
		b.folded[strings.ToLower(f.Path)] = f.Path
		if microsite.IsImage(f.Path) || path.Ext(f.Path) == ".json" {
			b.names[f.Path] = assetName(f.Path, f.Content)
		}
	}
	b.checkConfigs()
	b.readPages()
	if len(b.pages) == 0 && !b.failed() {
		b.fail(microsite.Message{Text: "There is no page: add index.html, index.md or index.tsx."})
	}
	b.bundle()
	for p := range b.shown {
		b.emit(p)
	}
	if !b.failed() {
		b.writePages()
		b.copyFiles()
		b.weigh()
	}
	out := Output{Log: b.log}
	if b.failed() {
		slices.SortStableFunc(out.Log, func(x, y microsite.Message) int { return cmp.Compare(x.Severity, y.Severity) })
		return out
	}
	for _, f := range b.made {
		out.Files = append(out.Files, f)
	}
	slices.SortFunc(out.Files, func(x, y File) int { return cmp.Compare(x.Path, y.Path) })
	return out
}

func (b *build) failed() bool { return Output{Log: b.log}.Failed() }

func (b *build) fail(m microsite.Message) {
	m.Severity = severityError
	b.say(m)
}

func (b *build) warn(m microsite.Message) {
	m.Severity = severityWarning
	b.say(m)
}

func (b *build) say(m microsite.Message) {
	if len(m.Source) > 300 {
		m.Source = strings.ToValidUTF8(m.Source[:300], "") + "…"
	}
	if !slices.Contains(b.log, m) {
		b.log = append(b.log, m)
	}
}

// at is a message about a byte of a file.
func at(file string, content []byte, offset int, text string) microsite.Message {
	offset = min(max(offset, 0), len(content))
	before, rest := string(content[:offset]), string(content[offset:])
	start := strings.LastIndexByte(before, '\n') + 1
	tail, _, _ := strings.Cut(rest, "\n")
	return microsite.Message{File: file, Line: strings.Count(before, "\n") + 1, Column: offset - start + 1, Source: strings.TrimRight(before[start:]+tail, "\r"), Text: text}
}

func (b *build) make(p, contentType string, content []byte) {
	if was, twice := b.made[p]; twice && string(was.Content) != string(content) {
		b.fail(microsite.Message{Text: fmt.Sprintf("Two files would be served at %s.", p)})
		return
	}
	b.made[p] = File{p, contentType, content}
}

// weigh refuses what is too much to be served.
func (b *build) weigh() {
	total := 0
	for _, f := range b.made {
		total += len(f.Content)
		if len(f.Content) > MaxOutput {
			b.fail(microsite.Message{Text: fmt.Sprintf("%s would have %d bytes, and may have %d.", f.Path, len(f.Content), MaxOutput)})
		}
	}
	if total > maxTotal || len(b.made) > maxMade {
		b.fail(microsite.Message{Text: fmt.Sprintf("The build would be %d files of %d bytes together, and may be %d files of %d bytes.", len(b.made), total, maxMade, maxTotal)})
	}
}

var extends = regexp.MustCompile(`"extends"\s*:`)

// checkConfigs looks at files that other tools read and this one doesn't.
func (b *build) checkConfigs() {
	for _, f := range b.in.Files {
		name := path.Base(f.Path)
		if ok, _ := path.Match("[tj]sconfig*.json", name); !ok {
			continue
		}
		if place := extends.FindIndex(f.Content); place != nil {
			b.fail(at(f.Path, f.Content, place[0], "A configuration here can't extend another one. What it says is for editors alone: the build has its own settings."))
		}
	}
}

// asset is the name that a file gets for its content, below microsite.Assets.
func assetName(p string, content []byte) string {
	ext := path.Ext(p)
	sum := sha256.Sum256(content)
	return plainName(strings.TrimSuffix(path.Base(p), ext)) + "-" + hex.EncodeToString(sum[:10]) + strings.ToLower(ext)
}

var unplain = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// plainName makes a name that needs no escaping anywhere.
func plainName(s string) string {
	s = strings.Trim(unplain.ReplaceAllString(s, "-"), "-")
	return cmp.Or(s[:min(len(s), 60)], "file")
}

// emit makes an asset of a file of the site and gives its name.
func (b *build) emit(p string) string {
	at := microsite.Assets + "/" + b.names[p]
	if _, done := b.made[at]; !done {
		b.make(at, microsite.ContentType(p), b.files[p])
	}
	return b.names[p]
}

// emits notes that a script or style shows an image.
func (b *build) emits(p string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown[p] = true
}

// copyFiles serves at their own paths what a script may ask for by a path that it
// makes up itself.
func (b *build) copyFiles() {
	for p, content := range b.files {
		if name := path.Base(p); microsite.IsImage(p) || path.Ext(p) == ".json" && name != "package.json" && name != "package-lock.json" && !strings.Contains(name, "config") {
			b.make(p, microsite.ContentType(p), content)
		}
	}
}

// find finds the file that a reference in the file from means. why says in words
// why there is none. rooted takes a leading / as the site's own address.
func (b *build) find(from, ref string, rooted bool, endings ...string) (p, why string) {
	shown := ref
	ref, _, _ = strings.Cut(ref, "#")
	ref, _, _ = strings.Cut(ref, "?")
	if strings.Contains(ref, `\`) {
		return "", fmt.Sprintf("%q has a backslash: paths have /.", shown)
	}
	dir := path.Dir(from)
	if strings.HasPrefix(ref, "/") {
		if !rooted {
			return "", fmt.Sprintf("%q is an absolute path: name a file of the site by a relative one, such as \"./hero\".", shown)
		}
		dir, ref = ".", strings.TrimLeft(ref, "/")
	}
	p = path.Join(dir, ref)
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", fmt.Sprintf("%q leads out of the site.", shown)
	}
	tries := []string{p}
	for _, e := range endings {
		tries = append(tries, p+e)
	}
	// TypeScript is imported by the name of what would become of it
	if js, ok := strings.CutSuffix(p, ".js"); ok && len(endings) > 0 {
		tries = append(tries, js+".ts", js+".tsx", js+".jsx")
	}
	for _, e := range endings {
		tries = append(tries, path.Join(p, "index"+e))
	}
	for _, t := range tries {
		if _, ok := b.files[t]; ok {
			return t, ""
		}
	}
	for _, t := range tries {
		if other, ok := b.folded[strings.ToLower(t)]; ok {
			return "", fmt.Sprintf("There is no %q, but there is %s: upper and lower case letters differ.", shown, other)
		}
	}
	return "", fmt.Sprintf("There is no file %q in the site.", shown)
}

// elsewhere reports whether a reference leads to another server.
func elsewhere(ref string) bool {
	ref = strings.ToLower(strings.TrimSpace(ref))
	return strings.HasPrefix(ref, "//") || scheme(ref) != "" && scheme(ref) != "data" && scheme(ref) != "blob"
}

var schemeSyntax = regexp.MustCompile(`^([a-z][a-z0-9+.-]*):`)

func scheme(ref string) string {
	if m := schemeSyntax.FindStringSubmatch(strings.ToLower(strings.TrimSpace(ref))); m != nil {
		return m[1]
	}
	return ""
}

// up leads from a page to the site's address.
func up(p string) string { return strings.Repeat("../", strings.Count(p, "/")) }

func escaped(p string) string { return (&url.URL{Path: p}).EscapedPath() }
