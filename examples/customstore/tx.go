package customstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Tx is a transaction, and the Enqueuer in it.
type Tx struct {
	tables   *Tables
	messages []core.Message
	ended    bool
}

// Begin begins a transaction.
func (t *Tables) Begin() *Tx { return &Tx{tables: t} }

// Enqueue implements [core.Enqueuer]. Ids are given at commit, so they are in commit order.
func (tx *Tx) Enqueue(ctx context.Context, messages ...core.Message) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if tx.ended {
		return nil, fmt.Errorf("customstore: enqueue: %w", core.ErrNoTransaction)
	}
	valid, err := core.ValidateAll(messages, nil)
	if err != nil {
		return nil, fmt.Errorf("customstore: enqueue: %w", err)
	}
	tx.tables.mu.Lock()
	defer tx.tables.mu.Unlock()
	accepted := slices.Clone(tx.messages) // a fault leaves the transaction as it was
	ids := make([]string, len(valid))
	for i, m := range valid {
		ids[i] = m.EventID
		m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers)
		known, err := tx.tables.knows(m, accepted)
		if err != nil {
			return nil, fmt.Errorf("customstore: enqueue: %w", err)
		}
		if !known {
			accepted = append(accepted, m)
		}
	}
	tx.messages = accepted
	return ids, nil
}

// knows says whether the event is there already. The same event twice is no error, another one under its id is.
func (t *Tables) knows(m core.Message, messages []core.Message) (bool, error) {
	same := func(other core.Message) (bool, error) {
		if other.Topic == m.Topic && other.AggregateType == m.AggregateType && other.AggregateID == m.AggregateID &&
			other.EventType == m.EventType {
			return true, nil
		}
		return false, &core.EventConflictError{EventID: m.EventID}
	}
	for _, other := range messages {
		if other.EventID == m.EventID {
			return same(other)
		}
	}
	for _, r := range t.rows {
		if r.record.EventID == m.EventID {
			return same(r.record.Message)
		}
	}
	return false, nil
}

// Commit makes the events visible, all at once.
func (tx *Tx) Commit() error {
	t := tx.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	if tx.ended {
		return fmt.Errorf("customstore: commit: %w", core.ErrNoTransaction)
	}
	tx.ended = true
	var fresh []*row
	id, now := t.lastID, time.Now()
	for _, m := range tx.messages {
		known, err := t.knows(m, nil) // another transaction may have committed it meanwhile
		if err != nil {
			return fmt.Errorf("customstore: commit: %w", err)
		}
		if !known {
			id++
			fresh = append(fresh, &row{record: core.Record{Message: m, ID: id, CreatedAt: now}})
		}
	}
	t.rows, t.lastID = append(t.rows, fresh...), id
	return nil
}

// Rollback forgets the events.
func (tx *Tx) Rollback() { tx.ended = true }

// Requeue makes parked and blocked events unsettled again, and tells the owner of the lane.
func (t *Tables) Requeue(eventIDs ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if slices.Contains(eventIDs, r.record.EventID) {
			r.record.Attempts, r.record.FirstFailedAt = 0, time.Time{}
			r.record.Replay++
			r.due, r.blocked, r.parked, r.reason = time.Time{}, false, false, ""
			t.rewound = append(t.rewound, r.record.ID)
		}
	}
}
