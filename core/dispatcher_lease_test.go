package core_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// A dispatcher whose renewals get no answer stops in time: its lanes may be somebody else's.
func TestDispatcher_PublishesNothingOnceItsLeasesMayHaveExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		s := newSystem(t, memstore.Config{Fault: func(ctx context.Context, p memstore.Point) error {
			if p.Op == memstore.OpLease && cut.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}, membroker.Config{Script: membroker.Always(membroker.Deliver().After(2 * time.Second))})
		s.cfg.FetchSize, s.cfg.PublishSize = 1000, 10
		s.enqueue("orders", 1000, 1000)
		d, stop := s.start()
		wait(time.Second)
		cut.Store(true)
		wait(core.DefaultLeaseTTL)
		published := len(s.broker.Messages("orders"))
		wait(core.DefaultLeaseTTL)
		if n := len(s.broker.Messages("orders")); n != published {
			t.Errorf("%d records were published after the leases had expired", n-published)
		}
		if h := d.Health(); h.Ready {
			t.Errorf("health %+v", h)
		}
		cut.Store(false)
		wait(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("orders")
	})
}

// After a failover that lost transactions, their ids are drawn again for other events. Nothing of the old state counts.
func TestDispatcher_AReplacedServerIsReadAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newSystem(t, memstore.Config{Lanes: 2}, membroker.Config{Script: membroker.Calls(membroker.Hold(release))})
		s.cfg.PublishTimeout = time.Minute
		s.enqueue("orders", 6, 3)
		_, stop := s.start()
		wait(time.Second)
		lost := []string{"orders/a0/2", "orders/a1/2", "orders/a2/2"}
		if err := s.store.Restart(lost...); err != nil {
			t.Fatal(err)
		}
		s.enqueue("bills", 6, 2) // draws the ids of the lost ones
		wait(time.Second)
		close(release)
		wait(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.delivered("bills")
		s.delivered("orders", lost...)
		for _, row := range s.store.Rows() {
			if row.State != memstore.Published {
				t.Errorf("%s is %s", row.EventID, row.State)
			}
		}
	})
}

// missing is a store that once finds no row for an event, as if somebody had changed it.
type missing struct {
	*memstore.Store
	event string
	once  atomic.Bool
}

func (m *missing) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	var missed []*core.Record
	for i, item := range req.Items {
		if item.Record.EventID == m.event && m.once.CompareAndSwap(false, true) {
			missed = append(missed, item.Record)
			req.Items = slices.Delete(slices.Clone(req.Items), i, i+1)
			break
		}
	}
	settled, err := m.Store.Settle(ctx, req)
	settled.Missed = append(settled.Missed, missed...)
	return settled, err
}

func TestDispatcher_WhatASettleMissedIsFetchedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, memstore.Config{}, membroker.Config{})
		s.enqueue("orders", 9, 3)
		d, err := core.NewDispatcher(&missing{Store: s.store, event: "orders/a1/2"}, s.broker, s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if row, _ := s.store.Row("orders/a1/2"); row.State != memstore.Published {
			t.Errorf("state %s", row.State)
		}
		if repeats := s.delivered("orders"); repeats != 1 {
			t.Errorf("%d repeats", repeats)
		}
	})
}

// What was let go of while its call was under way is not published by another call before that has returned.
func TestDispatcher_AKeyIsNeverInTwoCallsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newSystem(t, memstore.Config{Lanes: 4}, membroker.Config{
			MaxInFlight: 4, Script: membroker.Calls(membroker.Hold(release)),
		})
		s.enqueue("orders", 20, 5)
		_, stop := s.start()
		wait(time.Second)
		if err := s.store.Restart(); err != nil { // a failover: everything is read anew
			t.Fatal(err)
		}
		wait(5 * time.Second)
		if n := len(s.broker.Messages("orders")); n != 0 {
			t.Errorf("%d events arrived while an earlier call with their keys was under way", n)
		}
		close(release)
		wait(time.Minute)
		s.stopAll(stop)
		s.delivered("orders")
		if err := s.broker.Misuse(); err != nil {
			t.Error(err)
		}
	})
}
