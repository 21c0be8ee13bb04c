package membroker_test

import (
	"strconv"
	"testing"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// BenchmarkDiscard is what the broker costs a benchmark of the dispatcher: Prepare and PublishBatch per message.
func BenchmarkDiscard(b *testing.B) {
	broker := membroker.New(membroker.Config{Discard: true, KeyGuarantee: core.PrefixPerKey})
	records := make([]*core.Record, 500)
	for i := range records {
		records[i] = &core.Record{ID: int64(i + 1), Message: core.Message{
			EventID: "event-" + strconv.Itoa(i), Topic: "orders", AggregateType: "order",
			AggregateID: "ord_" + strconv.Itoa(i%50), EventType: "order.created", Payload: []byte(`{"total":1}`),
		}}
	}
	batch := make([]core.Prepared, len(records))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N / len(records) {
		for i, r := range records {
			p, err := broker.Prepare(r)
			if err != nil {
				b.Fatal(err)
			}
			batch[i] = p
		}
		broker.PublishBatch(b.Context(), batch)
	}
}
