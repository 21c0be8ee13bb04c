package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/store/postgres"
)

// heldTransactions measures how long a fetch takes at 3,000 events a second while somebody keeps a transaction open:
// none, a snapshot (as pg_dump does), or one that has written (a forgotten session).
func heldTransactions(ctx context.Context, e *environment, r *report) error {
	var without float64
	for _, held := range []struct{ name, what, sql string }{
		{"", "nothing held", ""},
		{"held_snapshot_fetch", "a REPEATABLE READ snapshot held", "SELECT count(*) FROM %s.outbox"},
		{"held_write_fetch", "a write transaction held", "CREATE TABLE %s.other (n int)"},
	} {
		took, err := fetchTime(ctx, e, held.sql)
		if err != nil {
			return fmt.Errorf("%s: %w", held.what, err)
		}
		r.add("fetch, "+held.what, took, "ms", fmt.Sprintf("median of the last quarter of %v at 3,000/s", e.hold))
		if held.name == "" {
			without = took
			continue
		}
		r.name(held.name, took/without, "x", "of the time without; bar 2")
	}
	return nil
}

func fetchTime(ctx context.Context, e *environment, hold string) (float64, error) {
	s, err := e.store(ctx, postgres.Mark)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	topic, b, err := e.topic(ctx)
	if err != nil {
		return 0, err
	}
	defer e.drop(topic, b)
	if hold != "" {
		tx, err := e.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return 0, err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, fmt.Sprintf(hold, e.schema)); err != nil {
			return 0, err
		}
	}
	fetches := &counter{}
	d, err := e.dispatcher(s, b, fetches)
	if err != nil {
		return 0, err
	}
	work, stop := context.WithTimeout(ctx, e.hold)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(work) })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	start, last := time.Now(), -1
	for n := 1; work.Err() == nil; n += 30 {
		if last < 0 && time.Since(start) > e.hold*3/4 {
			last = fetches.fetches()
		}
		_, err := e.pool.Exec(work, `INSERT INTO `+e.schema+`.outbox (aggregate_type, aggregate_id, event_type, topic, payload)
			SELECT 'order', 'ord_' || g % 1000, 'order.created', $1, jsonb_build_object('n', g, 'pad', repeat('x', 390))
			FROM generate_series($2::int, $2::int + 29) g`, topic, n)
		if err != nil && work.Err() == nil {
			return 0, err
		}
		select {
		case <-tick.C:
		case <-work.Done():
		}
	}
	wg.Wait()
	if last < 0 || fetches.fetches() == last {
		return 0, fmt.Errorf("too few fetches in %v", e.hold)
	}
	return median(fetches.since(last)), nil
}
