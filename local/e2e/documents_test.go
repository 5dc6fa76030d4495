package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"os"
)

// document is a Markdown note and a phrase that only it holds.
type document struct {
	name, body, phrase string
}

// documents are the READMEs and docs of the modules that this one depends on,
// and what they lack: Chinese, Japanese, front matter, tables, code, emoji, long
// bodies. Each gets a phrase of its own, words apart, somewhere in its text.
func documents(t *testing.T) (docs []document) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for dir := range strings.Lines(string(out)) {
		dir = strings.TrimSpace(dir)
		if dir == "" || !strings.Contains(dir, "@") {
			continue
		}
		if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.EqualFold(filepath.Ext(path), ".md") {
				files = append(files, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(files)
	add := func(name, body, phrase string) {
		docs = append(docs, document{name, body, phrase})
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 || len(raw) > 900<<10 || len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		phrase := fmt.Sprintf("lantern quokka number%dx", len(docs))
		add(path, string(raw)+"\n\nA "+phrase+".\n", phrase)
		if len(docs) == 320 {
			break
		}
	}
	if len(docs) < 250 {
		t.Fatalf("only %d real documents in the module cache", len(docs))
	}
	add("zh", "# 认知负荷\n\n系统需要验证用户身份后才能继续。每一个声明都必须是真的。", "验证用户身份")
	add("ja", "夜の雨とリンゴを食べます。ｶﾞｲﾄﾞ と ＡＰＩ設計。", "ガイド API設計")
	add("ko", "한국어 문서입니다. 검색은 정직해야 합니다.", "검색은 정직해야")
	add("front matter", "---\ntitle: Hidden\ntags: [a, b]\n---\n\nVisible heliotrope paragraph.", "visible heliotrope")
	add("table", "| name | value |\n|---|---|\n| walrusfish | 42 |\n| [[Some Note\\|shown here]] | x |", "walrusfish 42")
	add("code", "```go\nfunc claimNothing(ctx context.Context) error { return errUnfinishedWork }\n```\n\nInline `snake_case_name`.", "errUnfinishedWork")
	add("emoji", "Launch 🚀 day with 👩‍👩‍👧‍👦 and e\u0301clair cafe\u0301", "éclair café")
	add("html", "<div>boxed <b>marzipan</b> &amp; co</div>", "boxed marzipan")
	add("rtl", "هذه ملاحظة عن الوعود الصادقة", "الوعود الصادقة")
	add("russian", "Каждое утверждение должно быть правдой", "утверждение правдой")
	for i := range 4 {
		var b strings.Builder
		for n := 0; b.Len() < 200<<10; n++ {
			fmt.Fprintf(&b, "Paragraph %d of long document %d speaks of item%dx%d.\n\n", n, i, i, n)
		}
		phrase := fmt.Sprintf("buried treasure%dz", i)
		body := b.String()
		add(fmt.Sprint("long ", i), body[:len(body)/2]+"\n\n"+phrase+"\n\n"+body[len(body)/2:], phrase)
	}
	return docs
}

// The main job on real input: every document comes back indexed, is found at
// once by a phrase of it, follows its edits, and is gone when it is deleted.
func TestRealDocuments(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.binary = plain
	s.start("gateway,relay,workers")
	docs := documents(t)
	if len(docs) < 300 {
		t.Fatalf("%d documents", len(docs))
	}
	work := make(chan int)
	var hands sync.WaitGroup
	for range 2 {
		hands.Go(func() {
			for i := range work {
				life(s, i, docs[i])
			}
		})
	}
	for i := range docs {
		work <- i
	}
	close(work)
	hands.Wait()
	t.Logf("%d documents", len(docs))
}

func life(s *site, i int, d document) {
	s.Helper()
	fail := func(format string, args ...any) {
		s.Errorf("%s: %s", d.name, fmt.Sprintf(format, args...))
	}
	a := s.call("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprintf("Document %d", i), "body": d.body})
	if a.status/100 != 2 || a.at("indexed") != true {
		fail("created: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	id := a.text("note.id")
	hit := func(query string) bool {
		r := s.call("GET", "/v1/corpus/search?limit=50&q="+escape(query), nil)
		return strings.Contains(r.raw, `"`+id+`"`)
	}
	if !hit(d.phrase) {
		fail("not found by %q", d.phrase)
	}
	if got := s.call("GET", "/v1/corpus/"+id, nil); got.text("note.body") != d.body {
		fail("the body did not come back byte for byte")
	}
	fresh := fmt.Sprintf("rewritten marmalade%dy", i)
	if a = s.call("PATCH", "/v1/corpus/"+id, object{"body": "Now " + fresh}); a.status != 200 || a.at("indexed") != true {
		fail("updated: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	if !hit(fresh) {
		fail("not found by its new phrase")
	}
	if hit(d.phrase) && !strings.ContainsFunc(d.phrase, unicode.IsSpace) {
		fail("still found by its old phrase")
	}
	if hit(`"` + d.phrase + `"`) {
		fail("still found by its old phrase, quoted")
	}
	if a = s.call("DELETE", "/v1/corpus/"+id, nil); a.status != 200 || a.at("indexed") != true {
		fail("deleted: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	if hit(fresh) {
		fail("found after it was deleted")
	}
}
