package memstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// BenchmarkDrain fetches and settles a backlog of b.N rows, 500 at a time with 4,000 held, as a busy dispatcher does.
func BenchmarkDrain(b *testing.B) {
	const batch, window = 500, 4000
	ctx := context.Background()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	tx := store.Begin()
	for i := range b.N {
		m := core.Message{
			AggregateType: "order", AggregateID: fmt.Sprint("ord_", i%1000), EventType: "order.created",
			Payload: make([]byte, 400),
		}
		if _, err := tx.Enqueue(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	want := make([]int, memstore.DefaultLanes)
	for i := range want {
		want[i] = i
	}
	leases, err := store.Lease(ctx, core.LeaseRequest{Member: "m", TTL: time.Hour, Want: want})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var inFlight []*core.Record
	for settled := 0; settled < b.N; {
		req := core.FetchRequest{Member: "m", MaxRecords: batch, MaxBytes: 1 << 30}
		held := make([][]int64, memstore.DefaultLanes)
		for _, r := range inFlight {
			held[r.Lane] = append(held[r.Lane], r.ID)
		}
		for _, l := range leases.Held {
			req.Lanes = append(req.Lanes, core.LaneFetch{Lease: l, Held: held[l.Lane]})
		}
		reply, err := store.Fetch(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		fetched := 0
		for _, lane := range reply.Lanes {
			inFlight = append(inFlight, lane.Records...)
			fetched += len(lane.Records)
		}
		if fetched > 0 && len(inFlight) < window {
			continue
		}
		settle := core.Settlement{Member: "m", Leases: leases.Held}
		for _, r := range inFlight[:min(batch, len(inFlight))] {
			settle.Items = append(settle.Items, core.SettleItem{Record: r, Status: core.StatusPublished})
		}
		if _, err := store.Settle(ctx, settle); err != nil {
			b.Fatal(err)
		}
		settled += len(settle.Items)
		inFlight = inFlight[len(settle.Items):]
	}
}
