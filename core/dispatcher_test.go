package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// system is a store, a broker and the dispatchers between them, in one synctest bubble.
type system struct {
	t      *testing.T
	store  *memstore.Store
	broker *membroker.Broker
	cfg    core.Config
	wg     sync.WaitGroup
	next   map[string]int
}

func newSystem(t *testing.T, store memstore.Config, broker membroker.Config) *system {
	t.Helper()
	s, err := memstore.New(store)
	if err != nil {
		t.Fatal(err)
	}
	return &system{
		t: t, store: s, broker: membroker.New(broker), next: map[string]int{},
		cfg: core.Config{Logger: slog.New(slog.DiscardHandler)},
	}
}

// enqueue commits n events of the topic's aggregates a0..a(keys-1) in turn. The payload counts the events of the key.
func (s *system) enqueue(topic string, n, keys int) {
	s.t.Helper()
	for i := range n {
		key := fmt.Sprintf("a%d", i%keys)
		s.commit(s.message(topic, key))
	}
}

// message is the next event of a key; its id is topic/key/number.
func (s *system) message(topic, key string) core.Message {
	s.next[topic+"/"+key]++
	number := s.next[topic+"/"+key]
	return core.Message{
		EventID: fmt.Sprintf("%s/%s/%d", topic, key, number), Topic: topic, AggregateType: "thing", AggregateID: key,
		EventType: "thing.changed", Payload: []byte(fmt.Sprint(number)),
	}
}

func (s *system) commit(messages ...core.Message) {
	s.t.Helper()
	tx := s.store.Begin()
	if _, err := tx.Enqueue(s.t.Context(), messages...); err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// start runs a dispatcher on handles of its own until stop is called, which returns what Run returned.
func (s *system) start() (d *core.Dispatcher, stop func() error) {
	s.t.Helper()
	d, err := core.NewDispatcher(s.store.Replica(), s.broker, s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	result := make(chan error, 1)
	s.wg.Go(func() { result <- d.Run(ctx) })
	return d, func() error {
		cancel()
		return <-result
	}
}

// delivered checks that the topic holds each event of each key, first occurrences in order, and returns the repeats.
func (s *system) delivered(topic string, except ...string) (repeats int) {
	s.t.Helper()
	missing := map[string]bool{}
	for _, id := range except {
		missing[id] = true
	}
	last := map[string]int{}
	for _, m := range s.broker.Messages(topic) {
		var number int
		if _, err := fmt.Sscan(string(m.Payload), &number); err != nil {
			s.t.Fatalf("payload %q: %v", m.Payload, err)
		}
		key := m.Key.AggregateID
		want := last[key] + 1
		for missing[fmt.Sprintf("%s/%s/%d", topic, key, want)] {
			want++
		}
		switch {
		case number == want:
			last[key] = number
		case number > want:
			s.t.Errorf("%s/%s: %d arrived before %d", topic, key, number, want)
			last[key] = number
		default:
			repeats++
		}
	}
	for name, n := range s.next {
		if key, ok := strings.CutPrefix(name, topic+"/"); ok {
			for missing[fmt.Sprintf("%s/%d", name, n)] {
				n--
			}
			if last[key] != n {
				s.t.Errorf("%s: %d of %d arrived", name, last[key], n)
			}
		}
	}
	return repeats
}

func TestDispatcher_DeliversEverythingInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 8}, membroker.Config{MaxInFlight: 4})
		s.enqueue("orders", 500, 20)
		_, stop := s.start()
		wait(time.Second)
		s.enqueue("orders", 500, 20)
		s.enqueue("bills", 500, 7)
		wait(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if repeats := s.delivered("orders") + s.delivered("bills"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
		for _, row := range s.store.Rows() {
			if row.State != memstore.Published {
				t.Errorf("%s is %s", row.EventID, row.State)
			}
		}
	})
}

func TestDispatcher_RunOnceDispatchesWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 8}, membroker.Config{MaxInFlight: 4})
		d, err := core.NewDispatcher(s.store, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.enqueue("orders", 3000, 20)
			if err := d.RunOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if repeats := s.delivered("orders"); repeats != 0 {
				t.Errorf("%d repeats", repeats)
			}
		}
	})
}

func TestNewDispatcher_ReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := core.NewDispatcher(nil, nil, core.Config{
		FetchSize: -1, PollMin: -time.Second, LeaseTTL: time.Millisecond, Retry: core.Retry{MaxAttempts: -3},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, path := range []string{"store:", "broker:", "FetchSize:", "PollMin:", "LeaseTTL:", "Retry.MaxAttempts:"} {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%q is not in the error: %v", path, err)
		}
	}
	var fault *core.FieldError
	if !errors.As(err, &fault) {
		t.Errorf("no *FieldError in %v", err)
	}
}

// failTimes loses the answer of the first n calls of the operation.
func failTimes(op memstore.Op, n int64) func(context.Context, memstore.Point) error {
	var failed atomic.Int64
	return func(_ context.Context, p memstore.Point) error {
		if p.Op == op && p.Done && failed.Add(1) <= n {
			return errBoom
		}
		return nil
	}
}
