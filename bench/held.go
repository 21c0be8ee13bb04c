package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/bench/internal/worker"
)

// heldTransactions measures how long a fetch takes at 3,000 events a second while somebody keeps a transaction open:
// none, a snapshot (as pg_dump does), or one that has written (a forgotten session).
func heldTransactions(ctx context.Context, e *environment, r *report.Report) error {
	const without = "fetch, nothing held"
	for _, held := range []struct{ name, what, sql string }{
		{"", without, ""},
		{"held_snapshot_fetch", "fetch, a snapshot held", "SELECT count(*) FROM " + e.db.table("outbox")},
		{"held_write_fetch", "fetch, a write transaction held", "CREATE TABLE " + e.db.table("held") + " (n int)"},
	} {
		took, err := fetchTime(ctx, e, held.sql)
		if err != nil {
			return fmt.Errorf("%s: %w", held.what, err)
		}
		r.Add(report.Figure{
			Name: held.what, Value: took, Unit: "ms",
			Note: fmt.Sprintf("median of the last quarter of %v at %d/s", e.hold, heldRate),
		})
		if held.name != "" {
			r.Ratio(held.name, held.what, without, "of the time without; bar 2")
		}
	}
	return nil
}

const heldRate = 3000

func fetchTime(ctx context.Context, e *environment, hold string) (_ float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.hold+time.Minute)
	defer cancel()
	d, err := start(ctx, e.db, e.kafka, worker.Job{})
	if err != nil {
		return 0, err
	}
	defer func() {
		if stop := d.stop(); err == nil {
			err = stop
		}
	}()
	if hold != "" {
		release, err := holdOpen(ctx, e.db, hold)
		if err != nil {
			return 0, err
		}
		defer release()
	}
	if err := insertSteadily(ctx, d, 0, e.hold*3/4); err != nil {
		return 0, err
	}
	if _, err := d.Sample(); err != nil { // forgets the fetches so far
		return 0, err
	}
	if err := insertSteadily(ctx, d, heldRate*int(e.hold/time.Second), e.hold/4); err != nil {
		return 0, err
	}
	s, err := d.Sample()
	if err != nil {
		return 0, err
	}
	if len(s.FetchMillis) == 0 {
		return 0, fmt.Errorf("no fetch in %v", e.hold/4)
	}
	return quantile(s.FetchMillis, 0.5), nil
}

// holdOpen begins a transaction and leaves it open until release.
func holdOpen(ctx context.Context, db *database, sql string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return nil, err
	}
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanup)
		defer cancel()
		_ = conn.Close(ctx) // rolls back
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(ctx, sql)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// insertSteadily inserts at heldRate for a while, numbered from after+1.
func insertSteadily(ctx context.Context, d *running, after int, length time.Duration) error {
	const tick = 10 * time.Millisecond
	const each = heldRate * int(tick) / int(time.Second)
	insert := d.db.insertSQL(load.Uniform) + " generate_series($1::int, $2::int) g"
	begin := time.Now()
	for i := 0; time.Since(begin) < length; i++ {
		if err := pause(ctx, time.Until(begin.Add(time.Duration(i)*tick))); err != nil {
			return err
		}
		first := after + i*each + 1
		if _, err := d.db.pool.Exec(ctx, insert, first, first+each-1, d.topic); err != nil {
			return err
		}
	}
	return nil
}
