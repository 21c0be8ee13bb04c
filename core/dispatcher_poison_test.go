package core_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

// breaks makes every call that contains one of the events fail as if the broker were gone.
func breaks(plan func() membroker.Plan, poison ...string) membroker.Script {
	return func(c membroker.Call) membroker.Plan {
		for _, m := range c.Batch {
			for _, id := range poison {
				if m.Record.EventID == id {
					return plan()
				}
			}
		}
		return membroker.Deliver()
	}
}

func TestDispatcher_APoisonThatLooksLikeAnOutageIsFoundAndParked(t *testing.T) {
	t.Parallel()
	plans := map[string]func() membroker.Plan{"broker": membroker.BrokerDown, "destination": membroker.DestinationDown}
	for scope, plan := range plans {
		for _, lanes := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s, %d lanes", scope, lanes), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					poison := []string{"orders/a0/1", "orders/a7/3"}
					s := newSystem(t, memstore.Config{Lanes: lanes}, membroker.Config{
						Script: breaks(plan, poison...), MaxInFlight: 4, KeyGuarantee: core.PrefixPerKey,
					})
					s.cfg.Retry.MaxAttempts = 3
					pauses := 0
					s.cfg.Observer = observerFunc(func(e core.Event) {
						if _, ok := e.(core.PauseEvent); ok {
							pauses++
						}
					})
					s.enqueue("orders", 500, 50)
					_, stop := s.start()
					for range 60 { // what tells a poison from an outage is that others work
						wait(5 * time.Second)
						s.enqueue("orders", 50, 50)
					}
					wait(time.Minute)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					s.delivered("orders", poison...)
					if pauses > 40 { // two events, three attempts each, and what it takes to find them
						t.Errorf("everything was paused %d times", pauses)
					}
					for _, row := range s.store.Rows() {
						wants := memstore.Published
						if row.EventID == poison[0] || row.EventID == poison[1] {
							wants = memstore.Parked
						}
						if row.State != wants {
							t.Errorf("%s is %s, want %s", row.EventID, row.State, wants)
						}
						if wants == memstore.Parked && !strings.Contains(row.Reason, "works without it") {
							t.Errorf("%s: reason %q does not say what is wrong with it", row.EventID, row.Reason)
						}
						if row.State == memstore.Published && row.Attempts != 0 {
							t.Errorf("%s was charged %d attempts for its neighbour", row.EventID, row.Attempts)
						}
					}
				})
			})
		}
	}
}

// The events that were under way when an outage began, and those that it was tried with, are not to blame for it.
func TestDispatcher_ManyOutagesAreNotBlamedOnAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{MaxInFlight: 2, Script: func(membroker.Call) membroker.Plan {
			if since := time.Since(began); since%time.Minute > 20*time.Second {
				return membroker.BrokerDown().After(time.Millisecond)
			}
			return membroker.Deliver().After(10 * time.Millisecond)
		}})
		s.cfg.PublishSize, s.cfg.FetchSize = 20, 50
		_, stop := s.start()
		for range 60 {
			s.enqueue("orders", 100, 30)
			wait(7 * time.Second)
		}
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
		for _, row := range s.store.Rows() {
			if row.Attempts != 0 || row.State != memstore.Published {
				t.Errorf("%s is %s with %d attempts", row.EventID, row.State, row.Attempts)
			}
		}
	})
}

func TestDispatcher_ABlockedEventHoldsItsKeyUntilAPersonActs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		var fails atomic.Bool
		fails.Store(true)
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: func(membroker.Call) membroker.Plan {
			if fails.Load() {
				return membroker.RejectEvents(passing(), poison)
			}
			return membroker.Deliver()
		}})
		s.cfg.Retry = core.Retry{MaxAttempts: 3, Exhausted: core.ExhaustedBlock}
		var blocked []core.BlockEvent
		s.cfg.Observer = observerFunc(func(e core.Event) {
			if b, ok := e.(core.BlockEvent); ok {
				blocked = append(blocked, b)
			}
		})
		s.enqueue("orders", 100, 10)
		d, stop := s.start()
		wait(10 * time.Minute)
		if got := len(s.broker.Messages("orders")); got != 90 {
			t.Errorf("%d events arrived, want those of the 9 other keys: 90", got)
		}
		if len(blocked) != 1 || blocked[0].Record.EventID != poison || blocked[0].Attempts != 3 {
			t.Errorf("told %+v, want one blocked event after 3 attempts", blocked)
		}
		if h := d.Health(); !h.Ready {
			t.Errorf("not ready: %s", h.Reason)
		}
		if err := stop(); err != nil { // whoever comes next leaves it blocked
			t.Fatal(err)
		}
		fails.Store(false)
		_, stop = s.start()
		wait(10 * time.Minute)
		if got := len(s.broker.Messages("orders")); got != 90 {
			t.Errorf("%d events arrived after a restart, want 90", got)
		}
		if err := s.store.Requeue(poison); err != nil {
			t.Fatal(err)
		}
		wait(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

func TestDispatcher_ABlockedEventThatIsDeletedFreesItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: membroker.Always(membroker.RejectEvents(permanent(), poison))})
		s.cfg.Retry.Exhausted = core.ExhaustedBlock
		s.enqueue("orders", 100, 10)
		_, stop := s.start()
		wait(time.Minute)
		if err := s.store.Delete(poison); err != nil {
			t.Fatal(err)
		}
		wait(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders", poison)
	})
}

func TestDispatcher_AHaltedTopicStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		var fails atomic.Bool
		fails.Store(true)
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: func(c membroker.Call) membroker.Plan {
			if fails.Load() {
				return membroker.RejectEvents(permanent(), poison)
			}
			return membroker.Deliver()
		}})
		s.cfg.TopicRetry = []core.TopicRetry{{Match: "ord*", Retry: core.Retry{Exhausted: core.ExhaustedHalt}}}
		s.enqueue("orders", 1, 1)
		s.enqueue("bills", 10, 10)
		d, stop := s.start()
		wait(10 * time.Second)
		s.enqueue("orders", 50, 10)
		s.enqueue("bills", 10, 10)
		wait(10 * time.Minute)
		if got := len(s.broker.Messages("orders")); got != 0 {
			t.Errorf("%d events arrived at the halted topic", got)
		}
		s.delivered("bills")
		if h := d.Health(); h.Ready || !strings.Contains(h.Reason, poison) {
			t.Errorf("ready is %v, reason %q; want not ready, and the event named", h.Ready, h.Reason)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		d, stop = s.start() // it is halted for whoever comes next, too
		wait(10 * time.Minute)
		if got := len(s.broker.Messages("orders")); got != 0 || d.Health().Ready {
			t.Errorf("%d events arrived at the halted topic after a restart, ready is %v", got, d.Health().Ready)
		}
		fails.Store(false)
		if err := s.store.Requeue(poison); err != nil {
			t.Fatal(err)
		}
		wait(10 * time.Second)
		if h := d.Health(); !h.Ready {
			t.Errorf("not ready after the event was requeued: %s", h.Reason)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

// TestField_026: a dead letter whose copy cannot be published stays where it is, and moves once when that works again.
func TestField_026_ADeadLetterWhoseCopyFailsIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		var repaired atomic.Bool
		refused := 5
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: func(c membroker.Call) membroker.Plan {
			switch {
			case c.Batch[0].Destination != "orders.dlq":
				return membroker.RejectEvents(passing(), poison)
			case !repaired.Load():
				return membroker.Misconfigured()
			case refused > 0:
				refused--
				return membroker.Reject(passing())
			default:
				return membroker.Deliver()
			}
		}})
		s.cfg.Retry = core.Retry{MaxAttempts: 2, DeadLetterSuffix: ".dlq"}
		message := s.message("orders", "a0")
		message.Headers = map[string]string{"tenant": "t1"}
		s.commit(message)
		s.enqueue("orders", 99, 10)
		_, stop := s.start()
		wait(10 * time.Minute)
		row, _ := s.store.Row(poison)
		if row.State != memstore.Pending || !strings.Contains(row.Reason, "orders.dlq") || row.Attempts < 2 {
			t.Errorf("the row is %s with %d attempts and the reason %q", row.State, row.Attempts, row.Reason)
		}
		if got := len(s.broker.Messages("orders")); got != 89 {
			t.Errorf("%d events arrived, want those of the other keys: 89", got)
		}
		repaired.Store(true)
		wait(20 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders", poison)
		copies := s.broker.Messages("orders.dlq")
		if len(copies) != 1 {
			t.Fatalf("%d copies arrived, want one", len(copies))
		}
		headers := map[string]string{}
		for name, value := range copies[0].Headers {
			headers[name] = value
		}
		if headers["tenant"] != "t1" || headers[core.HeaderDeadTopic] != "orders" || headers[core.HeaderDeadReason] == "" ||
			headers[core.HeaderDeadAttempts] == "" || headers[core.HeaderDeadFirstFailedAt] == "" || copies[0].EventID != poison {
			t.Errorf("the copy is %s with headers %v", copies[0].EventID, headers)
		}
		if row, _ := s.store.Row(poison); row.State != memstore.Parked {
			t.Errorf("the row is %s, want parked", row.State)
		}
	})
}

// A record that cannot even be prepared halts its own topic, and nothing else.
func TestDispatcher_AHaltForWhatCannotBePreparedIsForItsTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{MaxMessageBytes: 400})
		s.cfg.Retry.Exhausted = core.ExhaustedHalt
		large := s.message("orders", "a0")
		large.Payload = []byte(`"` + strings.Repeat("x", 1000) + `"`)
		s.commit(large)
		s.enqueue("bills", 10, 10)
		d, stop := s.start()
		wait(10 * time.Second)
		s.enqueue("orders", 50, 10)
		s.enqueue("bills", 10, 10)
		wait(10 * time.Minute)
		if got := len(s.broker.Messages("orders")); got != 0 || d.Health().Ready {
			t.Errorf("%d events arrived at the halted topic, ready is %v", got, d.Health().Ready)
		}
		s.delivered("bills")
		key := ordering.Key{Topic: "orders", AggregateType: "thing", AggregateID: "a0"}
		if n, err := s.store.SkipHead(t.Context(), key, "too large"); n != 1 || err != nil {
			t.Fatalf("skipped %d: %v", n, err)
		}
		wait(10 * time.Second)
		s.stopAll(stop)
		s.delivered("orders", poison)
	})
}

func TestDispatcher_AReplicaThatOnlyEnqueuesTouchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.cfg.EnqueueOnly = true
		s.enqueue("orders", 10, 1)
		d, stop := s.start()
		wait(time.Minute)
		if h := d.Health(); !h.Ready || len(s.broker.Messages("orders")) != 0 {
			t.Errorf("health %+v, %d events arrived", h, len(s.broker.Messages("orders")))
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDispatcher_AHaltIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{
			Script: membroker.Always(membroker.RejectEvents(permanent(), "orders/a0/1", "orders/a1/1")),
		})
		s.cfg.Retry.Exhausted = core.ExhaustedHalt
		halts := 0
		s.cfg.Observer = observerFunc(func(e core.Event) {
			if _, ok := e.(core.HaltEvent); ok {
				halts++
			}
		})
		s.enqueue("orders", 2, 2)
		_, stop := s.start()
		wait(5 * time.Minute)
		s.stopAll(stop)
		if halts != 1 {
			t.Errorf("told %d times that the topic is halted, for two blocked events of it", halts)
		}
	})
}
