package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/go-outbox/outbox/core"
)

// The SQL of the migrations, written for the table "outbox".
var (
	//go:embed migrations/0001_outbox.up.sql
	outboxUp string
	//go:embed migrations/0001_outbox.down.sql
	outboxDown string
)

// The bookkeeping of migrations.
const (
	createMigrationsSQL = `CREATE TABLE IF NOT EXISTS "outbox_migrations" (
		version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`
	dropMigrationsSQL = `DROP TABLE IF EXISTS "outbox_migrations"`
	versionSQL        = `SELECT ifnull(max(version), 0) FROM "outbox_migrations"`
	appliedSQL        = `INSERT INTO "outbox_migrations" (version, name, applied_at) VALUES (?, ?, ` + nowMillis + `)`
	undoneSQL         = `DELETE FROM "outbox_migrations" WHERE version = ?`
)

// Migrations is described at [core.Migrator].
func (s *Store) Migrations() []core.Migration {
	q := func(query string) string { return named(s.cfg.Table, query) }
	return []core.Migration{
		{Version: 1, Name: "outbox", Up: q(outboxUp), Down: q(outboxDown)},
	}
}

// SchemaVersion is described at [core.Migrator].
func (s *Store) SchemaVersion(ctx context.Context) (version int, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, named(s.cfg.Table, versionSQL)).Scan(&version)
	})
	switch {
	case errors.Is(err, core.ErrNotMigrated):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("sqlite: schema version: %w", err)
	}
	return version, nil
}

// Migrate is described at [core.Migrator]. All steps are one transaction: either all of them happen or none.
func (s *Store) Migrate(ctx context.Context, version int) ([]core.Migration, error) {
	all := s.Migrations()
	if version < 0 || version > len(all) {
		return nil, fmt.Errorf("sqlite: migrate: there is no version %d; this release knows 0 to %d", version, len(all))
	}
	var taken []core.Migration
	err := s.write(ctx, func(tx *sql.Tx) error {
		if err := s.exec(ctx, tx, createMigrationsSQL); err != nil {
			return err
		}
		var current int
		if err := tx.QueryRowContext(ctx, named(s.cfg.Table, versionSQL)).Scan(&current); err != nil {
			return err
		}
		if current > len(all) {
			return fmt.Errorf("the tables are at version %d, this release knows only %d; use a newer release",
				current, len(all))
		}
		var err error
		if version >= current {
			taken, err = s.up(ctx, tx, all[current:version])
		} else {
			taken, err = s.down(ctx, tx, all[version:current])
		}
		if err != nil || version > 0 {
			return err
		}
		return s.exec(ctx, tx, dropMigrationsSQL)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrate: %w", err)
	}
	return taken, nil
}

func (s *Store) up(ctx context.Context, tx *sql.Tx, steps []core.Migration) ([]core.Migration, error) {
	for _, m := range steps {
		if err := s.exec(ctx, tx, m.Up); err != nil {
			return nil, fmt.Errorf("up to version %d (%s): %w", m.Version, m.Name, err)
		}
		if err := s.exec(ctx, tx, appliedSQL, m.Version, m.Name); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (s *Store) down(ctx context.Context, tx *sql.Tx, steps []core.Migration) ([]core.Migration, error) {
	slices.Reverse(steps)
	for _, m := range steps {
		if err := s.exec(ctx, tx, m.Down); err != nil {
			return nil, fmt.Errorf("down from version %d (%s): %w", m.Version, m.Name, err)
		}
		if err := s.exec(ctx, tx, undoneSQL, m.Version); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// exec runs SQL written for the table "outbox" on the configured one.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, named(s.cfg.Table, query), args...)
	return err
}
