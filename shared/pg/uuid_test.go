package pg_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pgtest"
)

func TestUUIDs(t *testing.T) {
	t.Parallel()
	db := pgtest.DB(t)
	want := []uuid.UUID{uuid.New(), {}, uuid.Must(uuid.NewV7())}
	rows, err := db.Query(t.Context(), `SELECT * FROM unnest($1::uuid[])`, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	var one, null uuid.UUID
	var pointer, none *uuid.UUID
	var list []uuid.UUID
	var text string
	err = db.QueryRow(t.Context(), `SELECT $1::uuid, NULL::uuid, $2::uuid, $3::uuid, $4::uuid[], $1::uuid::text`, want[0], &want[2], (*uuid.UUID)(nil), want).
		Scan(&one, &null, &pointer, &none, &list, &text)
	if err != nil || one != want[0] || null != (uuid.UUID{}) || pointer == nil || *pointer != want[2] || none != nil || len(list) != 3 || list[2] != want[2] || text != want[0].String() {
		t.Errorf("got %v %v %v %v %v %v, %v", one, null, pointer, none, list, text, err)
	}
}

func BenchmarkUUIDs(b *testing.B) {
	db := pgtest.DB(b)
	ids := make([]uuid.UUID, 1000)
	for b.Loop() {
		if _, err := db.Exec(b.Context(), `SELECT count(*) FROM unnest($1::uuid[])`, ids); err != nil {
			b.Fatal(err)
		}
	}
}
