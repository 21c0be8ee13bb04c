package postgres

import (
	"context"
	"time"

	"github.com/go-outbox/outbox/core"
)

// SQL gives a query the configured names, for tests.
func (s *Store) SQL(template string) string { return s.cfg.names().sql(template) }

// The hot statements, for tests of their plans.
func (s *Store) RowsSQL() string      { return s.queries.rows }
func (s *Store) HeadsSQL() string     { return s.queries.heads }
func (s *Store) PublishedSQL() string { return s.queries.published }

// SetLongestSleep sets how long a sleep may last while somebody listens.
func (s *Store) SetLongestSleep(d time.Duration) { s.waker.longest = d }

// Listening reports whether a connection listens for notifications.
func (s *Store) Listening() bool { return s.waker.live.Load() }

// Deep reports whether the next sleep is a long one that a notification ends.
func (s *Store) Deep(ctx context.Context) bool { return s.waker.prepare(ctx) == s.waker.longest }

// Config returns what the store was made with.
func (s *Store) Config() Config { return s.cfg }

// SetPing sets how often the listening connection is asked whether it lives, and how long it may take.
func (s *Store) SetPing(every, timeout time.Duration) {
	s.waker.pingEvery, s.waker.pingTimeout = every, timeout
}

// LowestMark is the lowest mark of all lanes that were fetched.
func (s *Store) LowestMark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor.LowestMark()
}

// OrderKey is the lock of a message's aggregate under StrictOrder.
func (s *Store) OrderKey(m core.Message) int64 { return s.orderKeys([]core.Message{m})[0] }
