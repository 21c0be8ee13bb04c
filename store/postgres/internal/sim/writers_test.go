package sim_test

import (
	"fmt"
	"math"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// write begins the transactions of the run, one after the other; they end in any order.
func (w *world) write() {
	if w.plan.transactions == 0 || w.calm.Load() {
		return
	}
	w.after(time.Duration(w.r.IntN(160))*grain, "writers", w.write)
	key := ordering.Key{
		Topic: fmt.Sprint("topic", w.r.IntN(w.plan.topics)), AggregateType: "thing",
		AggregateID: fmt.Sprint("a", w.r.IntN(w.plan.keys)),
	}
	if w.busyKeys[key.AggregateID] { // who writes an aggregate has it locked
		return
	}
	w.plan.transactions--
	w.writing++
	w.busyKeys[key.AggregateID] = true
	tx := w.backend.begin(w.r.IntN(2) == 0)
	hold := 0
	if w.plan.holds && w.r.IntN(20) == 0 {
		hold = 1500
		w.fault("transaction stays open")
	}
	w.after(time.Duration(w.r.IntN(30))*grain, "writer "+key.String(), func() { w.enqueue(tx, key, hold) })
}

func (w *world) enqueue(tx transaction, key ordering.Key, hold int) {
	var events []string
	for range 1 + w.r.IntN(3) {
		event := fmt.Sprint("e", len(w.ledger.events)+1)
		w.ledger.drawn(event)
		w.infect(event)
		tx.enqueue(event, key)
		events = append(events, event)
	}
	w.after(time.Duration(w.r.IntN(80+hold))*grain, "writer "+key.String(), func() { w.endWrite(tx, key, events) })
}

func (w *world) endWrite(tx transaction, key ordering.Key, events []string) {
	w.writing--
	delete(w.busyKeys, key.AggregateID)
	commit := w.r.IntN(7) > 0
	if !commit {
		w.fault("rollback")
	}
	if done := tx.end(commit); !done || !commit {
		w.say("%v of %s came to nothing", events, key)
		return
	}
	w.say("commit of %v of %s", events, key)
	for _, event := range events {
		w.ledger.commit(event, key)
	}
}

// infect makes some events poison.
func (w *world) infect(event string) {
	switch n := w.r.IntN(200); {
	case n < 8:
		w.poison[event] = &poison{left: 1 + w.r.IntN(3)}
	case n < 12:
		w.poison[event] = &poison{left: math.MaxInt}
	case n < 16:
		w.poison[event] = &poison{left: math.MaxInt, class: core.ClassPermanent}
	case n < 18:
		w.poison[event] = &poison{breaker: true}
	}
}
