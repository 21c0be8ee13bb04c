package main

import (
	"context"
	"database/sql"
	"strings"

	"github.com/go-outbox/outbox/core"
)

// writeOrder changes an order. Beside its status the row remembers the ids of its events, oldest first: the books that
// the consumer's findings are compared with. What is rolled back is not in the books.
//
// It also locks the row until the transaction ends, so that writers of one order come one after the other: their
// events have an order that can be kept.
func (db *database) writeOrder(ctx context.Context, tx *sql.Tx, order, status, eventID string) error {
	//nolint:gosec // the table's name is our own
	query := `INSERT INTO ` + db.orders + ` AS o (id, status, events) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, events = o.events || ' ' || excluded.events`
	_, err := tx.ExecContext(ctx, query, order, status, eventID)
	return err
}

// books reads the orders table: the ids of the events of each order, oldest first.
func (db *database) books(ctx context.Context) (books map[string][]string, err error) {
	books = map[string][]string{}
	err = db.inTx(ctx, func(tx *sql.Tx, _ core.Enqueuer) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, events FROM `+db.orders) //nolint:gosec // the table's name is our own
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // reading to the end has closed it; its error is in rows.Err
		for rows.Next() {
			var order, events string
			if err := rows.Scan(&order, &events); err != nil {
				return err
			}
			books[order] = strings.Fields(events)
		}
		return rows.Err()
	})
	return books, err
}
