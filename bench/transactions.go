package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/bench/internal/report"
	"github.com/go-outbox/outbox/core"
)

// businessTransactions measures what the outbox costs the application: the rate of transactions that update an
// aggregate and write one event, through Enqueue into the outbox with its trigger. Compared with it: the same row written
// by a bare INSERT into a table like the outbox that has no trigger, into one that has nothing but a key either, and no
// event at all.
func businessTransactions(ctx context.Context, e *environment, r *report.Report) error {
	return withNotify(ctx, func(db *database) error {
		s, err := db.outbox(ctx, published)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		if err := createBusiness(ctx, db); err != nil {
			return err
		}
		body := load.Body(1, "ord_1")
		nothing := func(context.Context, pgx.Tx, string) error { return nil }
		same := func(ctx context.Context, tx pgx.Tx, key string) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+db.table("same")+`
				(event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'order', $2, 'order.created', $3)`,
				core.NewEventID(), key, body)
			return err
		}
		bare := func(ctx context.Context, tx pgx.Tx, key string) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+db.table("bare")+`
				(event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'order', $2, 'order.created', $3)`,
				core.NewEventID(), key, body)
			return err
		}
		enqueue := func(ctx context.Context, tx pgx.Tx, key string) error {
			_, err := s.In(tx).Enqueue(ctx, core.Message{
				AggregateType: "order", AggregateID: key, EventType: "order.created", Payload: body,
			})
			return err
		}
		for _, writers := range []int{1, 8, 32} {
			if err := compareTransactions(ctx, e, db, r, writers, nothing, bare, same, enqueue); err != nil {
				return err
			}
		}
		return nil
	})
}

func createBusiness(ctx context.Context, db *database) error {
	for _, sql := range []string{
		`CREATE TABLE ` + db.table("orders") + ` (id int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50)`,
		`INSERT INTO ` + db.table("orders") + ` SELECT g FROM generate_series(0, 999) g`,
		`CREATE TABLE ` + db.table("same") + ` (LIKE ` + db.table("outbox") + ` INCLUDING ALL)`,
		`CREATE TABLE ` + db.table("bare") + ` (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			event_id text NOT NULL UNIQUE, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
			payload json, created_at timestamptz DEFAULT now())`,
	} {
		if _, err := db.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// event writes what a transaction tells the world.
type event func(ctx context.Context, tx pgx.Tx, key string) error

func compareTransactions(
	ctx context.Context, e *environment, db *database, r *report.Report, writers int, nothing, bare, same, enqueue event,
) error {
	names := []string{"no event", "INSERT into a plain table", "bare INSERT of the same row", "Enqueue"}
	rates := make([][]float64, len(names))
	events := []event{nothing, bare, same, enqueue}
	for round := range e.repeats * len(turns) {
		for _, i := range turns[round%len(turns)] {
			rate, err := transactions(ctx, db, writers, events[i])
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], rate)
		}
	}
	label := func(i int) string { return fmt.Sprintf("transactions, %d writers, %s", writers, names[i]) }
	for i := range names {
		r.Add(report.Figure{Name: label(i), Value: quantile(rates[i], 0.5), Unit: "tx/s"})
	}
	name := fmt.Sprintf("tx_with_outbox_%d", writers)
	if writers == 8 {
		name = "tx_with_outbox"
	}
	r.Ratio(name, label(3), label(2), "bar 0.9")
	if writers == 8 {
		r.Ratio("tx_vs_plain_table", label(3), label(1), "what ids, lanes, indexes and the trigger cost together")
	}
	return nil
}

// turn is how long each kind runs at a time: many short turns, as checkpoints and what else goes on in a database last for
// seconds.
const turn = time.Second

// turns are the orders in which the four kinds follow each other: each has every place once, and comes after every other
// one once.
var turns = [4][4]int{{0, 1, 3, 2}, {1, 2, 0, 3}, {2, 3, 1, 0}, {3, 0, 2, 1}}

// transactions runs business transactions for a while and returns their rate.
func transactions(ctx context.Context, db *database, writers int, ev event) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	counts, errs := make([]int, writers), make([]error, writers)
	var ready, wg sync.WaitGroup
	ready.Add(writers)
	for w := range writers {
		wg.Go(func() { counts[w], errs[w] = write(ctx, db, w, &ready, ev) })
	}
	wg.Wait()
	total := 0
	for w := range writers {
		if errs[w] != nil {
			return 0, errs[w]
		}
		total += counts[w]
	}
	return float64(total) / turn.Seconds(), nil
}

// write is one writer: it updates one aggregate after the other. Its first transaction, in which all statements are
// prepared, does not count; the clock starts when all writers have done theirs.
func write(ctx context.Context, db *database, w int, ready *sync.WaitGroup, ev event) (count int, err error) {
	warm := sync.OnceFunc(ready.Done)
	defer warm() // nobody waits for one that failed
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var deadline time.Time
	for n := w; deadline.IsZero() || time.Now().Before(deadline); n += 7 {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE "+db.table("orders")+" SET n = n + 1 WHERE id = $1", n%1000); err != nil {
				return err
			}
			return ev(ctx, tx, load.Key(n))
		})
		if err != nil {
			return 0, err
		}
		if deadline.IsZero() {
			warm()
			ready.Wait()
			deadline = time.Now().Add(turn)
			continue
		}
		count++
	}
	return count, nil
}
