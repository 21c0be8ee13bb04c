package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func open(t testing.TB, cfg memstore.Config) *memstore.Store {
	t.Helper()
	store, err := memstore.New(cfg)
	must(t, err)
	return store
}

func event(id, aggregateID string) core.Message {
	return core.Message{EventID: id, AggregateType: "order", AggregateID: aggregateID, EventType: "order.changed"}
}

func enqueue(t testing.TB, store *memstore.Store, messages ...core.Message) {
	t.Helper()
	tx := store.Begin()
	_, err := tx.Enqueue(t.Context(), messages...)
	must(t, err)
	must(t, tx.Commit())
}

// take takes all lanes for a member.
func take(t testing.TB, store *memstore.Store, member string) []core.Lease {
	t.Helper()
	leases, err := store.Lease(t.Context(), core.LeaseRequest{Member: member, TTL: time.Hour})
	must(t, err)
	want := make([]int, leases.Lanes)
	for i := range want {
		want[i] = i
	}
	leases, err = store.Lease(t.Context(), core.LeaseRequest{Member: member, TTL: time.Hour, Want: want})
	must(t, err)
	if len(leases.Held) != len(want) {
		t.Fatalf("%s got the leases %v of %d lanes", member, leases.Held, len(want))
	}
	return leases.Held
}

func request(member string, leases []core.Lease) core.FetchRequest {
	req := core.FetchRequest{Member: member, MaxRecords: 10_000, MaxBytes: 1 << 30}
	for _, l := range leases {
		req.Lanes = append(req.Lanes, core.LaneFetch{Lease: l})
	}
	return req
}

func fetch(t testing.TB, store *memstore.Store, req core.FetchRequest) []*core.Record {
	t.Helper()
	batch, err := store.Fetch(t.Context(), req)
	must(t, err)
	var all []*core.Record
	for _, lane := range batch.Lanes {
		all = append(all, lane.Records...)
	}
	return all
}

func publishedAll(records []*core.Record) []core.SettleItem {
	var items []core.SettleItem
	for _, r := range records {
		items = append(items, core.SettleItem{Record: r, Status: core.StatusPublished})
	}
	return items
}

func settle(t testing.TB, store *memstore.Store, member string, leases []core.Lease, items ...core.SettleItem) core.Settled {
	t.Helper()
	settled, err := store.Settle(t.Context(), core.Settlement{Member: member, Leases: leases, Items: items})
	must(t, err)
	return settled
}

func eventIDs(records []*core.Record) []string {
	ids := []string{}
	for _, r := range records {
		ids = append(ids, r.EventID)
	}
	return ids
}

// failing returns a Fault that fails at one kind of point, as long as it is asked to.
func failing(op memstore.Op, done bool, on *bool, err error) func(context.Context, memstore.Point) error {
	return func(_ context.Context, at memstore.Point) error {
		if *on && at.Op == op && at.Done == done {
			return err
		}
		return nil
	}
}
