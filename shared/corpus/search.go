package corpus

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
	"standmeet/shared/text"
)

const (
	// MaxQuery is the length of a query in code points.
	MaxQuery = 1_000
	// MaxSnippet is the length of a snippet in code points.
	MaxSnippet = 240

	// ranked is how many notes of each tier are ranked, the newest. phrased is the
	// same for a query with quoted words, whose candidates are also read.
	ranked  = 200
	phrased = 2_000
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
	// From is where the page begins; its zero value is the best result.
	From SearchPosition
	// Limit is how many results to answer at most; 0 is 20.
	Limit int
}

// SearchPosition is a place among the results: behind so many ranked ones, or,
// behind all of these, among the rest before a turn of the index.
type SearchPosition struct {
	Skip uint16 `json:"s,omitempty"`
	Turn int64  `json:"t,omitempty"`
}

// Results are a page of what was found.
type Results struct {
	Hits []Hit
	// Total is how many there are on all pages; at least, when AtLeast is set.
	Total   int
	AtLeast bool
	// Next is where the next page begins; nil on the last one. A page that isn't
	// the last may hold fewer results than asked for.
	Next *SearchPosition
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
// equals go by recency. The last word may be the beginning of one. When that
// gives fewer than 3 results, notes follow in which any word is the beginning of
// one, and then those in which a word that no note holds is one that resembles
// it.
//
// Every match is on one of the pages. The ranked ones come first: all matches
// where there are few, else the 200 that were indexed last, the 200 with the
// words in title, aliases or tags, and those named as the query. All others
// follow, last indexed first. So a note that was just indexed is among the
// ranked ones, and any other one that holds the words is reached by paging, as
// long as it isn't changed meanwhile.
//
// A visitor finds a note only by the text that they may read now: from its
// change until its index row is new, it is not found. What other notes hold
// changes nothing in their results.
//
// Faults: 400 naming q, when it is too long or asks for nothing.
func Search(ctx context.Context, db *pg.DB, owner uuid.UUID, o SearchOptions) (r Results, err error) {
	switch {
	case utf8.RuneCountInString(o.Query) > MaxQuery:
		return r, invalid("q", "too_long", "q may have 1000 letters at most.")
	case !utf8.ValidString(o.Query) || strings.IndexByte(o.Query, 0) >= 0:
		return r, invalid("q", "invalid_text", "q is not UTF-8, or holds U+0000.")
	}
	q := text.ParseQuery(o.Query)
	if q.TSQuery == "" {
		return r, invalid("q", "missing_field", "q needs a word to look for: signs alone find nothing, nor do words that must not occur.")
	}
	if o.Limit == 0 {
		o.Limit = 20
	}
	s, strict := searcher{db: db, owner: owner, o: o}, q
	found, all, err := s.find(ctx, q, q.WholeWords(), strict)
	if err != nil {
		return r, err
	}
	if all && len(found) < enough {
		strict = q.Beginnings()
		wide, err := s.similar(ctx, strict)
		if err != nil {
			return r, err
		}
		if wide.TSQuery != q.TSQuery {
			var more []result
			if more, all, err = s.find(ctx, wide, wide, strict); err != nil {
				return r, err
			}
			for _, m := range more {
				if !slices.ContainsFunc(found, func(f result) bool { return f.id == m.id }) {
					found = append(found, m)
				}
			}
			q = wide
		}
	}
	r.Total, r.AtLeast = len(found), !all
	var page []result
	switch skip := min(int(o.From.Skip), len(found)); {
	case o.From.Turn == 0:
		page = found[skip:min(skip+o.Limit, len(found))]
		if next := skip + len(page); next < len(found) {
			r.Next = &SearchPosition{Skip: uint16(next)}
		} else if !all {
			r.Next = &SearchPosition{Turn: math.MaxInt64}
		}
	case !all:
		if page, r.Next, err = s.rest(ctx, q, strict, found); err != nil {
			return r, err
		}
	}
	r.Hits, err = s.read(ctx, q, page)
	return r, err
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
// planner can't know: it would sometimes read the whole table, or compile. A
// parallel plan would not go through the spans of newest in their order.
const settings = `SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true),
	set_config('max_parallel_workers_per_gather', '0', true), set_config('pg_trgm.similarity_threshold', '0.2', true)`

// inSettings runs a query under the settings, in one round trip.
func (s *searcher) inSettings(ctx context.Context, read func(pgx.Rows) error, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(settings)
	b.Queue(sql, args...).Query(read)
	return pg.Fault(s.db.Pool().SendBatch(ctx, &b).Close())
}

// arguments collects the arguments of a statement.
type arguments []any

func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// facets is the condition on an index row of being of the owner, the genre and
// the tag, and seen.
func (s *searcher) facets(args *arguments) string {
	sql := "s.owner_id = " + args.add(s.owner)
	if s.o.Genre != "" {
		sql += " AND s.keys @> " + args.add([]string{genreKey(s.o.Genre)})
	}
	if key := tagKey(s.o.Tag); key != "" {
		sql += " AND s.keys @> " + args.add([]string{taggedKey(key)})
	}
	if s.o.Seen != nil {
		var seen []string
		for _, v := range s.o.Seen {
			seen = append(seen, visibilityKey(v))
		}
		sql += " AND s.keys && " + args.add(seen)
	}
	return sql
}

// visible is the condition of being there for the reader, on a note n and its
// index row s.
func (s *searcher) visible(args *arguments) string {
	sql := "n.deleted_at IS NULL"
	if s.o.Seen != nil {
		sql += " AND n.genre <> 'raw' AND n.visibility = ANY (" + args.add(s.o.Seen) + ") AND s.version = n.version"
	}
	return sql
}

// spanSQL are the spans of turns below a turn, from short to long: the keys by
// which the index finds their rows, and what of each the shorter ones don't
// hold. low is where the longest begins.
func spanSQL(before string) string {
	return `span AS MATERIALIZED (
		SELECT * FROM (
			SELECT scale, ARRAY[` + spanKeySQL("top", 0) + `, ` + spanKeySQL("top", 1) + `] AS keys,
				coalesce(lag(((top >> scale) - 1) << scale) OVER (ORDER BY scale), ` + before + `) AS high,
				((top >> scale) - 1) << scale AS low
			FROM (SELECT least(last_value, ` + before + ` - 1) AS top FROM note_search_turn) AS t, unnest(` + spanScales + `) AS scale
		) AS s WHERE high > 0 ORDER BY scale
	)`
}

// newest are the ids and turns of the limit index rows that were written last,
// of those that meet a condition. The index answers the condition for a span of
// turns, the shortest first, and Limit stops as soon as there are enough: of
// words that very many notes hold few rows are read, and of rare ones all spans
// together hold few.
func newest(condition, limit string) string {
	return `SELECT note_id, turn FROM (
		SELECT t.* FROM span, LATERAL (
			SELECT note_id, turn FROM note_search s WHERE ` + condition + ` AND keys && span.keys AND turn < span.high ORDER BY turn DESC LIMIT ` + limit + `
		) AS t
		UNION ALL
		(SELECT note_id, turn FROM note_search s WHERE ` + condition + ` AND turn < (SELECT min(low) FROM span) AND (SELECT min(low) FROM span) > 0 ORDER BY turn DESC LIMIT ` + limit + `)
	) AS t LIMIT ` + limit
}

// plainSQL is the text that the phrases of a query are looked for in, if any.
func plainSQL(q text.Query) string {
	if len(q.Phrases) == 0 {
		return "NULL::text"
	}
	return "s.plain"
}

// find answers the ranked matches, best first; those that only q matches and
// strict doesn't come last, as similar. all tells that there are no others.
//
// The candidates come in tiers, each of them answered inside the GIN index: the
// newest notes that match first, which is q or narrower and cheaper to look up;
// if there are few, the newest that match q; if there are more than are ranked,
// those that match first by their head, so that no title is missed for its age.
func (s *searcher) find(ctx context.Context, q, first, strict text.Query) (found []result, all bool, err error) {
	most := ranked
	if len(q.Phrases) > 0 {
		most = phrased
	}
	var args arguments
	limit := args.add(most) + "::int"
	begun, whole := args.add(q.TSQuery)+"::tsquery", args.add(first.TSQuery)+"::tsquery"
	facets := s.facets(&args)
	count := func(tier string) string { return "(SELECT count(*) FROM " + tier + ")" }
	// IS TRUE keeps the planner from answering the last condition by the index
	// once more, for all notes.
	sql := `
		WITH ` + spanSQL(strconv.Itoa(math.MaxInt64)) + `, named AS MATERIALIZED (
			SELECT note_id FROM note_search s WHERE ` + facets + ` AND keys @> ` + args.add([]string{nameKey(text.FoldName(s.o.Query))}) + ` ORDER BY turn DESC LIMIT 50
		), whole AS MATERIALIZED (
			` + newest(facets+" AND words @@ "+whole, limit) + `
		), begun AS MATERIALIZED (
			` + newest(facets+" AND words @@ "+begun+" AND "+args.add(q.TSQuery != first.TSQuery)+"::boolean AND "+count("whole")+" < "+limit, limit) + `
		), head AS MATERIALIZED (
			` + newest(facets+" AND head @@ "+whole+" AND "+count("whole")+" = "+limit, limit) + `
		), candidate AS (
			SELECT note_id FROM named UNION SELECT note_id FROM whole UNION SELECT note_id FROM begun UNION SELECT note_id FROM head
		)
		SELECT ` + count("whole") + ` < ` + limit + ` AND ` + count("begun") + ` < ` + limit + `, r.*
		FROM (VALUES (true)) AS one LEFT JOIN (
			SELECT n.id, ts_rank(s.words, ` + begun + `) + CASE WHEN s.note_id IN (SELECT note_id FROM named) THEN 1 ELSE 0 END AS score,
				NOT s.words @@ ` + args.add(strict.TSQuery) + `::tsquery AS loose, ` + plainSQL(q) + ` AS plain, n.updated_at
			FROM candidate c JOIN note_search s ON s.note_id = c.note_id JOIN notes n ON n.id = c.note_id
			WHERE ` + s.visible(&args) + ` AND (s.words @@ ` + begun + `) IS TRUE
		) AS r ON true
		ORDER BY loose, score DESC, updated_at DESC, id DESC`
	err = s.inSettings(ctx, func(rows pgx.Rows) error {
		var id *uuid.UUID
		var score *float64
		var similar *bool
		var plain *string
		_, err := pgx.ForEachRow(rows, []any{&all, &id, &score, &similar, &plain, nil}, func() error {
			if id != nil && (plain == nil || q.MatchesPhrases(*plain)) {
				found = append(found, result{*id, *score, *similar})
			}
			return nil
		})
		return err
	}, sql, args...)
	return found, all, err
}

// rest answers the matches that are not ranked, last indexed first, and where
// the next page begins.
func (s *searcher) rest(ctx context.Context, q, strict text.Query, ranked []result) (page []result, next *SearchPosition, err error) {
	ids := make([]uuid.UUID, len(ranked))
	for i, r := range ranked {
		ids[i] = r.id
	}
	size := s.o.Limit
	if len(q.Phrases) > 0 {
		size = phrased
	}
	var args arguments
	limit, before := args.add(size)+"::int", args.add(s.o.From.Turn)+"::bigint"
	match := args.add(q.TSQuery) + "::tsquery"
	sql := `
		WITH ` + spanSQL(before) + `, rest AS MATERIALIZED (
			` + newest(s.facets(&args)+" AND words @@ "+match+" AND note_id NOT IN (SELECT unnest("+args.add(ids)+"::uuid[]))", limit) + `
		)
		SELECT r.note_id, r.turn, ts_rank(s.words, ` + match + `), NOT s.words @@ ` + args.add(strict.TSQuery) + `::tsquery, ` + plainSQL(q) + `, ` + s.visible(&args) + `
		FROM rest r JOIN note_search s ON s.note_id = r.note_id JOIN notes n ON n.id = r.note_id
		ORDER BY r.turn DESC`
	err = s.inSettings(ctx, func(rows pgx.Rows) error {
		var r result
		var turn int64
		var plain *string
		var visible bool
		n := 0
		_, err := pgx.ForEachRow(rows, []any{&r.id, &turn, &r.score, &r.similar, &plain, &visible}, func() error {
			if len(page) == s.o.Limit {
				return nil
			}
			if n++; visible && (plain == nil || q.MatchesPhrases(*plain)) {
				page = append(page, r)
			}
			if n == size || len(page) == s.o.Limit {
				next = &SearchPosition{Turn: turn}
			}
			return nil
		})
		return err
	}, sql, args...)
	return page, next, err
}

// similar gives the query with each word that no note holds widened to the
// words that resemble it. Trigrams find the candidates, generously, since two
// letters exchanged in a word of five leave it a fifth of them; near decides.
//
// A visitor must not learn from it what other notes hold: of all words that
// resemble theirs, those count that stand in notes which they may see.
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
			ORDER BY similarity(t.term, w.word) DESC, t.term LIMIT CASE WHEN $3 THEN NULL ELSE 100 END
		) AS t
		WHERE w.word <> '' AND ($3 OR NOT EXISTS (SELECT FROM search_terms e WHERE e.owner_id = $1 AND e.term = w.word))`,
		s.owner, words, s.o.Seen != nil)
	if err != nil {
		return q, err
	}
	if s.o.Seen != nil {
		held, err := s.held(ctx, append(slices.Concat(alternatives...), words...))
		if err != nil {
			return q, err
		}
		for i, word := range words {
			alternatives[i] = slices.DeleteFunc(alternatives[i], func(term string) bool { return held[word] || !held[term] })
		}
	}
	for i, a := range alternatives {
		if len(a) > 0 {
			q = q.Expand(i, a)
		}
	}
	return q, nil
}

// held tells which of the terms stand in notes that the visitor may see.
func (s *searcher) held(ctx context.Context, terms []string) (map[string]bool, error) {
	var args arguments
	held := map[string]bool{}
	err := s.inSettings(ctx, func(rows pgx.Rows) error {
		var term string
		_, err := pgx.ForEachRow(rows, []any{&term}, func() error { held[term] = true; return nil })
		return err
	}, `
		SELECT k.term FROM unnest(`+args.add(terms)+`::text[]) AS k (term)
		WHERE k.term <> '' AND EXISTS (
			SELECT FROM note_search s JOIN notes n ON n.id = s.note_id
			WHERE s.words @@ quote_literal(k.term)::tsquery AND `+s.facets(&args)+` AND `+s.visible(&args)+`
		)`, args...)
	return held, err
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
