package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

const (
	aggregateType = "order"
	orders        = 7
	createOrders  = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, status TEXT NOT NULL)`
	saveOrder     = `INSERT INTO orders (id, status) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET status = excluded.status`
)

// placeOrders takes some orders through their life, all of them at the same time.
func placeOrders(ctx context.Context, store *sqlite.Store) error {
	for _, status := range []string{"created", "paid", "shipped"} {
		for n := range orders {
			if err := change(ctx, store, fmt.Sprintf("ord_%d", n+1), status); err != nil {
				return err
			}
		}
	}
	return nil
}

// change writes the order and its event in one transaction.
func change(ctx context.Context, store *sqlite.Store, order, status string) error {
	return store.InTx(ctx, func(tx *sql.Tx, box core.Enqueuer) error {
		if _, err := tx.ExecContext(ctx, saveOrder, order, status); err != nil {
			return err
		}
		_, err := box.Enqueue(ctx, core.Message{
			AggregateType: aggregateType, AggregateID: order, EventType: "order." + status,
			Payload: fmt.Appendf(nil, `{"order":%q,"status":%q}`, order, status),
		})
		return err
	})
}
