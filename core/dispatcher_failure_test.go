package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

var errBoom = errors.New("boom")

// passing is trouble of one message that may pass.
func passing() error {
	return &core.PublishError{Class: core.ClassTransient, Scope: core.ScopeMessage, Code: "BOOM", Err: errBoom}
}

// permanent is a message that is never accepted.
func permanent() error {
	return &core.PublishError{Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: "TOO_LARGE", Err: errBoom}
}

// wait lets virtual time pass, and returns when everybody else in the bubble waits for something. Only the test itself
// may call it: what the others did happened before it returns.
func wait(d time.Duration) {
	pass(d)
	synctest.Wait()
}

// pass lets virtual time pass for a goroutine that is not the test itself.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

func TestDispatcher_APoisonEventDelaysOnlyItsKeyAndIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{
			MaxInFlight: 4, Script: membroker.Always(membroker.RejectEvents(passing(), "orders/a3/2")),
		})
		s.cfg.Retry.MaxAttempts = 4
		s.enqueue("orders", 200, 10)
		_, stop := s.start()
		wait(10 * time.Millisecond)
		if row, _ := s.store.Row("orders/a4/20"); row.State != memstore.Published {
			t.Errorf("another key waits for the poison one: %s", row.State)
		}
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders", "orders/a3/2")
		row, _ := s.store.Row("orders/a3/2")
		if row.State != memstore.Parked || row.Attempts != 4 || !strings.Contains(row.Reason, "BOOM: boom") {
			t.Errorf("state %s, %d attempts, reason %q", row.State, row.Attempts, row.Reason)
		}
		if row, _ := s.store.Row("orders/a3/3"); row.Attempts != 0 {
			t.Errorf("a follower was charged %d attempts", row.Attempts)
		}
		if err := s.broker.Misuse(); err != nil {
			t.Error(err)
		}
	})
}

func TestDispatcher_APermanentRejectionParksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{
			Script: membroker.Always(membroker.RejectEvents(permanent(), "orders/a0/1")),
		})
		s.enqueue("orders", 4, 2)
		_, stop := s.start()
		wait(100 * time.Millisecond)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders", "orders/a0/1")
		if row, _ := s.store.Row("orders/a0/1"); row.State != memstore.Parked || row.Attempts != 1 {
			t.Errorf("state %s after %d attempts", row.State, row.Attempts)
		}
	})
}

func TestDispatcher_WhatCannotBePreparedIsParkedInItsTurn(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []core.KeyGuarantee{core.OnePerKey, core.PrefixPerKey} {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t, memstore.Config{}, membroker.Config{MaxMessageBytes: 2000, KeyGuarantee: guarantee})
			s.enqueue("orders", 2, 1)
			large := s.message("orders", "a0")
			large.Payload = make([]byte, 3000)
			s.commit(large)
			s.enqueue("orders", 2, 1)
			_, stop := s.start()
			wait(time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			s.delivered("orders", "orders/a0/3")
			row, _ := s.store.Row("orders/a0/3")
			if row.State != memstore.Parked || !strings.Contains(row.Reason, "2000") {
				t.Errorf("state %s, reason %q", row.State, row.Reason)
			}
		})
	}
}

func TestDispatcher_AnOutageOfTheBrokerSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{MaxInFlight: 3})
		s.broker.Server().Stop()
		s.enqueue("orders", 1000, 50)
		d, stop := s.start()
		wait(time.Minute)
		if h := d.Health(); h.Ready || !strings.Contains(h.Reason, "the broker is paused") {
			t.Errorf("health while the broker is down: %+v", h)
		}
		s.broker.Server().Start()
		wait(20 * time.Second)
		if h := d.Health(); !h.Ready || h.Reason != "" {
			t.Errorf("health after the outage: %+v", h)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if repeats := s.delivered("orders"); repeats != 0 {
			t.Errorf("%d repeats", repeats)
		}
		for _, row := range s.store.Rows() {
			if row.Attempts != 0 || row.State != memstore.Published {
				t.Fatalf("%s: state %s, %d attempts", row.EventID, row.State, row.Attempts)
			}
		}
	})
}

func TestDispatcher_AFailingDestinationDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]membroker.Plan{
		"down": membroker.DestinationDown(), "misconfigured": membroker.Misconfigured(),
		"throttled": membroker.Throttle(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{
					MaxInFlight: 3, Script: membroker.On("bills", membroker.Always(plan)),
				})
				s.cfg.FetchSize, s.cfg.MaxInFlight = 50, 100
				s.enqueue("bills", 1000, 50)
				s.enqueue("orders", 1000, 50)
				d, stop := s.start()
				wait(30 * time.Second)
				s.delivered("orders")
				if h := d.Health(); !h.Ready || !strings.Contains(h.Reason, `destination "bills" is paused`) {
					t.Errorf("health: %+v", h)
				}
				s.broker.SetScript(nil)
				wait(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				s.delivered("bills")
				for _, row := range s.store.Rows() {
					if row.Attempts != 0 || row.State != memstore.Published {
						t.Fatalf("%s: state %s, %d attempts", row.EventID, row.State, row.Attempts)
					}
				}
			})
		})
	}
}

func TestDispatcher_ALostReplyRepeatsAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{Lanes: 2}, membroker.Config{
			MaxInFlight: 2, KeyGuarantee: core.PrefixPerKey,
			Script: membroker.Calls(membroker.LoseReply(), membroker.LoseRequest(), membroker.LandLate(), membroker.LoseReply(0)),
		})
		s.enqueue("orders", 300, 5)
		_, stop := s.start()
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if repeats := s.delivered("orders"); repeats == 0 {
			t.Error("no repeats: the replies were not lost")
		}
	})
}

func TestDispatcher_ContainsPanicsOfTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{
			Script: membroker.Calls(membroker.Panic("oh"), membroker.Panic("no")),
		})
		s.enqueue("orders", 20, 3)
		_, stop := s.start()
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

// fewResults is a broker that breaks its contract.
type fewResults struct{ *membroker.Broker }

func (b fewResults) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	return b.Broker.PublishBatch(ctx, batch)[1:]
}

func TestDispatcher_TooFewResultsCountForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.enqueue("orders", 1, 1)
		s.cfg.Retry.MaxAttempts = 2
		d, err := core.NewDispatcher(s.store, fewResults{s.broker}, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		row, _ := s.store.Row("orders/a0/1")
		if row.State != memstore.Pending || row.Attempts != 1 || !strings.Contains(row.Reason, "0 results for 1 messages") {
			t.Errorf("state %s, %d attempts, reason %q", row.State, row.Attempts, row.Reason)
		}
	})
}

func TestDispatcher_ObserverMayPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.cfg.Observer = observerFunc(func(core.Event) { panic("observer") })
		s.enqueue("orders", 10, 3)
		_, stop := s.start()
		wait(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

type observerFunc func(core.Event)

func (f observerFunc) Observe(e core.Event) { f(e) }

func TestDispatcher_ObserverSeesEveryRecordOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{
			Script: membroker.Always(membroker.RejectEvents(passing(), "orders/a0/2")),
		})
		s.cfg.Retry.MaxAttempts = 3
		var delivered, published, retried, parked int
		var lanes core.LanesEvent
		s.cfg.Observer = observerFunc(func(e core.Event) {
			switch e := e.(type) {
			case core.PublishEvent:
				for _, r := range e.Results {
					if r.Outcome == core.OutcomeDelivered {
						delivered++
					}
				}
			case core.SettleEvent:
				published += e.Published
			case core.RetryEvent:
				retried++
			case core.ParkEvent:
				parked++
			case core.LanesEvent:
				lanes = e
			}
		})
		s.enqueue("orders", 30, 3)
		_, stop := s.start()
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if delivered != 29 || published != 29 || retried != 2 || parked != 1 {
			t.Errorf("delivered %d, published %d, retried %d, parked %d", delivered, published, retried, parked)
		}
		if lanes != (core.LanesEvent{Held: 64, Total: 64, Members: 1}) {
			t.Errorf("lanes %+v", lanes)
		}
	})
}

// After the wait a single record finds out whether a destination works again.
func TestDispatcher_AHalfOpenCircuitTriesASingleRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{Script: membroker.On("bills", func(c membroker.Call) membroker.Plan {
			sizes = append(sizes, len(c.Batch)) // one call at a time: MaxInFlight is 1
			return membroker.DestinationDown()
		})})
		s.enqueue("bills", 100, 50)
		_, stop := s.start()
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if len(sizes) < 4 || sizes[0] < 10 {
			t.Fatalf("calls of %v records", sizes)
		}
		for _, n := range sizes[1:] {
			if n != 1 {
				t.Errorf("calls of %v records, want one large one and then single ones", sizes)
				break
			}
		}
	})
}
