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
func (s *Store) SmallRowsSQL() string { return s.queries.smallRows }
func (s *Store) HeadsSQL() string     { return s.queries.heads }
func (s *Store) PublishedSQL() string { return s.queries.published }

// LastIDSQL is the expression that fetches and settles read the last id with.
func (s *Store) LastIDSQL() string { return s.SQL(lastIDSQL) }

// SetLongestSleep sets how long a sleep may last while somebody listens.
func (s *Store) SetLongestSleep(d time.Duration) { s.waker.longest = d }

// Listening reports whether a connection listens for notifications.
func (s *Store) Listening() bool { return s.waker.live.Load() }

// Deep reports whether the next sleep is a long one that a notification ends.
func (s *Store) Deep(ctx context.Context) bool { return s.waker.prepare(ctx) == s.waker.longest }

// PoolerFound reports whether a pooler was configured or noticed.
func (s *Store) PoolerFound() bool { return s.pooler.there.Load() }

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

// LockKey is the advisory lock for a purpose.
func (s *Store) LockKey(purpose string) int64 { return s.lockKey(purpose) }

// EventKeys are the locks of event ids in a partitioned outbox.
func (s *Store) EventKeys(ids ...string) []int64 {
	var messages []core.Message
	for _, id := range ids {
		messages = append(messages, core.Message{EventID: id})
	}
	return s.eventKeys(messages)
}

// ReadOne runs a statement that must have a row.
func (s *Store) ReadOne(ctx context.Context, query string) error {
	var n int
	return s.transact(ctx, step{sql: query, read: one(&n)})
}
