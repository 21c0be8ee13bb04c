package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Store = (*Store)(nil)
	_ core.Waker = (*Store)(nil)
)

// Store is a handle on tables in memory. Safe for concurrent use by any number of dispatchers and enqueuers. Make one
// with [New].
type Store struct {
	cfg   Config
	table *table

	closeOnce sync.Once
	closed    chan struct{}

	// The handle's own memory, lost with it as a process loses its memory. Guarded by table.mu.
	cursors []cursor
	seen    uint64 // the table's version when the last Fetch began
}

// New makes a store with empty tables. The error lists the faults of the configuration ([Config.Validate]).
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("memstore: %w", err)
	}
	cfg = cfg.WithDefaults()
	return open(cfg, newTable(cfg.Lanes)), nil
}

// Replica returns another handle on the same tables, as a second process would have one: with its own memory of what
// was fetched and its own Close.
func (s *Store) Replica() *Store { return open(s.cfg, s.table) }

func open(cfg Config, t *table) *Store {
	return &Store{cfg: cfg, table: t, closed: make(chan struct{}), cursors: make([]cursor, len(t.lanes))}
}

// Close ends this handle: later calls return an error that wraps [core.ErrClosed]. Other handles on the same tables
// stay open. It never fails, and may be called twice.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { close(s.closed) })
	return nil
}

// Sleep implements [core.Waker]. Of dispatchers that share one handle, each may miss a commit that another one's Fetch
// has seen begin; give each its own [Store.Replica] where that matters.
func (s *Store) Sleep(ctx context.Context, d time.Duration) {
	s.table.mu.Lock()
	news, due := s.table.news, s.table.version != s.seen
	s.table.mu.Unlock()
	if due {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-s.closed:
	case <-ctx.Done():
	}
}

// Nudge ends the sleep of every dispatcher on these tables. There is no need to call it: a commit does.
func (s *Store) Nudge() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.announce()
}

// call runs one call of the contract: do, between the two moments at which a fault can be injected.
func (s *Store) call(ctx context.Context, at Point, do func() error) error {
	err := s.before(ctx, at)
	if err == nil {
		err = do()
	}
	if err == nil {
		at.Done = true
		err = s.fault(ctx, at)
	}
	if err != nil {
		return fmt.Errorf("memstore: %s: %w", at.Op, err)
	}
	return nil
}

// before says why a call cannot even start.
func (s *Store) before(ctx context.Context, at Point) error {
	select {
	case <-s.closed:
		return core.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.fault(ctx, at)
}

func (s *Store) fault(ctx context.Context, at Point) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(ctx, at)
}
