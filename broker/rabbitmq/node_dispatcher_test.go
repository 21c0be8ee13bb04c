package rabbitmq_test

import (
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// The same under a busy dispatcher: whatever was written after the restart is in the outbox until the queue is back, and
// then arrives.
func (n *node) testMissingTopologyUnderADispatcher(t *testing.T) {
	s := n.attach(t)
	topic := s.name(t)
	s.declareTransient(t, topic)
	shop := newShop(t, topic, 2)
	d, _ := shop.dispatch(open(t, n.config()))
	closeShop := shop.open()
	waitFor(t, func() bool { return len(s.messages(t, topic)) > 20 })
	n.restart(t)
	s = n.attach(t)
	gone := len(shop.written()) // some of these were in the queue
	waitFor(t, func() bool { return strings.Contains(d.Health().Reason, "NO_ROUTE") })
	waitFor(t, func() bool { return len(shop.written()) > gone+50 })
	closeShop()
	late := shop.written()[gone:]
	if held := len(shop.store.Rows()); held < len(late) {
		t.Errorf("%d events are in the outbox, want the %d that were written after the restart at least", held, len(late))
	}
	s.declareTransient(t, topic)
	shop.sold()
	arrived := map[string]bool{}
	for _, m := range s.messages(t, topic) {
		arrived[m.Headers[core.HeaderEventID]] = true
	}
	for _, r := range late {
		if !arrived[r.EventID] {
			t.Errorf("event %s has not arrived", r.EventID)
		}
	}
}

// The server restarts while dispatchers publish to it: another client counts every event in the queue of its log, first
// occurrences in order.
func (n *node) testRestartUnderADispatcher(t *testing.T) {
	topic := n.attach(t).topic(t)
	shop := newShop(t, topic, 10)
	for range 2 {
		shop.dispatch(open(t, n.config()))
	}
	closeShop := shop.open()
	waitFor(t, func() bool { return len(shop.written()) > 200 })
	n.restart(t)
	before := len(shop.written())
	waitFor(t, func() bool { return len(shop.written()) > before+200 })
	closeShop()
	shop.sold()
	if shop.paused() == 0 {
		t.Error("no dispatcher has noticed the restart")
	}
	first := map[string]bool{}
	var ids []string
	for _, m := range n.attach(t).messages(t, topic) {
		if id := m.Headers[core.HeaderEventID]; !first[id] {
			first[id] = true
			ids = append(ids, id)
		}
	}
	j := newJournal(-1)
	byID := map[string]*core.Record{}
	for _, r := range shop.written() {
		byID[r.EventID] = r
	}
	for _, id := range ids {
		_ = j.handle(t.Context(), rabbitmq.Delivery{Message: byID[id].Message})
	}
	j.wantOrder(t, shop.written())
}
