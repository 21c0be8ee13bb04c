package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Store             = (*Store)(nil)
	_ core.Waker             = (*Store)(nil)
	_ core.Migrator          = (*Store)(nil)
	_ core.FingerprintKeeper = (*Store)(nil)
)

// Store is the outbox in a SQLite file. Safe for concurrent use; but see the package comment on what may be called
// while a transaction is open. Make one with [Open] or [New].
type Store struct {
	cfg     Config
	queries queries
	writer  *sql.DB
	reader  *sql.DB // the writer itself when the pool is the caller's
	owned   bool
	closed  atomic.Bool
	cursor  cursor
	alarm   alarm
	watch   watch
	pace    pace
}

func newStore(cfg Config, writer, reader *sql.DB, owned bool) *Store {
	s := &Store{
		cfg: cfg, queries: newQueries(cfg.Table, cfg.AfterPublish), writer: writer, reader: reader, owned: owned,
	}
	if owned {
		s.watch.db = reader
	}
	return s
}

// DB returns the pool that writes: the one given to New, or the single connection of an opened Store, for the
// application's own transactions. They begin immediate and, with the single connection, wait for each other instead
// of failing. The Store keeps the ownership: do not close it, and do not use it after Close.
func (s *Store) DB() *sql.DB { return s.writer }

// Close closes the connections that Open made; a pool given to New stays open. Later calls return core.ErrClosed.
func (s *Store) Close() error {
	if s.closed.Swap(true) || !s.owned {
		return nil
	}
	s.watch.close()
	if err := errors.Join(s.reader.Close(), s.writer.Close()); err != nil {
		return fmt.Errorf("sqlite: close: %w", err)
	}
	return nil
}

// write runs fn in a transaction that holds the write lock from its beginning.
func (s *Store) write(ctx context.Context, fn func(*sql.Tx) error) error {
	if err := s.pace.wait(ctx); err != nil {
		return err
	}
	return s.transact(ctx, s.writer, nil, func(tx *sql.Tx) error {
		begun := time.Now()
		defer func() { s.pace.held(time.Since(begun)) }()
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// read runs fn in one snapshot of the database, without any lock.
func (s *Store) read(ctx context.Context, fn func(*sql.Tx) error) error {
	return s.transact(ctx, s.reader, &sql.TxOptions{ReadOnly: true}, fn)
}

// transact runs fn in a transaction, which is rolled back unless fn commits it.
func (s *Store) transact(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(*sql.Tx) error) error {
	if s.closed.Load() {
		return core.ErrClosed
	}
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return s.explain(err)
	}
	defer func() { _ = tx.Rollback() }()
	err = fn(tx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // database/sql has rolled back, and its error only says that the transaction is gone
	}
	return s.explain(err)
}

// explain adds what a person can do about a database error.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case s.closed.Load():
		return fmt.Errorf("%w: %w", core.ErrClosed, err)
	case s.missingSchema(err):
		return fmt.Errorf("%w with `outbox migrate up` or Store.Migrate (table %q: %w)",
			core.ErrNotMigrated, s.cfg.Table, err)
	}
	return err
}

// missingSchema reports whether err says that one of our tables, columns or indexes does not exist. All drivers pass
// SQLite's text on; its code is the general one for wrong SQL. The name is looked at as a transaction of the caller
// may have other tables missing.
func (s *Store) missingSchema(err error) bool {
	text := err.Error()
	return strings.Contains(text, "no such table: "+s.cfg.Table) ||
		strings.Contains(text, "no such index: "+s.cfg.Table) ||
		strings.Contains(text, "no such column: ") ||
		strings.Contains(text, "has no column named ")
}
