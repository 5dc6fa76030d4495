package bench

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// floor is what the four steps from a write to its completion cost when they
// are four commits, one after the other, of next to nothing: write, fan-out,
// fetch, complete. Each is one round trip and flushes its WAL.
type floor struct {
	db   *pg.DB
	body func() string
}

const floorSchema = `
	CREATE SCHEMA floor;
	CREATE TABLE floor.notes (id uuid PRIMARY KEY, owner_id uuid NOT NULL, body text NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
	CREATE TABLE floor.events (id uuid PRIMARY KEY, type text NOT NULL, subject text NOT NULL, data jsonb NOT NULL, fanned_at timestamptz);
	CREATE TABLE floor.jobs (id uuid PRIMARY KEY, kind text NOT NULL, args jsonb NOT NULL, state text NOT NULL, attempted_at timestamptz, finished_at timestamptz)`

func (f floor) once(ctx context.Context) error {
	note, event := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	args := map[string]string{"note_id": note.String()}
	var write, fan pgx.Batch
	write.Queue(`INSERT INTO floor.notes (id, owner_id, body) VALUES ($1, $2, $3)`, note, uuid.Nil, f.body())
	write.Queue(`INSERT INTO floor.events (id, type, subject, data) VALUES ($1, 'note', $2, $3)`, event, note.String(), args)
	fan.Queue(`UPDATE floor.events SET fanned_at = now() WHERE id = $1`, event)
	fan.Queue(`INSERT INTO floor.jobs (id, kind, args, state) VALUES ($1, 'index', $2, 'available')`, event, args)
	for _, b := range []*pgx.Batch{&write, &fan} {
		if err := f.db.InTx(ctx, func(tx *pg.Tx) error { return tx.Last(ctx, b) }); err != nil {
			return err
		}
	}
	if _, err := f.db.Exec(ctx, `UPDATE floor.jobs SET state = 'running', attempted_at = now() WHERE id = $1`, event); err != nil {
		return err
	}
	_, err := f.db.Exec(ctx, `UPDATE floor.jobs SET state = 'completed', finished_at = now() WHERE id = $1`, event)
	return err
}
