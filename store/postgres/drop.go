package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// month is a partition that ended long enough ago.
type month struct {
	name string // qualified and quoted
	rows int    // as the server estimates
}

// dropMonths drops the months that can go, and returns how many rows they had.
func (s *Store) dropMonths(ctx context.Context, olderThan time.Duration) (rows int, err error) {
	if s.cfg.Partitioned {
		rows, err = s.dropMonthsOf(ctx, "outbox", olderThan)
	}
	if err == nil && s.cfg.AfterPublish == Archive {
		var n int
		n, err = s.dropMonthsOf(ctx, "outbox_archive", olderThan)
		rows += n
	}
	return rows, err
}

func (s *Store) dropMonthsOf(ctx context.Context, table string, olderThan time.Duration) (rows int, err error) {
	over, err := s.monthsOver(ctx, table, olderThan)
	if err != nil {
		return 0, err
	}
	for _, m := range over {
		dropped, err := s.dropMonth(ctx, table, m, olderThan)
		if err != nil {
			return rows, fmt.Errorf("drop %s: %w", m.name, err)
		}
		if dropped {
			rows += m.rows
			s.cfg.Logger.Info("dropped a month that was old enough", "partition", m.name, "rows_about", m.rows)
		}
	}
	return rows, nil
}

func (s *Store) monthsOver(ctx context.Context, table string, olderThan time.Duration) (over []month, err error) {
	args := []any{s.cfg.names().qualified(table), olderThan}
	err = s.transact(ctx, step{sql: monthsOverSQL, args: args, read: func(rows pgx.Rows) error {
		var m month
		_, err := pgx.ForEachRow(rows, []any{&m.name, &m.rows}, func() error {
			over = append(over, m)
			return nil
		})
		return err
	}})
	return over, err
}

// dropMonth drops a partition if nothing in it is needed any more. In the outbox that takes two looks: a long one with
// nothing locked, and a short one under the lock, as events may have been requeued meanwhile.
func (s *Store) dropMonth(ctx context.Context, table string, m month, olderThan time.Duration) (dropped bool, err error) {
	again := ""
	if table == "outbox" {
		var needed bool
		look := step{sql: fmt.Sprintf(neededSQL, m.name), args: []any{olderThan}, read: one(&needed)}
		if err := s.transact(ctx, look); err != nil || needed {
			return false, err
		}
		again = fmt.Sprintf(unsettledSQL, m.name)
	}
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		dropped, err = s.dropIn(ctx, tx, s.cfg.names().qualified(table), m.name, again)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && slices.Contains(notNow, pg.Code) {
		s.cfg.Logger.Warn("a month that is old enough cannot be dropped now, deleting its rows",
			"partition", m.name, "error", err)
		return false, nil
	}
	return dropped && err == nil, s.explain(err)
}

// notNow are the errors after which rows are deleted instead.
var notNow = []string{lockNotAvailable, undefinedTable, insufficientPrivilege}

// dropIn drops the partition unless the query finds something in it, or somebody else purges. The wait for the locks is
// short, as all who write to the table stand behind the one who waits.
func (s *Store) dropIn(ctx context.Context, tx pgx.Tx, parent, partition, unless string) (bool, error) {
	var alone, needed bool
	err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, simple, s.lockKey("purge")).Scan(&alone)
	if err != nil || !alone {
		return false, err
	}
	for _, statement := range []string{
		pathSQL, `SET LOCAL lock_timeout = '200ms'`,
		`LOCK TABLE ONLY ` + parent + ` IN ACCESS EXCLUSIVE MODE`, `LOCK TABLE ` + partition + ` IN ACCESS EXCLUSIVE MODE`,
	} {
		if err := exec(ctx, tx, statement); err != nil {
			return false, err
		}
	}
	if unless != "" {
		if err := tx.QueryRow(ctx, unless, simple).Scan(&needed); err != nil || needed {
			return false, err
		}
	}
	return true, exec(ctx, tx, `DROP TABLE `+partition)
}
