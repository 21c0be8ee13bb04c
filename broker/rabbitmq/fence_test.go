package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// A consumer that comes after the end of a generation meets the fence too, however many came before it.
func TestFenceStays(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	b := open(t, config)
	records := rounds(t, b, topic, 3, 2)
	for range 2 { // repeating it is harmless
		if err := b.Fence(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	j := newJournal(len(records))
	for range rabbitmq.DefaultDeliveryLimit + 2 {
		err := rabbitmq.Consume(t.Context(), consumerConfig(config, topic), j.handle)
		if !errors.Is(err, rabbitmq.ErrGenerationEnded) {
			t.Fatalf("Consume: %v", err)
		}
	}
	j.wantOrder(t, records)
}

// An event may have the type of a fence.
func TestEventOfTheTypeOfAFence(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	config := s.config(t)
	r := brokertest.NewRecord(topic, "a", 1)
	r.EventType = "outbox.fence"
	deliver(t, open(t, config), r)
	j := newJournal(1)
	consume(t, consumerConfig(config, topic), j.handle)
	j.wait(t)
}

// What a stalled dispatcher publishes to a generation that was fenced is refused, and so can go to the next one.
func TestFenceRefusesWhatComesLater(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	config := s.config(t)
	b := open(t, config)
	if err := b.Declare(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.deleteQueues(t, topic, 2, 1) })
	late := spread(topic, 20)
	batch := prepare(t, b, late...)
	if err := b.Fence(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for _, r := range b.PublishBatch(t.Context(), batch) {
		wantError(t, r, core.OutcomeRejected, core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE")
	}
	next := config
	next.Strategy = ordering.Shards{Count: 8, Generation: 2}
	if err := open(t, next).Declare(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.Adopt(t.Context(), "", topic, next.Strategy.Fingerprint()); !ok || err != nil {
		t.Fatalf("Adopt: %t, %v", ok, err)
	}
	deliver(t, b, late...)
}

// A queue that does not exist cannot be fenced.
func TestFenceOfAMissingQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	err := open(t, s.config(t)).Fence(t.Context(), s.name(t))
	if err == nil || !strings.Contains(err.Error(), "NO_ROUTE") {
		t.Errorf("Fence: %v", err)
	}
}
