// Readme is the code of README.md as a whole program: an order and its event in one transaction, carried to Kafka.
//
//	go run ./examples/readme shop.db 127.0.0.1:9092
//
// It runs until it gets a signal. The broker needs a topic with the name "order".
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

func main() { os.Exit(start()) }

func start() (exitCode int) {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: readme DATABASE-FILE KAFKA-ADDRESS")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, file, address string) (err error) {
	store, err := sqlite.Open(ctx, sqlite.Config{Path: file})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.Migrate(ctx, 1); err != nil {
		return err
	}
	if _, err := store.DB().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)`); err != nil {
		return err
	}
	if err := placeOrder(ctx, store, core.NewEventID()); err != nil {
		return err
	}
	return dispatch(ctx, store, address)
}

func placeOrder(ctx context.Context, store *sqlite.Store, id string) error {
	return store.InTx(ctx, func(tx *sql.Tx, box core.Enqueuer) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id); err != nil {
			return err
		}
		_, err := box.Enqueue(ctx, core.Message{
			AggregateType: "order", AggregateID: id, EventType: "order.created", Payload: []byte(`{"total":4200}`),
		})
		return err // the order and its event commit together, or not at all
	})
}

func dispatch(ctx context.Context, store *sqlite.Store, address string) error {
	broker, err := kafka.Open(ctx, kafka.Config{Brokers: []string{address}})
	if err != nil {
		return err
	}
	defer func() { _ = broker.Close(context.WithoutCancel(ctx)) }()
	dispatcher, err := core.NewDispatcher(store, broker, core.Config{})
	if err != nil {
		return err
	}
	return dispatcher.Run(ctx) // until ctx ends; then it finishes what is in flight
}
