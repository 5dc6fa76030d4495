package text

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/pgtest"
)

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), "CREATE TEMP TABLE found (name text, words tsvector, plain text)")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func store(t *testing.T, conn *pgx.Conn, name, body string) {
	t.Helper()
	plain := Extract([]byte(body)).Plain
	if _, err := conn.Exec(t.Context(), "INSERT INTO found VALUES ($1, $2, $3)", name, Analyze(Fields{Plain: plain}).Words, plain); err != nil {
		t.Fatal(err)
	}
}

func search(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	q := ParseQuery(query)
	rows, err := conn.Query(t.Context(), "SELECT name, plain FROM found, CAST($1::text AS tsquery) q WHERE words @@ q ORDER BY ts_rank(words, q) DESC, name", q.TSQuery)
	if err != nil {
		t.Fatal(err)
	}
	type note struct{ Name, Plain string }
	notes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[note])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range notes {
		if q.MatchesPhrases(n.Plain) {
			names = append(names, n.Name)
		}
	}
	return names
}

// Case C2: one- and two-character words, half-width kana.
func TestPostgresShortWords(t *testing.T) {
	var c struct {
		Notes   map[string]string
		Queries map[string][]string
	}
	readJSON(t, "c2.json", &c)
	conn := connect(t)
	for name, body := range c.Notes {
		store(t, conn, name, body)
	}
	for q, want := range c.Queries {
		if got := search(t, conn, q); !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", q, got, want)
		}
	}
}

// Case C3: a query of two scripts asks for both words.
func TestPostgresMixedScripts(t *testing.T) {
	var c struct {
		Notes   map[string]string
		Queries map[string]struct {
			First string
			All   []string `json:"must_include"`
		}
	}
	readJSON(t, "c3.json", &c)
	conn := connect(t)
	for name, body := range c.Notes {
		store(t, conn, name, body)
	}
	for q, want := range c.Queries {
		got := search(t, conn, q)
		if want.First != "" && (len(got) == 0 || got[0] != want.First || slices.Contains(got, "m2")) {
			t.Errorf("%s finds %v, want %s first and m2 never", q, got, want.First)
		}
		for _, name := range want.All {
			if !slices.Contains(got, name) {
				t.Errorf("%s finds %v, want %s too", q, got, name)
			}
		}
	}
}

// PostgreSQL reads every literal, as it was meant.
func TestPostgresLiterals(t *testing.T) {
	conn := connect(t)
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "it's \\ a 'quoted' & | ! ( ) : * <-> word:1A,2B", "a\x00b\xff"}
	for _, body := range hostile(3000) {
		texts = append(texts, body)
	}
	for range 200 {
		texts = append(texts, randomText(random))
	}
	for _, s := range texts {
		ix := Analyze(Fields{Title: s, Tags: []string{s, "a/" + s}, URI: s, Plain: s})
		var lexemesOf int
		if err := conn.QueryRow(t.Context(), "SELECT length($1::tsvector)", ix.Words).Scan(&lexemesOf); err != nil {
			t.Fatalf("%q: %v: %s", s, err, ix.Words.String())
		}
		if want := len(lexemes(ix.Words.String())); lexemesOf != want {
			t.Errorf("%q: PostgreSQL reads %d lexemes, want %d: %s", s, lexemesOf, want, ix.Words.String())
		}
		// The tests that know no database go by the literal; the head is what its
		// weights say.
		var same bool
		if err := conn.QueryRow(t.Context(), "SELECT $1::tsvector = $2::text::tsvector AND $3::tsvector = ts_filter($1::tsvector, '{a,b}')",
			ix.Words, ix.Words.String(), ix.Head).Scan(&same); err != nil || !same {
			t.Errorf("%q: %v: not what %s says", s, err, ix.Words.String())
		}
		q := ParseQuery(s)
		var matched bool
		if err := conn.QueryRow(t.Context(), "SELECT $1::tsvector @@ $2::text::tsquery", ix.Words, q.TSQuery).Scan(&matched); err != nil {
			t.Fatalf("%q: %v: %s", s, err, q.TSQuery)
		}
		if want := matches(lexemes(ix.Words.String()), q); matched != want {
			t.Errorf("%q: PostgreSQL says %v: %s in %s", s, matched, q.TSQuery, ix.Words.String())
		}
	}
}

func randomText(r *rand.Rand) string {
	alphabet := []rune("aabbcßéЖй設計ガｶﾞ々ーสั한🔥🇩👩\u200D\u0301'’\\\"“”#-+_.:*&|!()<>/@\x00 \n  12")
	var b strings.Builder
	for range 1 + r.IntN(60) {
		b.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

// Notes of the largest size, of all-different words.
func TestPostgresLargest(t *testing.T) {
	conn := connect(t)
	random := rand.New(rand.NewPCG(3, 4))
	var latin, han, code strings.Builder
	for latin.Len() < 1<<20 {
		for range 3 + random.IntN(8) {
			latin.WriteByte(byte('a' + random.IntN(26)))
		}
		latin.WriteByte(' ')
	}
	for han.Len() < 1<<20 {
		han.WriteRune(rune(0x4E00 + random.IntN(0x5000)))
	}
	for code.Len() < 1<<20 {
		code.WriteString("a" + string(rune('a'+random.IntN(26))) + "_" + randomText(random) + ".")
	}
	for _, s := range []string{latin.String(), han.String(), code.String()} {
		ix := Analyze(Fields{Title: "title", Plain: s})
		var size int
		if err := conn.QueryRow(t.Context(), "SELECT pg_column_size($1::tsvector)", ix.Words).Scan(&size); err != nil {
			t.Fatalf("%.20q: %v", s, err)
		}
		t.Logf("%.20q: %d lexemes in %d bytes, %d words in it", s, len(ix.Words.Lexemes), size, len(ix.Terms))
		// the limit is on words and positions; each entry takes 4 bytes besides
		if size-4*len(ix.Words.Lexemes) > MaxIndexBytes+64 {
			t.Errorf("%.20q: %d bytes", s, size)
		}
	}
}
