package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/sqlite"
)

// enqueueExample commits events, and parks or blocks the first, as a dispatcher does with what the broker refuses.
func enqueueExample(ctx context.Context, store *sqlite.Store, status core.Status, messages ...core.Message) error {
	err := tryEnqueue(ctx, store, messages...)
	if err != nil {
		return err
	}
	leases, err := store.Lease(ctx, core.LeaseRequest{Member: "m", TTL: time.Minute, Want: []int{0}})
	if err != nil {
		return err
	}
	batch, err := store.Fetch(ctx, core.FetchRequest{
		Member: "m", Lanes: []core.LaneFetch{{Lease: leases.Held[0]}}, MaxRecords: 1, MaxBytes: 1 << 20,
	})
	if err != nil {
		return err
	}
	_, err = store.Settle(ctx, core.Settlement{Member: "m", Leases: leases.Held, Items: []core.SettleItem{{
		Record: batch.Lanes[0].Records[0], Status: status, Attempts: 1,
		Reason: "MESSAGE_TOO_LARGE: kafka: topic orders: the message has 2 MB, the broker takes 1 MB",
	}}})
	_, leaveErr := store.Lease(ctx, core.LeaseRequest{Member: "m", Leave: true})
	return errors.Join(err, leaveErr)
}

func order(event, id string) core.Message {
	return core.Message{
		EventID: event, Topic: "orders", AggregateType: "order", AggregateID: id, EventType: "order.changed", Payload: []byte(`{}`),
	}
}

// What is parked is found by a filter, and sent once its cause is repaired.
func ExampleStore_RequeueDead() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	if err := enqueueExample(ctx, store, core.StatusParked, order("evt_1", "ord_1"), order("evt_2", "ord_1")); err != nil {
		fmt.Println(err)
		return
	}

	tooLarge := core.DeadLetterFilter{Topic: "orders", Reason: "too_large"}
	for after := int64(0); ; {
		page, err := store.ListDead(ctx, tooLarge, after, 100)
		if err != nil {
			fmt.Println(err)
			return
		}
		if len(page) == 0 {
			break
		}
		for _, dead := range page {
			fmt.Println(dead.Record.EventID, "of", dead.Record.AggregateID, "-", dead.Reason)
			after = dead.Record.ID
		}
	}
	n, err := store.RequeueDead(ctx, tooLarge)
	fmt.Println(n, "requeued:", err)

	broker := membroker.New(membroker.Config{})
	dispatcher, err := core.NewDispatcher(store, broker, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := dispatcher.RunOnce(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range broker.Messages("orders") {
		fmt.Println(m.Headers["event_id"], m.Headers["outbox_replay"])
	}
	// Output:
	// evt_1 of ord_1 - MESSAGE_TOO_LARGE: kafka: topic orders: the message has 2 MB, the broker takes 1 MB
	// 1 requeued: <nil>
	// evt_1 1
	// evt_2
}

// A decision that an event is not sent stays visible until the next purge, and can be taken back.
func ExampleStore_DiscardDead() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	if err := enqueueExample(ctx, store, core.StatusParked, order("evt_1", "ord_1")); err != nil {
		fmt.Println(err)
		return
	}

	n, err := store.DiscardDead(ctx, core.DeadLetterFilter{EventIDs: []string{"evt_1"}}, "a test order, see OPS-7")
	fmt.Println(n, "discarded:", err)
	discarded, err := store.ListDead(ctx, core.DeadLetterFilter{State: core.StateDiscarded}, 0, 100)
	fmt.Println(discarded[0].Reason, err)
	n, err = store.RequeueDead(ctx, core.DeadLetterFilter{State: core.StateDiscarded, EventIDs: []string{"evt_1"}})
	fmt.Println(n, "back:", err)
	// Output:
	// 1 discarded: <nil>
	// discarded: a test order, see OPS-7; MESSAGE_TOO_LARGE: kafka: topic orders: the message has 2 MB, the broker takes 1 MB <nil>
	// 1 back: <nil>
}

// A blocked key waits for a person, who lets its first event be tried again, or gives that event up.
func ExampleStore_SkipHead() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	if err := enqueueExample(ctx, store, core.StatusBlocked, order("evt_1", "ord_1"), order("evt_2", "ord_1")); err != nil {
		fmt.Println(err)
		return
	}

	blocked, err := store.ListDead(ctx, core.DeadLetterFilter{State: core.StateBlocked}, 0, 100)
	fmt.Println(len(blocked), "blocked:", err)
	key := ordering.Key{Topic: "orders", AggregateType: "order", AggregateID: "ord_1"}
	n, err := store.SkipHead(ctx, key, "never valid, see OPS-8") // or store.Unblock(ctx, key)
	fmt.Println(n, "parked:", err)
	count, err := store.CountDead(ctx, core.DeadLetterFilter{State: core.StateBlocked})
	fmt.Println(count, "blocked:", err)
	// Output:
	// 1 blocked: <nil>
	// 1 parked: <nil>
	// 0 blocked: <nil>
}
