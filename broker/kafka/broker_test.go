package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The client is the caller's, and works after the broker is closed.
func TestNewDoesNotCloseTheClient(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 3, nil)
		client := c.client(t)
		broker, err := kafka.New(client, kafka.Config{})
		if err != nil {
			t.Fatal(err)
		}
		batch := records(topic, "a", 10)
		deliver(t, broker, batch...)
		wantEvents(t, c.read(t, topic), batch...)
		if err := broker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()); err != nil {
			t.Errorf("the client after Close: %v", err)
		}
		if r := publish(t, broker, batch[0])[0]; !errors.Is(r.Err, core.ErrClosed) || r.Outcome != core.OutcomeRejected {
			t.Errorf("publish after Close: %v: %v", r.Outcome, r.Err)
		}
	})
}

// Keys go where the client's own producer sends them.
func TestPartitionsAgreeWithTheClientsProducer(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		ours, theirs := c.topic(t, 7, nil), c.topic(t, 7, nil)
		client := c.client(t)
		var batch []*core.Record
		for i := range 100 {
			key := fmt.Sprintf("größe-%d", i*i)
			batch = append(batch, brokertest.NewRecord(ours, key, int64(i+1)))
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: theirs, Key: []byte(key)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		deliver(t, open(t, c.config()), batch...)
		places := func(topic string) []string {
			var out []string
			for _, r := range c.read(t, topic) {
				out = append(out, fmt.Sprintf("%s in %d", r.Key, r.Partition))
			}
			slices.Sort(out)
			return out
		}
		if got, want := places(ours), places(theirs); !slices.Equal(got, want) {
			t.Errorf("keys are in other partitions: %v, want %v", got, want)
		}
	})
}

// Without keys the records of a call go to one partition, and calls use all of them.
func TestNoOrder(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 3, nil)
	config := c.config()
	config.Strategy = ordering.None{}
	broker := open(t, config)
	for range 6 {
		deliver(t, broker, records(topic, "a", 10)...)
	}
	partitions := map[int32]int{}
	for _, r := range c.read(t, topic) {
		if r.Key != nil {
			t.Fatalf("key %q, want none", r.Key)
		}
		partitions[r.Partition]++
	}
	for p := range int32(3) {
		if partitions[p] != 20 {
			t.Errorf("%d records in partition %d, want 20", partitions[p], p)
		}
	}
}

func TestPrepareRefusesTopicNames(t *testing.T) {
	t.Parallel()
	broker := open(t, kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	for _, name := range []string{"", ".", "..", "a b", "größe", "a/b", strings.Repeat("x", 250)} {
		_, err := broker.Prepare(brokertest.NewRecord(name, "a", 1))
		var e *core.PublishError
		if !errors.As(err, &e) || e.Class != core.ClassPermanent || e.Code != "INVALID_TOPIC" {
			t.Errorf("topic %q: %v, want permanent, INVALID_TOPIC", name, err)
		}
	}
	if _, err := broker.Prepare(brokertest.NewRecord("a.B_c-9", "a", 1)); err != nil {
		t.Error(err)
	}
}
