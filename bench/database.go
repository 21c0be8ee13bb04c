package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/store/postgres"
)

// database is a PostgreSQL with a schema of our own that every scenario starts anew in.
type database struct {
	url, schema string
	pool        *pgxpool.Pool
	lock        *pgxpool.Conn // holds the right to be here
}

func openDatabase(ctx context.Context, url string) (*database, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 2 * writers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	d := &database{url: url, schema: "outbox_bench", pool: pool}
	if err := d.alone(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// alone makes sure that no other bench uses the database: it would empty our tables, and spoil the figures anyway. The
// right lasts as long as the pool.
func (d *database) alone(ctx context.Context) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	var ok bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtext($1))", d.schema).Scan(&ok); err != nil || !ok {
		conn.Release()
		return errors.Join(errors.New("another bench runs on this database"), err)
	}
	d.lock = conn
	return nil
}

func (d *database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	if d.lock != nil {
		_, _ = d.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+d.schema+" CASCADE")
		_ = d.lock.Hijack().Close(ctx) // gives the lock up
	}
	d.pool.Close()
}

// table is a quoted name in the schema.
func (d *database) table(name string) string { return pgx.Identifier{d.schema, name}.Sanitize() }

// reset empties the schema, and settles what earlier scenarios left to be written to disk.
func (d *database) reset(ctx context.Context) error {
	for _, sql := range []string{
		"DROP SCHEMA IF EXISTS " + d.schema + " CASCADE", "CREATE SCHEMA " + d.schema, "CHECKPOINT",
	} {
		if _, err := d.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// outbox empties the schema and makes an outbox; close the store.
func (d *database) outbox(ctx context.Context, after postgres.AfterPublish) (*postgres.Store, error) {
	if err := d.reset(ctx); err != nil {
		return nil, err
	}
	s, err := postgres.New(d.pool, postgres.Config{
		Schema: d.schema, AfterPublish: after, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	steps := s.Migrations()
	_, err = s.Migrate(ctx, steps[len(steps)-1].Version)
	return s, err
}

// insertSQL is an INSERT into the outbox from a source that gives g; the topic is $3.
func (d *database) insertSQL(m load.Mix) string {
	return fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, topic, payload)
		SELECT 'order', %s, 'order.created', $3, %s FROM`, d.table("outbox"), m.KeySQL(), m.BodySQL())
}

// fill inserts a backlog into the outbox.
func (d *database) fill(ctx context.Context, topic string, rows int, m load.Mix) error {
	if err := load.Insert(ctx, d.pool, d.insertSQL(m), 1, rows, topic); err != nil {
		return err
	}
	_, err := d.pool.Exec(ctx, "VACUUM ANALYZE "+d.table("outbox"))
	return err
}

// fillAtOnce inserts a backlog in one transaction, which begins with first: running dispatchers find all of it at once.
func (d *database) fillAtOnce(ctx context.Context, topic string, rows int, first func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if err := first(tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, d.insertSQL(load.Uniform)+" generate_series($1::int, $2::int) g ORDER BY g", 1, rows, topic)
		return err
	})
}

// walPosition is how much the server has written to its log.
func (d *database) walPosition(ctx context.Context) (bytes int64, err error) {
	err = d.pool.QueryRow(ctx, `SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&bytes)
	return bytes, err
}

// unpublished says how many rows wait and which, to tell what was not dispatched from what was lost later.
func (d *database) unpublished() string {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	var count int
	var first, last *int64
	err := d.pool.QueryRow(ctx, "SELECT count(*), min(id), max(id) FROM "+d.table("outbox")+
		" WHERE published_at IS NULL").Scan(&count, &first, &last)
	switch {
	case err != nil:
		return err.Error()
	case count == 0:
		return "0"
	default:
		return fmt.Sprintf("%d, ids %d to %d", count, *first, *last)
	}
}
