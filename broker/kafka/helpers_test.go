package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

// open opens a broker for the time of a test.
func open(tb testing.TB, config kafka.Config) *kafka.Broker {
	tb.Helper()
	broker, err := kafka.Open(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := broker.Close(context.Background()); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return broker
}

// prepare prepares records that are in order.
func prepare(tb testing.TB, broker core.Broker, records ...*core.Record) []core.Prepared {
	tb.Helper()
	batch := make([]core.Prepared, len(records))
	for i, r := range records {
		p, err := broker.Prepare(r)
		if err != nil {
			tb.Fatalf("prepare event %s: %v", r.EventID, err)
		}
		batch[i] = p
	}
	return batch
}

// publish makes one call.
func publish(tb testing.TB, broker core.Broker, records ...*core.Record) []core.Result {
	tb.Helper()
	return broker.PublishBatch(tb.Context(), prepare(tb, broker, records...))
}

// deliver makes one call, in which everything must be delivered.
func deliver(tb testing.TB, broker core.Broker, records ...*core.Record) {
	tb.Helper()
	for i, r := range publish(tb, broker, records...) {
		if r.Outcome != core.OutcomeDelivered {
			tb.Fatalf("record %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
}

// records returns n records of one key.
func records(topic, key string, n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = brokertest.NewRecord(topic, key, int64(i+1))
	}
	return out
}

// wantEvents checks that the log holds the events of these records, each once and in this order.
func wantEvents(tb testing.TB, log []*kgo.Record, records ...*core.Record) {
	tb.Helper()
	var got, want []string
	for _, r := range log {
		got = append(got, header(r, core.HeaderEventID))
	}
	for _, r := range records {
		want = append(want, r.EventID)
	}
	if !slices.Equal(got, want) {
		tb.Errorf("%d events in the topic: %v, want %d: %v", len(got), got, len(want), want)
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// publishError returns the classification of a result's error.
func publishError(tb testing.TB, r core.Result) *core.PublishError {
	tb.Helper()
	var e *core.PublishError
	if !errors.As(r.Err, &e) {
		tb.Fatalf("no *core.PublishError in %v: %v", r.Outcome, r.Err)
	}
	return e
}

// as asserts what cannot be otherwise.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%T is not of the type %T", v, t))
	}
	return t
}

// buffer is a log to look at while it is written to.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
