package sim_test

import (
	"fmt"
	"strings"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// ledger is what has to be true, written down by those who do it: writers, people, the broker's log. It checks each
// message when it lands, and all rows at the end.
type ledger struct {
	w      *world
	events map[string]*entry
	order  map[ordering.Key][]*entry // committed, in that order

	lost, phantoms, outOfOrder, repeats, committed, allowed int
	faults                                                  []string
}

// entry is one event.
type entry struct {
	event     string
	committed bool
	gone      bool         // with a server that failed over
	left      string       // why it has no place in the order any more
	removed   bool         // a person deleted it, or marked it as done
	landed    map[int]bool // by replay
	failures  int          // that may have been charged
	broke     int          // calls that failed as a whole, and that it was alone in
}

func newLedger(w *world) *ledger {
	return &ledger{w: w, events: map[string]*entry{}, order: map[ordering.Key][]*entry{}}
}

func (l *ledger) bad(format string, args ...any) {
	fault := fmt.Sprintf(format, args...)
	l.w.say("FAULT %s", fault)
	if len(l.faults) < 3 {
		l.faults = append(l.faults, fault)
	}
}

// drawn notes an event that may commit.
func (l *ledger) drawn(event string) { l.events[event] = &entry{event: event, landed: map[int]bool{}} }

func (l *ledger) commit(event string, key ordering.Key) {
	e := l.events[event]
	e.committed = true
	l.committed++
	l.order[key] = append(l.order[key], e)
}

// lose says that a failover lost the event. What the broker has of it is nobody's fault.
func (l *ledger) lose(event string) {
	if e := l.events[event]; !e.gone {
		e.gone = true
		if len(e.landed) > 0 {
			l.allowed++
		}
	}
}

func (l *ledger) leave(event, why string) {
	if e := l.events[event]; e.left == "" {
		l.w.say("%s leaves the order: %s", event, why)
		e.left = why
	}
}

// operated notes what a person has done.
func (l *ledger) operated(what operation, event string) {
	switch what {
	case opDelete, opMarkAsDone:
		l.events[event].removed = true
		l.leave(event, string(what))
	case opSkip:
		l.leave(event, string(what))
	}
}

func (l *ledger) failed(event string) { l.events[event].failures++ }

// land takes a message of the broker's log.
func (l *ledger) land(m *membroker.Message) {
	e := l.events[m.EventID]
	l.w.say("LAND %s of %s at %s, row %d replay %s", m.EventID, m.Key, m.Destination, m.RecordID,
		m.Headers[core.HeaderReplay])
	if e == nil || !e.committed {
		l.phantoms++
		l.bad("phantom: %s landed and was never committed", m.EventID)
		return
	}
	if strings.HasSuffix(m.Destination, deadSuffix) {
		return
	}
	replay := 0
	if text := m.Headers[core.HeaderReplay]; text != "" {
		_, _ = fmt.Sscan(text, &replay)
	}
	again := len(e.landed) > 0
	if e.landed[replay] {
		l.repeats++
	}
	e.landed[replay] = true
	if again || e.gone || e.left != "" {
		if e.gone && !again {
			l.allowed++
		}
		return
	}
	for _, before := range l.order[m.Key] {
		if before == e {
			return
		}
		if len(before.landed) == 0 && before.left == "" && !before.gone {
			l.outOfOrder++
			l.bad("out of order: %s landed before %s of %s", e.event, before.event, m.Key)
			return
		}
	}
	l.bad("%s landed under another key, %s", e.event, m.Key)
}

// innocent is how often an event may break a call that it is alone in before the dispatcher may take it for the reason.
const innocent = 2

// charge checks what is to be written about a row's attempts.
func (l *ledger) charge(event string, attempts int) {
	if e := l.events[event]; attempts > e.failures+max(0, e.broke-innocent) {
		l.bad("attempts: %s is charged with %d, and failed by itself %d times", event, attempts, e.failures)
	}
}

// verify compares the rows at the end with the broker's log.
func (l *ledger) verify(rows []row) {
	found := map[string]bool{}
	for _, r := range rows {
		found[r.event] = true
		l.verifyRow(&r)
	}
	for _, order := range l.order {
		for _, e := range order {
			if !found[e.event] && !e.gone && !e.removed {
				l.bad("lost: the row of %s is gone, and nobody deleted it", e.event)
				l.lost++
			}
		}
	}
}

func (l *ledger) verifyRow(r *row) {
	e := l.events[r.event]
	l.charge(r.event, r.attempts)
	switch {
	case e.removed:
	case !e.committed:
		l.bad("the row of %s was never committed", r.event)
	case r.state == published && !e.landed[r.replay]:
		l.lost++
		l.bad("lost: %s is marked as published and replay %d of it never landed", r.event, r.replay)
	case r.state <= blocked:
		l.lost++
		l.bad("lost: %s of %s is still %s", r.event, r.key, r.state)
	case r.state >= parked && e.left == "":
		l.bad("%s is %s, and nobody did that", r.event, r.state)
	}
}
