package bench

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A piece shorter than minNote takes in the next one; one longer than maxNote
// is cut at a line.
const (
	minNote = 300
	maxNote = 8 << 10
	// jottingSize is the length of a short note in bytes.
	jottingSize = 160
)

// sample is real Markdown: the documents of the Go module cache, cut at their
// headings into pieces of a note's size.
type sample struct{ notes []string }

func readSample() (sample, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return sample{}, err
	}
	seen := map[string]bool{}
	var s sample
	err = filepath.WalkDir(strings.TrimSpace(string(out)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		doc, err := os.ReadFile(path)
		if err != nil || !utf8.Valid(doc) || bytes.IndexByte(doc, 0) >= 0 {
			return err
		}
		for _, piece := range cut(string(doc)) {
			if !seen[piece] {
				seen[piece] = true
				s.notes = append(s.notes, piece)
			}
		}
		return nil
	})
	if err == nil && len(s.notes) == 0 {
		err = errors.New("bench: the module cache holds no Markdown")
	}
	return s, err
}

var heading = regexp.MustCompile(`(?m)^#{1,6} `)

func cut(doc string) (pieces []string) {
	var piece strings.Builder
	flush := func() {
		if s := strings.TrimSpace(piece.String()); len(s) >= minNote {
			pieces = append(pieces, s)
		}
		piece.Reset()
	}
	starts := []int{0}
	for _, at := range heading.FindAllStringIndex(doc, -1) {
		starts = append(starts, at[0])
	}
	starts = append(starts, len(doc))
	for i := range len(starts) - 1 {
		if piece.Len() >= minNote {
			flush()
		}
		for line := range strings.Lines(doc[starts[i]:starts[i+1]]) {
			if piece.Len() > 0 && piece.Len()+len(line) > maxNote {
				flush()
			}
			if len(line) <= maxNote {
				piece.WriteString(line)
			}
		}
	}
	flush()
	return pieces
}

// note is the i-th body, any i: after the last piece the first comes again,
// told apart by a line of its own.
func (s sample) note(i int) string {
	body := s.notes[i%len(s.notes)]
	if round := i / len(s.notes); round > 0 {
		body += "\n\nCopy " + strconv.Itoa(round) + "\n"
	}
	return body
}

// jotting is the beginning of the i-th note: a short note, as one writes in
// passing.
func (s sample) jotting(i int) string {
	body := s.note(i)
	if len(body) <= jottingSize {
		return body
	}
	cut := strings.LastIndexAny(body[:jottingSize], " \n")
	return strings.ToValidUTF8(body[:max(cut, jottingSize/2)], "")
}

// sizes are the median and mean number of bytes of the first n notes.
func (s sample) sizes(n int) (median, mean int) {
	all := make([]int, n)
	for i := range all {
		all[i] = len(s.note(i))
		mean += all[i]
	}
	slices.Sort(all)
	return all[n/2], mean / n
}
