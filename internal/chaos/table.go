package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// table is what the outbox says about its rows.
type table struct{ rows, pending, dead, attempts int }

func inspect(ctx context.Context, pool *pgxpool.Pool) (t table, err error) {
	err = pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE published_at IS NULL), count(*) FILTER (WHERE dlq),
		coalesce(sum(attempt_count), 0) FROM outbox`).Scan(&t.rows, &t.pending, &t.dead, &t.attempts)
	return t, err
}

// faults are the promises that the table shows to be broken.
func (t table) faults(committed int) (broken []string) {
	for _, f := range []struct {
		holds bool
		text  string
	}{
		{committed > 0, "nothing was committed: the run proves nothing"},
		{t.rows == committed, fmt.Sprintf("the table has %d rows, but %d events were committed", t.rows, committed)},
		{t.pending == 0, fmt.Sprintf("%d rows are still pending long after all was healed", t.pending)},
		{t.dead == 0, fmt.Sprintf("%d rows are parked, though the broker refuses none", t.dead)},
		{t.attempts == 0, fmt.Sprintf("%d attempts were spent on outages", t.attempts)},
	} {
		if !f.holds {
			broken = append(broken, f.text)
		}
	}
	return broken
}

// awaitDrained waits until no row is pending, or for drainPatience: then the table says so.
func awaitDrained(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	for ctx.Err() == nil {
		if t, err := inspect(ctx, pool); err == nil && t.pending == 0 {
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}
