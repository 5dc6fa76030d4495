package vault

import (
	"crypto/sha256"
	"encoding/base32"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"standmeet/shared/text"
)

// Names gives the files of an export names that differ, also on systems that
// don't tell upper case from lower.
type Names struct{ taken map[string]bool }

// NewNames begins with the paths that files have already.
func NewNames(paths []string) *Names {
	n := &Names{taken: map[string]bool{}}
	for _, p := range paths {
		n.taken[Key(p)] = true
	}
	return n
}

const (
	maxNameRunes = 100
	maxNameBytes = 180
)

// FileName is a title as the name of a file or folder, without an ending. plain
// says that it is the title itself.
func FileName(title string) (name string, plain bool) {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), strings.ContainsRune(`/\:*?"<>|#^[]`, r), unicode.Is(unicode.Cf, r) && r != 0x200D:
			return '-'
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, title)
	runes := 0
	for i, r := range name {
		if runes++; runes > maxNameRunes || i+utf8.RuneLen(r) > maxNameBytes {
			name = name[:i]
			break
		}
	}
	// a leading dot hides a file, a final dot or space is dropped by Windows
	name = strings.TrimRight(strings.TrimLeft(name, ". "), ". ")
	if slug, _ := text.Slug(name); name == "" || strings.Trim(name, "-") == "" || !strings.ContainsAny(name, ".") && deviceName(slug) {
		name = strings.Trim("Note "+name, "- ")
	}
	return name, name == title
}

func deviceName(slug string) bool {
	_, lossy := text.Slug(slug)
	return lossy && slug != ""
}

// Path is a free path for a note's file in a folder ("" or with a final '/'), one
// that makes it the note of no folder that has one. id is any text that tells the
// note from others.
func (n *Names) Path(folder, title, id string) string {
	name, plain := FileName(title)
	p := folder + name + ".md"
	own := Key(name) == "index" || Key(name) == Key(path.Base(folder))
	for _, key := range FolderNotes(folder + name) {
		own = own || n.taken[key]
	}
	if !plain || own {
		sum := sha256.Sum256([]byte(id))
		p = folder + name + " " + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])) + ".md"
	}
	n.taken[Key(p)] = true
	return p
}

// Place is where a file's note belongs.
type Place struct {
	Genre string
	// Folders are the names of the folders that become its parents.
	Folders []string
	// Paths are those of Folders in the vault, each with a final '/'.
	Paths []string
	// Name is the name of the file without its ending.
	Name string
}

// PlaceOf reads a note's path. The top folders raw, wiki and output are genres,
// and everything else is wiki. Folders of raw notes become nothing.
func PlaceOf(p string) Place {
	parts := strings.Split(p, "/")
	place := Place{Genre: "wiki", Name: Name(p)}
	from := 0
	if len(parts) > 1 && isGenre(parts[0]) {
		place.Genre, from = strings.ToLower(parts[0]), 1
	}
	if place.Genre == "raw" {
		return place
	}
	for i := from; i < len(parts)-1; i++ {
		place.Folders = append(place.Folders, parts[i])
		place.Paths = append(place.Paths, strings.Join(parts[:i+1], "/")+"/")
	}
	return place
}

// PlaceIn is PlaceOf among other files, of which has tells by Key: the note that a
// folder has within it stands where the folder does, under its name.
func PlaceIn(p string, has func(key string) bool) Place {
	place := PlaceOf(p)
	n := len(place.Folders)
	if n == 0 {
		return place
	}
	for _, key := range FolderNotes(place.Paths[n-1]) {
		if key == Key(p) {
			place.Name, place.Folders, place.Paths = place.Folders[n-1], place.Folders[:n-1], place.Paths[:n-1]
			return place
		}
		if has(key) {
			break
		}
	}
	return place
}

// FolderNotes are the paths, by Key, that the note of a folder may have, the best
// first: beside it, or within it under its name or as its index.
func FolderNotes(folder string) []string {
	folder = strings.TrimSuffix(folder, "/")
	name := folder[strings.LastIndexByte(folder, '/')+1:]
	return []string{Key(folder + ".md"), Key(folder + "/" + name + ".md"), Key(folder + "/index.md")}
}
