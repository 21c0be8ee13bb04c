package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// The times of the dispatchers in these tests, and how long publishing has to rest for them.
const (
	leaseTTL       = 500 * time.Millisecond
	publishTimeout = time.Second
	quiet          = 2*leaseTTL + publishTimeout
)

// shop writes events to a store, and runs dispatchers from it to RabbitMQ.
type shop struct {
	t     *testing.T
	store *memstore.Store
	topic string
	keys  int
	cfg   core.Config // of the dispatchers

	mu      sync.Mutex
	records []*core.Record // everything that was written
	pauses  int            // how often a dispatcher was told to wait by the broker
}

// Observe counts what the dispatchers are told, and fails when an event is charged for it.
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

// sold waits until everything that was written is out of the store.
func (s *shop) sold() {
	s.t.Helper()
	waitFor(s.t, func() bool { return len(s.store.Rows()) == 0 })
}

func newShop(t *testing.T, topic string, keys int) *shop {
	t.Helper()
	store, err := memstore.New(memstore.Config{Lanes: 8, AfterPublish: memstore.Delete})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, store: store, topic: topic, keys: keys}
	s.cfg = core.Config{
		LeaseTTL: leaseTTL, PublishTimeout: publishTimeout, Logger: slog.New(slog.DiscardHandler), Observer: s,
		Outage: core.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	return s
}

// write writes one event of each key.
func (s *shop) write() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := s.store.Begin()
	for i := range s.keys {
		r := brokertest.NewRecord(s.topic, fmt.Sprintf("key-%d", i), lastID.Add(1))
		if _, err := tx.Enqueue(context.Background(), r.Message); err != nil {
			s.t.Error(err)
		}
		s.records = append(s.records, r)
	}
	if err := tx.Commit(); err != nil {
		s.t.Error(err)
	}
}

// open writes all the time, until close is called.
func (s *shop) open() (closeShop func()) {
	stop, tick := make(chan struct{}), time.NewTicker(50*time.Millisecond)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				s.write()
			}
		}
	})
	return func() {
		close(stop)
		running.Wait()
		tick.Stop()
	}
}

// written returns what was written until now.
func (s *shop) written() []*core.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

// dispatch runs a dispatcher until the test ends, or until it is killed.
func (s *shop) dispatch(b core.Broker) (d *core.Dispatcher, kill func()) {
	s.t.Helper()
	store := &mortal{Store: s.store.Replica()}
	d, err := core.NewDispatcher(store, b, s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil && !store.dead.Load() {
			s.t.Errorf("Run: %v", err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	s.t.Cleanup(stop)
	return d, func() {
		store.dead.Store(true) // nothing that happens from here on is known to anybody
		stop()
	}
}

// mortal is a store as a dispatcher sees it that dies: from then on nothing that it wants to write is written.
type mortal struct {
	*memstore.Store
	dead atomic.Bool
}

var errDead = errors.New("dead")

func (m *mortal) Lease(ctx context.Context, r core.LeaseRequest) (core.Leases, error) {
	if m.dead.Load() {
		return core.Leases{}, errDead
	}
	return m.Store.Lease(ctx, r)
}

func (m *mortal) Settle(ctx context.Context, r core.Settlement) (core.Settled, error) {
	if !m.dead.Load() {
		return m.Store.Settle(ctx, r)
	}
	var refused core.Settled
	for _, lease := range r.Leases {
		refused.Refused = append(refused.Refused, lease.Lane)
	}
	return refused, nil
}
