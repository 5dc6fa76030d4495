package pg

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"standmeet/migrations"
)

// migrateLock serialises every process that migrates one database.
const migrateLock = 7236174502873

// Migrate brings the database at url to the newest schema: River's tables
// first, since ours carry a trigger on them, then our own. Any number of
// processes may call it at once.
func Migrate(ctx context.Context, url string) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("pg: %w", err)
	}
	cfg.MaxConns = 4
	cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("pg: %w", err)
	}
	defer pool.Close()
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if _, err := c.Exec(ctx, `SELECT pg_advisory_lock($1)`, migrateLock); err != nil {
			return err
		}
		defer unlock(ctx, c.Conn())
		river, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("pg: River's migrations: %w", err)
		}
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		ours, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithLogger(goose.NopLogger()))
		if err != nil {
			return fmt.Errorf("pg: migrations: %w", err)
		}
		if _, err := ours.Up(ctx); err != nil {
			return fmt.Errorf("pg: migrations: %w", err)
		}
		return nil
	})
}

func unlock(ctx context.Context, c *pgx.Conn) {
	if _, err := c.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, migrateLock); err != nil {
		// the lock ends with the session
		_ = c.Close(context.WithoutCancel(ctx))
	}
}
