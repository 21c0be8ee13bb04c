package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// put enqueues messages in a transaction of their own, as a service does beside its own changes.
func put(store *memstore.Store, messages ...core.Message) error {
	tx := store.Begin()
	if _, err := tx.Enqueue(context.Background(), messages...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// RunOnce suits cron jobs and tests: it dispatches what is there and returns.
func ExampleDispatcher_RunOnce() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	broker := membroker.New(membroker.Config{})
	err = put(store, core.Message{
		Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: []byte(`{"total": 42}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := core.NewDispatcher(store, broker, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := d.RunOnce(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range broker.Messages("orders") {
		fmt.Println(m.Key.AggregateID, m.Headers[core.HeaderEventType], string(m.Payload))
	}
	// Output: ord_1 order.created {"total": 42}
}

// Run blocks until its context ends, then finishes what is in flight and gives its lanes back.
func ExampleDispatcher_Run() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	d, err := core.NewDispatcher(store, membroker.New(membroker.Config{}), core.Config{
		Logger: slog.New(slog.DiscardHandler),
		Observer: observerFunc(func(e core.Event) {
			if settled, ok := e.(core.SettleEvent); ok {
				fmt.Println("published", settled.Published)
				cancel()
			}
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := put(store, core.Message{AggregateType: "order", AggregateID: "ord_1", EventType: "order.created"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Run(ctx))
	// Output:
	// published 1
	// <nil>
}

// Config.Route gives events that were enqueued without a topic theirs.
func ExampleConfig_route() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	broker := membroker.New(membroker.Config{})
	topics := map[string]string{"order": "shop.orders"}
	d, err := core.NewDispatcher(store, broker, core.Config{
		Logger: slog.New(slog.DiscardHandler),
		Route: func(r *core.Record) (string, error) {
			topic, ok := topics[r.AggregateType]
			if !ok {
				return "", fmt.Errorf("no topic for aggregate type %q", r.AggregateType)
			}
			return topic, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = put(store,
		core.Message{EventID: "e1", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created"},
		core.Message{EventID: "e2", AggregateType: "bill", AggregateID: "b_1", EventType: "bill.created"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := d.RunOnce(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(broker.Messages("shop.orders")), "in shop.orders")
	row, _ := store.Row("e2")
	fmt.Println(row.State, "-", row.Reason)
	// Output:
	// 1 in shop.orders
	// parked - NO_TOPIC: no topic for aggregate type "bill"
}

// A Dispatcher says why it is not ready.
func ExampleDispatcher_Health() {
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := core.NewDispatcher(store, membroker.New(membroker.Config{}), core.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := d.Health()
	fmt.Println(h.Ready, h.Reason)
	// Output: false not running
}
