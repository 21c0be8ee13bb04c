package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func ExampleNew() {
	ctx := context.Background()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	created := core.Message{
		EventID: "ev-1", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Payload: []byte(`{"total": 12}`),
	}

	tx := store.Begin()
	if _, err := tx.Enqueue(ctx, created); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rows before the commit:", len(store.Rows()))
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range store.Rows() {
		fmt.Println(row.EventID, row.Key(), row.State, string(row.Payload))
	}
	// Output:
	// rows before the commit: 0
	// ev-1 order/ord_1 pending {"total": 12}
}

// A settle is written, but its answer is lost: the caller sees an error and repeats it.
func ExampleConfig_fault() {
	ctx := context.Background()
	lost := false
	store, err := memstore.New(memstore.Config{
		Lanes: 1,
		Fault: func(_ context.Context, at memstore.Point) error {
			if at.Op == memstore.OpSettle && at.Done && !lost {
				lost = true
				return errors.New("connection reset")
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tx := store.Begin()
	_, err = tx.Enqueue(ctx, core.Message{EventID: "ev-1", AggregateType: "order", AggregateID: "1", EventType: "created"})
	if err = errors.Join(err, tx.Commit()); err != nil {
		fmt.Println(err)
		return
	}

	leases, err := store.Lease(ctx, core.LeaseRequest{Member: "me", TTL: time.Minute, Want: []int{0}})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err := store.Fetch(ctx, core.FetchRequest{
		Member: "me", Lanes: []core.LaneFetch{{Lease: leases.Held[0]}}, MaxRecords: 10, MaxBytes: 1 << 20,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	settlement := core.Settlement{Member: "me", Leases: leases.Held, Items: []core.SettleItem{
		{Record: batch.Lanes[0].Records[0], Status: core.StatusPublished},
	}}
	_, err = store.Settle(ctx, settlement)
	fmt.Println(err)
	row, _ := store.Row("ev-1")
	fmt.Println(row.State)
	settled, err := store.Settle(ctx, settlement)
	fmt.Println(len(settled.Refused), "refused,", len(settled.Missed), "missed,", err)
	// Output:
	// memstore: settle: connection reset
	// published
	// 0 refused, 1 missed, <nil>
}
