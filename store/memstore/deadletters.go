package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.DeadLetters = (*Store)(nil)

// ListDead implements [core.DeadLetters].
func (s *Store) ListDead(
	ctx context.Context, filter core.DeadLetterFilter, after int64, limit int,
) (dead []core.DeadLetter, err error) {
	if limit < 1 {
		return nil, fmt.Errorf("memstore: list dead letters: %w", &core.FieldError{Path: "limit", Reason: "must be at least 1"})
	}
	_, err = s.operate(ctx, filter, func(t *table, rows []*row) {
		now := time.Now()
		for _, r := range rows {
			if r.id > after && len(dead) < limit {
				dead = append(dead, t.dead(r, now))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return dead, nil
}

// CountDead implements [core.DeadLetters].
func (s *Store) CountDead(ctx context.Context, filter core.DeadLetterFilter) (int, error) {
	return s.operate(ctx, filter, func(*table, []*row) {})
}

// RequeueDead implements [core.DeadLetters].
func (s *Store) RequeueDead(ctx context.Context, filter core.DeadLetterFilter) (int, error) {
	return s.operate(ctx, filter, func(t *table, rows []*row) {
		for _, r := range rows {
			t.requeue(r)
		}
		t.announce()
	})
}

// DiscardDead implements [core.DeadLetters].
func (s *Store) DiscardDead(ctx context.Context, filter core.DeadLetterFilter, reason string) (int, error) {
	why, err := core.DiscardReason(reason)
	if err := errors.Join(filter.ValidateDiscard(), err); err != nil {
		return 0, fmt.Errorf("memstore: discard dead letters: %w", err)
	}
	return s.operate(ctx, filter, func(_ *table, rows []*row) {
		now := time.Now()
		for _, r := range rows {
			r.state, r.since, r.reason = Discarded, now, before(why, r.reason)
		}
	})
}

// Unblock implements [core.DeadLetters].
func (s *Store) Unblock(ctx context.Context, key ordering.Key) (unblocked int, err error) {
	err = s.call(ctx, Point{Op: OpDeadLetters}, func() error {
		s.table.withKey(key, func(rows []*row) {
			for _, r := range rows {
				if r.blocked {
					s.table.retry(r)
					unblocked++
				}
			}
		})
		return nil
	})
	return unblocked, err
}

// SkipHead implements [core.DeadLetters].
func (s *Store) SkipHead(ctx context.Context, key ordering.Key, reason string) (skipped int, err error) {
	why, err := core.SkipReason(reason)
	if err != nil {
		return 0, fmt.Errorf("memstore: skip head: %w", err)
	}
	err = s.call(ctx, Point{Op: OpDeadLetters}, func() error {
		s.table.withKey(key, func(rows []*row) {
			if len(rows) == 0 || rows[0].due.IsZero() {
				return
			}
			head := rows[0]
			head.reason = before(why, head.reason)
			s.table.settle(head, Parked, time.Now())
			s.table.rewind(head)
			skipped++
		})
		return nil
	})
	return skipped, err
}

// operate calls do with the rows that the filter selects, by id, under the lock, and returns how many there are.
func (s *Store) operate(
	ctx context.Context, filter core.DeadLetterFilter, do func(t *table, rows []*row),
) (count int, err error) {
	if err := filter.Validate(); err != nil {
		return 0, fmt.Errorf("memstore: dead letters: %w", err)
	}
	err = s.call(ctx, Point{Op: OpDeadLetters}, func() error {
		t := s.table
		t.mu.Lock()
		defer t.mu.Unlock()
		rows, now := make([]*row, 0, len(t.byID)), time.Now()
		for _, r := range t.byID {
			if r.deadState() != "" && filter.Matches(t.dead(r, now)) {
				rows = append(rows, r)
			}
		}
		slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.id, b.id) })
		do(t, rows)
		count = len(rows)
		return nil
	})
	return count, err
}

// deadState is the row's state as a dead letter; empty when it is none.
func (r *row) deadState() core.DeadLetterState {
	switch {
	case r.blocked:
		return core.StateBlocked
	case r.state == Parked:
		return core.StateParked
	case r.state == Discarded:
		return core.StateDiscarded
	default:
		return ""
	}
}

func (t *table) dead(r *row, now time.Time) core.DeadLetter {
	return core.DeadLetter{Record: r.record(t.origin, now), State: r.deadState(), Reason: r.reason, Since: r.since}
}

// before puts what a person decided before the old error.
func before(decision, old string) string {
	if old == "" {
		return decision
	}
	return decision + "; " + old
}

// withKey calls do with the unsettled rows of a key, by id, under the lock, and wakes who sleeps.
func (t *table) withKey(key ordering.Key, do func(rows []*row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []*row
	for _, r := range t.lanes[ordering.Lane(key.AggregateType, key.AggregateID, len(t.lanes))].unsettled {
		if r.key() == key {
			rows = append(rows, r)
		}
	}
	do(rows)
	t.announce()
}
