package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// shop writes events to a store, and runs dispatchers from it.
type shop struct {
	t     *testing.T
	store *memstore.Store

	dispatchers []*core.Dispatcher

	mu      sync.Mutex
	records []*core.Record
	pauses  int
}

func newShop(t *testing.T) *shop {
	t.Helper()
	store, err := memstore.New(memstore.Config{Lanes: 8, AfterPublish: memstore.Delete})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t: t, store: store}
}

// Observe counts pauses, and fails when an event is charged for the troubles of the broker.
func (s *shop) Observe(e core.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case core.PauseEvent:
		s.pauses++
	case core.RetryEvent:
		s.t.Errorf("event %s was charged an attempt: %v", e.Record.EventID, e.Err)
	case core.ParkEvent:
		s.t.Errorf("event %s was parked: %s", e.Record.EventID, e.Reason)
	}
}

func (s *shop) paused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses
}

// write writes one event of each key.
func (s *shop) write(topic string, keys int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := s.store.Begin()
	for i := range keys {
		r := brokertest.NewRecord(topic, fmt.Sprintf("key-%d", i), int64(len(s.records)+1))
		if _, err := tx.Enqueue(context.Background(), r.Message); err != nil {
			s.t.Error(err)
		}
		s.records = append(s.records, r)
	}
	if err := tx.Commit(); err != nil {
		s.t.Error(err)
	}
}

func (s *shop) written() []*core.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

// dispatch runs a dispatcher until the test ends.
func (s *shop) dispatch(broker core.Broker) {
	s.t.Helper()
	d, err := core.NewDispatcher(s.store.Replica(), broker, core.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Observer: s, LeaseTTL: time.Second,
		Outage: core.Backoff{Initial: 10 * time.Millisecond, Max: 200 * time.Millisecond},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.dispatchers = append(s.dispatchers, d)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			s.t.Errorf("Run: %v", err)
		}
	})
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// sold waits until everything that was written is out of the store.
func (s *shop) sold() {
	s.t.Helper()
	s.wait("the outbox is empty", func() bool { return len(s.store.Rows()) == 0 })
}

func (s *shop) wait(what string, done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			for i, d := range s.dispatchers {
				s.t.Logf("dispatcher %d: %+v", i, d.Health())
			}
			s.t.Fatalf("it does not come to it that %s; %d events are left", what, len(s.store.Rows()))
		}
	}
}

// wantFirst checks that each event that was written has arrived, in the order of its key.
func (s *shop) wantFirst(arrived []string) {
	s.t.Helper()
	place := map[string]int{}
	for i, id := range arrived {
		if _, repeat := place[id]; !repeat {
			place[id] = i
		}
	}
	last := map[string]int{}
	for _, r := range s.written() {
		at, ok := place[r.EventID]
		if !ok {
			s.t.Errorf("event %s of %s has not arrived", r.EventID, r.AggregateID)
			continue
		}
		if before, ok := last[r.AggregateID]; ok && at < before {
			s.t.Errorf("event %s of %s has arrived before an earlier one", r.EventID, r.AggregateID)
		}
		last[r.AggregateID] = at
	}
	if len(place) != len(s.written()) {
		s.t.Errorf("%d events arrived, %d were written", len(place), len(s.written()))
	}
}

// Expired credentials, and then a provider that fails, are an outage for a dispatcher: it stays up, charges nothing, and
// goes on when the credentials are good again.
func TestField_121_ADispatcherOutlivesBadCredentials(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	var mu sync.Mutex
	failures := 1
	config := configOf(fake.URL())
	config.Credentials = sqs.Credentials{Provider: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			mu.Lock()
			defer mu.Unlock()
			if failures > 0 {
				failures--
				return aws.Credentials{}, errors.New("the token service is throttled")
			}
			return aws.Credentials{ // expired at once, so that each request asks anew
				AccessKeyID: "a", SecretAccessKey: "b", CanExpire: true, Expires: time.Unix(1, 0),
			}, nil
		})}
	fake.Refuse(2, sqsfake.ExpiredCredentials())
	s := newShop(t)
	s.write("orders", 30)
	s.dispatch(open(t, config))
	s.sold()
	if n := s.paused(); n < 3 {
		t.Errorf("paused %d times, want once for each failure", n)
	}
	s.wantFirst(eventIDs(t, fake, "orders.fifo"))
}

// Throttling slows a dispatcher down and charges nothing.
func TestField_122_ADispatcherIsThrottled(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	fake.Refuse(20, sqsfake.Throttled())
	s := newShop(t)
	for range 5 {
		s.write("orders", 100)
	}
	s.dispatch(open(t, configOf(fake.URL())))
	s.sold()
	if s.paused() == 0 {
		t.Error("the dispatcher did not slow down")
	}
	s.wantFirst(eventIDs(t, fake, "orders.fifo"))
}

// A queue that is deleted and made again under a dispatcher: nothing counts as published while it is gone, and other
// queues flow.
func TestField_132_ADispatcherWaitsForTheQueue(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "orders.fifo", nil)
	createQueue(t, fake, "other.fifo", nil)
	s, other := newShop(t), newShop(t)
	other.store = s.store
	s.dispatch(open(t, configOf(fake.URL())))
	s.write("orders", 1)
	s.sold()
	fake.DeleteQueue("orders.fifo")
	s.records = nil // gone with the queue
	s.write("orders", 20)
	s.wait("the topic is held", func() bool { return s.paused() >= 3 })
	other.write("other", 20)
	s.wait("the other queue flows", func() bool { return len(fake.Messages("other.fifo")) == 20 })
	if n := len(s.store.Rows()); n < 20 {
		t.Errorf("%d of 20 events are in the outbox while their queue is gone", n)
	}
	createQueue(t, fake, "orders.fifo", nil)
	s.sold()
	s.wantFirst(eventIDs(t, fake, "orders.fifo"))
	other.wantFirst(eventIDs(t, fake, "other.fifo"))
}
