package bench

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"standmeet/shared/pg"
)

// floor is what the four steps from a write to its completion cost when they
// are four commits, one after the other, and nothing else: write, fan-out,
// fetch, complete. They write the rows that any design on River writes, by
// primary key, in tables like the product's but without triggers; each is one
// round trip that flushes its WAL. Nobody is told, waits, or indexes.
type floor struct {
	db   *pg.DB
	body func() string
}

const floorSchema = `
	CREATE SCHEMA floor;
	CREATE TABLE floor.notes (LIKE notes INCLUDING ALL);
	CREATE TABLE floor.events (LIKE events INCLUDING ALL);
	CREATE TABLE floor.event_queue (LIKE event_queue INCLUDING ALL);
	CREATE TABLE floor.tasks (LIKE tasks INCLUDING ALL);
	CREATE TABLE floor.jobs (LIKE reference.river_job INCLUDING ALL)`

func (f floor) once(ctx context.Context) error {
	note, event, owner := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.UUID{}
	args := map[string]string{"note_id": note.String()}
	var write, fan, fetch, complete pgx.Batch
	write.Queue(`INSERT INTO floor.notes (id, owner_id, genre, body) VALUES ($1, $2, 'raw', $3)`, note, owner, f.body())
	write.Queue(`INSERT INTO floor.events (id, type, owner_id, subject, data) VALUES ($1, 'note', $2, $3, $4)`, event, owner, note.String(), args)
	write.Queue(`INSERT INTO floor.event_queue (event_id) VALUES ($1)`, event)
	fan.Queue(`DELETE FROM floor.event_queue WHERE event_id = $1`, event)
	var job int64
	fan.Queue(`
		WITH job AS (
			INSERT INTO floor.jobs (kind, queue, max_attempts, args) VALUES ('index', 'index', 12, $1) RETURNING id
		)
		INSERT INTO floor.tasks (event_id, subscriber, owner_id, subject, job_id) SELECT $2, 'index', $3, $4, id FROM job RETURNING job_id`,
		args, event, owner, note.String()).QueryRow(func(row pgx.Row) error { return row.Scan(&job) })
	for _, b := range []*pgx.Batch{&write, &fan} {
		if err := f.db.InTx(ctx, func(tx *pg.Tx) error { return tx.Last(ctx, b) }); err != nil {
			return err
		}
	}
	fetch.Queue(`UPDATE floor.jobs SET state = 'running', attempt = attempt + 1, attempted_at = now(), attempted_by = array_append(attempted_by, 'floor') WHERE id = $1`, job)
	complete.Queue(`UPDATE floor.jobs SET state = 'completed', finalized_at = now() WHERE id = $1`, job)
	complete.Queue(`UPDATE floor.tasks SET state = 'completed', finished_at = now() WHERE event_id = $1 AND subscriber = 'index'`, event)
	for _, b := range []*pgx.Batch{&fetch, &complete} {
		if err := f.db.InTx(ctx, func(tx *pg.Tx) error { return tx.Last(ctx, b) }); err != nil {
			return err
		}
	}
	return nil
}
