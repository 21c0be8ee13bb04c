package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// generations are a topic of the old generation and what it should become.
type generations struct {
	topic         string
	before, after rabbitmq.Config
}

func (s *server) generations(t *testing.T) generations {
	t.Helper()
	g := generations{s.name(t), s.config(t), s.config(t)}
	g.before.Groups = map[string][]rabbitmq.Group{g.topic: {{Name: group, Queues: 3}}}
	g.after.Groups = map[string][]rabbitmq.Group{g.topic: {{Name: group, Queues: 5}}}
	g.after.Strategy = ordering.Shards{Count: 20, Generation: 2}
	if err := open(t, g.before).Declare(t.Context(), g.topic); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.deleteQueues(t, g.topic, 1, 3)
		s.deleteQueues(t, g.topic, 2, 5)
	})
	return g
}

func (g generations) resharding(t *testing.T, store core.FingerprintKeeper) rabbitmq.Resharding {
	t.Helper()
	return rabbitmq.Resharding{
		Topic: g.topic, Old: open(t, g.before), New: open(t, g.after), Store: store, Quiet: quiet,
	}
}

// consumers starts two consumers of each generation. Those of the old one must end.
func (g generations) consumers(t *testing.T, handle rabbitmq.Handler) (ended func()) {
	t.Helper()
	var done []<-chan struct{}
	var stops []func() error
	for range 2 {
		stop, end := consume(t, consumerConfig(g.before, g.topic), handle)
		done, stops = append(done, end), append(stops, stop)
		c := consumerConfig(g.after, g.topic)
		c.PreviousQueues = 3
		go func() { // the queues of the new generation are declared later
			for ctx := t.Context(); ctx.Err() == nil; {
				_ = rabbitmq.Consume(ctx, c, handle)
			}
		}()
	}
	return func() {
		t.Helper()
		for i := range done {
			<-done[i]
			if err := stops[i](); !errors.Is(err, rabbitmq.ErrGenerationEnded) {
				t.Errorf("a consumer of the old generation ended with %v", err)
			}
		}
	}
}

// A topic moves to another number of shards and queues while two dispatchers publish to it and two consumers of each
// generation handle it, and, in one case, while a dispatcher is killed. No aggregate is handled out of order, and
// nothing is lost.
func TestResharding(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Undisturbed", "ADispatcherIsKilledWhilePublishingRests", "ADispatcherIsKilledAtTheSwitch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			g := s.generations(t)
			shop := newShop(t, g.topic, 15)
			var kill func()
			for range 2 {
				_, kill = shop.dispatch(open(t, g.before))
			}
			store := &keeper{FingerprintKeeper: shop.store, after: func(row string) {
				_, switching := core.ParseSwitching(row)
				if name == "ADispatcherIsKilledWhilePublishingRests" && switching ||
					name == "ADispatcherIsKilledAtTheSwitch" && !switching {
					kill()
				}
			}}
			j := newJournal(-1)
			perGeneration := [3]atomic.Int64{}
			ended := g.consumers(t, func(ctx context.Context, d rabbitmq.Delivery) error {
				generation := 1
				if strings.HasPrefix(d.Queue, g.topic+"."+group+".2.") {
					generation = 2
				}
				perGeneration[generation].Add(1)
				return j.handle(ctx, d)
			})
			closeShop := shop.open()
			waitFor(t, func() bool { return perGeneration[1].Load() > 150 })
			if err := g.resharding(t, store).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return perGeneration[2].Load() > 150 })
			closeShop()
			j.expect(len(shop.written()))
			j.wait(t)
			j.wantOrder(t, shop.written())
			ended()
		})
	}
}

// keeper is a store that fails to remember, or in which something happens after it has.
type keeper struct {
	core.FingerprintKeeper
	before func(row string) error
	after  func(row string)
}

func (k *keeper) AcceptFingerprint(ctx context.Context, broker, destination, row string) error {
	if k.before != nil {
		if err := k.before(row); err != nil {
			return err
		}
	}
	err := k.FingerprintKeeper.AcceptFingerprint(ctx, broker, destination, row)
	if k.after != nil {
		k.after(row)
	}
	return err
}

// Wherever it breaks off, running it again completes it, and until then nothing is published that could come out of
// order. Once complete, it does nothing.
func TestReshardingGoesOnWhereItBrokeOff(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	g := s.generations(t)
	shop := newShop(t, g.topic, 10)
	d, _ := shop.dispatch(open(t, g.before))
	j := newJournal(-1)
	ended := g.consumers(t, j.handle)
	closeShop := shop.open()
	row := func() string {
		row, err := shop.store.Fingerprint(t.Context(), "", g.topic, g.before.Strategy.Fingerprint())
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	run := func(ctx context.Context, k *keeper) error {
		k.FingerprintKeeper = shop.store
		return g.resharding(t, k).Run(ctx) //nolint:contextcheck // the servers of a test end with it
	}
	boom := errors.New("boom")
	err := run(t.Context(), &keeper{before: func(string) error { return boom }})
	if !errors.Is(err, boom) || errors.Is(err, rabbitmq.ErrFenced) || row() != g.before.Strategy.Fingerprint() {
		t.Errorf("before anything was done: %v; the row says %s", err, row())
	}

	ctx, cancel := context.WithCancel(t.Context())
	err = run(ctx, &keeper{after: func(string) { cancel() }})
	switching := core.Switching{From: g.before.Strategy.Fingerprint(), To: g.after.Strategy.Fingerprint()}.String()
	if !errors.Is(err, context.Canceled) || errors.Is(err, rabbitmq.ErrFenced) || row() != switching {
		t.Errorf("while publishing rests: %v; the row says %s", err, row())
	}
	waitFor(t, func() bool { return strings.Contains(d.Health().Reason, "resharding in progress") })

	err = run(t.Context(), &keeper{before: func(row string) error {
		if row == g.after.Strategy.Fingerprint() {
			return boom
		}
		return nil
	}})
	if !errors.Is(err, boom) || !errors.Is(err, rabbitmq.ErrFenced) || row() != switching {
		t.Errorf("after the fences: %v; the row says %s", err, row())
	}

	for range 2 {
		if err := run(t.Context(), &keeper{}); err != nil || row() != g.after.Strategy.Fingerprint() {
			t.Errorf("at last: %v; the row says %s", err, row())
		}
	}
	waitFor(t, func() bool { return d.Health().Reason == "" })
	closeShop()
	j.expect(len(shop.written()))
	j.wait(t)
	j.wantOrder(t, shop.written())
	ended()
}

// While it waits somebody may set the row to something else: then nothing is fenced that may be published to.
func TestReshardingFencesNothingThatIsNotHeld(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	g := s.generations(t)
	shop := newShop(t, g.topic, 1)
	old := g.before.Strategy.Fingerprint()
	store := &keeper{FingerprintKeeper: shop.store, after: func(string) {
		if err := shop.store.AcceptFingerprint(t.Context(), "", g.topic, old); err != nil {
			t.Error(err)
		}
	}}
	r := g.resharding(t, store)
	r.Quiet = time.Millisecond
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("Run: %v", err)
	}
	deliver(t, r.Old, spread(g.topic, 20)...)
}

func TestReshardingFaults(t *testing.T) {
	t.Parallel()
	config := rabbitmq.Config{
		Addresses: []string{"127.0.0.1:1"}, Groups: map[string][]rabbitmq.Group{"bills": {{Name: group}}},
	}
	b := open(t, config)
	config.Strategy = ordering.Shards{Generation: 2}
	next := open(t, config)
	shop := newShop(t, "bills", 1)
	err := rabbitmq.Resharding{Topic: "orders", Old: b, New: b, Store: shop.store, Quiet: -1}.Run(t.Context())
	for _, path := range []string{"Resharding.New", "Resharding.Topic", "Resharding.Quiet"} {
		if !hasFault(err, path) {
			t.Errorf("%s is no fault: %v", path, err)
		}
	}
	if err := (rabbitmq.Resharding{Topic: "orders", Old: b, New: b}).Run(t.Context()); !hasFault(err, "Resharding") {
		t.Errorf("without a store: %v", err)
	}
	if err := b.Fence(t.Context(), "orders"); err == nil {
		t.Error("Fence of a topic without groups works")
	}
	if err := shop.store.AcceptFingerprint(t.Context(), "", "bills", "none/v1"); err != nil {
		t.Fatal(err)
	}
	err = rabbitmq.Resharding{Topic: "bills", Old: b, New: next, Store: shop.store}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"none/v1"`) {
		t.Errorf("a topic that is published by another strategy: %v", err)
	}
}
