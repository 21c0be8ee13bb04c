package memstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.Enqueuer = (*Tx)(nil)

// Tx is a transaction: what it enqueues is dispatched once it has committed, and never if it does not. For one
// goroutine. Make one with [Store.Begin].
type Tx struct {
	store   *Store
	origin  uint64
	rows    []*row
	byEvent map[string]*row
	over    bool
}

// Begin opens a transaction. Any number may be open at the same time; one that is forgotten leaves nothing behind.
func (s *Store) Begin() *Tx {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return &Tx{store: s, origin: s.table.origin, byEvent: map[string]*row{}}
}

// Enqueue implements [core.Enqueuer]. The ids in the table are drawn here, so that a transaction that commits later
// than another may hold smaller ones. Any error but a lost answer ([Config.Fault]) leaves the transaction as it was.
// After Commit or Rollback the error wraps [core.ErrNoTransaction].
//
// An event id that another open transaction has enqueued is found out when the later one of them commits: a database
// would make the second Enqueue wait for the first transaction's end.
func (tx *Tx) Enqueue(ctx context.Context, messages ...core.Message) ([]string, error) {
	var ids []string
	err := tx.store.call(ctx, Point{Op: OpEnqueue}, func() (err error) {
		ids, err = tx.enqueue(messages)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func (tx *Tx) enqueue(messages []core.Message) ([]string, error) {
	var extra func(*core.Message) error
	if tx.store.cfg.JSON {
		extra = requireJSON
	}
	messages, err := core.ValidateAll(messages, extra)
	if err != nil {
		return nil, err
	}
	t := tx.store.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if tx.over || tx.origin != t.origin {
		return nil, fmt.Errorf("the transaction is over: %w", core.ErrNoTransaction)
	}
	lastID, now := t.lastID, time.Now()
	ids := make([]string, len(messages))
	fresh := make(map[string]*row, len(messages))
	rows := make([]*row, 0, len(messages))
	var faults []error
	for i := range messages {
		r := newRow(messages[i], len(t.lanes), now)
		ids[i] = r.msg.EventID
		known := first(fresh[ids[i]], tx.byEvent[ids[i]], t.byEvent[ids[i]])
		switch {
		case known == nil:
			lastID++
			r.id = lastID
			fresh[ids[i]] = r
			rows = append(rows, r)
		case !r.sameEvent(known):
			faults = append(faults, &core.EventConflictError{EventID: ids[i]})
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	t.lastID = lastID
	for _, r := range rows {
		tx.byEvent[r.msg.EventID] = r
	}
	tx.rows = append(tx.rows, rows...)
	return ids, nil
}

// Commit makes the transaction's events visible, all at once, and wakes dispatchers that sleep. When another
// transaction committed one of the event ids meanwhile, that event is not written again; when it did so for another key
// or event type, nothing is written and the error is a *[core.EventConflictError]. After Commit, Rollback or
// [Store.Restart] the error wraps [core.ErrNoTransaction].
func (tx *Tx) Commit() error {
	return tx.store.call(context.Background(), Point{Op: OpCommit}, tx.commit)
}

func (tx *Tx) commit() error {
	t := tx.store.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if tx.over || tx.origin != t.origin {
		return fmt.Errorf("the transaction is over: %w", core.ErrNoTransaction)
	}
	tx.over = true
	for _, r := range tx.rows {
		if known := t.byEvent[r.msg.EventID]; known != nil && !r.sameEvent(known) {
			return &core.EventConflictError{EventID: r.msg.EventID}
		}
	}
	for _, r := range tx.rows {
		if t.byEvent[r.msg.EventID] == nil {
			t.insert(r)
		}
	}
	t.announce()
	return nil
}

// Rollback forgets the transaction's events. It never fails, and after Commit or Rollback it does nothing, so that it
// can be deferred.
func (tx *Tx) Rollback() error {
	tx.store.table.mu.Lock()
	defer tx.store.table.mu.Unlock()
	tx.over = true
	return nil
}

func newRow(m core.Message, lanes int, now time.Time) *row {
	return &row{
		msg:     copyMessage(m),
		lane:    ordering.Lane(m.AggregateType, m.AggregateID, lanes),
		size:    (&core.Record{Message: m}).Size(),
		created: now,
		state:   Pending,
	}
}

// sameEvent reports whether two rows of one event id can be the same event.
func (r *row) sameEvent(other *row) bool {
	return r.key() == other.key() && r.msg.EventType == other.msg.EventType
}

func first(rows ...*row) *row {
	for _, r := range rows {
		if r != nil {
			return r
		}
	}
	return nil
}

func requireJSON(m *core.Message) error {
	if m.Payload == nil || json.Valid(m.Payload) {
		return nil
	}
	return &core.InvalidMessageError{
		EventID: m.EventID, Field: "Payload", Reason: "is not valid JSON, and this store holds nothing else",
	}
}
