package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// publisher publishes the events of some keys in order, as a dispatcher does, until it is stopped; the broker can be
// exchanged meanwhile.
type publisher struct {
	topic string
	keys  int

	mu      sync.Mutex // held during a call, so that who has it has paused publishing
	broker  core.Broker
	records []*core.Record
}

func (p *publisher) publish(t *testing.T, rounds int) {
	for range rounds {
		p.mu.Lock()
		batch := make([]*core.Record, p.keys)
		for i := range batch {
			batch[i] = brokertest.NewRecord(p.topic, fmt.Sprintf("key-%d", i), lastID.Add(1))
		}
		for i, r := range publish(t, p.broker, batch...) {
			if r.Outcome != core.OutcomeDelivered {
				t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
		p.records = append(p.records, batch...)
		p.mu.Unlock()
	}
}

// A topic moves to another number of shards and queues while it is published to, and consumed by consumers of the old
// generation and of the new one, two of each. No aggregate is handled out of order.
func TestResharding(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	before, after := s.config(t), s.config(t)
	before.Groups = map[string][]rabbitmq.Group{topic: {{Name: group, Queues: 3}}}
	after.Groups = map[string][]rabbitmq.Group{topic: {{Name: group, Queues: 5}}}
	after.Strategy = ordering.Shards{Count: 20, Generation: 2}
	from, to := open(t, before), open(t, after)
	if err := from.Declare(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.deleteQueues(t, topic, 1, 3)
		s.deleteQueues(t, topic, 2, 5)
	})
	const keys, half = 30, 20
	j := newJournal(2 * half * keys)
	var ended []<-chan struct{}
	var stops []func() error
	for range 2 {
		stop, done := consume(t, consumerConfig(before, topic), j.handle)
		ended, stops = append(ended, done), append(stops, stop)
		c := consumerConfig(after, topic)
		c.PreviousQueues = 3
		go func() { // the queues of the new generation are declared later
			for ctx := t.Context(); ctx.Err() == nil; {
				_ = rabbitmq.Consume(ctx, c, j.handle)
			}
		}()
	}
	p := &publisher{topic: topic, keys: keys, broker: from}
	p.publish(t, half/2)
	resharding := rabbitmq.Resharding{
		Topic: topic, Old: from, New: to,
		Pause: func(context.Context) error {
			p.mu.Lock()
			return nil
		},
		Switch: func(context.Context) error {
			p.broker = to
			p.mu.Unlock()
			return nil
		},
	}
	var running sync.WaitGroup
	running.Go(func() { p.publish(t, half) })
	if err := resharding.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	p.publish(t, half/2)
	j.wait(t)
	j.wantOrder(t, p.records)
	for i := range ended {
		<-ended[i]
		if err := stops[i](); !errors.Is(err, rabbitmq.ErrGenerationEnded) {
			t.Errorf("a consumer of the old generation ended with %v", err)
		}
	}
}

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

func TestReshardingFaults(t *testing.T) {
	t.Parallel()
	config := rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}}
	b := open(t, config)
	nothing := func(context.Context) error { return nil }
	r := rabbitmq.Resharding{Topic: "orders", Old: b, New: b, Pause: nothing, Switch: nothing}
	err := r.Run(t.Context())
	if !hasFault(err, "Resharding.New") || !hasFault(err, "Resharding.Topic") {
		t.Errorf("Run: %v", err)
	}
	if err := b.Fence(t.Context(), "orders"); err == nil {
		t.Error("Fence of a topic without groups works")
	}
}
