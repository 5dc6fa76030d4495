// Package vault reads and writes vaults of Obsidian: folders of Markdown files
// with attachments. It takes them as a zip or file by file, tells what each file
// says, and keeps what a note's row has no place for, so that an export gives the
// same files again.
package vault

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"standmeet/shared/fault"
	"standmeet/shared/text"
)

// Limits of a vault.
const (
	MaxFiles    = 20_000
	MaxUnpacked = 200 << 20
	// MaxNote is the size of a note's file in bytes.
	MaxNote = 2 << 20
	// MaxPath is the length of a path in bytes.
	MaxPath = 1_000
	// MaxFrontMatter is its size in bytes.
	MaxFrontMatter = 64 << 10
	// What a note may have, in names and letters.
	MaxTags    = 50
	MaxTag     = 100
	MaxAliases = 49 // and the file's name
	MaxAlias   = 300
)

// Kind says what a file, or a row of vault_files, is.
type Kind string

// The kinds. A folder is one that has no note of its own.
const (
	NoteFile Kind = "note"
	Folder   Kind = "folder"
	Asset    Kind = "asset"
)

// Entry tells of a file, or of a folder of them, and why something became of it.
type Entry struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// File is one of a vault's files that is taken.
type File struct {
	// Path is clean: NFC, parted by '/', without a wrapping folder.
	Path string
	Kind Kind
	Size int64
	Hash [sha256.Size]byte
	// Content is that of a note.
	Content []byte

	read func() ([]byte, error)
}

// Read gives the bytes of an attachment.
func (f *File) Read() ([]byte, error) { return f.read() }

// Key is the key by which paths compare: two files whose paths share it are one,
// since many systems can't keep both.
func Key(p string) string { return text.TitleKey(p) }

// Name is the name of a note's file without the ending.
func Name(p string) string {
	base := path.Base(p)
	return base[:len(base)-len(path.Ext(base))]
}

// Upload is a vault as it was read.
type Upload struct {
	Files []File
	// Skipped are files that are no business of ours; Failed those that should have
	// been taken and could not be.
	Skipped, Failed []Entry

	keys     map[string]string
	hidden   map[string]bool
	unpacked int64
}

func newUpload() *Upload { return &Upload{keys: map[string]string{}, hidden: map[string]bool{}} }

func (u *Upload) fail(p, format string, args ...any) {
	u.Failed = append(u.Failed, Entry{printable(p), fmt.Sprintf(format, args...)})
}

// printable is a name as an answer may hold it.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if len(s) > MaxPath {
		s = strings.ToValidUTF8(s[:MaxPath], "") + "…"
	}
	return s
}

// cleanPath gives a name as a path, or says why it is none. Nothing that a path
// says reaches a file system here; it is refused all the same, since an export
// would hand it on.
func cleanPath(name string) (p, refused string) {
	p = strings.ReplaceAll(norm.NFC.String(name), `\`, "/")
	switch {
	case !utf8.ValidString(name):
		return name, "its name is not UTF-8"
	case strings.ContainsFunc(p, func(r rune) bool { return unicode.IsControl(r) || r == '\uFFFD' }):
		return p, "its name holds control characters"
	case strings.HasPrefix(p, "/"):
		return p, "its path is absolute"
	case len(p) > 1 && p[1] == ':' && ('a' <= p[0]|0x20 && p[0]|0x20 <= 'z'):
		return p, "its path names a drive"
	case len(p) > MaxPath:
		return p, fmt.Sprintf("its path has more than %d bytes", MaxPath)
	}
	parts := strings.Split(p, "/")
	kept := parts[:0]
	for _, part := range parts {
		switch strings.TrimSpace(part) {
		case "", ".":
		case "..":
			return p, "its path leads out of the vault"
		default:
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return p, "it has no name"
	}
	return strings.Join(kept, "/"), ""
}

// hiddenIn is the folder or file that hides a path, if one does.
func hiddenIn(p string) (string, bool) {
	at := 0
	for part := range strings.SplitSeq(p, "/") {
		at += len(part)
		if part[0] == '.' || part == "__MACOSX" || strings.EqualFold(part, "thumbs.db") || strings.EqualFold(part, "desktop.ini") {
			if at < len(p) {
				return p[:at+1], true
			}
			return p, true
		}
		at++
	}
	return "", false
}

// kindOf tells what is taken, by its name.
func kindOf(p string) (Kind, string) {
	switch ext := strings.ToLower(path.Ext(p)); ext {
	case ".md", ".markdown":
		return NoteFile, ""
	case ".canvas":
		return "", "a canvas is not imported"
	case ".base":
		return "", "a base is not imported"
	default:
		if ContentType(p) != "" {
			return Asset, ""
		}
		return "", "only notes, images, sounds, films and PDF are imported"
	}
}

// ContentType is the media type of an attachment, by its name; empty for a file
// that is none.
func ContentType(p string) string {
	switch strings.ToLower(path.Ext(p)) {
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	case ".avif":
		return "image/avif"
	case ".svg":
		return "image/svg+xml"
	case ".bmp":
		return "image/bmp"
	case ".mp3":
		return "audio/mpeg"
	case ".m4a":
		return "audio/mp4"
	case ".wav":
		return "audio/wav"
	case ".ogg", ".oga":
		return "audio/ogg"
	case ".flac":
		return "audio/flac"
	case ".3gp":
		return "audio/3gpp"
	case ".mp4":
		return "video/mp4"
	case ".webm":
		return "video/webm"
	case ".ogv":
		return "video/ogg"
	case ".mov":
		return "video/quicktime"
	case ".mkv":
		return "video/x-matroska"
	case ".pdf":
		return "application/pdf"
	}
	return ""
}

// admit says whether a file of that name is to be read, and as what. An entry is
// made of one that is not.
func (u *Upload) admit(name string) (p string, k Kind, ok bool) {
	p, refused := cleanPath(name)
	if refused != "" {
		u.fail(name, "Refused: %s.", refused)
		return p, k, false
	}
	if hider, hidden := hiddenIn(p); hidden {
		if !u.hidden[hider] {
			u.hidden[hider] = true
			u.Skipped = append(u.Skipped, Entry{hider, "Settings, the trash and hidden files are not imported."})
		}
		return p, k, false
	}
	k, reason := kindOf(p)
	if k == "" {
		u.Skipped = append(u.Skipped, Entry{p, "Not imported: " + reason + "."})
		return p, k, false
	}
	if first, again := u.keys[Key(p)]; again {
		u.fail(p, "It has the same name as %q, regardless of case and spelling; that one was taken.", first)
		return p, k, false
	}
	u.keys[Key(p)] = p
	return p, k, true
}

// tooMuch is the fault of a vault that is over a limit; nothing of it is taken.
func tooMuch(code, format string, args ...any) error {
	return fault.New(fault.TooLarge, code, fmt.Sprintf(format, args...)+" Nothing was changed.")
}

func tooManyFiles() error {
	return tooMuch("too_many_files", "A vault may have %d files at most.", MaxFiles)
}

func tooLarge() error {
	return tooMuch("vault_too_large", "A vault may have %d MiB at most, unpacked.", MaxUnpacked>>20)
}

// Given is a file that came by itself.
type Given struct {
	Path    string
	Content []byte
}

// ReadFiles reads files that came one by one. Faults: too_many_files,
// vault_too_large (413).
func ReadFiles(given []Given) (*Upload, error) {
	u := newUpload()
	if len(given) > MaxFiles {
		return nil, tooManyFiles()
	}
	for _, g := range given {
		if u.unpacked += int64(len(g.Content)); u.unpacked > MaxUnpacked {
			return nil, tooLarge()
		}
		p, k, ok := u.admit(g.Path)
		if !ok {
			continue
		}
		if k == NoteFile && len(g.Content) > MaxNote {
			u.fail(p, "A note's file may have %d MiB at most.", MaxNote>>20)
			continue
		}
		f := File{Path: p, Kind: k, Size: int64(len(g.Content)), Hash: sha256.Sum256(g.Content), read: func() ([]byte, error) { return g.Content, nil }}
		if k == NoteFile {
			f.Content = g.Content
		}
		u.Files = append(u.Files, f)
	}
	return u, nil
}
