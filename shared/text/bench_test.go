package text

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// moduleDocs are the Markdown files of the Go module cache: real notes.
func moduleDocs(tb testing.TB) (docs [][]byte, size int64) {
	root := os.Getenv("GOMODCACHE")
	if root == "" {
		home, _ := os.UserHomeDir()
		root = filepath.Join(home, "go", "pkg", "mod")
	}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			if doc, err := os.ReadFile(path); err == nil && len(doc) > 0 && len(doc) <= 1<<20 {
				docs = append(docs, doc)
				size += int64(len(doc))
			}
		}
		return nil
	})
	if len(docs) == 0 {
		tb.Skip("no Markdown files in the module cache " + root)
	}
	return docs, size
}

func BenchmarkExtract(b *testing.B) {
	docs, size := moduleDocs(b)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, doc := range docs {
			Extract(doc)
		}
	}
}

func BenchmarkAnalyze(b *testing.B) {
	docs, size := moduleDocs(b)
	var parsed []Document
	for _, doc := range docs {
		parsed = append(parsed, Extract(doc))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, d := range parsed {
			Analyze(Fields{Title: "A title of a note", URI: "wiki://a/title", Headings: d.Headings, Plain: d.Plain})
		}
	}
}

func BenchmarkExtractAndAnalyze(b *testing.B) {
	docs, size := moduleDocs(b)
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, doc := range docs {
			d := Extract(doc)
			Analyze(Fields{Title: "A title of a note", URI: "wiki://a/title", Headings: d.Headings, Plain: d.Plain})
		}
	}
	b.ReportMetric(float64(b.N*len(docs))/b.Elapsed().Seconds(), "notes/s")
}

func BenchmarkAnalyzeChinese(b *testing.B) {
	plain := strings.Repeat("系统需要验证用户身份后才能继续，部署方案与 API 設計。", 40)
	b.SetBytes(int64(len(plain)))
	b.ReportAllocs()
	for b.Loop() {
		Analyze(Fields{Title: "认知负荷", Plain: plain})
	}
}

func BenchmarkParseQuery(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ParseQuery("部署 deployment")
	}
}

func BenchmarkSnippet(b *testing.B) {
	plain := strings.Repeat("The quick brown fox jumps over the lazy dog; deploying takes time, consider it. ", 1<<20/80)
	q := ParseQuery("deployment checklist")
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		Snippet(plain, q, 200)
	}
}

func BenchmarkSnippetChinese(b *testing.B) {
	plain := strings.Repeat("系统需要验证用户身份后才能继续，部署方案与设计。", 1<<20/72)
	q := ParseQuery("部署清单")
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		Snippet(plain, q, 200)
	}
}

func BenchmarkMatchesPhrases(b *testing.B) {
	plain := strings.Repeat("The quick brown fox jumps over the lazy dog; deploying takes time, consider it. ", 1<<20/80)
	q := ParseQuery(`"not there"`)
	b.SetBytes(int64(len(plain)))
	for b.Loop() {
		q.MatchesPhrases(plain)
	}
}
