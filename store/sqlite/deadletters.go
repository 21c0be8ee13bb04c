package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.DeadLetters = (*Store)(nil)

// ListDead is described at [core.DeadLetters]. Since is known of discarded rows only. A row that was parked because it
// cannot be read comes with what is readable of it.
func (s *Store) ListDead(
	ctx context.Context, filter core.DeadLetterFilter, after int64, limit int,
) (dead []core.DeadLetter, err error) {
	state, queries, err := s.deadQueries(filter)
	if err == nil && limit < 1 {
		err = &core.FieldError{Path: "limit", Reason: "must be at least 1"}
	}
	if err == nil {
		err = s.read(ctx, func(tx *sql.Tx) error {
			dead, err = queryAll(ctx, tx, scanDead(state), queries.list, append(filterArgs(filter), after, limit)...)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: list dead letters: %w", err)
	}
	return dead, nil
}

func scanDead(state core.DeadLetterState) func(*sql.Rows) (core.DeadLetter, error) {
	return func(rows *sql.Rows) (core.DeadLetter, error) {
		dead := core.DeadLetter{State: state}
		var discarded int64
		var err error
		dead.Record, _, err = scanRecord(rows, &dead.Reason, &discarded)
		if discarded != 0 {
			dead.Since = time.UnixMilli(discarded).UTC()
		}
		dead.Reason = strings.ToValidUTF8(dead.Reason, "�") // anybody may have written it by SQL
		return dead, err
	}
}

// CountDead is described at [core.DeadLetters].
func (s *Store) CountDead(ctx context.Context, filter core.DeadLetterFilter) (n int, err error) {
	_, queries, err := s.deadQueries(filter)
	if err == nil {
		err = s.read(ctx, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, queries.count, filterArgs(filter)...).Scan(&n)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("sqlite: count dead letters: %w", err)
	}
	return n, nil
}

// RequeueDead is described at [core.DeadLetters]. A transaction has at most 1000 rows.
func (s *Store) RequeueDead(ctx context.Context, filter core.DeadLetterFilter) (int, error) {
	_, queries, err := s.deadQueries(filter)
	requeued := 0
	if err == nil {
		requeued, err = inBatches(filter, func(args []any) ([]int64, error) {
			return s.rewind(ctx, queries.requeue, args...)
		})
	}
	if err != nil {
		return requeued, fmt.Errorf("sqlite: requeue dead letters: %w", err)
	}
	return requeued, nil
}

// DiscardDead is described at [core.DeadLetters]. A transaction has at most 1000 rows.
func (s *Store) DiscardDead(ctx context.Context, filter core.DeadLetterFilter, reason string) (int, error) {
	why, err := core.DiscardReason(reason)
	err = errors.Join(filter.ValidateDiscard(), err)
	discarded := 0
	if err == nil {
		discarded, err = inBatches(filter, func(args []any) (ids []int64, err error) {
			err = s.write(ctx, func(tx *sql.Tx) error { // nobody need be told: the row is out of the order already
				ids, err = changed(ctx, tx, s.queries.dead[core.StateParked].discard, append(args, why)...)
				return err
			})
			return ids, err
		})
	}
	if err != nil {
		return discarded, fmt.Errorf("sqlite: discard dead letters: %w", err)
	}
	return discarded, nil
}

// Unblock is described at [core.DeadLetters].
func (s *Store) Unblock(ctx context.Context, key ordering.Key) (int, error) {
	ids, err := s.rewind(ctx, s.queries.unblock, key.Topic, key.AggregateType, key.AggregateID)
	if err != nil {
		return 0, fmt.Errorf("sqlite: unblock: %w", err)
	}
	return len(ids), nil
}

// SkipHead is described at [core.DeadLetters].
func (s *Store) SkipHead(ctx context.Context, key ordering.Key, reason string) (int, error) {
	why, err := core.SkipReason(reason)
	var ids []int64
	if err == nil {
		ids, err = s.rewind(ctx, s.queries.skipHead, key.Topic, key.AggregateType, key.AggregateID, why)
	}
	if err != nil {
		return 0, fmt.Errorf("sqlite: skip head: %w", err)
	}
	return len(ids), nil
}

// deadQueries are the queries for the state of the filter.
func (s *Store) deadQueries(filter core.DeadLetterFilter) (core.DeadLetterState, deadQueries, error) {
	if err := filter.Validate(); err != nil {
		return "", deadQueries{}, err
	}
	state := cmp.Or(filter.State, core.StateParked)
	return state, s.queries.dead[state], nil
}

// inBatches changes the rows that the filter selects, by id, until a batch is not full. It returns how many.
func inBatches(filter core.DeadLetterFilter, batch func(args []any) ([]int64, error)) (int, error) {
	total, after := 0, int64(0)
	for {
		ids, err := batch(append(filterArgs(filter), after, batchSize))
		if err != nil {
			return total, err
		}
		total += len(ids)
		if len(ids) < batchSize {
			return total, nil
		}
		after = ids[len(ids)-1]
	}
}

// filterArgs are the arguments of filterSQL.
func filterArgs(f core.DeadLetterFilter) []any {
	return []any{
		jsonArray(f.EventIDs), f.Topic, f.AggregateType, f.AggregateID, f.EventType, f.Reason,
		firstMilli(f.CreatedAfter), firstMilli(f.CreatedBefore),
	}
}

// firstMilli is the first millisecond that is not before t, nil for the zero time. Rows have whole milliseconds.
func firstMilli(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}
