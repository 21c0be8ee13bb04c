package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-outbox/outbox/core"
)

// The SQLSTATEs that a person can do something about.
const (
	undefinedTable     = "42P01"
	undefinedSchema    = "3F000"
	undefinedColumn    = "42703"
	undefinedFunction  = "42883"
	wrongType          = "42804"
	readOnly           = "25006"
	notInRecovery      = "55000"
	unknownStatement   = "26000"
	duplicateStatement = "42P05"
	checkViolation     = "23514"
	uniqueViolation    = "23505"
	noSuchConstraint   = "42P10"
	lockNotAvailable   = "55P03"

	insufficientPrivilege = "42501"
)

// explain adds what a person can do about a database error, and drops connections to a server that has become a
// standby.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	if s.closing.Err() != nil {
		return fmt.Errorf("%w: %w", core.ErrClosed, err)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case undefinedTable, undefinedSchema, undefinedColumn, undefinedFunction:
		return fmt.Errorf("%w with `outbox migrate up` or Store.Migrate (%s: %w)", core.ErrNotMigrated,
			s.cfg.names().qualified("outbox"), err)
	case readOnly, notInRecovery:
		s.pool.Reset()
		return fmt.Errorf("the server is read-only, a standby perhaps; connecting anew: %w", err)
	case unknownStatement, duplicateStatement:
		return fmt.Errorf("a pooler in transaction mode swaps connections; set Config.Pooler, and "+
			"default_query_exec_mode=exec in the DSN of a pool given to New: %w", err)
	case wrongType:
		return fmt.Errorf("is Config.Payload (%s) what the table was created with: %w", s.cfg.Payload, err)
	case noSuchConstraint:
		return fmt.Errorf("is Config.Partitioned (%t) what the table was created with: %w", s.cfg.Partitioned, err)
	case uniqueViolation:
		if pg.ConstraintName == s.cfg.names().prefixed("outbox_pkey") {
			return fmt.Errorf("%w (%s)", err, pg.Detail) // names the event id
		}
	case checkViolation:
		return s.explainCheck(pg, err)
	}
	return err
}

// explainCheck tells a row without a partition from one that breaks a constraint, which has a name.
func (s *Store) explainCheck(pg *pgconn.PgError, err error) error {
	if pg.ConstraintName != "" {
		return err
	}
	s.monthsUntil.Store(0)
	return fmt.Errorf("no partition takes the row; dispatchers make them two months ahead, by hand it is "+
		"SELECT %s(now()): %w", s.cfg.names().qualified("outbox_month"), err)
}
