package obsidian_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	notes "standmeet/shared/corpus"
)

// Whatever is done here and in the vault, an export imports to all unchanged, and
// every note is where its path says. RANDOM_SEEDS is how many histories to try.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	seeds := 2
	if n, err := strconv.Atoi(os.Getenv("RANDOM_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { history(t, rand.New(rand.NewPCG(uint64(seed), 7))) })
	}
}

func history(t *testing.T, r *rand.Rand) {
	h := setup(t)
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	ids := func() []uuid.UUID {
		rows, err := h.db.Query(t.Context(), `SELECT id FROM notes WHERE owner_id = $1 AND deleted_at IS NULL AND genre <> 'raw' ORDER BY id`, h.me)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	body := func() string {
		return one("", "text", "#tag text", "---\na: b\n---\nx", "---\n", "%%c%% [[A]]", "\uFEFFx", "line\r\nline", "```\n#no\n```") + strconv.Itoa(r.IntN(4))
	}
	front := func() string {
		return one("", "", "---\npublish: true\n---\n", "---\ntags: a, b\naliases: [q, r]\nx: {y: [1]}\n---\n", "---\ntitle: "+one("A", "Other", "a/b", "'x: #y'")+"\n---\n", "---\nbroken: [\n---\n", "---\nslug: "+one("s", "t")+"\npublish: false\n---\n")
	}
	title := func() string { return one("A", "B", "C++", "c++", "a/b", "..", "index", "F", "Ü", "con") }
	path := func() string {
		return one("wiki/", "wiki/", "", "output/", "raw/", "Top/") + one("", "", "F/", "F/G/", "A/", "index/") + one("A", "B", "F", "G", "index", "u\u0308", "x y") + ".md"
	}
	// what may be refused by a rule is
	try := func(method, p string, in object) {
		raw, _ := json.Marshal(in)
		if status, answer, _ := h.send(h.me, method, p, "application/json", raw); status >= 500 {
			t.Fatalf("%s %s %s: %d %s", method, p, raw, status, answer)
		}
	}
	for step := range 14 {
		all := ids()
		switch what := r.IntN(8); {
		case what < 3 || len(all) == 0:
			var files []object
			for range 1 + r.IntN(5) {
				files = append(files, file(path(), front()+body()))
			}
			try("POST", "/v1/obsidian/import", object{"files": files, "authoritative": r.IntN(3) == 0, "overwrite": r.IntN(3) == 0})
		case what == 3:
			in := object{"genre": one("wiki", "output", "raw"), "title": title(), "body": body(), "visibility": one("private", "public", "coded")}
			if in["genre"] == "raw" {
				delete(in, "visibility")
			} else if r.IntN(2) == 0 {
				in["parent_id"] = all[r.IntN(len(all))]
			}
			try("POST", "/v1/corpus", in)
		case what == 4:
			try("DELETE", "/v1/corpus/"+all[r.IntN(len(all))].String(), object{})
		case what == 5:
			try("PATCH", "/v1/corpus/"+all[r.IntN(len(all))].String(), object{"parent_id": []any{nil, all[r.IntN(len(all))]}[r.IntN(2)]})
		default:
			in := object{}
			for _, c := range []struct {
				field string
				value any
			}{{"title", title()}, {"body", body()}, {"tags", []string{one("a", "b", "tag")}}, {"aliases", []string{one("A", "z", "x, y")}}, {"visibility", one("private", "public", "coded")}} {
				if r.IntN(2) == 0 {
					in[c.field] = c.value
				}
			}
			try("PATCH", "/v1/corpus/"+all[r.IntN(len(all))].String(), in)
		}
		if r.IntN(3) == 0 || step == 13 {
			h.again()
		}
		if n := h.count(`SELECT count(*) FROM notes n LEFT JOIN notes p ON p.id = n.parent_id WHERE n.genre <> 'raw' AND n.deleted_at IS NULL AND
			(n.path IS DISTINCT FROM coalesce(p.path || '/', '') || n.slug OR p.deleted_at IS NOT NULL OR p.genre <> n.genre)`); n > 0 {
			t.Fatalf("step %d: %d notes are not where their paths say", step, n)
		}
		if t.Failed() {
			_, files := h.export()
			t.Fatalf("step %d: %s", step, fmt.Sprintf("%q", files))
		}
	}
	before := map[uuid.UUID]notes.Note{}
	for _, id := range ids() {
		before[id] = h.get(id).Note
	}
	// another owner gets the same texts
	raw, files := h.export()
	h.me, h.other = h.other, h.me
	a := h.importZip(raw)
	if a.Created != len(files) || a.Unchanged+a.Updated != 0 {
		for _, e := range a.Errors {
			t.Logf("%+v", e)
		}
	}
	bodies := map[string]int{}
	for _, n := range before {
		bodies[*n.Body]++
	}
	for _, id := range ids() {
		bodies[*h.get(id).Note.Body]--
	}
	for body, n := range bodies {
		if n > 0 && body != "" && len(a.Errors) == 0 {
			t.Errorf("%d notes with the text %q did not come over", n, body)
		}
	}
}
