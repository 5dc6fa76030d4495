package vault

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"

	"standmeet/shared/fault"
)

const (
	// A zip that unpacks to more than bombSize bytes and more than bombRatio times
	// its own size holds no vault: text packs to a tenth, pictures hardly.
	bombSize  = 32 << 20
	bombRatio = 100
	// maxHeaders bounds the entries of a zip, folders and all: each costs memory
	// before anything is unpacked.
	maxHeaders = 5 * MaxFiles
)

// ReadZip reads a vault from a zip. A name of unknown encoding, an entry that is
// encrypted, damaged, a link, or that leads out of the vault is among Failed.
// Faults: not_a_zip (400); too_many_files, vault_too_large, zip_bomb (413).
func ReadZip(r io.ReaderAt, size int64) (*Upload, error) {
	headers, err := countHeaders(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, err
	}
	if headers > maxHeaders {
		return nil, tooManyFiles()
	}
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, &fault.Fault{Kind: fault.Invalid, Code: "not_a_zip", Detail: "This is no zip, or it is damaged. Nothing was changed.", Err: err}
	}
	var files []*zip.File
	var names []string
	var claimed uint64
	for _, f := range z.File {
		name, ok := entryName(f)
		if strings.HasSuffix(name, "/") || strings.HasSuffix(name, `\`) {
			continue
		}
		if claimed += min(f.UncompressedSize64, MaxUnpacked+1); claimed > MaxUnpacked {
			return nil, tooLarge()
		}
		if !ok {
			name = "" // told below
		}
		files, names = append(files, f), append(names, name)
	}
	if len(files) > MaxFiles {
		return nil, tooManyFiles()
	}
	unwrap(names)
	u := newUpload()
	for i, f := range files {
		if names[i] == "" {
			u.fail(f.Name, "Refused: the encoding of its name is unknown.")
			continue
		}
		mode := f.Mode()
		switch {
		case mode&fs.ModeSymlink != 0:
			u.fail(names[i], "Refused: it is a link.")
			continue
		case !mode.IsRegular():
			u.fail(names[i], "Refused: it is no file.")
			continue
		}
		p, k, ok := u.admit(names[i])
		if !ok {
			continue
		}
		if f.Flags&1 != 0 {
			u.fail(p, "It is encrypted. Make a zip without a password.")
			continue
		}
		if err := u.unpack(f, p, k, size); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// unpack reads an entry, whatever its header says of its size. The error is one
// about the whole zip.
func (u *Upload) unpack(f *zip.File, p string, k Kind, packed int64) error {
	in, err := f.Open()
	if err != nil {
		u.fail(p, "It can't be unpacked: %s.", plain(err))
		return nil
	}
	defer in.Close()
	hash := sha256.New()
	var content bytes.Buffer
	var into io.Writer = hash
	if k == NoteFile {
		into = io.MultiWriter(hash, &content)
	}
	most := MaxUnpacked - u.unpacked + 1
	if k == NoteFile {
		most = min(most, MaxNote+1)
	}
	n, err := io.Copy(into, io.LimitReader(in, most))
	u.unpacked += n
	switch {
	case u.unpacked > MaxUnpacked:
		return tooLarge()
	case u.unpacked > bombSize && u.unpacked/bombRatio > packed:
		return tooMuch("zip_bomb", "This zip unpacks to more than %d times its size.", bombRatio)
	case err != nil:
		u.fail(p, "It can't be unpacked: %s.", plain(err))
		return nil
	case k == NoteFile && n > MaxNote:
		u.fail(p, "A note's file may have %d MiB at most.", MaxNote>>20)
		return nil
	}
	file := File{Path: p, Kind: k, Size: n, Content: content.Bytes(), read: func() ([]byte, error) {
		in, err := f.Open()
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return io.ReadAll(io.LimitReader(in, n))
	}}
	hash.Sum(file.Hash[:0])
	u.Files = append(u.Files, file)
	return nil
}

func plain(err error) string {
	switch {
	case errors.Is(err, zip.ErrAlgorithm):
		return "it is packed in a way that is not known here"
	case errors.Is(err, zip.ErrChecksum):
		return "its checksum is wrong"
	}
	return "it is damaged"
}

// countHeaders counts what looks like a header of the zip's directory, without
// keeping any.
func countHeaders(r io.Reader) (n int, err error) {
	signature := []byte("PK\x01\x02")
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		window, err := in.Peek(64 << 10)
		n += bytes.Count(window, signature)
		if len(window) < len(signature) || err != nil {
			if err == nil || errors.Is(err, io.EOF) {
				return n, nil
			}
			return n, err
		}
		// a signature may lie across two windows
		if _, err := in.Discard(len(window) - len(signature) + 1); err != nil {
			return n, err
		}
	}
}

// unwrap takes off the one folder that a vault was packed in.
func unwrap(names []string) {
	var wrapper string
	vault := false
	for _, name := range names {
		name = strings.ReplaceAll(name, `\`, "/")
		if strings.HasPrefix(name, "__MACOSX/") || name == "" {
			continue
		}
		top, rest, inside := strings.Cut(name, "/")
		if !inside && top[0] == '.' {
			continue
		}
		if !inside || top == "" || top[0] == '.' || wrapper != "" && top != wrapper {
			return
		}
		wrapper = top
		second, _, folder := strings.Cut(rest, "/")
		vault = vault || folder && (second == ".obsidian" || isGenre(second))
	}
	if !vault || isGenre(wrapper) {
		return
	}
	for i, name := range names {
		if rest, ok := strings.CutPrefix(strings.ReplaceAll(name, `\`, "/"), wrapper+"/"); ok {
			names[i] = rest
		}
	}
}

func isGenre(folder string) bool {
	switch strings.ToLower(folder) {
	case "raw", "wiki", "output":
		return true
	}
	return false
}

// entryName is an entry's name in UTF-8.
func entryName(f *zip.File) (name string, ok bool) {
	if u, ok := unicodePath(f); ok {
		return u, true
	}
	if utf8.ValidString(f.Name) {
		// with the flag or, as macOS writes it, without
		return f.Name, true
	}
	return legacyName(f.Name)
}

// unicodePath is Info-ZIP's extra field with the name in UTF-8, which holds for
// the name that it has the checksum of.
func unicodePath(f *zip.File) (string, bool) {
	for extra := f.Extra; len(extra) >= 4; {
		id, size := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		if extra = extra[4:]; size > len(extra) {
			break
		}
		if field := extra[:size]; id == 0x7075 && size > 5 && field[0] == 1 &&
			binary.LittleEndian.Uint32(field[1:]) == crc32.ChecksumIEEE([]byte(f.Name)) && utf8.Valid(field[5:]) {
			return string(field[5:]), true
		}
		extra = extra[size:]
	}
	return "", false
}

// legacyName decodes a name of the time before UTF-8, when each system wrote its
// own encoding and did not say which. It is decoded before it is parted: the byte
// of a backslash is half of a letter in Shift_JIS. ok is false when no encoding
// makes it a plausible name.
func legacyName(raw string) (name string, ok bool) {
	best := 0.5
	for _, way := range []struct {
		encoding encoding.Encoding
		likely   func(string) float64
	}{{simplifiedchinese.GB18030, likelyGBK}, {japanese.ShiftJIS, likelyShiftJIS}, {charmap.CodePage437, likelyCP437}} {
		score := way.likely(raw)
		if score <= best {
			continue
		}
		decoded, err := way.encoding.NewDecoder().String(raw)
		if err == nil && !strings.ContainsRune(decoded, utf8.RuneError) {
			best, name, ok = score, decoded, true
		}
	}
	return name, ok
}

// likelyGBK is how much of what is not ASCII are pairs of bytes that GBK has
// common letters for.
func likelyGBK(s string) float64 {
	var sum, n float64
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < 0x80 {
			continue
		}
		if i++; i == len(s) || s[i] < 0x40 {
			return 0
		}
		switch n++; {
		case s[i] < 0xA1: // not of GB 2312
		case 0xB0 <= c && c <= 0xD7, 0xA1 <= c && c <= 0xA3:
			sum++
		case 0xD8 <= c && c <= 0xF7:
			sum += 0.6
		}
	}
	return sum / max(n, 1)
}

func likelyShiftJIS(s string) float64 {
	var sum, n float64
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < 0x80 {
			continue
		}
		n++
		if 0xA1 <= c && c <= 0xDF { // half-width kana
			sum += 0.3
			continue
		}
		if i++; i == len(s) || s[i] < 0x40 || s[i] == 0x7F {
			return 0
		}
		switch {
		case c == 0x82 && 0x4F <= s[i], c == 0x83 && s[i] <= 0x96, c == 0x81 && s[i] >= 0x40, 0x88 <= c && c <= 0x97:
			sum++
		case 0x98 <= c && c <= 0x9F, 0xE0 <= c && c <= 0xEA:
			sum += 0.6
		}
	}
	return sum / max(n, 1)
}

// likelyCP437 is how much of what is not ASCII are accented letters that stand
// among others.
func likelyCP437(s string) float64 {
	var sum, n float64
	for i := range len(s) {
		if s[i] < 0x80 {
			continue
		}
		n++
		alone := i > 0 && letter(s[i-1]) || i+1 < len(s) && letter(s[i+1])
		if s[i] <= 0xA5 && s[i] != 0x9B && s[i] != 0x9C && s[i] != 0x9D && s[i] != 0x9E && s[i] != 0x9F && alone || s[i] == 0xE1 && alone { // ß
			sum += 0.9
		}
	}
	return sum / max(n, 1)
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
