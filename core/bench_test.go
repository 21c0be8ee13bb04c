package core_test

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// BenchmarkDispatcher is what the dispatcher itself costs: fetch, publish and settle of one record over the memory
// store and broker, with 1,000 aggregates. One operation is one record.
func BenchmarkDispatcher(b *testing.B) {
	for _, guarantee := range []struct {
		name string
		core.KeyGuarantee
	}{{"OnePerKey", core.OnePerKey}, {"PrefixPerKey", core.PrefixPerKey}} {
		b.Run(guarantee.name, func(b *testing.B) { benchmark(b, guarantee.KeyGuarantee) })
	}
}

func benchmark(b *testing.B, guarantee core.KeyGuarantee) {
	b.Helper()
	store, err := memstore.New(memstore.Config{AfterPublish: memstore.Delete})
	if err != nil {
		b.Fatal(err)
	}
	broker := membroker.New(membroker.Config{Discard: true, KeyGuarantee: guarantee, MaxInFlight: 4})
	const perTx = 1000
	payload := make([]byte, 420)
	for first := 0; first < b.N; first += perTx {
		tx := store.Begin()
		messages := make([]core.Message, min(perTx, b.N-first))
		for i := range messages {
			messages[i] = core.Message{
				Topic: "orders", AggregateType: "order", AggregateID: fmt.Sprintf("ord_%d", i), EventType: "order.created",
				Payload: payload, Headers: map[string]string{"tenant": "t1"},
			}
		}
		if _, err := tx.Enqueue(b.Context(), messages...); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	d, err := core.NewDispatcher(store, broker, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := d.RunOnce(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if n := broker.Count(); n != int64(b.N) {
		b.Fatalf("%d of %d arrived", n, b.N)
	}
}
