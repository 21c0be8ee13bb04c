package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var _ core.DeadLetters = (*Store)(nil)

// deadBatch is how many rows one transaction of an operation on many changes, so that nobody waits long for it.
const deadBatch = 1000

// ListDead is described at [core.DeadLetters]. Since is known of discarded rows only.
func (s *Store) ListDead(
	ctx context.Context, filter core.DeadLetterFilter, after int64, limit int,
) (dead []core.DeadLetter, err error) {
	state, queries, err := s.deadQueries(filter)
	if err == nil && limit < 1 {
		err = &core.FieldError{Path: "limit", Reason: "must be at least 1"}
	}
	if err == nil {
		err = s.transact(ctx, step{sql: indexedSQL}, step{
			sql: queries.list, args: append(filterArgs(filter), after, limit),
			read: func(rows pgx.Rows) error {
				for rows.Next() {
					d, err := scanDead(rows, state)
					if err != nil {
						return err
					}
					dead = append(dead, d)
				}
				return nil
			},
		})
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: list dead letters: %w", err)
	}
	return dead, nil
}

func scanDead(rows pgx.Rows, state core.DeadLetterState) (core.DeadLetter, error) {
	dead := core.DeadLetter{State: state}
	var discarded *time.Time
	var err error
	dead.Record, _, err = new(recordReader).read(rows, &dead.Reason, &discarded)
	if discarded != nil {
		dead.Since = *discarded
	}
	return dead, err
}

// CountDead is described at [core.DeadLetters].
func (s *Store) CountDead(ctx context.Context, filter core.DeadLetterFilter) (n int, err error) {
	_, queries, err := s.deadQueries(filter)
	if err == nil {
		err = s.transact(ctx, step{sql: indexedSQL}, step{sql: queries.count, args: filterArgs(filter), read: one(&n)})
	}
	if err != nil {
		return 0, fmt.Errorf("postgres: count dead letters: %w", err)
	}
	return n, nil
}

// RequeueDead is described at [core.DeadLetters]. A transaction has at most 1000 rows.
func (s *Store) RequeueDead(ctx context.Context, filter core.DeadLetterFilter) (int, error) {
	_, queries, err := s.deadQueries(filter)
	requeued := 0
	if err == nil {
		requeued, err = s.inBatches(ctx, queries.requeue, filter)
	}
	if requeued > 0 {
		s.Nudge()
	}
	if err != nil {
		return requeued, fmt.Errorf("postgres: requeue dead letters: %w", err)
	}
	return requeued, nil
}

// DiscardDead is described at [core.DeadLetters]. A transaction has at most 1000 rows.
func (s *Store) DiscardDead(ctx context.Context, filter core.DeadLetterFilter, reason string) (int, error) {
	why, err := core.DiscardReason(reason)
	err = errors.Join(filter.ValidateDiscard(), err)
	discarded := 0
	if err == nil {
		discarded, err = s.inBatches(ctx, s.queries.dead[core.StateParked].discard, filter, why)
	}
	if err != nil {
		return discarded, fmt.Errorf("postgres: discard dead letters: %w", err)
	}
	return discarded, nil
}

// Unblock is described at [core.DeadLetters].
func (s *Store) Unblock(ctx context.Context, key ordering.Key) (int, error) {
	n, err := s.ofKey(ctx, s.queries.unblock, key)
	if err != nil {
		return 0, fmt.Errorf("postgres: unblock: %w", err)
	}
	return n, nil
}

// SkipHead is described at [core.DeadLetters].
func (s *Store) SkipHead(ctx context.Context, key ordering.Key, reason string) (int, error) {
	why, err := core.SkipReason(reason)
	n := 0
	if err == nil {
		n, err = s.ofKey(ctx, s.queries.skipHead, key, why)
	}
	if err != nil {
		return 0, fmt.Errorf("postgres: skip head: %w", err)
	}
	return n, nil
}

// ofKey changes rows of one key.
func (s *Store) ofKey(ctx context.Context, query string, key ordering.Key, more ...any) (n int, err error) {
	args := append([]any{key.Topic, key.AggregateType, key.AggregateID}, more...)
	err = s.transact(ctx, step{sql: indexedSQL}, step{sql: query, args: args, read: one(&n, nil)})
	if n > 0 {
		s.Nudge()
	}
	return n, err
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
func (s *Store) inBatches(ctx context.Context, query string, filter core.DeadLetterFilter, more ...any) (total int, err error) {
	for last := int64(0); ; {
		var n int
		args := append(append(filterArgs(filter), last, deadBatch), more...)
		if err := s.transact(ctx, step{sql: indexedSQL}, step{sql: query, args: args, read: one(&n, &last)}); err != nil {
			return total, err
		}
		if total += n; n < deadBatch {
			return total, nil
		}
	}
}

// filterArgs are the arguments of filterSQL.
func filterArgs(f core.DeadLetterFilter) []any {
	eventIDs := f.EventIDs
	if eventIDs == nil {
		eventIDs = []string{}
	}
	return []any{
		eventIDs, f.Topic, f.AggregateType, f.AggregateID, f.EventType, f.Reason, firstMicro(f.CreatedAfter), firstMicro(f.CreatedBefore),
	}
}

// firstMicro is the first microsecond that is not before t, nil for the zero time. Rows have whole microseconds.
func firstMicro(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.Add(time.Microsecond - 1).Truncate(time.Microsecond)
	return &t
}
