package core_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// stopAll ends dispatchers in order.
func (s *system) stopAll(stops ...func() error) {
	s.t.Helper()
	for _, stop := range stops {
		if err := stop(); err != nil {
			s.t.Error(err)
		}
	}
}

// count counts the publish calls whose batch contains the event.
func count(mu *sync.Mutex, calls *[]time.Time, eventID string, plan membroker.Plan) membroker.Script {
	return func(c membroker.Call) membroker.Plan {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range c.Batch {
			if m.Record.EventID == eventID {
				*calls = append(*calls, time.Now())
			}
		}
		return plan
	}
}

// A broker that refuses connections for half an hour costs no event an attempt.
func TestField_027_AnOutageOfHalfAnHourParksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(30 * time.Minute)
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: func(membroker.Call) membroker.Plan {
			if time.Now().Before(up) {
				return membroker.BrokerDown()
			}
			return membroker.Deliver()
		}})
		s.cfg.Retry.MaxAttempts = 5
		s.enqueue("orders", 1000, 100)
		_, stop := s.start()
		wait(31 * time.Minute)
		s.stopAll(stop)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
		for _, row := range s.store.Rows() {
			if row.State != memstore.Published || row.Attempts != 0 {
				t.Errorf("%s is %s with %d attempts", row.EventID, row.State, row.Attempts)
			}
		}
	})
}

// When one of three replicas dies, no lane is held by two of the others at any moment, and nothing is sent twice that
// the dead one had settled.
func TestField_046_ALaneNeverHasTwoOwners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dead := ""
		s := newSystem(t, memstore.Config{Lanes: 12, Fault: func(ctx context.Context, p memstore.Point) error {
			mu.Lock()
			gone := p.Member != "" && p.Member == dead
			mu.Unlock()
			if gone {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}, membroker.Config{MaxInFlight: 3})
		var stops []func() error
		var members []string
		for i := range 3 {
			s.cfg.Name = fmt.Sprintf("replica%d", i)
			_, stop := s.start()
			stops = append(stops, stop)
			wait(time.Second)
		}
		s.enqueue("orders", 5000, 200)
		wait(20 * time.Second)
		repeats := s.delivered("orders")
		members = s.members()
		mu.Lock()
		dead = members[0]
		mu.Unlock()
		for range 60 {
			wait(500 * time.Millisecond)
			s.enqueue("orders", 100, 200)
		}
		wait(time.Minute)
		s.stopAll(stops[1:]...)
		if got := s.delivered("orders"); got != repeats {
			t.Errorf("%d repeats, although nothing was in flight at the death", got-repeats)
		}
		if err := s.broker.Misuse(); err != nil {
			t.Error(err) // one key in two calls at the same time
		}
		_ = stops[0]() // what is dead cannot leave in order
	})
}

// members asks the store who is alive.
func (s *system) members() []string {
	s.t.Helper()
	probe := core.LeaseRequest{Member: "probe", TTL: time.Second}
	leases, err := s.store.Lease(s.t.Context(), probe)
	if err != nil {
		s.t.Fatal(err)
	}
	probe.Leave = true
	if _, err := s.store.Lease(s.t.Context(), probe); err != nil {
		s.t.Fatal(err)
	}
	var others []string
	for _, m := range leases.Members {
		if m != "probe" {
			others = append(others, m)
		}
	}
	return others
}

// A publish call that takes four times the lease does not cost the lease.
func TestField_048_SlowPublishingKeepsTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: membroker.Calls(membroker.Deliver().After(time.Minute))})
		s.cfg.PublishTimeout = 2 * time.Minute
		s.cfg.Observer = observerFunc(func(e core.Event) {
			if l, ok := e.(core.LanesEvent); ok {
				lost += l.Lost
			}
		})
		s.enqueue("orders", 10, 5)
		_, stopA := s.start()
		wait(time.Second)
		_, stopB := s.start()
		wait(3 * time.Minute)
		s.stopAll(stopA, stopB)
		if repeats := s.delivered("orders"); repeats != 0 || lost != 0 {
			t.Errorf("%d repeats, %d lanes lost", repeats, lost)
		}
	})
}

// A replica that is silent for twice its lease while it publishes is overtaken; what it settles afterwards is refused.
func TestField_049_AReplicaThatWasOvertakenSettlesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		frozen, thaw := "", make(chan struct{})
		s := newSystem(t, memstore.Config{Lanes: 4, Fault: func(ctx context.Context, p memstore.Point) error {
			mu.Lock()
			stuck := frozen != "" && p.Member == frozen
			mu.Unlock()
			if stuck {
				select {
				case <-thaw:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}}, membroker.Config{MaxInFlight: 2, Script: membroker.Calls(membroker.Deliver().ReplyAfter(40 * time.Second))})
		s.cfg.PublishTimeout = time.Minute
		s.enqueue("orders", 1, 1)
		_, stopA := s.start()
		wait(time.Second)
		member := s.members()[0]
		mu.Lock()
		frozen = member
		mu.Unlock()
		_, stopB := s.start()
		wait(2 * core.DefaultLeaseTTL)
		row, _ := s.store.Row("orders/a0/1")
		if row.State != memstore.Published {
			t.Errorf("the row is %s, want published by the replica that took over", row.State)
		}
		close(thaw)
		wait(time.Minute)
		s.stopAll(stopA, stopB)
		if repeats := s.delivered("orders"); repeats != 1 {
			t.Errorf("%d repeats, want the one of the replica that was frozen", repeats)
		}
		if row, _ := s.store.Row("orders/a0/1"); row.State != memstore.Published || row.Attempts != 0 {
			t.Errorf("the row is %s with %d attempts", row.State, row.Attempts)
		}
	})
}

// Whatever wakes dispatchers and however often, each event goes out once.
func TestField_051_WakingUpAllTheTimeRepeatsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Always(membroker.Deliver().After(time.Millisecond))})
		s.cfg.PollMin = time.Millisecond
		_, stopA := s.start()
		_, stopB := s.start()
		for range 500 {
			s.enqueue("orders", 10, 50)
			s.store.Nudge()
			wait(time.Millisecond)
		}
		wait(time.Minute)
		s.stopAll(stopA, stopB)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// Twenty replicas that start at once send 100 events that are due for a retry 100 times.
func TestField_052_ManyReplicasAtOnceSendEachRetryOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		fails.Store(true)
		s := newSystem(t, memstore.Config{Lanes: 64}, membroker.Config{Script: func(membroker.Call) membroker.Plan {
			if fails.Load() {
				return membroker.Reject(passing())
			}
			return membroker.Deliver()
		}})
		s.cfg.Retry.Backoff = core.Backoff{Initial: time.Hour, Max: time.Hour}
		s.enqueue("orders", 100, 100)
		_, stop := s.start()
		wait(time.Minute)
		s.stopAll(stop)
		fails.Store(false)
		wait(2 * time.Hour)
		var stops []func() error
		for range 20 {
			_, stop := s.start()
			stops = append(stops, stop)
		}
		wait(time.Minute)
		s.stopAll(stops...)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// Six replicas that come and go do not retry an event more often than one: its due time is in the row.
func TestField_053_MoreReplicasDoNotRetryMoreOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poison = "orders/a0/1"
		var mu sync.Mutex
		var calls []time.Time
		s := newSystem(t, memstore.Config{Lanes: 12}, membroker.Config{})
		s.broker.SetScript(count(&mu, &calls, poison, membroker.RejectEvents(passing(), poison)))
		s.cfg.Retry = core.Retry{MaxAttempts: 1000, Backoff: core.Backoff{Initial: time.Minute, Max: time.Minute}}
		s.enqueue("orders", 1, 1)
		var stops []func() error
		for range 6 {
			_, stop := s.start()
			stops = append(stops, stop)
		}
		for range 10 { // the owner leaves, and another one takes over
			wait(time.Minute)
			s.stopAll(stops[0])
			_, stop := s.start()
			stops = append(stops[1:], stop)
		}
		s.stopAll(stops...)
		mu.Lock()
		defer mu.Unlock()
		row, _ := s.store.Row(poison)
		if len(calls) != row.Attempts {
			t.Errorf("published %d times with %d attempts charged", len(calls), row.Attempts)
		}
		alone := 10 * 60 / 30 // the jittered wait is half a minute on average
		if len(calls) > 2*alone {
			t.Errorf("tried %d times in ten minutes; alone it would be about %d", len(calls), alone)
		}
	})
}

// The age of an event says nothing of whether its owner is alive.
func TestField_055_AnOldEventIsNotTakenOverWhileItIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Calls(membroker.Deliver().After(50 * time.Second))})
		s.cfg.PublishTimeout = time.Minute
		s.enqueue("orders", 1, 1)
		wait(time.Hour)
		_, stopA := s.start()
		wait(time.Second)
		_, stopB := s.start()
		wait(2 * time.Minute)
		s.stopAll(stopA, stopB)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// A RunOnce beside a running dispatcher sends nothing twice.
func TestField_056_RunOnceBesideARunningDispatcherRepeatsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{Script: membroker.Always(membroker.Deliver().After(5 * time.Millisecond))})
		s.enqueue("orders", 1000, 100)
		_, stop := s.start()
		d, err := core.NewDispatcher(s.store.Replica(), s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		s.stopAll(stop)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// An event that failed and then succeeds is published, once; one that a person deletes between publishing and
// settling is no trouble to anybody.
func TestField_059_ARetryThatSucceedsIsFinal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const failing, cancelled = "orders/a0/1", "orders/a1/1"
		var mu sync.Mutex
		tries := 0
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{})
		s.broker.SetScript(func(c membroker.Call) membroker.Plan {
			mu.Lock()
			defer mu.Unlock()
			if tries++; tries == 1 {
				return membroker.RejectEvents(passing(), failing, cancelled)
			}
			for _, m := range c.Batch {
				if m.Record.EventID == cancelled {
					if err := s.store.Delete(cancelled); err != nil {
						t.Error(err)
					}
				}
			}
			return membroker.Deliver()
		})
		s.enqueue("orders", 20, 10)
		_, stopA := s.start()
		_, stopB := s.start()
		wait(10 * time.Minute)
		s.stopAll(stopA, stopB)
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
		if row, _ := s.store.Row(failing); row.State != memstore.Published {
			t.Errorf("%s is %s", failing, row.State)
		}
		if _, there := s.store.Row(cancelled); there {
			t.Errorf("%s is there again", cancelled)
		}
	})
}

// A requeued event keeps its place when its key waited for it, and comes last when the key went on without it.
func TestField_077_WhereARequeuedEventComes(t *testing.T) {
	t.Parallel()
	for policy, want := range map[core.Exhausted]string{core.ExhaustedBlock: "[1 2 3 4 5]", core.ExhaustedPark: "[2 3 4 5 1]"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const first = "orders/a0/1"
				var fails atomic.Bool
				fails.Store(true)
				s := newSystem(t, memstore.Config{}, membroker.Config{Script: func(membroker.Call) membroker.Plan {
					if fails.Load() {
						return membroker.RejectEvents(permanent(), first)
					}
					return membroker.Deliver()
				}})
				s.cfg.Retry.Exhausted = policy
				s.enqueue("orders", 5, 1)
				_, stop := s.start()
				wait(time.Minute)
				fails.Store(false)
				if err := s.store.Requeue(first); err != nil {
					t.Fatal(err)
				}
				wait(time.Minute)
				s.stopAll(stop)
				var got []string
				for _, m := range s.broker.Messages("orders") {
					got = append(got, string(m.Payload))
					if requeued := m.Headers[core.HeaderReplay] == "1"; requeued != (m.EventID == first) {
						t.Errorf("%s: headers %v", m.EventID, m.Headers)
					}
				}
				if fmt.Sprint(got) != want {
					t.Errorf("arrived as %v, want %s", got, want)
				}
			})
		})
	}
}

// A replica that only enqueues is never counted as one that dispatches.
func TestField_091_AReplicaThatOnlyEnqueuesIsNoMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		_, stopA := s.start()
		s.cfg.EnqueueOnly = true
		_, stopB := s.start()
		wait(time.Minute)
		if got := len(s.members()); got != 1 {
			t.Errorf("%d members, want the one that dispatches", got)
		}
		s.stopAll(stopA)
		wait(time.Minute)
		if got := len(s.members()); got != 0 {
			t.Errorf("%d members, want none: nobody dispatches", got)
		}
		s.stopAll(stopB)
	})
}

// Work in flight at a stop is given back: at once when the stop was in order, after the lease when not.
func TestField_093_WhatWasInFlightIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hang.Store(true)
		s := newSystem(t, memstore.Config{}, membroker.Config{MaxInFlight: 4, Script: func(membroker.Call) membroker.Plan {
			if hang.Load() {
				return membroker.Hang()
			}
			return membroker.Deliver()
		}})
		s.cfg.ShutdownTimeout, s.cfg.PublishSize = time.Second, 1
		s.enqueue("orders", 4, 4)
		_, stop := s.start()
		wait(time.Second)
		if err := stop(); err == nil {
			t.Error("a stop with calls that hang returned no error")
		}
		hang.Store(false)
		s.enqueue("orders", 20, 10)
		_, stop = s.start()
		wait(time.Second)
		s.delivered("orders")
		s.stopAll(stop)
	})
}

// An event that is enqueued at the very moment at which its key reopens goes out without a further trigger.
func TestField_094_AnEventAddedWhileItsKeyReopensGoesOut(t *testing.T) {
	t.Parallel()
	for offset := range 60 {
		t.Run(fmt.Sprint(offset), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, memstore.Config{Lanes: 1}, membroker.Config{Script: membroker.Calls(
					membroker.Reject(passing()).After(time.Millisecond), membroker.Deliver().After(time.Millisecond))})
				s.cfg.Retry.Backoff = core.Backoff{Initial: time.Millisecond, Max: time.Millisecond}
				s.cfg.PollMax = time.Hour
				s.enqueue("orders", 1, 1)
				_, stop := s.start()
				wait(time.Duration(offset) * 100 * time.Microsecond)
				s.enqueue("orders", 1, 1)
				wait(10 * time.Second)
				s.delivered("orders")
				s.stopAll(stop)
			})
		})
	}
}
