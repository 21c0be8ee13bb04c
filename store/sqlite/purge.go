package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// batchSize is how many rows one transaction of an operation on many changes, so that others wait for it only a moment.
const batchSize = 1000

// Purge deletes at most limit rows that were published or discarded longer than olderThan ago, the oldest first, in
// transactions of at most 1000 rows. Rows that are not published, parked or blocked ones among them, stay. A limit of 0
// or less means all. It returns how many rows it deleted, also together with an error.
func (s *Store) Purge(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	purged := 0
	for _, query := range []string{s.queries.purge, s.queries.purgeDiscarded} {
		for limit <= 0 || purged < limit {
			batch := batchSize
			if limit > 0 {
				batch = min(batch, limit-purged)
			}
			n, err := s.purgeBatch(ctx, query, olderThan, batch)
			if err != nil {
				return purged, fmt.Errorf("sqlite: purge: %w", err)
			}
			purged += n
			if n < batch {
				break
			}
		}
	}
	return purged, nil
}

func (s *Store) purgeBatch(ctx context.Context, query string, olderThan time.Duration, batch int) (int, error) {
	var n int64
	err := s.write(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, query, millis(olderThan), batch)
		if err != nil {
			return err
		}
		n, err = result.RowsAffected()
		return err
	})
	return int(n), err
}
