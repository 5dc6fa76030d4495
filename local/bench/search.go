package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"standmeet/local/stack"
	"standmeet/shared/corpus"
	"standmeet/shared/pg"
)

// indexed fills up to n notes and waits until all are indexed.
func (b *bench) indexed(ctx context.Context, db *pg.DB, from, n int) error {
	if err := b.fill(ctx, db, from, n); err != nil {
		return err
	}
	err := until(ctx, 200*time.Millisecond, func() (bool, error) {
		var done int
		err := db.QueryRow(ctx, `SELECT count(*) FROM note_search`).Scan(&done)
		return done == n, err
	})
	return err
}

// search measures B7, by one searcher and with nothing else running.
func (b *bench) search(ctx context.Context) error {
	if b.Quick && b.Only == nil {
		return nil
	}
	const n = 100_000
	return b.inDatabase(ctx, "search", func(url string, db *pg.DB) (err error) {
		s, err := stack.Start(ctx, stack.Options{URL: url}, stack.Parts{Gateway: true, Relay: true, Workers: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		size := func() (bytes int64, err error) {
			err = db.QueryRow(ctx, `SELECT pg_indexes_size('note_search') + pg_total_relation_size('search_terms')`).Scan(&bytes)
			return bytes, err
		}
		if err := b.indexed(ctx, db, 0, n/2); err != nil {
			return err
		}
		half, err := size()
		if err != nil {
			return err
		}
		if err := b.indexed(ctx, db, n/2, n); err != nil {
			return err
		}
		whole, err := size()
		if err != nil {
			return err
		}
		if _, err := db.Exec(ctx, `VACUUM ANALYZE note_search`); err != nil {
			return err
		}
		owner, err := b.owner(ctx, db)
		if err != nil {
			return err
		}
		detail := map[string]any{"index_bytes_half": half, "index_bytes": whole, "growth": round(float64(whole)/float64(half), 2)}
		var all []time.Duration
		var found int
		kinds := b.queries(200)
		for _, kind := range []string{"common common", "common rare", "rare rare"} {
			var took []time.Duration
			for pass := range 2 { // the first warms up
				for _, q := range kinds[kind] {
					began := time.Now()
					r, err := corpus.Search(ctx, s.DB, owner, corpus.SearchOptions{Query: q})
					if err != nil {
						return err
					}
					if pass == 1 {
						took, found = append(took, time.Since(began)), found+min(len(r.Hits), 1)
					}
				}
			}
			detail[kind] = map[string]any{"p50_ms": round(quantile(took, 0.5), 2), "p95_ms": round(quantile(took, 0.95), 2)}
			all = append(all, took...)
		}
		detail["found"] = fmt.Sprintf("%d of %d", found, len(all))
		b.report.Figures["B7"] = Figure{
			What: fmt.Sprintf("search p95, two words, %d notes", n), Unit: "ms", Value: round(quantile(all, 0.95), 2), P99: round(quantile(all, 0.99), 2), Rounds: 1,
			Goal: "p95 ≤ 20 ms, linear growth", Detail: detail,
		}.judge(func(f Figure) bool { return f.Value <= 20 && float64(whole) <= 2.2*float64(half) })
		return nil
	})
}

var word = regexp.MustCompile(`\b[a-z]{4,14}\b`)

// queries are pairs of words that stand in one note: very frequent ones, and
// ones that few notes hold.
func (b *bench) queries(n int) map[string][]string {
	in := map[string]int{}
	words := func(note string) []string {
		found := word.FindAllString(strings.ToLower(note), -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	for _, note := range b.sample.notes {
		for _, w := range words(note) {
			in[w]++
		}
	}
	kinds := map[string][]string{}
	add := func(kind, a, b string) {
		if a != "" && b != "" && a != b && len(kinds[kind]) < n {
			kinds[kind] = append(kinds[kind], a+" "+b)
		}
	}
	for i := 0; i < len(b.sample.notes); i += 7 {
		byCount := slices.SortedFunc(slices.Values(words(b.sample.notes[i])), func(a, b string) int { return cmp.Compare(in[b], in[a]) })
		rare := slices.DeleteFunc(slices.Clone(byCount), func(w string) bool { return in[w] > len(b.sample.notes)/1000 })
		if len(byCount) < 2 || len(rare) < 2 {
			continue
		}
		add("common common", byCount[0], byCount[1])
		add("common rare", byCount[0], rare[0])
		add("rare rare", rare[0], rare[1])
	}
	return kinds
}
