package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/mux"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// A missing exchange holds the topic's events back, without an attempt, until it is there again.
func TestField_020_ADispatcherWaitsForTheExchange(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	s.with(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(topic, false, false) })
	shop := newShop(t, topic, 1)
	d, _ := shop.dispatch(open(t, s.config(t)))
	shop.write()
	waitFor(t, func() bool { return shop.paused() >= 3 })
	if h := d.Health(); !strings.Contains(h.Reason, "NOT_FOUND") || !strings.Contains(h.Reason, topic) {
		t.Errorf("health: %+v", h)
	}
	if rows := shop.store.Rows(); len(rows) != 1 || rows[0].State != memstore.Pending {
		t.Errorf("rows while the exchange is missing: %+v", rows)
	}
	shop.write()
	s.declareAndConsume(t, shop)
}

// Without a queue the broker returns each event and confirms it all the same: it stays in the outbox until one is bound.
func TestField_022_ADispatcherWaitsForAQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	s.with(t, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(topic, amqp.ExchangeDirect, true, false, false, false, nil)
	})
	shop := newShop(t, topic, 5)
	d, _ := shop.dispatch(open(t, s.config(t)))
	shop.write()
	waitFor(t, func() bool { return shop.paused() >= 3 })
	if h := d.Health(); !strings.Contains(h.Reason, "NO_ROUTE") {
		t.Errorf("health: %+v", h)
	}
	if n := len(shop.store.Rows()); n != 5 {
		t.Errorf("%d of 5 events are in the outbox", n)
	}
	s.declareAndConsume(t, shop)
}

// declareAndConsume makes what is missing, and checks that a consumer gets everything that was written, in order.
func (s *server) declareAndConsume(t *testing.T, shop *shop) {
	t.Helper()
	s.declare(t, shop.topic)
	shop.sold()
	j := newJournal(len(shop.written()))
	consume(t, consumerConfig(s.config(t), shop.topic), j.handle)
	j.wait(t)
	j.wantOrder(t, shop.written())
}

// Told to stop with messages unconfirmed, a dispatcher waits for the confirms; when they do not come in time, the
// events stay in the outbox, and are published again with the same ids.
func TestField_068_ADispatcherStopsWithUnconfirmedMessages(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		arrived := make(chan func(), 10)
		f := startFake(t, &fake{publish: func(c *fakeConn, m fakeMessage) {
			c.store(m)
			arrived <- func() { c.ack(m) }
		}})
		shop := newShop(t, "orders", 10)
		shop.cfg.ShutdownTimeout, shop.cfg.PublishTimeout = 200*time.Millisecond, time.Minute
		if !late {
			shop.cfg.ShutdownTimeout = time.Minute
		}
		shop.write()
		d, err := core.NewDispatcher(shop.store, open(t, f.config()), shop.cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		acks := make([]func(), 10)
		for i := range acks {
			acks[i] = <-arrived
		}
		cancel()
		if !late {
			for _, ack := range acks {
				ack()
			}
			if err := <-done; err != nil || len(shop.store.Rows()) != 0 || len(f.bodies()) != 10 {
				t.Errorf("%v; %d events are left, %d messages were sent", err, len(shop.store.Rows()), len(f.bodies()))
			}
			continue
		}
		if err := <-done; !errors.Is(err, core.ErrShutdownTimeout) || len(shop.store.Rows()) != 10 {
			t.Errorf("%v; %d events are left", err, len(shop.store.Rows()))
		}
		go func() {
			for range 10 {
				(<-arrived)()
			}
		}()
		shop.dispatch(open(t, f.config()))
		shop.sold()
		bodies := f.bodies()
		for i, first := range bodies[:10] {
			if len(bodies) != 20 || bodies[10+i] != first {
				t.Fatalf("sent %v", bodies)
			}
		}
	}
}

// While the server blocks publishers, the topics of another broker flow, nothing counts as published, and the
// dispatcher can be stopped.
func TestField_087_AnotherBrokerFlows(t *testing.T) {
	t.Parallel()
	f := startFake(t, &fake{publish: func(c *fakeConn, _ fakeMessage) { c.block("low on memory") }})
	other := membroker.New(membroker.Config{})
	both, err := mux.New(mux.Config{
		Brokers: map[string]core.Broker{"blocked": open(t, f.config()), "other": other},
		Routes:  []mux.Route{{Match: "orders", Broker: "blocked"}, {Match: "*", Broker: "other"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	orders := newShop(t, "orders", 100)
	bills := &shop{t: t, store: orders.store, topic: "bills", keys: 100}
	orders.cfg.ShutdownTimeout = 500 * time.Millisecond
	d, err := core.NewDispatcher(orders.store, both, orders.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	orders.write()
	waitFor(t, func() bool { return strings.Contains(d.Health().Reason, "low on memory") })
	bills.write()
	waitFor(t, func() bool { return len(other.Messages("bills")) == 100 })
	cancel()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, core.ErrShutdownTimeout) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not stop")
	}
	left := 0
	for _, row := range orders.store.Rows() {
		if row.Topic == "orders" {
			left++
		}
	}
	if left != 100 {
		t.Errorf("%d of 100 events are in the outbox, although none was confirmed", left)
	}
}
