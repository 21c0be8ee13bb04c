package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/ordering"
)

// lockKey is an advisory lock of this table for a purpose. It is hashed from the qualified name, so that tables that
// share a database do not meet, nor do others who use small numbers. Nothing that publishes waits for one.
func (s *Store) lockKey(purpose string) int64 {
	return int64(ordering.Hash(s.cfg.names().qualified("outbox"), purpose)) //nolint:gosec // 60 bits
}

// holderSQL finds who holds an advisory lock. The server keeps the key in two halves.
const holderSQL = `
SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, '')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = ($1::bigint >> 32)::int8::oid AND l.objid = ($1::bigint & 4294967295)::oid
LIMIT 1`

// holder is the session that has a lock.
type holder struct {
	pid               int
	application, user string
}

func (h holder) String() string {
	return fmt.Sprintf("pid %d, application_name %q, user %q", h.pid, h.application, h.user)
}

// lockMigrations lets one process migrate at a time. Who has to wait says for whom: it may be a migration that takes
// long, but also a session that was forgotten, which a person has to end.
func (s *Store) lockMigrations(ctx context.Context, tx pgx.Tx) error {
	key := s.lockKey("migrate")
	var ours bool
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, simple, key).Scan(&ours); err != nil || ours {
		return err
	}
	var h holder
	err := tx.QueryRow(ctx, holderSQL, simple, key).Scan(&h.pid, &h.application, &h.user)
	known := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // no row: it was given back a moment ago
		return err
	}
	if known {
		s.cfg.Logger.Warn("another session holds the lock of the migrations, waiting for it", "table", s.cfg.Table,
			"lock", key, "pid", h.pid, "application_name", h.application, "user", h.user)
	}
	err = exec(ctx, tx, `SELECT pg_advisory_xact_lock($1)`, key)
	if err != nil && known {
		return fmt.Errorf("waited for the lock %d that another session held (%v) when the waiting began: let its migration finish, "+
			"or, if pg_locks shows that it still holds it, SELECT pg_terminate_backend(%d): %w", key, h, h.pid, err)
	}
	return err
}
