package text

import (
	"bytes"
	"unicode/utf8"
)

// Limits under which goldmark stays linear. Its cost is quadratic in the depth
// of containers, in the brackets and delimiters of one paragraph, in the lines
// of one paragraph and in the columns of a table; beyond these limits guard
// breaks a paragraph in two or flattens a nesting, which costs an emphasis or a
// table's tail its markup and no note its words.
const (
	maxMarkers  = 24
	maxIndent   = 48
	maxSpecials = 256
	maxLines    = 1000
	maxCells    = 8192
	maxSameRun  = 8
)

// specialTable holds 1 for the bytes that start brackets and delimiters.
var specialTable = func() (t [256]uint8) {
	for _, c := range "[]*_~=`" {
		t[c] = 1
	}
	return t
}()

// guard rewrites what would make goldmark slow; text that people write comes
// back as it is.
func guard(src []byte) []byte {
	g := guarded{src: src}
	var lines, specials, cells, columns int
	blank := false
	for start := 0; start < len(src); {
		end := start + bytes.IndexByte(src[start:], '\n')
		if end < start {
			end = len(src)
		}
		next := min(end+1, len(src))
		if end == start || len(bytes.Trim(src[start:end], " \t\r")) == 0 {
			if blank {
				g.cut(start, next)
			}
			blank, lines, specials, cells, columns = true, 0, 0, 0, 0
			start = next
			continue
		}
		blank = false
		if lines >= maxLines && columns == 0 || specials > maxSpecials || cells > maxCells {
			g.insert(start, "\n")
			lines, specials, cells, columns = 0, 0, 0, 0
		}
		text := g.prefix(start, end)
		lines++
		if columns > 0 {
			cells += columns
			specials = 0
		} else if n := tableColumns(src[text:end]); n > 0 {
			columns = n
		}
		n := 0
		for _, c := range src[text:end] {
			n += int(specialTable[c])
		}
		if specials+n <= maxSpecials {
			specials += n
			start = next
			continue
		}
		run := 0
		for i := text; i < end; i++ {
			c := src[i]
			if specialTable[c] == 0 {
				continue
			}
			if i > text && src[i-1] == c && c != '`' && c != '=' {
				if run++; run >= maxSameRun && (c == '[' || c == ']') {
					g.cut(i, i+1)
					continue
				}
			} else {
				run = 0
			}
			if specials++; specials > 2*maxSpecials && run == 0 {
				g.insert(i, "\n\n")
				specials, columns = 0, 0
			}
		}
		start = next
	}
	return g.bytes()
}

type guarded struct {
	src, out []byte
	copied   int
}

func (g *guarded) cut(from, to int) {
	if g.out == nil {
		g.out = make([]byte, 0, len(g.src)+len(g.src)/8+64)
	}
	g.out = append(g.out, g.src[g.copied:from]...)
	g.copied = to
}

func (g *guarded) insert(at int, s string) {
	g.cut(at, at)
	g.out = append(g.out, s...)
}

func (g *guarded) bytes() []byte {
	if g.out == nil {
		return g.src
	}
	return append(g.out, g.src[g.copied:]...)
}

// prefix limits the indentation and the container markers that the line
// [i,end) starts with, and answers where its text starts.
func (g *guarded) prefix(i, end int) int {
	markers, indent := 0, 0
	for i < end {
		n := 1
		switch c := g.src[i]; {
		case c == ' ' || c == '\t':
			if c == '\t' {
				indent += 3
			}
			if indent++; indent > maxIndent {
				g.cut(i, i+1)
			}
			i++
			continue
		case c == '>' || c == '-' || c == '+' || c == '*':
		case '0' <= c && c <= '9':
			for i+n < end && n < 9 && '0' <= g.src[i+n] && g.src[i+n] <= '9' {
				n++
			}
			if i+n == end || g.src[i+n] != '.' && g.src[i+n] != ')' {
				return i
			}
			n++
		default:
			return i
		}
		if g.src[i] != '>' && i+n < end && g.src[i+n] != ' ' && g.src[i+n] != '\t' {
			return i
		}
		if markers++; markers > maxMarkers {
			g.cut(i, i+n)
		}
		i += n
	}
	return i
}

// tableColumns is the number of columns that a table's delimiter row declares,
// 0 for any other line.
func tableColumns(line []byte) int {
	n, dash, pipe := 1, false, false
	for _, c := range line {
		switch c {
		case '|':
			n++
			pipe = true
		case '-':
			dash = true
		case ':':
			pipe = true
		case ' ', '\t', '\r':
		default:
			return 0
		}
	}
	if !dash || !pipe {
		return 0
	}
	return n
}

// clean answers src as valid UTF-8 without U+0000.
func clean(src []byte) []byte {
	if !utf8.Valid(src) {
		src = bytes.ToValidUTF8(src, []byte("\uFFFD"))
	}
	if bytes.IndexByte(src, 0) >= 0 {
		src = bytes.ReplaceAll(src, []byte{0}, []byte(" "))
	}
	return src
}
