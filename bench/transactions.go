package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// businessTransactions measures what the outbox costs the application: the rate of transactions that update an
// aggregate and write one event, through Enqueue into the outbox table with its trigger, against the same row written
// into a table without any of it.
func businessTransactions(ctx context.Context, e *environment, r *report) error {
	s, err := e.store(ctx, postgres.Mark)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for _, sql := range []string{
		`CREATE TABLE %s.orders (id int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50)`,
		`INSERT INTO %s.orders SELECT g FROM generate_series(0, 999) g`,
		`CREATE TABLE %[1]s.bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id text NOT NULL UNIQUE,
			aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now())`,
	} {
		if _, err := e.pool.Exec(ctx, fmt.Sprintf(sql, e.schema)); err != nil {
			return err
		}
	}
	body := fmt.Appendf(nil, `{"pad": "%0*d"}`, payloadBytes-12, 0)
	bare := func(ctx context.Context, tx pgx.Tx, key string) error {
		_, err := tx.Exec(ctx, "INSERT INTO "+e.schema+`.bare (event_id, aggregate_type, aggregate_id, event_type, payload)
			VALUES ($1, 'order', $2, 'order.created', $3)`, core.NewEventID(), key, body)
		return err
	}
	with := func(ctx context.Context, tx pgx.Tx, key string) error {
		_, err := s.In(tx).Enqueue(ctx, core.Message{AggregateType: "order", AggregateID: key, EventType: "order.created", Payload: body})
		return err
	}
	for _, writers := range []int{1, 8, 32} {
		var bares, withs []float64
		for range e.repeats {
			a, err := transactions(ctx, e, writers, bare)
			if err != nil {
				return err
			}
			b, err := transactions(ctx, e, writers, with)
			if err != nil {
				return err
			}
			bares, withs = append(bares, a), append(withs, b)
		}
		r.add(fmt.Sprintf("transactions, bare INSERT, %d writers", writers), median(bares), "tx/s", "")
		r.add(fmt.Sprintf("transactions, Enqueue, %d writers", writers), median(withs), "tx/s", "")
		if name, ratio := fmt.Sprintf("tx_with_outbox_%d", writers), median(withs)/median(bares); writers == 8 {
			r.name("tx_with_outbox", ratio, "x", "8 writers; bar 0.9")
		} else {
			r.add(name, ratio, "x", "")
		}
	}
	return nil
}

// transactions runs business transactions for a while and returns their rate.
func transactions(ctx context.Context, e *environment, writers int, event func(context.Context, pgx.Tx, string) error) (float64, error) {
	const length = 4 * time.Second
	deadline := time.Now().Add(length)
	counts, errs := make([]int, writers), make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			conn, err := pgx.Connect(ctx, e.postgres)
			if err != nil {
				errs[w] = err
				return
			}
			defer func() { _ = conn.Close(ctx) }()
			for n := w; time.Now().Before(deadline); n += 7 {
				errs[w] = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "UPDATE "+e.schema+".orders SET n = n + 1 WHERE id = $1", n%1000); err != nil {
						return err
					}
					return event(ctx, tx, fmt.Sprint("ord_", n%1000))
				})
				if errs[w] != nil {
					return
				}
				counts[w]++
			}
		})
	}
	wg.Wait()
	total := 0
	for w := range writers {
		if errs[w] != nil {
			return 0, errs[w]
		}
		total += counts[w]
	}
	return float64(total) / length.Seconds(), nil
}
