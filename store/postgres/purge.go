package postgres

import (
	"context"
	"fmt"
	"math"
	"time"
)

// purgeBatch is how many rows one transaction deletes, so that nobody waits long for it.
const purgeBatch = 5000

// Purge deletes at most limit rows that were published or discarded longer than olderThan ago, in transactions of at most
// 5000 rows; with AfterPublish Archive the published ones of the archive. It goes by event id, so that the oldest rows come
// first when ids are UUIDv7. Rows that are not published, parked and
// blocked ones among them, stay. It returns how many rows it deleted, also together with an error.
//
// With a limit of 0 or less it deletes all there are, and drops months of the archive and of a partitioned outbox that
// are wholly that old; of these it counts as many rows as the server estimates. From a month that cannot go, because the
// outbox has something in it that is to be published, parked, or was published later, because somebody keeps it locked,
// or because the role does not own it, the old rows are deleted.
//
// One purges at a time: a call that finds another one at work on the table, in whatever process, leaves the rest to it.
func (s *Store) Purge(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	purged := 0
	if limit <= 0 {
		limit = math.MaxInt
		n, err := s.dropMonths(ctx, olderThan)
		if purged += n; err != nil {
			return purged, fmt.Errorf("postgres: purge: %w", err)
		}
	}
	published, first := s.queries.purge, ""
	if s.cfg.AfterPublish == Archive {
		published, first = s.queries.purgeArchived, "0"
	}
	for _, q := range []struct{ sql, first string }{{published, first}, {s.queries.purgeDiscarded, "0"}} {
		n, err := s.purgeRows(ctx, q.sql, q.first, olderThan, limit-purged)
		if purged += n; err != nil {
			return purged, fmt.Errorf("postgres: purge: %w", err)
		}
	}
	return purged, nil
}

// purgeRows goes through the rows of a query once, beginning after last.
func (s *Store) purgeRows(
	ctx context.Context, query, last string, olderThan time.Duration, limit int,
) (purged int, err error) {
	for purged < limit {
		batch := min(purgeBatch, limit-purged)
		var n int
		err := s.transact(ctx, step{sql: indexedSQL}, step{
			sql: query, args: []any{s.lockKey("purge"), olderThan, last, batch}, read: one(&n, &last),
		})
		if err != nil {
			return purged, err
		}
		if purged += n; n < batch {
			break
		}
	}
	return purged, nil
}
