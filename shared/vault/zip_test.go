package vault

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/unicode/norm"

	"standmeet/shared/fault"
)

// entry is a file of a zip, with whatever header.
type entry struct {
	zip.FileHeader
	content string
}

func named(name string) entry {
	return entry{zip.FileHeader{Name: name, Method: zip.Deflate}, "text of " + name}
}

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	for _, e := range entries {
		w, err := z.CreateHeader(&e.FileHeader)
		if err == nil {
			if !strings.HasSuffix(e.Name, "/") {
				_, err = io.WriteString(w, e.content)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(raw []byte) (*Upload, error) { return ReadZip(bytes.NewReader(raw), int64(len(raw))) }

func paths(u *Upload) (p []string) {
	for _, f := range u.Files {
		p = append(p, f.Path)
	}
	slices.Sort(p)
	return p
}

func mustRead(t *testing.T, entries ...entry) *Upload {
	t.Helper()
	u, err := read(pack(t, entries...))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestZipNames(t *testing.T) {
	t.Parallel()
	raw := func(name string) entry { return entry{zip.FileHeader{Name: name, NonUTF8: true}, "x"} }
	encode := func(s string, e interface{ String(string) (string, error) }) entry {
		out, err := e.String(s)
		if err != nil {
			t.Fatal(s, err)
		}
		return raw(out)
	}
	for _, name := range []string{"笔记/读书方法.md", "日程安排.md", "第一章 简介.md"} {
		if u := mustRead(t, encode(name, simplifiedchinese.GBK.NewEncoder())); !slices.Equal(paths(u), []string{name}) {
			t.Errorf("%s in GBK: %q, %v", name, paths(u), u.Failed)
		}
	}
	for _, name := range []string{"ノート/表示.md", "ソフトウェア.md", "会議メモ.md", "能力.md"} {
		if u := mustRead(t, encode(name, japanese.ShiftJIS.NewEncoder())); !slices.Equal(paths(u), []string{name}) {
			t.Errorf("%s in Shift_JIS: %q, %v", name, paths(u), u.Failed)
		}
	}
	for _, name := range []string{"café.md", "Über München.md", "señor/año.md", "Straße.md"} {
		if u := mustRead(t, encode(name, charmap.CodePage437.NewEncoder())); !slices.Equal(paths(u), []string{name}) {
			t.Errorf("%s in CP437: %q, %v", name, paths(u), u.Failed)
		}
	}
	unicodeName := raw("caf\x82.md")
	field := append([]byte{1}, binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(unicodeName.Name)))...)
	field = append(field, "ქართული.md"...)
	unicodeName.Extra = append(binary.LittleEndian.AppendUint16([]byte{0x75, 0x70}, uint16(len(field))), field...)
	for want, e := range map[string]entry{
		"ქართული.md":  unicodeName,
		"é/ü.md":      raw(norm.NFD.String("é/ü.md")),
		"日本.md":       raw("日本.md"),
		"a/b/c.md":    named(`a\b\\c.md`),
		"dots.../…md": named("dots.../…md.md"),
		"a/x y.md":    named("./a//x y.md"),
	} {
		if want == "dots.../…md" {
			want += ".md"
		}
		if u := mustRead(t, e); !slices.Equal(paths(u), []string{want}) {
			t.Errorf("%q: %q, %v", want, paths(u), u.Failed)
		}
	}
	for _, name := range []string{"\xff\xfe\xfd.md", "\x01\x80.md", "/abs.md", `\abs.md`, "a/../../b.md", `a\..\b.md`, "..", "c:/x.md", `Z:x.md`, "a\x00b.md", "a\nb.md", strings.Repeat("a/", 600) + "x.md"} {
		u, err := read(pack(t, raw(name), named("fine.md")))
		if err != nil || !slices.Equal(paths(u), []string{"fine.md"}) || len(u.Failed)+len(u.Skipped) != 1 {
			t.Errorf("%q: %v, %v, %v, %v", name, err, paths(u), u.Failed, u.Skipped)
		}
	}
}

func TestZipEntries(t *testing.T) {
	t.Parallel()
	link, device, secret, method := named("link.md"), named("device.md"), named("secret.md"), named("method.md")
	link.SetMode(fs.ModeSymlink | 0o777)
	device.SetMode(fs.ModeDevice | 0o600)
	u := mustRead(t, link, device, named("A.md"), named("a.md"), named("É.md"), named("e\u0301.MD"), named("folder/"), named(`windows\`), named("x.canvas"), named("x.exe"),
		named("__MACOSX/._A.md"), named(".obsidian/app.json"), named(".obsidian/plugins/x/y.js"), named("in/.trash/a.md"), named(".DS_Store"), named("Thumbs.db"), named("p.PNG"))
	if want := []string{"A.md", "p.PNG", "É.md"}; !slices.Equal(paths(u), want) {
		t.Errorf("%q", paths(u))
	}
	if len(u.Failed) != 4 || len(u.Skipped) != 7 {
		t.Errorf("failed %v\nskipped %v", u.Failed, u.Skipped)
	}
	secret.Flags, method.Method = 1, zip.Store
	raw := pack(t, secret, method, named("fine.md"))
	// Go writes neither: the flags and the method are changed where they lie
	for at := range raw {
		if bytes.HasPrefix(raw[at:], []byte("PK\x01\x02")) && bytes.HasPrefix(raw[at+46:], []byte("method.md")) {
			raw[at+10] = 99
		}
		if bytes.HasPrefix(raw[at:], []byte("PK\x01\x02")) && bytes.HasPrefix(raw[at+46:], []byte("secret.md")) {
			raw[at+8] |= 1
		}
	}
	u, err := read(raw)
	if err != nil || !slices.Equal(paths(u), []string{"fine.md"}) || len(u.Failed) != 2 {
		t.Errorf("%v: %v %v", err, paths(u), u.Failed)
	}
	// a damaged one is the only one that is lost
	raw = pack(t, entry{zip.FileHeader{Name: "bad.md", Method: zip.Store}, "0123456789"}, named("fine.md"))
	raw[bytes.Index(raw, []byte("0123456789"))]++
	if u, err = read(raw); err != nil || !slices.Equal(paths(u), []string{"fine.md"}) || !strings.Contains(u.Failed[0].Reason, "checksum") {
		t.Errorf("%v: %v %v", err, paths(u), u.Failed)
	}
}

func TestWrapper(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want []string }{
		"a vault in a folder":      {[]string{"My Vault/.obsidian/app.json", "My Vault/wiki/a.md", "My Vault/b.md", "__MACOSX/My Vault/._b.md"}, []string{"b.md", "wiki/a.md"}},
		"beside a hidden file":     {[]string{"v/wiki/a.md", ".DS_Store"}, []string{"wiki/a.md"}},
		"by a genre":               {[]string{"v/raw/a.md", "v/b.md"}, []string{"b.md", "raw/a.md"}},
		"a folder of a vault":      {[]string{"Projects/a.md", "Projects/b/c.md"}, []string{"Projects/a.md", "Projects/b/c.md"}},
		"a genre":                  {[]string{"wiki/wiki/a.md"}, []string{"wiki/wiki/a.md"}},
		"more than one":            {[]string{"v/wiki/a.md", "w/b.md"}, []string{"v/wiki/a.md", "w/b.md"}},
		"backslashes":              {[]string{`v\wiki\a.md`, `v\b.md`}, []string{"b.md", "wiki/a.md"}},
		"out of it all the same":   {[]string{"v/wiki/a.md", "v/../../b.md"}, []string{"wiki/a.md"}},
		"a root file and a folder": {[]string{"v/wiki/a.md", "b.md"}, []string{"b.md", "v/wiki/a.md"}},
	} {
		var entries []entry
		for _, p := range c.in {
			entries = append(entries, named(p))
		}
		if u := mustRead(t, entries...); !slices.Equal(paths(u), c.want) {
			t.Errorf("%s: %q", name, paths(u))
		}
	}
}

func refused(t *testing.T, raw []byte, code string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := read(raw)
	runtime.ReadMemStats(&after)
	if f := fault.From(err); f == nil || f.Code != code {
		t.Errorf("%v; want %s", err, code)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 150<<20 {
		t.Errorf("%s took %d MiB", code, n>>20)
	}
}

// What is told of a zip's size is not believed. This test counts memory, so it
// does not run beside others.
func TestBombs(t *testing.T) {
	raw := pack(t, entry{zip.FileHeader{Name: "a.png", Method: zip.Deflate}, strings.Repeat("\x00", bombSize+1)})
	refused(t, raw, "zip_bomb")
	// headers that say they hold little
	at := bytes.Index(raw, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(raw[at+24:], 10)
	if u, err := read(raw); err == nil && (len(u.Files) > 0 || len(u.Failed) != 1) {
		t.Errorf("a lie about a size was believed: %v", paths(u))
	}
	// and ones that say they hold much
	binary.LittleEndian.PutUint32(raw[at+24:], MaxUnpacked+1)
	refused(t, raw, "vault_too_large")
	var many []entry
	for i := range MaxFiles + 1 {
		many = append(many, entry{zip.FileHeader{Name: fmt.Sprintf("%d.md", i), Method: zip.Store}, ""})
	}
	refused(t, pack(t, many...), "too_many_files")
	refused(t, bytes.Repeat([]byte("PK\x01\x02"), maxHeaders+1), "too_many_files")
	refused(t, []byte("no zip"), "not_a_zip")
	refused(t, nil, "not_a_zip")
	if u, err := read(pack(t, many[:MaxFiles]...)); err != nil || len(u.Files) != MaxFiles {
		t.Errorf("%v", err)
	}
	big := mustRead(t, entry{zip.FileHeader{Name: "big.md", Method: zip.Deflate}, strings.Repeat("word ", MaxNote/5+1)}, named("a.md"))
	if !slices.Equal(paths(big), []string{"a.md"}) || len(big.Failed) != 1 {
		t.Errorf("%v %v", paths(big), big.Failed)
	}
}

func TestFilesOneByOne(t *testing.T) {
	t.Parallel()
	u, err := ReadFiles([]Given{{"wiki/a.md", []byte("a")}, {`wiki\A.md`, []byte("b")}, {"../x.md", nil}, {"p.png", []byte("p")}, {"big.md", make([]byte, MaxNote+1)}})
	if err != nil || !slices.Equal(paths(u), []string{"p.png", "wiki/a.md"}) || len(u.Failed) != 3 {
		t.Errorf("%v %v %v", err, paths(u), u.Failed)
	}
	if _, err := ReadFiles(make([]Given, MaxFiles+1)); fault.From(err).Code != "too_many_files" {
		t.Error(err)
	}
}

func FuzzZip(f *testing.F) {
	link := named("l.md")
	link.SetMode(fs.ModeSymlink | 0o777)
	f.Add(pack(f, link, entry{zip.FileHeader{Name: "wiki/\x95\x5c\x8e\xa6.md", NonUTF8: true}, "x"}, named(`wiki\..\a.md`)))
	f.Add(pack(f, named("wiki/a.md"), named("v/raw/b.png")))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u, err := read(raw)
		if err != nil {
			if f := fault.From(err); f.Kind == fault.Internal {
				t.Fatal(err)
			}
			return
		}
		keys := map[string]bool{}
		for i := range u.Files {
			file := &u.Files[i]
			if p, refused := cleanPath(file.Path); refused != "" || p != file.Path || keys[Key(p)] {
				t.Fatalf("%q is no clean path, or there twice: %s", file.Path, refused)
			}
			keys[Key(file.Path)] = true
			content, err := file.Read()
			if err != nil || int64(len(content)) != file.Size || file.Kind == NoteFile && !bytes.Equal(content, file.Content) {
				t.Fatalf("%s: %d bytes of %d, %v", file.Path, len(content), file.Size, err)
			}
		}
	})
}
