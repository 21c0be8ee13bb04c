package sim_test

import (
	"fmt"
	"time"
)

// troubles is what goes wrong at large, again and again until the end of the run.
func (w *world) troubles() {
	if w.calm.Load() {
		return
	}
	w.after(time.Duration(1+w.r.IntN(w.plan.restless*200))*grain, "troubles", w.troubles)
	switch n := w.r.IntN(20); {
	case n < 6:
		w.troubleProcess()
	case n < 9:
		w.troubleDatabase()
	case n < 13:
		w.troubleBroker()
	default:
		w.troublePeople()
	}
}

// alive are the processes that were neither killed nor asked to leave.
func (w *world) alive() (out []*process) {
	for _, p := range w.processes {
		if !p.dead && !p.leaving {
			out = append(out, p)
		}
	}
	return out
}

func (w *world) troubleProcess() {
	alive := w.alive()
	if len(alive) == 0 || len(alive) < 4 && w.r.IntN(6) == 0 {
		w.fault("process joins")
		w.join()
		return
	}
	p := alive[w.r.IntN(len(alive))]
	switch w.r.IntN(6) {
	case 0:
		w.fault("process leaves")
		p.leave()
		w.replace()
	case 1, 2:
		if !p.paused {
			w.fault("pause")
			p.pause(time.Duration(w.r.Int64N(int64(4 * w.plan.ttl))))
		}
	case 3:
		if p.member != "" {
			w.fault("lease lost")
			w.backend.expire(p.member)
		}
	default: // at one of its next calls
		ops := []string{opLease, opRelease, opFetch, opPublish, opSettle}
		p.crashAt = ops[w.r.IntN(len(ops))] + []string{" before", " after"}[w.r.IntN(2)]
		if p.crashAt == opRelease+" before" || p.crashAt == opRelease+" after" {
			p.leave()
		}
		w.replace()
	}
}

// replace starts another process in the place of one that ends.
func (w *world) replace() {
	w.after(time.Duration(w.r.IntN(500))*grain, "replacement", func() {
		if len(w.alive()) < 4 && !w.calm.Load() {
			w.join()
		}
	})
}

func (w *world) troubleDatabase() {
	switch n := w.r.IntN(8); {
	case n < 2 && w.plan.skews && !w.plan.memory:
		by := time.Duration(w.r.IntN(800)-300) * grain
		w.fault(map[bool]string{true: "database's clock goes back", false: "database's clock goes forward"}[by < 0])
		w.skew += by
	case n < 4:
		w.backend.catchUp()
	case n < 6 && w.plan.failovers:
		w.fault("failover")
		lost := w.backend.failOver()
		w.say("failover, lost %v", lost)
		for _, event := range lost {
			w.ledger.lose(event)
		}
		w.unreachable()
	case n < 7:
		w.fault("database crash")
		w.backend.restart()
		w.unreachable()
	default:
		w.fault("database unreachable")
		w.unreachable()
	}
}

func (w *world) unreachable() {
	w.backend.setDown(true)
	w.after(time.Duration(w.r.IntN(300))*grain, "database is back", func() { w.backend.setDown(false) })
}

func (w *world) troubleBroker() {
	until := time.Now().Add(time.Duration(w.r.IntN(700)) * grain)
	destination := fmt.Sprint("topic", w.r.IntN(w.plan.topics))
	switch w.r.IntN(4) {
	case 0:
		w.outages[""] = until
	case 1, 2:
		w.outages[destination] = until
	default:
		w.throttled[destination] = until
	}
}

// troublePeople is a person who does something to an event.
func (w *world) troublePeople() {
	rows := w.backend.rows()
	if len(rows) == 0 {
		return
	}
	r := rows[w.r.IntN(len(rows))]
	for range 8 { // rather one that is in trouble
		if r.state == published || r.state == pending {
			r = rows[w.r.IntN(len(rows))]
		}
	}
	var what operation
	switch n := w.r.IntN(10); {
	case r.state == blocked:
		what = []operation{opUnblock, opSkip, opRequeue, opTryNow}[n%4]
	case r.state == parked:
		what = []operation{opRequeue, opDiscard, opRequeue, opDelete}[n%4]
	case r.state == discarded || n < 5:
		what = opRequeue
	case n < 6:
		what = opDelete
	case n < 8 && r.state == published && w.plan.sweep > 0:
		what = opUnpublish
	case n < 9:
		what = opTryNow
	default:
		what = opMarkAsDone
	}
	w.operate(what, r)
}

func (w *world) operate(what operation, r row) {
	w.say("a person does %s to %s", what, r.event)
	w.backend.operate(what, r.event, r.key, func(changed ...string) {
		w.fault("person: " + string(what))
		for _, event := range changed {
			w.ledger.operated(what, event)
		}
	})
}

// settleDown ends all trouble. People look after what is blocked until nothing is.
func (w *world) settleDown() {
	w.say("nothing goes wrong any more")
	w.calm.Store(true)
	w.backend.setDown(false)
	clear(w.outages)
	clear(w.throttled)
	for _, p := range w.processes {
		if p.crashAt = ""; p.paused {
			p.paused = false
			p.flush()
		}
	}
	if len(w.alive()) == 0 {
		w.join()
	}
	w.cure()
}

// cure is what people do about poison and blocked keys.
func (w *world) cure() {
	w.after(time.Duration(200+w.r.IntN(500))*grain, "people", w.cure)
	for event, p := range w.poison { // with nothing else to publish, a breaker is never found out
		if p.breaker && time.Since(w.end) > time.Minute {
			delete(w.poison, event)
		}
	}
	for _, r := range w.backend.rows() {
		if r.state != blocked {
			continue
		}
		if w.r.IntN(2) == 0 {
			w.operate(opSkip, r)
		} else {
			delete(w.poison, r.event)
			w.operate(opUnblock, r)
		}
	}
}
