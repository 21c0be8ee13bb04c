package sqs_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

// startFake starts a fake for the time of a test.
func startFake(tb testing.TB, config sqsfake.Config) *sqsfake.Server {
	tb.Helper()
	fake, err := sqsfake.Start(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(fake.Close)
	return fake
}

// configOf is the configuration for a server that checks no signatures.
func configOf(endpoint string) sqs.Config {
	return sqs.Config{
		Endpoint:    endpoint,
		Credentials: sqs.Credentials{AccessKeyID: "test", SecretAccessKey: "test"},
		Logger:      slog.New(slog.NewTextHandler(io.Discard, nil)),
		// A machine that is busy with other tests takes its time for requests of 1 MiB.
		RequestTimeout: time.Minute,
	}
}

// open opens a broker for the time of a test.
func open(tb testing.TB, config sqs.Config) *sqs.Broker {
	tb.Helper()
	broker, err := sqs.Open(tb.Context(), config)
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

// openFake opens a broker for a fake that has the queue orders.fifo, to which the topic "orders" goes.
func openFake(tb testing.TB, fake *sqsfake.Server) *sqs.Broker {
	tb.Helper()
	createQueue(tb, fake, "orders.fifo", nil)
	return open(tb, configOf(fake.URL()))
}

func createQueue(tb testing.TB, fake *sqsfake.Server, name string, attributes map[string]string) string {
	tb.Helper()
	url, err := fake.CreateQueue(name, attributes)
	if err != nil {
		tb.Fatal(err)
	}
	return url
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

// oneKey returns n records of one key, for the topic "orders".
func oneKey(key string, n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = brokertest.NewRecord("orders", key, int64(i+1))
	}
	return out
}

// spread returns n records of as many keys, for the topic "orders".
func spread(n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = brokertest.NewRecord("orders", fmt.Sprintf("key-%d", i), int64(i+1))
	}
	return out
}

// decode reads what a fake has stored as a consumer would.
func decode(tb testing.TB, m sqsfake.Message) sqs.Message {
	tb.Helper()
	received := types.Message{
		MessageId: &m.ID, Body: &m.Body, Attributes: map[string]string{"MessageGroupId": m.GroupID},
		MessageAttributes: map[string]types.MessageAttributeValue{},
	}
	for name, a := range m.Attributes {
		received.MessageAttributes[name] = types.MessageAttributeValue{
			DataType: aws.String(a.DataType), StringValue: aws.String(a.StringValue),
		}
	}
	out, err := sqs.Decode(received)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// eventIDs are the ids of what a fake has stored in a queue, in order.
func eventIDs(tb testing.TB, fake *sqsfake.Server, queue string) []string {
	tb.Helper()
	var ids []string
	for _, m := range fake.Messages(queue) {
		ids = append(ids, decode(tb, m).EventID)
	}
	return ids
}

// idsOf are the ids of records, in order.
func idsOf(records ...*core.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.EventID
	}
	return ids
}

// wantSame checks that two lists have the same ids, in any order.
func wantSame(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		tb.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// outcomes are the outcomes of results in a row.
func outcomes(results []core.Result) string {
	words := make([]string, len(results))
	for i, r := range results {
		words[i] = r.Outcome.String()
	}
	return strings.Join(words, " ")
}

// elasticMQ is the address of a real server.
func elasticMQ(tb testing.TB) sqs.Config {
	tb.Helper()
	address := os.Getenv("OUTBOX_TEST_SQS_URL")
	if address == "" {
		if slices.Contains(strings.Split(os.Getenv("OUTBOX_REQUIRE"), ","), "sqs") {
			tb.Fatal("OUTBOX_REQUIRE names sqs, but OUTBOX_TEST_SQS_URL is not set")
		}
		tb.Skip("OUTBOX_TEST_SQS_URL is not set")
	}
	config, err := sqs.ParseURL(address)
	if err != nil {
		tb.Fatal(err)
	}
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	config.RequestTimeout = time.Minute
	return config
}
