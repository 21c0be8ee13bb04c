package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

var (
	_ core.Store    = (*Store)(nil)
	_ core.Waker    = (*Store)(nil)
	_ core.Migrator = (*Store)(nil)
)

// Store is the outbox in a PostgreSQL database. Safe for concurrent use by any number of dispatchers and enqueuers.
// Make one with [Open] or [New].
type Store struct {
	cfg     Config
	queries queries
	pool    *pgxpool.Pool
	owned   bool
	pooler  *pooler
	waker   *waker

	closing context.Context // ends with Close
	close   context.CancelFunc

	mu     sync.Mutex // guards cursor
	cursor cursor.Cursor

	largeRows   atomic.Int64 // how many of the next fetches are cut by the database, as there were large rows
	leaseTTL    atomic.Int64 // shortest TTL asked for, in nanoseconds
	monthsUntil atomic.Int64 // unix time until which partitions need no look
}

// Open returns a Store that owns its connections: Close closes them. It does not connect: a database that is down is
// found out by the first call that needs it, and a dispatcher waits for it. A configuration that can never work is an
// error here. The tables are not made: call Migrate. A pool size in the DSN (pool_max_conns) counts; 4 connections are
// enough for one dispatcher.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	err := cfg.Validate()
	if cfg.DSN == "" {
		err = errors.Join(&core.FieldError{Path: "DSN", Reason: "is required: where the database is"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: config: %w", err)
	}
	pc, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("postgres: config: %w", dsnFault(cfg.DSN, err))
	}
	p := newPooler(cfg.Pooler, cfg.Pooler)
	pc.BeforeConnect = p.beforeConnect
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: config: %w", err)
	}
	return newStore(pool, cfg, true, p), nil
}

// dsnFault says what is wrong with a DSN. The driver's text repeats it, and does not find every way to write a password.
func dsnFault(dsn string, err error) error {
	_, reason, found := strings.Cut(strings.TrimPrefix(err.Error(), "cannot parse `"+dsn), "`: ")
	if !found || strings.Contains(reason, "`") {
		reason = "is neither a URL nor keywords and values"
	}
	return &core.FieldError{Path: "DSN", Reason: reason}
}

// New returns a Store on the caller's pool, which it never closes. Listening for notifications takes one connection
// beside the pool, made with the pool's configuration; Close ends it.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	err := cfg.Validate()
	if pool == nil {
		err = errors.Join(&core.FieldError{Path: "pool", Reason: "is nil"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: config: %w", err)
	}
	return newStore(pool, cfg, false, newPooler(true, cfg.Pooler)), nil
}

func newStore(pool *pgxpool.Pool, cfg Config, owned bool, p *pooler) *Store {
	cfg = cfg.WithDefaults()
	closing, closeFn := context.WithCancel(context.Background())
	s := &Store{
		cfg: cfg, queries: newQueries(cfg.names(), cfg.AfterPublish), pool: pool, owned: owned, pooler: p,
		closing: closing, close: closeFn,
		cursor: cursor.Cursor{Sweep: max(cfg.Sweep, 0)},
	}
	s.leaseTTL.Store(int64(defaultTTL))
	s.waker = newWaker(s)
	return s
}

// defaultTTL bounds a settle before the first Lease said how long leases last.
const defaultTTL = 10 * time.Second

// Pool returns the pool that the Store works with: the one given to New, or that of an opened Store, for the
// application's own transactions. The Store keeps the ownership: do not close it.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Close ends the listening connection and closes the pool that Open made, waiting for calls under way; a pool given to
// New stays open. Later calls return core.ErrClosed.
func (s *Store) Close() error {
	s.close()
	s.waker.wait()
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// step is one statement of a transaction; read takes its rows, nil when it has none to read.
type step struct {
	sql  string
	args []any
	read func(pgx.Rows) error
}

// transact sends a whole transaction in one round trip and reads its answers. An error leaves open whether it was
// committed.
func (s *Store) transact(ctx context.Context, steps ...step) error {
	if s.closing.Err() != nil {
		return core.ErrClosed
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer conn.Release() // a connection left in a transaction is closed by the pool
	batch := &pgx.Batch{}
	batch.Queue(beginSQL)
	batch.Queue(pathSQL)
	for _, st := range steps {
		batch.Queue(st.sql, st.args...)
	}
	batch.Queue(commitSQL)
	results := conn.SendBatch(ctx, batch)
	err = readAll(results, steps)
	return s.explain(errors.Join(err, results.Close()))
}

func readAll(results pgx.BatchResults, steps []step) error {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, st := range steps {
		if st.read == nil {
			if _, err := results.Exec(); err != nil {
				return err
			}
			continue
		}
		rows, err := results.Query()
		if err != nil {
			return err
		}
		err = st.read(rows)
		rows.Close()
		if err = errors.Join(err, rows.Err()); err != nil {
			return err
		}
	}
	_, err := results.Exec()
	return err
}

// one reads the single row of a statement that always has one: zeros in its place would pass for an answer.
func one(dest ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		if !rows.Next() {
			return cmp.Or(rows.Err(), pgx.ErrNoRows)
		}
		return rows.Scan(dest...)
	}
}
