package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// purgeBatch is how many rows one transaction deletes, so that nobody waits long for it.
const purgeBatch = 5000

// Purge deletes at most limit rows that were published longer than olderThan ago, by id, in transactions of at most
// 5000 rows; with AfterPublish Archive those of the archive. Rows that are not published or that are parked stay. A
// limit of 0 or less means all. It returns how many rows it deleted, also together with an error. To get rid of whole
// months of the archive, drop their partitions instead.
func (s *Store) Purge(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	query := s.queries.purge
	if s.cfg.AfterPublish == Archive {
		query = s.queries.purgeArchived
	}
	purged := 0
	for limit <= 0 || purged < limit {
		batch := purgeBatch
		if limit > 0 {
			batch = min(batch, limit-purged)
		}
		var n int
		err := s.transact(ctx, step{sql: query, args: []any{olderThan, batch}, read: func(rows pgx.Rows) error {
			rows.Close()
			n = int(rows.CommandTag().RowsAffected())
			return nil
		}})
		if err != nil {
			return purged, fmt.Errorf("postgres: purge: %w", err)
		}
		purged += n
		if n < batch {
			break
		}
	}
	return purged, nil
}

// DeadLetter is a parked event.
type DeadLetter struct {
	*core.Record
	// Reason is why it was parked.
	Reason string
}

// DeadLetters returns at most limit parked events with an id above after, by id: page through them with the last id.
func (s *Store) DeadLetters(ctx context.Context, after int64, limit int) ([]DeadLetter, error) {
	var dead []DeadLetter
	err := s.transact(ctx, step{sql: s.queries.dead, args: []any{after, limit}, read: func(rows pgx.Rows) error {
		for rows.Next() {
			var reason string
			r, _, err := scanRecord(rows, &reason)
			if err != nil {
				return err
			}
			dead = append(dead, DeadLetter{Record: r, Reason: reason})
		}
		return nil
	}})
	if err != nil {
		return nil, fmt.Errorf("postgres: dead letters: %w", err)
	}
	return dead, nil
}
