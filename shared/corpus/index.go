package corpus

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"standmeet/shared/pg"
	"standmeet/shared/text"
)

// Source is what corpus.index reads of a note.
type Source struct {
	NoteID  uuid.UUID
	OwnerID uuid.UUID
	Version int64
	// Gone: the note was deleted, or its row erased. Its index row becomes a
	// tombstone.
	Gone       bool
	Genre      Genre
	Title      string
	Slug       string
	Path       string
	Body       string
	Tags       []string
	Aliases    []string
	Visibility Visibility
}

// ReadForIndex reads notes as they are now, in the order of ids. An id without
// a row is a note that was erased: its version is above every other. When most
// is not 0 it reads no more notes than have so many bytes of text together, but
// at least one.
func ReadForIndex(ctx context.Context, q pg.Querier, ids []uuid.UUID, most int) ([]Source, error) {
	rows, err := q.Query(ctx, `
		SELECT key, coalesce(owner_id, $2), coalesce(version, $3), id IS NULL OR deleted_at IS NOT NULL,
			coalesce(genre, ''), coalesce(title, ''), coalesce(slug, ''), coalesce(path, ''),
			coalesce(body, ''), coalesce(tags, '{}'), coalesce(aliases, '{}'), coalesce(visibility, '')
		FROM (
			SELECT k.id AS key, k.at, n.*, sum(octet_length(n.body)) OVER (ORDER BY k.at) AS bytes
			FROM unnest($1::uuid[]) WITH ORDINALITY AS k (id, at) LEFT JOIN notes n ON n.id = ANY ($1) AND n.id = k.id
		) AS n
		WHERE at = 1 OR $4 = 0 OR coalesce(bytes, 0) <= $4
		ORDER BY at`, ids, uuid.Nil, int64(math.MaxInt64), most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Source, err error) {
		err = row.Scan(&s.NoteID, &s.OwnerID, &s.Version, &s.Gone, &s.Genre, &s.Title, &s.Slug, &s.Path, &s.Body, &s.Tags, &s.Aliases, &s.Visibility)
		return s, err
	})
}

// IndexRow is what the search index holds of a note.
type IndexRow struct {
	NoteID  uuid.UUID
	OwnerID uuid.UUID
	Version int64
	Deleted bool
	// Truncated: some words of the note, or forms of them, don't find it.
	Truncated bool
	Lang      string
	// Words are all words of the note, Head those of title, aliases and tags.
	Words pgtype.TSVector
	Head  pgtype.TSVector
	Keys  []string
	Links []string
	Plain string
	// Terms belong in the vocabulary.
	Terms []string
}

const (
	// maxKey keeps a key below what an entry of a GIN index may hold.
	maxKey = 2_500
	// maxIndexedLinks bounds what one note adds to the index; links beyond make
	// no backlinks.
	maxIndexedLinks = 10_000
)

// BuildIndexRow analyses a note. It is pure computation, and all of an index
// job's.
func BuildIndexRow(s Source) IndexRow {
	row := IndexRow{NoteID: s.NoteID, OwnerID: s.OwnerID, Version: s.Version, Deleted: s.Gone}
	if s.Gone {
		return row
	}
	doc := text.Extract([]byte(s.Body))
	index := text.Analyze(text.Fields{
		Title: s.Title, Aliases: s.Aliases, Tags: s.Tags, URI: strings.ReplaceAll(s.Path, "/", " "),
		Headings: doc.Headings, Plain: doc.Plain,
	})
	row.Lang, row.Words, row.Head, row.Truncated, row.Plain, row.Terms = index.Lang, index.Words, index.Head, index.Truncated, doc.Plain, index.Terms
	row.Keys = []string{genreKey(s.Genre)}
	if s.Genre != Raw {
		row.Keys = append(row.Keys, visibilityKey(s.Visibility))
	}
	for _, name := range namesOf(s.Title, s.Slug, s.Path, s.Aliases) {
		row.Keys = append(row.Keys, nameKey(name))
	}
	for _, key := range tagKeys(s.Tags) {
		row.Keys = append(row.Keys, taggedKey(key))
	}
	for _, l := range doc.Links {
		if name := text.FoldName(cmp.Or(l.Whole, l.Target)); l.Target != "" && len(row.Links) < maxIndexedLinks {
			row.Links = append(row.Links, linkKeys(name)...)
		}
	}
	row.Keys, row.Links = usable(row.Keys), usable(row.Links)
	return row
}

// partOf marks a link's entry that is only a part of its target: the last one, or
// what stands before a fragment.
const partOf = "*/"

// linkKeys are the entries of a link with a folded target: the whole, and the
// parts by which it may be found.
func linkKeys(name string) []string {
	keys := []string{name}
	for _, t := range meanings(name) {
		for _, part := range []string{t.name, t.last} {
			if part != name && part != "" {
				keys = append(keys, partOf+part)
			}
		}
	}
	return keys
}

func genreKey(g Genre) string           { return "g:" + string(g) }
func visibilityKey(v Visibility) string { return "v:" + string(v) }
func taggedKey(key string) string       { return "t:" + key }
func nameKey(name string) string        { return "n:" + name }

// namesOf lists the folded names that a link may call a note by.
func namesOf(title, slug, path string, aliases []string) []string {
	names := []string{text.FoldName(title), text.FoldName(slug), text.FoldName(path)}
	for _, a := range aliases {
		names = append(names, text.FoldName(a))
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(s string) bool { return s == "" })
}

// usable sorts keys and drops repetitions and what the index can't hold.
func usable(keys []string) []string {
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(s string) bool { return len(s) > maxKey || strings.Contains(s, "\n") })
}

// WriteIndex adds words to the vocabulary and stores index rows, each unless the
// index already reflects a newer version of its note: a slow job of an old
// version changes nothing. Rows may come in any order, with no note twice. These
// are the last statements of tx.
func WriteIndex(ctx context.Context, tx *pg.Tx, terms []Term, rows []IndexRow) error {
	var b pgx.Batch
	queueTerms(&b, terms)
	queueRows(&b, rows)
	return tx.Last(ctx, &b)
}

func queueRows(b *pgx.Batch, rows []IndexRow) {
	if len(rows) == 0 {
		return
	}
	// every writer takes its rows in the same order, so that none deadlock
	rows = slices.SortedFunc(slices.Values(rows), func(a, b IndexRow) int { return slices.Compare(a.NoteID[:], b.NoteID[:]) })
	n := len(rows)
	notes, owners, versions, deleted, truncated := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n), make([]bool, n), make([]bool, n)
	langs, keys, links, plains := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	words, heads := make([]pgtype.TSVector, n), make([]pgtype.TSVector, n)
	for i, r := range rows {
		notes[i], owners[i], versions[i], deleted[i], truncated[i] = r.NoteID, r.OwnerID, r.Version, r.Deleted, r.Truncated
		langs[i], words[i], heads[i], plains[i] = r.Lang, r.Words, r.Head, r.Plain
		keys[i], links[i] = strings.Join(r.Keys, "\n"), strings.Join(r.Links, "\n")
	}
	b.Queue(`
		INSERT INTO note_search AS s (note_id, owner_id, version, deleted, truncated, lang, turn, words, head, keys, links, plain)
		SELECT note_id, owner_id, version, deleted, truncated, lang, turn, coalesce(words, ''), coalesce(head, ''),
			CASE WHEN deleted THEN '{}' ELSE string_to_array(keys, E'\n') || ARRAY['p11:' || (turn >> 11), 'p16:' || (turn >> 16), 'p21:' || (turn >> 21)] END,
			string_to_array(links, E'\n'), plain
		FROM (
			SELECT *, nextval('note_search_turn') AS turn
			FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::boolean[], $5::text[], $6::tsvector[], $7::tsvector[], $8::text[], $9::text[], $10::text[], $11::boolean[])
				AS r (note_id, owner_id, version, deleted, lang, words, head, keys, links, plain, truncated)
		) AS r
		ON CONFLICT (note_id) DO UPDATE SET
			version = excluded.version, deleted = excluded.deleted, truncated = excluded.truncated, lang = excluded.lang, turn = excluded.turn, words = excluded.words,
			head = excluded.head, keys = excluded.keys, links = excluded.links, plain = excluded.plain
		WHERE s.version < excluded.version`,
		notes, owners, versions, deleted, langs, words, heads, keys, links, plains, truncated)
}

// spanScales are the lengths of the spans of turns that a row has a key for, in
// bits: 2,048 turns to 2 million.
const spanScales = `'{11,16,21}'::int[]`

// spanKeySQL is the key of the span of length scale that holds a turn, or of the
// one that many before it.
func spanKeySQL(turn string, before int) string {
	return fmt.Sprintf(`('p' || scale || ':' || ((%s >> scale) - %d))`, turn, before)
}

// Term is a word of an owner's vocabulary, by which a misspelt word finds its
// like.
type Term struct {
	OwnerID uuid.UUID
	Word    string
}

func queueTerms(b *pgx.Batch, terms []Term) {
	if len(terms) == 0 {
		return
	}
	terms = slices.SortedFunc(slices.Values(terms), func(a, b Term) int {
		if c := slices.Compare(a.OwnerID[:], b.OwnerID[:]); c != 0 {
			return c
		}
		return strings.Compare(a.Word, b.Word)
	})
	owners, words := make([]uuid.UUID, len(terms)), make([]string, len(terms))
	for i, t := range terms {
		owners[i], words[i] = t.OwnerID, t.Word
	}
	b.Queue(`
		INSERT INTO search_terms (owner_id, term)
		SELECT * FROM unnest($1::uuid[], $2::text[]) ON CONFLICT DO NOTHING`, owners, words)
}

// Indexed reports whether the index reflects n, which is as it was read, or a
// later version.
func Indexed(ctx context.Context, q pg.Querier, n Note) (indexed bool, err error) {
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM note_search WHERE note_id = $1 AND version >= $2)`, n.ID, n.Version).Scan(&indexed)
	return indexed, pg.Fault(err)
}

// Truncated reports whether the index lacks some of the words of n, which has its
// body. Only of very long notes it does.
func Truncated(ctx context.Context, q pg.Querier, n Note) (truncated bool, err error) {
	// at most six bytes of index come of one of a text
	if n.Body == nil || len(*n.Body) < text.MaxIndexBytes/8 {
		return false, nil
	}
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM note_search WHERE note_id = $1 AND truncated)`, n.ID).Scan(&truncated)
	return truncated, pg.Fault(err)
}

// Behind counts the notes, of one and all below it, that have a version which
// the index doesn't know yet. Of a note in the trash, those below it are what
// its deletion took.
func Behind(ctx context.Context, q pg.Querier, owner, id uuid.UUID) (n int64, err error) {
	err = q.QueryRow(ctx, `
		WITH root AS (SELECT * FROM notes WHERE id = $1 AND owner_id = $2), changed AS (
			SELECT id, version FROM root
			UNION ALL
			SELECT n.id, n.version FROM root r JOIN notes n ON n.owner_id = $2 AND n.genre = r.genre AND n.genre <> 'raw' AND n.deleted_at IS NULL
				AND n.path >= r.path || '/' AND n.path < r.path || '0'
			WHERE r.deleted_at IS NULL
			UNION ALL
			SELECT n.id, n.version FROM root r JOIN notes n ON n.owner_id = $2 AND n.deleted_at = r.deleted_at AND n.deleted_with = r.id AND n.id <> r.id
		)
		SELECT count(*) FROM changed c LEFT JOIN note_search s ON s.note_id = c.id WHERE s.version IS NULL OR s.version < c.version`, id, owner).Scan(&n)
	return n, pg.Fault(err)
}
