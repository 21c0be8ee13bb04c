package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// purgeBatch is how many rows one transaction deletes, so that others wait for it only a moment.
const purgeBatch = 1000

// Requeue makes events unpublished again, in whatever state they are: parked, published or waiting for an attempt.
// Their attempts start anew and their replay count grows by one, so that a result that is still on its way is not taken
// for the new one's. It returns how many rows it found; unknown ids change nothing. Events of the key that were
// published meanwhile are not sent again: the requeued one comes after them.
func (s *Store) Requeue(ctx context.Context, eventIDs ...string) (int, error) {
	var ids []int64
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		ids, err = queryAll(ctx, tx, scanID, s.queries.requeue, jsonArray(eventIDs))
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, s.queries.rewind, jsonArray(ids))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: requeue: %w", err)
	}
	s.Nudge()
	return len(ids), nil
}

// Purge deletes at most limit rows that were published longer than olderThan ago, the oldest first, in transactions
// of at most 1000 rows. Rows that are not published or that are parked stay. A limit of 0 or less means all. It returns
// how many rows it deleted, also together with an error.
func (s *Store) Purge(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	purged := 0
	for limit <= 0 || purged < limit {
		batch := purgeBatch
		if limit > 0 {
			batch = min(batch, limit-purged)
		}
		var n int64
		err := s.write(ctx, func(tx *sql.Tx) error {
			result, err := tx.ExecContext(ctx, s.queries.purge, millis(olderThan), batch)
			if err != nil {
				return err
			}
			n, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return purged, fmt.Errorf("sqlite: purge: %w", err)
		}
		purged += int(n)
		if n < int64(batch) {
			break
		}
	}
	return purged, nil
}
