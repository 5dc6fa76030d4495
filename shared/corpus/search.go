package corpus

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/corpus/text"
	"standmeet/shared/pg"
)

const (
	// MaxQuery is the length of a query in code points.
	MaxQuery = 1_000
	// MaxSnippet is the length of a snippet in code points.
	MaxSnippet = 240

	// ranked is how many notes of each tier are ranked; the newest, when there are
	// more. phrased is the same for a query with quoted words, whose candidates
	// are also read.
	ranked  = 200
	phrased = 2_000
	// surveyed is how many of a tier are looked at for the newest.
	surveyed = 2_500
	// enough results to not look for other spellings
	enough = 3
	// how much of a note a snippet is looked for in, in characters
	snippetReach = 300_000
)

// SearchOptions say what to look for. Only Query is required.
type SearchOptions struct {
	Query string
	Genre Genre
	// Tag also admits the tags nested in it.
	Tag string
	// Seen, when not nil, are the visibilities that a visitor may see.
	Seen []Visibility
	// Skip that many results, and answer at most Limit; 0 is 20.
	Skip, Limit int
}

// Hit is a note that was found.
type Hit struct {
	Note    Note    `json:"note"`
	Snippet string  `json:"snippet" jsonschema:"the part of the text in which the words stand"`
	Score   float64 `json:"score" jsonschema:"higher is better; comparable within one answer"`
	Similar bool    `json:"similar,omitempty" jsonschema:"true when a word was only found in another spelling"`
}

// Search finds living notes in the index: all words must occur, titles count
// more than tags, tags more than paths and headings, these more than the body;
// equals go by recency. Of words that very many notes hold, the newest notes
// are ranked only, but titles are looked at apart from bodies. A word that no
// note holds stands for words that resemble it when there are fewer than 3
// results without.
//
// total counts what can be paged through, not all that match. A visitor finds a
// note only by the text that they may read now: from its change until its index
// row is new, it is not found.
//
// Faults: 400 naming query, when it is empty or too long.
func Search(ctx context.Context, db *pg.DB, owner uuid.UUID, o SearchOptions) (hits []Hit, total int, err error) {
	switch {
	case strings.TrimSpace(o.Query) == "":
		return nil, 0, invalid("q", "missing_field", "q needs words to look for.")
	case utf8.RuneCountInString(o.Query) > MaxQuery:
		return nil, 0, invalid("q", "too_long", "q may have 1000 letters at most.")
	case !utf8.ValidString(o.Query) || strings.IndexByte(o.Query, 0) >= 0:
		return nil, 0, invalid("q", "invalid_text", "q is not UTF-8, or holds U+0000.")
	}
	if o.Limit == 0 {
		o.Limit = 20
	}
	s := searcher{db: db, owner: owner, o: o}
	q := text.ParseQuery(o.Query)
	found, err := s.find(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	if len(found) < enough {
		similar, err := s.similar(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		if similar.TSQuery != q.TSQuery {
			more, err := s.find(ctx, similar)
			if err != nil {
				return nil, 0, err
			}
			for _, m := range more {
				if !slices.ContainsFunc(found, func(f result) bool { return f.id == m.id }) {
					m.similar = true
					found = append(found, m)
				}
			}
			q = similar
		}
	}
	total = len(found)
	found = found[min(o.Skip, total):]
	hits, err = s.read(ctx, q, found[:min(o.Limit, len(found))])
	return hits, total, err
}

type searcher struct {
	db    *pg.DB
	owner uuid.UUID
	o     SearchOptions
}

type result struct {
	id      uuid.UUID
	score   float64
	similar bool
}

// settings suit the queries below. Each is a few index scans whose cost the
// planner can't know: it would sometimes read the whole table, or compile.
const settings = `SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('pg_trgm.similarity_threshold', '0.2', true)`

// inSettings runs a query under the settings, in one round trip.
func (s *searcher) inSettings(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(settings)
	b.Queue(sql, args...).Query(read)
	return pg.Fault(s.db.Pool().SendBatch(ctx, &b).Close())
}

// find answers what matches, best first. The candidates come in tiers, each of
// them answered inside the GIN index. Notes that hold all words: the newest
// pages, and the rest only when these gave too few. If both did, notes with a
// word that begins with the last one. If there were more than are ranked, notes
// with the words in their head, so that no title is missed for its age.
func (s *searcher) find(ctx context.Context, q text.Query) ([]result, error) {
	most := ranked
	if len(q.Phrases) > 0 {
		most = phrased
	}
	args := []any{s.owner, q.TSQuery, most, max(surveyed, most), s.o.Seen, []string{nameKey(text.FoldName(s.o.Query))}, q.WholeWords().TSQuery}
	facets := "owner_id = $1"
	if s.o.Genre != "" {
		args = append(args, []string{genreKey(s.o.Genre)})
		facets += fmt.Sprintf(" AND keys @> $%d", len(args))
	}
	if key := tagKey(s.o.Tag); key != "" {
		args = append(args, []string{taggedKey(key)})
		facets += fmt.Sprintf(" AND keys @> $%d", len(args))
	}
	if s.o.Seen != nil {
		var seen []string
		for _, v := range s.o.Seen {
			seen = append(seen, visibilityKey(v))
		}
		args = append(args, seen)
		facets += fmt.Sprintf(" AND keys && $%d", len(args))
	}
	all := func(match string) string {
		return `SELECT note_id FROM (SELECT note_id, turn FROM note_search WHERE ` + facets + ` AND ` + match + ` LIMIT $4) AS t ORDER BY turn DESC LIMIT $3`
	}
	// IS TRUE keeps the planner from answering the last condition by the index
	// once more, for all notes.
	sql := `
		WITH page AS MATERIALIZED (
			SELECT ARRAY['p:' || (last_value >> 12), 'p:' || ((last_value >> 12) - 1)] AS newest FROM note_search_turn
		), named AS MATERIALIZED (
			SELECT note_id FROM note_search WHERE ` + facets + ` AND keys @> $6 LIMIT 50
		), newest AS MATERIALIZED (
			SELECT note_id FROM note_search WHERE ` + facets + ` AND words @@ $7::tsquery AND keys && (SELECT newest FROM page) LIMIT $3
		), older AS MATERIALIZED (
			` + all(`words @@ $7::tsquery AND (SELECT count(*) FROM newest) < $3`) + `
		), begun AS MATERIALIZED (
			` + all(`words @@ $2::tsquery AND $2 <> $7 AND (SELECT count(*) FROM newest) < $3 AND (SELECT count(*) FROM older) < $3`) + `
		), head AS MATERIALIZED (
			` + all(`head @@ $7::tsquery AND ((SELECT count(*) FROM newest) = $3 OR (SELECT count(*) FROM older) = $3)`) + `
		), candidate AS (
			SELECT note_id FROM named UNION SELECT note_id FROM newest UNION SELECT note_id FROM older
			UNION SELECT note_id FROM begun UNION SELECT note_id FROM head
		)
		SELECT n.id, ts_rank(s.words, $2::tsquery) + CASE WHEN s.note_id IN (SELECT note_id FROM named) THEN 1 ELSE 0 END AS score,
			CASE WHEN $3 > ` + strconv.Itoa(ranked) + ` THEN s.plain END
		FROM candidate c JOIN note_search s ON s.note_id = c.note_id JOIN notes n ON n.id = c.note_id
		WHERE n.owner_id = $1 AND n.deleted_at IS NULL AND ($2 = '' OR s.words @@ $2::tsquery) IS TRUE
			AND ($5::text[] IS NULL OR n.genre <> 'raw' AND n.visibility = ANY ($5) AND s.version = n.version)
		ORDER BY score DESC, n.updated_at DESC, n.id DESC`
	var found []result
	err := s.inSettings(ctx, func(rows pgx.Rows) error {
		var r result
		var plain *string
		_, err := pgx.ForEachRow(rows, []any{&r.id, &r.score, &plain}, func() error {
			if len(found) < 2*ranked && (plain == nil || q.MatchesPhrases(*plain)) {
				found = append(found, r)
			}
			return nil
		})
		return err
	}, sql, args...)
	return found, err
}

// similar gives the query with each word that no note holds widened to the
// words that resemble it. Trigrams find the candidates, generously, since two
// letters exchanged in a word of five leave it a fifth of them; near decides.
func (s *searcher) similar(ctx context.Context, q text.Query) (text.Query, error) {
	words := make([]string, len(q.Words))
	for i, w := range q.Words {
		if w.IsTerm() {
			words[i] = w.Folded
		}
	}
	alternatives := make([][]string, len(words))
	err := s.inSettings(ctx, func(rows pgx.Rows) error {
		var i int
		var term string
		_, err := pgx.ForEachRow(rows, []any{&i, &term}, func() error {
			if near(words[i], term) {
				alternatives[i] = append(alternatives[i], term)
			}
			return nil
		})
		return err
	}, `
		SELECT w.i - 1, t.term FROM unnest($2::text[]) WITH ORDINALITY AS w (word, i), LATERAL (
			SELECT t.term FROM search_terms t WHERE t.owner_id = $1 AND t.term % w.word AND abs(length(t.term) - length(w.word)) <= 3
			ORDER BY similarity(t.term, w.word) DESC, t.term LIMIT 100
		) AS t
		WHERE w.word <> '' AND NOT EXISTS (SELECT FROM search_terms e WHERE e.owner_id = $1 AND e.term = w.word)`, s.owner, words)
	if err != nil {
		return q, err
	}
	for i, a := range alternatives {
		if len(a) > 0 {
			q = q.Expand(i, a)
		}
	}
	return q, nil
}

// near reports whether two words differ by no more than slips of the pen: one
// in a short word, two from 6 letters on, three from 10. A slip is a letter
// added, left out or replaced, or two neighbours exchanged (optimal string
// alignment, Damerau 1964).
func near(a, b string) bool {
	x, y := []rune(a), []rune(b)
	most := 1
	if n := len(x); n >= 10 {
		most = 3
	} else if n >= 6 {
		most = 2
	}
	var before, last []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before, last, row = last, row, make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(y)] <= most
}

// read turns results into hits, in their order.
func (s *searcher) read(ctx context.Context, q text.Query, found []result) ([]Hit, error) {
	hits := make([]Hit, 0, len(found))
	if len(found) == 0 {
		return hits, nil
	}
	ids := make([]uuid.UUID, len(found))
	for i, f := range found {
		ids[i] = f.id
	}
	rows, err := s.db.Query(ctx, `
		SELECT `+withoutBody+`, k.at - 1, left(s.plain, $2)
		FROM unnest($1::uuid[]) WITH ORDINALITY AS k (id, at)
		JOIN notes n ON n.id = k.id JOIN note_search s ON s.note_id = k.id
		WHERE n.deleted_at IS NULL AND ($3::text[] IS NULL OR n.genre <> 'raw' AND n.visibility = ANY ($3) AND s.version = n.version)
		ORDER BY k.at`, ids, snippetReach, s.o.Seen)
	if err != nil {
		return nil, err
	}
	hits, err = pgx.AppendRows(hits, rows, func(row pgx.CollectableRow) (h Hit, err error) {
		var at int
		var plain string
		err = h.Note.scan(row, &at, &plain)
		if err == nil {
			h.Snippet, h.Score, h.Similar = text.Snippet(plain, q, MaxSnippet), found[at].score, found[at].similar
		}
		return h, err
	})
	return hits, pg.Fault(err)
}
