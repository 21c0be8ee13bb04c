package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/go-outbox/outbox/core"
)

// vacuuming are the settings of a table whose rows are all written twice.
const vacuuming = `WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 0.1
)`

// byMonth is what a partitioned outbox has otherwise than a plain one. Its keys contain created_at, as every unique index
// must contain what the partitions are made by. So no index keeps an event id from coming a second time: Enqueue looks
// for it, under a lock.
func (n names) byMonth(name string) (text string, ok bool) {
	switch name {
	case "vacuuming":
		return vacuuming, true
	case "storage":
		if n.partitioned {
			return "PARTITION BY RANGE (created_at)", true
		}
		return vacuuming, true
	case "month":
		text = ", created_at"
	case "same_month": // looks into one partition instead of all
		text = " AND o.created_at = i.created_at"
	case "old_month": // what was published by then was created before
		text = " AND created_at < now() - $2::interval"
	case "unknown": // LIMIT keeps the planner from joining with all there is
		text = n.sql("WHERE (SELECT true FROM {outbox} o WHERE o.event_id = m.event_id LIMIT 1) IS NULL\n")
	default:
		return "", false
	}
	if !n.partitioned {
		text = ""
	}
	return text, true
}

const (
	monthsAheadSQL  = `SELECT {outbox_month}(now() + n * interval '1 month') FROM generate_series(0, 2) n`
	archiveAheadSQL = `SELECT {outbox_archive_ahead}()`

	// monthOfArchivedSQL makes the partitions that requeued events of the archive come back to.
	monthOfArchivedSQL = `
SELECT {outbox_month}(created_at) FROM {outbox_archive} WHERE event_id = ANY ($1::text[])`
)

const (
	// monthsEvery is how often partitions are looked after; there is a month at least to try again.
	monthsEvery = time.Hour
	// monthsTimeout bounds the wait for the lock that a new partition takes; leases must not wait for it.
	monthsTimeout = time.Second
)

// monthsAhead makes the next partitions in good time.
func (s *Store) monthsAhead(ctx context.Context) {
	now := time.Now().Unix()
	var steps []step
	if s.cfg.Partitioned {
		steps = append(steps, step{sql: s.queries.monthsAhead})
	}
	if s.cfg.AfterPublish == Archive {
		steps = append(steps, step{sql: s.queries.archiveAhead})
	}
	if len(steps) == 0 || now < s.monthsUntil.Load() {
		return
	}
	s.monthsUntil.Store(now + int64(monthsEvery.Seconds()))
	ctx, cancel := context.WithTimeout(ctx, monthsTimeout)
	defer cancel()
	if err := s.transact(ctx, steps...); err != nil && !errors.Is(err, core.ErrNotMigrated) {
		s.cfg.Logger.Warn("the partitions of the next months could not be made; next attempt in an hour",
			"table", s.cfg.Table, "error", err)
	}
}
