package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

// openExample opens a migrated store on a file in a temporary folder.
func openExample(ctx context.Context) (store *sqlite.Store, remove func(), err error) {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		return nil, nil, err
	}
	store, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "shop.db")})
	if err == nil {
		_, err = store.Migrate(ctx, len(store.Migrations()))
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return store, func() { _ = store.Close(); _ = os.RemoveAll(dir) }, nil
}

// Event and data in one transaction: both are committed or neither is.
func Example() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	_, err = store.DB().ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY)`)
	if err != nil {
		fmt.Println(err)
		return
	}

	tx, err := store.DB().BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ('ord_1')`); err != nil {
		fmt.Println(err)
		return
	}
	ids, err := store.In(tx).Enqueue(ctx, core.Message{
		EventID: "evt_1", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Payload: []byte(`{"total": 42}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	store.Nudge()
	fmt.Println(ids)
	// Output: [evt_1]
}

// InTx begins, commits and nudges; an error rolls back.
func ExampleStore_InTx() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()

	err = store.InTx(ctx, func(_ *sql.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(ctx, core.Message{
			AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: []byte(`not JSON`),
		})
		return err
	})
	var fault *core.InvalidMessageError
	if errors.As(err, &fault) {
		fmt.Println(fault.Field, fault.Reason)
	}
	// Output: Payload is not valid JSON; send JSON or nil, or configure the table with Payload: sqlite.Bytes
}

// New works on a pool of the application's own.
func ExampleNew() {
	db, err := sql.Open("sqlite", "file::memory:?_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	store, err := sqlite.New(db, sqlite.Config{Table: "events"})
	if err != nil {
		fmt.Println(err)
		return
	}
	steps, err := store.Migrate(context.Background(), 1)
	fmt.Println(len(steps), "step", err)
	// Output: 1 step <nil>
}

func ExampleParseURL() {
	cfg, err := sqlite.ParseURL("sqlite:demo.db?table=events&after_publish=delete")
	fmt.Println(cfg.Path, cfg.Table, cfg.AfterPublish, err)
	_, err = sqlite.ParseURL("sqlite:demo.db?tabel=events")
	fmt.Println(err)
	// Output:
	// demo.db events delete <nil>
	// sqlite: url: unknown parameter "tabel"; known are after_publish, busy_timeout, payload, synchronous, table
}

// Requeue sends parked or published events again; Purge removes what was published long ago.
func ExampleStore_Requeue() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	_, err = store.DB().ExecContext(ctx, `
		INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, dlq, published_at) VALUES
			('evt_1', 'order', 'ord_1', 'order.created', 1, NULL), ('evt_2', 'order', 'ord_2', 'order.created', 0, 1)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	requeued, err := store.Requeue(ctx, "evt_1", "unknown")
	fmt.Println("requeued", requeued, err)
	purged, err := store.Purge(ctx, 7*24*time.Hour, 10_000)
	fmt.Println("purged", purged, err)
	// Output:
	// requeued 1 <nil>
	// purged 1 <nil>
}
