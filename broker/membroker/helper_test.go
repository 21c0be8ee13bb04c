package membroker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// record returns the nth record of an aggregate of the topic "orders".
func record(aggregateID string, n int64) *core.Record {
	return &core.Record{ID: n, Message: core.Message{
		EventID: fmt.Sprintf("%s-%d", aggregateID, n), Topic: "orders", AggregateType: "order",
		AggregateID: aggregateID, EventType: "order.changed", Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}}
}

// prepare prepares records, of which none is refused.
func prepare(t *testing.T, b *membroker.Broker, records ...*core.Record) []core.Prepared {
	t.Helper()
	var batch []core.Prepared
	for _, r := range records {
		p, err := b.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, p)
	}
	return batch
}

// publish publishes records in one call.
func publish(ctx context.Context, t *testing.T, b *membroker.Broker, records ...*core.Record) []core.Result {
	t.Helper()
	return b.PublishBatch(ctx, prepare(t, b, records...))
}

// outcomes is the short form of results, for example "delivered skipped".
func outcomes(results []core.Result) string {
	words := make([]string, len(results))
	for i, r := range results {
		words[i] = r.Outcome.String()
	}
	return strings.Join(words, " ")
}

// log is the short form of what is stored in the topic "orders", for example "a-1 a-2".
func log(b *membroker.Broker) string {
	var ids []string
	for _, m := range b.Messages("orders") {
		ids = append(ids, m.EventID)
	}
	return strings.Join(ids, " ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
