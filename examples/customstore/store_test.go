package customstore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/storetest"
)

// The harness tells the kit how to get at the tables, past the store where it has to.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		Lanes:            1,
		DeletesPublished: true,
		Tables:           func(testing.TB) storetest.Tables { return harness(&Tables{}) },
	})
}

func harness(tables *Tables) storetest.Tables {
	return storetest.Tables{
		Store: func(t testing.TB) core.Store {
			store := Open(tables)
			t.Cleanup(func() { _ = store.Close() })
			return store
		},
		Begin: func(context.Context) (storetest.Tx, error) {
			tx := tables.Begin()
			rollback := func() error { tx.Rollback(); return nil }
			return storetest.Tx{Enqueuer: tx, Commit: tx.Commit, Rollback: rollback}, nil
		},
		Row:     func(_ testing.TB, eventID string) (storetest.Row, bool) { return tables.read(eventID) },
		Requeue: func(_ testing.TB, eventIDs ...string) { tables.Requeue(eventIDs...) },
		Delete:  func(_ testing.TB, eventIDs ...string) { tables.delete(eventIDs...) },
		Expire:  func(_ testing.TB, member string) { tables.expire(member) },
	}
}

func (t *Tables) read(eventID string) (storetest.Row, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if r.record.EventID == eventID {
			state := storetest.Pending
			if r.blocked {
				state = storetest.Blocked
			}
			if r.parked {
				state = storetest.Parked
			}
			return storetest.Row{State: state, Attempts: r.record.Attempts, Reason: r.reason}, true
		}
	}
	return storetest.Row{}, false
}

func (t *Tables) delete(eventIDs ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = slices.DeleteFunc(t.rows, func(r *row) bool { return slices.Contains(eventIDs, r.record.EventID) })
}

func (t *Tables) expire(member string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.members, member)
	if t.lease.owner == member {
		t.lease.until = time.Time{}
	}
}

func Example() {
	ctx := context.Background()
	tables := &Tables{}
	tx := tables.Begin()
	_, err := tx.Enqueue(ctx, core.Message{
		Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: []byte(`{}`),
	})
	if err != nil {
		panic(err)
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}

	broker := membroker.New(membroker.Config{})
	d, err := core.NewDispatcher(Open(tables), broker, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	if err := d.RunOnce(ctx); err != nil {
		panic(err)
	}
	for _, m := range broker.Messages("orders") {
		fmt.Println(m.Headers["event_type"], m.Token)
	}
	// Output: order.created ord_1
}
