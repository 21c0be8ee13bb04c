package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// purgeBatch is how many rows one transaction deletes, so that nobody waits long for it.
	purgeBatch = 5000
	// purgePages is how much of the table one transaction reads.
	purgePages = 512
)

// Purge deletes at most limit rows that were published or discarded longer than olderThan ago, in transactions of at most
// 5000 rows; with AfterPublish Archive the published ones of the archive. Rows that are not published, parked and blocked
// ones among them, stay. It returns how many rows it deleted, also together with an error. It reads the table from its
// beginning until it has found as many.
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
	published := s.purgePublished
	if s.cfg.AfterPublish == Archive {
		published = s.purgeArchived
	}
	for _, purge := range []func(context.Context, time.Duration, int) (int, error){published, s.purgeDiscarded} {
		n, err := purge(ctx, olderThan, limit-purged)
		if purged += n; err != nil {
			return purged, fmt.Errorf("postgres: purge: %w", err)
		}
	}
	return purged, nil
}

func (s *Store) purgeArchived(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return s.purgeRows(ctx, s.queries.purgeArchived, olderThan, limit)
}

func (s *Store) purgeDiscarded(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	return s.purgeRows(ctx, s.queries.purgeDiscarded, olderThan, limit)
}

// heap is a table, as the server keeps it: in pages.
type heap struct {
	name  string // qualified and quoted
	pages int64
}

func (s *Store) heaps(ctx context.Context, olderThan time.Duration) (heaps []heap, err error) {
	args := []any{s.cfg.names().qualified("outbox"), olderThan}
	err = s.transact(ctx, step{sql: heapsSQL, args: args, read: func(rows pgx.Rows) error {
		var h heap
		_, err := pgx.ForEachRow(rows, []any{&h.name, &h.pages}, func() error {
			heaps = append(heaps, h)
			return nil
		})
		return err
	}})
	return heaps, err
}

// purgePublished reads through the table, or its partitions, and deletes what is old.
func (s *Store) purgePublished(ctx context.Context, olderThan time.Duration, limit int) (purged int, err error) {
	heaps, err := s.heaps(ctx, olderThan)
	if err != nil {
		return 0, err
	}
	for _, h := range heaps {
		for page := int64(0); page < h.pages && purged < limit; {
			batch := min(purgeBatch, limit-purged)
			var n int
			var alone bool
			err := s.transact(ctx, step{sql: indexedSQL}, step{
				sql:  fmt.Sprintf(purgeSQL, h.name),
				args: []any{s.lockKey("purge"), olderThan, page, page + purgePages, batch}, read: one(&n, &alone),
			})
			if purged += n; err != nil || !alone {
				return purged, err
			}
			if n < batch { // nothing is left there
				page += purgePages
			}
		}
	}
	return purged, nil
}

// purgeRows goes through the rows of a query by id once.
func (s *Store) purgeRows(ctx context.Context, query string, olderThan time.Duration, limit int) (purged int, err error) {
	for last := int64(0); purged < limit; {
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
