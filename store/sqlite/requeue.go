package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// Requeue makes events unpublished again, in whatever state they are: parked, discarded, published or waiting for an
// attempt. Their attempts start anew and their replay count grows by one, so that a result that is still on its way is
// not taken for the new one's. It returns how many rows it found; unknown ids change nothing. Events of the key that
// were published meanwhile are not sent again: the requeued one comes after them.
func (s *Store) Requeue(ctx context.Context, eventIDs ...string) (int, error) {
	ids, err := s.rewind(ctx, s.queries.requeue, jsonArray(eventIDs))
	if err != nil {
		return 0, fmt.Errorf("sqlite: requeue: %w", err)
	}
	return len(ids), nil
}

// rewind runs a query that returns the ids of rows it changed, and tells the dispatcher of them in the same transaction.
func (s *Store) rewind(ctx context.Context, query string, args ...any) (ids []int64, err error) {
	err = s.write(ctx, func(tx *sql.Tx) (err error) {
		ids, err = changed(ctx, tx, query, args...)
		if err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, s.queries.rewind, jsonArray(ids))
		return err
	})
	if err != nil {
		return nil, err
	}
	s.Nudge()
	return ids, nil
}

// changed runs a query that returns the ids of rows it changed, and returns them in order, which RETURNING does not.
func changed(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]int64, error) {
	ids, err := queryAll(ctx, tx, scanID, query, args...)
	slices.Sort(ids)
	return ids, err
}
