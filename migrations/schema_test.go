package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"standmeet/shared/golden"
	"standmeet/shared/pg"
	"standmeet/shared/pgtest"
)

// The schema as PostgreSQL's catalogs describe it: ours, and of River's what
// ours builds on. Read from the catalogs instead of pg_dump, whose text changes
// with its version.
func TestGoldenSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	const ours = `c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'goose%'`
	sections := []struct{ title, sql string }{
		{"extensions", `SELECT extname::text FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY 1`},
		{"columns", `
			SELECT format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
				CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
				coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
				LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE ` + ours + ` AND c.relkind = 'r' ORDER BY c.relname, a.attnum`},
		{"indexes", `
			SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
			WHERE ` + ours + ` ORDER BY 1`},
		{"constraints", `
			SELECT format('%s %s: %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
			FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE ` + ours + ` ORDER BY 1`},
		{"settings", `
			SELECT format('%s: %s', c.relname, array_to_string(c.reloptions, ', '))
			FROM pg_class c WHERE ` + ours + ` AND c.reloptions IS NOT NULL ORDER BY 1`},
		{"triggers", `
			SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
			WHERE ` + ours + ` AND NOT t.tgisinternal ORDER BY 1`},
		{"functions", `
			SELECT pg_get_functiondef(p.oid) FROM pg_proc p
			WHERE p.pronamespace = 'public'::regnamespace
				AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY p.proname`},
	}
	var b strings.Builder
	for _, s := range sections {
		rows, err := db.Query(t.Context(), s.sql)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "-- %s\n%s\n\n", s.title, strings.Join(lines, "\n"))
	}
	golden.Check(t, "schema.golden.sql", []byte(b.String()))
}

func TestMigratingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for range 2 {
		if err := pg.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
}
