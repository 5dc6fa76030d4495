package corpus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"standmeet/shared/pg"
	"standmeet/shared/text"
)

const benchNotes = 100_000

// BenchmarkSearch100k searches 100,000 notes of one owner (B7: p95 of two words
// ≤ 20 ms). Words are drawn by Zipf's law; "system data" stand in every note.
func BenchmarkSearch100k(b *testing.B) {
	w := newWorld(b)
	words := fill(w, benchNotes)
	word := func(r *rand.Rand, from, to int) string { return words[from+r.IntN(to-from)] }
	for _, c := range []struct {
		name  string
		query func(r *rand.Rand) SearchOptions
	}{
		{"common", func(*rand.Rand) SearchOptions { return SearchOptions{Query: "system data "} }},
		{"frequent", func(r *rand.Rand) SearchOptions { return SearchOptions{Query: word(r, 0, 30) + " " + word(r, 0, 30)} }},
		{"medium", func(r *rand.Rand) SearchOptions {
			return SearchOptions{Query: word(r, 30, 1000) + " " + word(r, 30, 1000)}
		}},
		{"rare", func(r *rand.Rand) SearchOptions {
			return SearchOptions{Query: word(r, 1000, 20_000) + " " + word(r, 0, 20_000)}
		}},
		{"misspelt", func(r *rand.Rand) SearchOptions {
			q := []byte(word(r, 100, 20_000))
			q[len(q)/2]++
			return SearchOptions{Query: string(q) + " system "}
		}},
		{"genre", func(*rand.Rand) SearchOptions { return SearchOptions{Query: "system data", Genre: Output} }},
		{"tag", func(r *rand.Rand) SearchOptions {
			return SearchOptions{Query: "system data", Tag: fmt.Sprint("topic/t", r.IntN(500))}
		}},
		{"visitor", func(*rand.Rand) SearchOptions { return SearchOptions{Query: "system data", Seen: []Visibility{Public}} }},
		{"phrase", func(r *rand.Rand) SearchOptions {
			return SearchOptions{Query: `"` + word(r, 0, 300) + " " + word(r, 0, 300) + `"`}
		}},
		{"han", func(*rand.Rand) SearchOptions { return SearchOptions{Query: "部署方案"} }},
		{"one letter", func(*rand.Rand) SearchOptions { return SearchOptions{Query: "部"} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			var took []time.Duration
			hits := 0
			for b.Loop() {
				o := c.query(r)
				start := time.Now()
				found, err := Search(b.Context(), w.db, w.owner, o)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				hits += len(found.Hits)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
			b.ReportMetric(float64(hits)/float64(len(took)), "hits")
		})
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if _, _, _, err := List(b.Context(), w.db, w.owner, Filter{Tag: "topic/t7"}, Position{}, 50); err != nil {
				b.Fatal(err)
			}
		}
	})
	var size string
	if err := w.db.QueryRow(b.Context(), `SELECT pg_size_pretty(pg_relation_size('note_search_find_idx')) || ' index, ' || pg_size_pretty(pg_total_relation_size('note_search')) || ' in all, '
		|| pg_size_pretty(pg_total_relation_size('notes')) || ' notes, ' || (SELECT count(*) FROM search_terms) || ' terms'`).Scan(&size); err != nil {
		b.Fatal(err)
	}
	b.Log(size)
}

// BenchmarkCreate is one writer's commit of a note with its event.
func BenchmarkCreate(b *testing.B) {
	w := newWorld(b)
	parent := w.wiki("parent", nil)
	i := 0
	for name, d := range map[string]Draft{"raw": {Genre: Raw}, "wiki": {Genre: Wiki}, "child": {Genre: Wiki, ParentID: &parent.ID}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				i++
				d.Title, d.Body = fmt.Sprint(name, " ", i), "some words"
				if _, err := w.create(d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// fill makes n indexed notes and answers the words that they are made of, by
// falling frequency.
func fill(w *world, n int) []string {
	r := rand.New(rand.NewPCG(3, 4))
	words := make([]string, 20_000)
	for i := range words {
		const consonants, vowels = "bcdfghklmnprstvw", "aeiou"
		var s strings.Builder
		for range 2 + r.IntN(3) {
			s.WriteByte(consonants[r.IntN(len(consonants))])
			s.WriteByte(vowels[r.IntN(len(vowels))])
			s.WriteByte(consonants[r.IntN(len(consonants))])
		}
		words[i] = s.String()
	}
	zipf := rand.NewZipf(r, 1.1, 10, uint64(len(words)-1))
	ctx := w.t.Context()
	start := time.Now()
	const batch = 1000
	for first := 0; first < n; first += batch {
		sources := make([]Source, batch)
		for i := range sources {
			var body strings.Builder
			body.WriteString("# About this system\n\nWhere data is, ")
			for range 60 + r.IntN(240) {
				body.WriteString(words[zipf.Uint64()])
				body.WriteByte(" \n"[min(1, r.IntN(12)/11)])
			}
			if i%10 == 0 {
				body.WriteString("\n\n系统部署方案与认知负荷")
			}
			title := fmt.Sprintf("%s %s %d", words[zipf.Uint64()], words[zipf.Uint64()], first+i)
			slug, _ := text.Slug(title)
			sources[i] = Source{
				NoteID: uuid.Must(uuid.NewV7()), OwnerID: w.owner, Version: 1, Genre: []Genre{Wiki, Wiki, Output}[i%3], Title: title, Slug: slug, Path: slug,
				Body: body.String(), Tags: []string{fmt.Sprint("topic/t", r.IntN(500))}, Aliases: []string{}, Visibility: []Visibility{Private, Public}[min(1, i%100/99)],
			}
		}
		rows := make([]IndexRow, batch)
		var group errgroup.Group
		group.SetLimit(2)
		for i, s := range sources {
			group.Go(func() error { rows[i] = BuildIndexRow(s); return nil })
		}
		_ = group.Wait()
		known := map[Term]bool{}
		for _, row := range rows {
			for _, t := range row.Terms {
				known[Term{row.OwnerID, t}] = true
			}
		}
		var terms []Term
		for t := range known {
			terms = append(terms, t)
		}
		if err := w.tx(func(tx *pg.Tx) error {
			raw, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := raw.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil { // no events
				return err
			}
			if _, err := raw.CopyFrom(ctx, pgx.Identifier{"notes"},
				[]string{"id", "owner_id", "genre", "title", "title_key", "slug", "path", "body", "tags", "tag_keys", "aliases", "visibility"},
				pgx.CopyFromSlice(batch, func(i int) ([]any, error) {
					s := sources[i]
					return []any{s.NoteID, s.OwnerID, string(s.Genre), s.Title, text.TitleKey(s.Title), s.Slug, s.Path, s.Body, s.Tags, tagKeys(s.Tags), s.Aliases, string(s.Visibility)}, nil
				})); err != nil {
				return err
			}
			return WriteIndex(ctx, tx, terms, rows)
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Logf("%d notes written and indexed in %v", n, time.Since(start).Round(time.Second))
	if _, err := w.db.Exec(ctx, `ANALYZE`); err != nil {
		w.t.Fatal(err)
	}
	return words
}
