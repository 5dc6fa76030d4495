package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// document is a Markdown note and a phrase that only it holds.
type document struct {
	name, body, phrase string
}

// coined is a word that no other document holds, and none has its like.
func coined(n int, which string) string {
	sum := sha256.Sum256(fmt.Append(nil, n, which))
	word := make([]byte, 12)
	for i := range word {
		word[i] = 'a' + sum[i]%26
	}
	return string(word)
}

// shared is a word of every document.
const shared = "quokkaword"

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
		phrase := coined(len(docs), "a") + " " + coined(len(docs), "b")
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
		phrase := coined(i, "long a") + " " + coined(i, "long b")
		body := b.String()
		add(fmt.Sprint("long ", i), body[:len(body)/2]+"\n\n"+phrase+"\n\n"+body[len(body)/2:], phrase)
	}
	return docs
}

// The main job on real input: every document comes back indexed, is found at
// once by a phrase of it and by the word that hundreds of others hold too, follows
// its edits, and is gone when it is deleted.
func TestRealDocuments(t *testing.T) {
	t.Parallel()
	s := newPlainSite(t, "gateway,relay,workers")
	docs := documents(t)
	if len(docs) < 300 {
		t.Fatalf("%d documents", len(docs))
	}
	ids := make([]string, len(docs))
	for _, step := range []func(s *site, i int, d document, id *string){arrives, changes, goes} {
		work := make(chan int)
		var hands sync.WaitGroup
		for range 2 {
			hands.Go(func() {
				for i := range work {
					step(s, i, docs[i], &ids[i])
				}
			})
		}
		for i := range docs {
			work <- i
		}
		close(work)
		hands.Wait()
	}
	t.Logf("%d documents", len(docs))
}

// everyNth keeps the searches for the shared word, of many pages, to some.
const everyNth = 12

func complain(s *site, d document, format string, args ...any) {
	s.Helper()
	s.Errorf("%s: %s", d.name, fmt.Sprintf(format, args...))
}

// hit searches and goes through all pages.
func hit(s *site, id, query string) bool {
	s.Helper()
	cursor := ""
	for range 100 {
		path := "/v1/corpus/search?limit=50&q=" + escape(query)
		if cursor != "" {
			path += "&cursor=" + escape(cursor)
		}
		r := s.call("GET", path, nil)
		if r.status != 200 {
			s.Errorf("search %q: %d %v %.300s", query, r.status, r.err, r.raw)
			return false
		}
		if strings.Contains(r.raw, `"id":"`+id+`"`) {
			return true
		}
		if cursor = r.text("next_cursor"); cursor == "" {
			return false
		}
	}
	s.Errorf("search %q: no end", query)
	return false
}

func arrives(s *site, i int, d document, id *string) {
	s.Helper()
	a := s.call("POST", "/v1/corpus", object{"genre": "wiki", "title": fmt.Sprintf("Document %d", i), "body": d.body + "\n\n" + shared + "\n"})
	if a.status/100 != 2 || a.at("indexed") != true {
		complain(s, d, "created: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	*id = a.text("note.id")
	if !hit(s, *id, d.phrase) {
		complain(s, d, "not found by %q", d.phrase)
	}
	if i%everyNth == 0 && !hit(s, *id, shared) {
		complain(s, d, "created after %d others, not found by the word that all hold", i)
	}
	if got := s.call("GET", "/v1/corpus/"+*id, nil); got.text("note.body") != d.body+"\n\n"+shared+"\n" {
		complain(s, d, "the body did not come back byte for byte")
	}
}

func changes(s *site, i int, d document, id *string) {
	s.Helper()
	if *id == "" {
		return // it has been said
	}
	fresh := coined(i, "fresh")
	if a := s.call("PATCH", "/v1/corpus/"+*id, object{"body": "Now " + fresh + " " + shared}); a.status != 200 || a.at("indexed") != true {
		complain(s, d, "updated: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	if !hit(s, *id, fresh) {
		complain(s, d, "not found by its new word")
	}
	for _, old := range []string{d.phrase, `"` + d.phrase + `"`} {
		if hit(s, *id, old) {
			complain(s, d, "still found by its old phrase %s", old)
		}
	}
	if i%everyNth == 0 && !hit(s, *id, shared) {
		complain(s, d, "updated, not found by the word that all hold")
	}
}

func goes(s *site, i int, d document, id *string) {
	s.Helper()
	if *id == "" {
		return
	}
	if a := s.call("DELETE", "/v1/corpus/"+*id, nil); a.status != 200 || a.at("indexed") != true {
		complain(s, d, "deleted: %d %v %.300s", a.status, a.err, a.raw)
		return
	}
	for _, word := range []string{coined(i, "fresh"), d.phrase} {
		if hit(s, *id, word) {
			complain(s, d, "found by %s after it was deleted", word)
		}
	}
	if i%everyNth == 0 && hit(s, *id, shared) {
		complain(s, d, "deleted, found by the word that all hold")
	}
}
