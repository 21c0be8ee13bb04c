package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// The steps, with the names in braces.
var (
	//go:embed migrations/0001_outbox.up.sql
	outboxUp string
	//go:embed migrations/0001_outbox.down.sql
	outboxDown string
	//go:embed migrations/0001_months.up.sql
	monthsUp string
	//go:embed migrations/0001_months.down.sql
	monthsDown string
	//go:embed migrations/0002_archive.up.sql
	archiveUp string
	//go:embed migrations/0002_archive.down.sql
	archiveDown string
)

// Migrations is described at [core.Migrator]. Whoever applies the SQL by other means keeps track of the versions too:
// [Store.SchemaVersion] and [Store.Migrate] know of their own steps only.
func (s *Store) Migrations() []core.Migration {
	n := s.cfg.names()
	up, down := outboxUp, outboxDown
	if s.cfg.Partitioned {
		up, down = up+monthsUp, monthsDown+down
	}
	return []core.Migration{
		{Version: 1, Name: "outbox", Up: n.sql(up), Down: n.sql(down)},
		{Version: 2, Name: "archive", Up: n.sql(archiveUp), Down: n.sql(archiveDown)},
	}
}

// SchemaVersion is described at [core.Migrator].
func (s *Store) SchemaVersion(ctx context.Context) (int, error) {
	var version int
	err := s.transact(ctx, step{sql: s.queries.version, read: one(&version)})
	switch {
	case errors.Is(err, core.ErrNotMigrated):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("postgres: schema version: %w", err)
	}
	return version, nil
}

// Migrate is described at [core.Migrator]. All steps are one transaction: either all of them happen or none.
// While another session has the lock of the migrations, it logs who that is and waits until ctx ends.
func (s *Store) Migrate(ctx context.Context, version int) ([]core.Migration, error) {
	all := s.Migrations()
	if version < 0 || version > len(all) {
		return nil, fmt.Errorf("postgres: migrate: there is no version %d; this release knows 0 to %d", version, len(all))
	}
	if s.closing.Err() != nil {
		return nil, fmt.Errorf("postgres: migrate: %w", core.ErrClosed)
	}
	var taken []core.Migration
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		taken, err = s.migrate(ctx, tx, all, version)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: migrate: %w", err)
	}
	return taken, nil
}

func (s *Store) migrate(ctx context.Context, tx pgx.Tx, all []core.Migration, version int) ([]core.Migration, error) {
	if err := exec(ctx, tx, pathSQL); err != nil {
		return nil, err
	}
	if err := s.lockMigrations(ctx, tx); err != nil {
		return nil, err
	}
	if err := exec(ctx, tx, s.cfg.names().sql(createMigrationsSQL)); err != nil {
		return nil, err
	}
	var current int
	if err := tx.QueryRow(ctx, s.queries.version, simple).Scan(&current); err != nil {
		return nil, err
	}
	if current > len(all) {
		return nil, fmt.Errorf("the tables are at version %d, this release knows only %d; use a newer release",
			current, len(all))
	}
	if err := s.checkTable(ctx, tx); err != nil {
		return nil, err
	}
	steps, query, args := all[min(current, version):max(current, version)], appliedSQL, true
	if version < current {
		slices.Reverse(steps)
		query, args = undoneSQL, false
	}
	for _, m := range steps {
		change, with := m.Up, []any{m.Version, m.Name}
		if !args {
			change, with = m.Down, with[:1]
		}
		if err := exec(ctx, tx, change); err != nil {
			return nil, fmt.Errorf("step %d (%s): %w", m.Version, m.Name, err)
		}
		if err := exec(ctx, tx, s.cfg.names().sql(query), with...); err != nil {
			return nil, err
		}
	}
	if version > 0 {
		return steps, nil
	}
	return steps, exec(ctx, tx, s.cfg.names().sql(dropMigrationsSQL))
}

// checkTable refuses a configuration that does not fit the table.
func (s *Store) checkTable(ctx context.Context, tx pgx.Tx) error {
	var payload Payload
	var partitioned bool
	err := tx.QueryRow(ctx, s.queries.tableType, simple).Scan(&payload, &partitioned)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	var faults []error
	if payload != s.cfg.Payload {
		faults = append(faults, &core.FieldError{
			Path: "Payload", Reason: fmt.Sprintf("the table was created with %s, not %s", payload, s.cfg.Payload),
		})
	}
	if partitioned != s.cfg.Partitioned {
		faults = append(faults, &core.FieldError{
			Path: "Partitioned", Reason: fmt.Sprintf("the table was created with %t, not %t", partitioned, s.cfg.Partitioned),
		})
	}
	return errors.Join(faults...)
}

// simple sends a statement as text: several at once, and no prepared statement is left behind.
const simple = pgx.QueryExecModeSimpleProtocol

func exec(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	_, err := tx.Exec(ctx, query, append([]any{simple}, args...)...)
	return err
}
