package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// exampleStore opens a store on tables of the example's own. Without a server the example shows what it would print.
func exampleStore(ctx context.Context, table string) (*postgres.Store, func()) {
	store, err := postgres.Open(ctx, postgres.Config{DSN: os.Getenv("OUTBOX_TEST_POSTGRES_URL"), Table: table, Logger: quiet()})
	if err != nil {
		panic(err)
	}
	if _, err := store.Migrate(ctx, 0); err != nil { // what an interrupted run left behind
		panic(err)
	}
	if _, err := store.Migrate(ctx, len(store.Migrations())); err != nil {
		panic(err)
	}
	return store, func() {
		_, _ = store.Migrate(ctx, 0)
		_ = store.Close()
	}
}

func noServer() bool { return os.Getenv("OUTBOX_TEST_POSTGRES_URL") == "" }

func Example() {
	if noServer() {
		fmt.Println("order.created: {\"total\": 12}")
		return
	}
	ctx := context.Background()
	store, done := exampleStore(ctx, "example")
	defer done()

	tx, err := store.Pool().Begin(ctx) // the pool of the application, usually
	if err != nil {
		panic(err)
	}
	// tx.Exec(ctx, "INSERT INTO orders ...")
	_, err = store.In(tx).Enqueue(ctx, core.Message{
		AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: []byte(`{"total": 12}`),
	})
	if err != nil {
		panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err)
	}

	broker := membroker.New(membroker.Config{})
	dispatcher, err := core.NewDispatcher(store, broker, core.Config{Logger: quiet()})
	if err != nil {
		panic(err)
	}
	if err := dispatcher.RunOnce(ctx); err != nil {
		panic(err)
	}
	for _, m := range broker.Messages("order") {
		fmt.Printf("%s: %s\n", m.Headers[core.HeaderEventType], m.Payload)
	}
	// Output: order.created: {"total": 12}
}

func ExampleStore_InTx() {
	if noServer() {
		fmt.Println("2 <nil>")
		return
	}
	ctx := context.Background()
	store, done := exampleStore(ctx, "example_intx")
	defer done()

	var ids []string
	err := store.InTx(ctx, func(tx pgx.Tx, box core.Enqueuer) (err error) {
		// tx.Exec(ctx, "UPDATE orders SET ...")
		ids, err = box.Enqueue(ctx,
			core.Message{AggregateType: "order", AggregateID: "ord_1", EventType: "order.paid"},
			core.Message{AggregateType: "invoice", AggregateID: "inv_7", EventType: "invoice.created"},
		)
		return err
	})
	fmt.Println(len(ids), err)
	// Output: 2 <nil>
}

func ExampleStore_EnqueueCopy() {
	if noServer() {
		fmt.Println("1000 <nil>")
		return
	}
	ctx := context.Background()
	store, done := exampleStore(ctx, "example_copy")
	defer done()

	var ids []string
	err := store.InTx(ctx, func(tx pgx.Tx, _ core.Enqueuer) (err error) {
		ids, err = store.EnqueueCopy(ctx, tx, numbered(1000)...)
		return err
	})
	fmt.Println(len(ids), err)
	// Output: 1000 <nil>
}

func ExampleStore_Requeue() {
	if noServer() {
		fmt.Println("parked: too large\nrequeued: 1 <nil>")
		return
	}
	ctx := context.Background()
	store, done := exampleStore(ctx, "example_requeue")
	defer done()
	_, err := store.Pool().Exec(ctx, `INSERT INTO example_requeue (event_id, aggregate_type, aggregate_id, event_type, dlq, last_error)
		VALUES ('evt_1', 'order', 'ord_1', 'order.created', true, 'too large')`)
	if err != nil {
		panic(err)
	}

	dead, err := store.ListDead(ctx, core.DeadLetterFilter{}, 0, 100)
	if err != nil {
		panic(err)
	}
	for _, d := range dead {
		fmt.Println("parked:", d.Reason)
	}
	n, err := store.Requeue(ctx, dead[0].Record.EventID)
	fmt.Println("requeued:", n, err)
	// Output:
	// parked: too large
	// requeued: 1 <nil>
}

// The steps can be printed for tools that apply SQL files.
func ExampleStore_Migrations() {
	pool, err := pgxpoolWithoutConnecting()
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{Schema: "Sales-EU", Table: "events"})
	if err != nil {
		panic(err)
	}
	for _, m := range store.Migrations() {
		for line := range strings.Lines(m.Up) {
			if strings.HasPrefix(line, "CREATE TABLE") {
				fmt.Print(m.Version, " ", line)
			}
		}
	}
	// Output:
	// 1 CREATE TABLE "Sales-EU"."events" (
	// 1 CREATE TABLE "Sales-EU"."events_members" (
	// 1 CREATE TABLE "Sales-EU"."events_lanes" (
	// 1 CREATE TABLE "Sales-EU"."events_rewinds" (
	// 1 CREATE TABLE "Sales-EU"."events_fingerprints" (
	// 1 CREATE TABLE "Sales-EU"."events_sleepers" (
	// 2 CREATE TABLE "Sales-EU"."events_archive" (
}

// Old events go by the month: months that are over are dropped, which leaves nothing to vacuum.
func ExampleStore_Purge() {
	if noServer() {
		fmt.Println("purged: 0 <nil>")
		return
	}
	ctx := context.Background()
	store, err := postgres.Open(ctx, postgres.Config{
		DSN: os.Getenv("OUTBOX_TEST_POSTGRES_URL"), Table: "example_purge", Partitioned: true, Logger: quiet(),
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.Migrate(ctx, len(store.Migrations())); err != nil {
		panic(err)
	}
	defer func() { _, _ = store.Migrate(ctx, 0) }()

	n, err := store.Purge(ctx, 90*24*time.Hour, 0) // every night, say
	fmt.Println("purged:", n, err)
	// Output: purged: 0 <nil>
}
