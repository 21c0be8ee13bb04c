package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// circuit is a destination, or the broker, in trouble. While it is open nothing is published there and no record is
// charged. After a wait it is half open: a single record that waits for it is published, its trial. If that works
// everything goes on, if not the next wait is longer.
type circuit struct {
	failures   int
	err        error
	until      time.Time // open: when to try; half open: when to give up waiting for the trial
	halfOpen   bool
	trial      *lane
	publishing bool            // the trial's record is under way
	halted     bool            // for a blocked record: not tried before a person has acted
	blockedAt  ordering.Outlet // where the blocked record stands, when halted
}

// pause opens the circuit of the outlet, because of what publishing the record said; nil when nothing was published.
func (l *loop) pause(now time.Time, outlet ordering.Outlet, pe *PublishError, cause *Record) {
	c := l.circuits[outlet]
	switch {
	case c == nil:
		c = &circuit{}
		l.circuits[outlet] = c
	case c.halted:
		return
	case !c.halfOpen: // another call that began before the circuit opened
		c.err = pe
		return
	}
	c.failures++
	wait := max(pe.RetryAfter, l.delay(l.cfg.Outage, c.failures))
	c.err, c.until, c.halfOpen, c.trial, c.publishing = pe, now.Add(wait), false, nil, false
	l.pauseGates(now, outlet)
	for other := range l.agreements {
		if outlet.Covers(other) && !l.agreements[other].checking {
			delete(l.agreements, other) // whatever is wrong, it may be that
		}
	}
	log := l.log
	if cause != nil { // the one that is always named is a poison that looks like an outage
		log = log.With("event_id", cause.EventID)
	}
	log.Warn("paused: nothing is charged to its messages meanwhile", "what", nameOf(outlet),
		"class", pe.Class.String(), "failures", c.failures, "retry_in", wait, "error", pe)
	l.observe(PauseEvent{Broker: outlet.Broker, Destination: outlet.Destination, Failures: c.failures, RetryIn: wait, Err: pe})
}

func (l *loop) pauseGates(now time.Time, outlet ordering.Outlet) {
	for _, n := range l.order {
		l.lanes[n].gate.Pause(now, outlet)
	}
}

// haltFor opens the circuit of the destination that a blocked record goes to, if that is how its topic is configured.
func (l *loop) haltFor(now time.Time, r *Record, outlet ordering.Outlet) {
	if l.cfg.retryOf(r.Topic).Exhausted != ExhaustedHalt {
		return
	}
	if !l.halt(now, outlet, outlet, fmt.Errorf("halted for event %q of key %s, which is blocked: unblock the key or skip its head",
		r.EventID, r.Key())) {
		return
	}
	l.observe(HaltEvent{Broker: outlet.Broker, Destination: outlet.Destination, Record: r})
}

// halt opens the circuit of an outlet for a record that is blocked at one, and reports whether it was not halted yet.
func (l *loop) halt(now time.Time, outlet, blockedAt ordering.Outlet, why error) bool {
	c := l.circuits[outlet]
	if c == nil {
		c = &circuit{}
		l.circuits[outlet] = c
	}
	if c.halted {
		return false
	}
	*c = circuit{failures: c.failures, halted: true, blockedAt: blockedAt, err: why}
	l.pauseGates(now, outlet)
	l.log.Error("halted: nothing more is published there until a person has acted", "what", nameOf(outlet), "error", why)
	return true
}

// place finds out where records go that could not be prepared: with the others of their topic. Only who halts topics has
// to know. Before one of the topic could be prepared its name has to do; when that is learnt, what was halted under the
// name is halted there.
func (l *loop) place(batches ...[]*entry) {
	if !l.halts {
		return
	}
	for _, entries := range batches {
		for _, e := range entries {
			if topic := e.Value.record.Topic; e.Value.err == nil && l.places[topic] != e.Outlet {
				l.places[topic] = e.Outlet
				if byName := (ordering.Outlet{Destination: topic}); byName != e.Outlet && l.circuits[byName] != nil && l.circuits[byName].halted {
					l.halt(time.Now(), e.Outlet, byName, l.circuits[byName].err)
				}
			}
		}
	}
	for _, entries := range batches {
		for _, e := range entries {
			if e.Value.err == nil {
				continue
			}
			topic := e.Value.record.Topic
			e.Outlet = cmp.Or(l.places[topic], ordering.Outlet{Destination: topic})
		}
	}
}

// halted reports whether a destination is halted.
func (l *loop) halted() bool {
	for _, c := range l.circuits {
		if c.halted {
			return true
		}
	}
	return false
}

// blocked reports whether a record of the lanes held that goes to the outlet is blocked.
func (l *loop) blocked(outlet ordering.Outlet) bool {
	for _, lane := range l.lanes {
		if lane.gate.Blocked(outlet) {
			return true
		}
	}
	return false
}

// tryCircuits half-opens the circuits whose wait is over.
func (l *loop) tryCircuits(now time.Time) {
	for _, outlet := range l.outletsInTrouble() {
		c := l.circuits[outlet]
		if c.halted {
			if !l.blocked(c.blockedAt) {
				l.log.Info("goes on: no blocked event stands against it any more", "what", nameOf(outlet))
				l.resume(now, outlet, false)
			}
			continue
		}
		if now.Before(c.until) || c.publishing || l.stopping {
			continue
		}
		if c.halfOpen { // the trial came to nothing: its record is gone, or waits for something else
			l.resume(now, outlet, false)
			continue
		}
		l.beginTrial(now, outlet, c)
	}
}

// beginTrial asks a lane for a record to try the outlet with: if there is a choice, not for one that is suspected of
// being the trouble itself.
func (l *loop) beginTrial(now time.Time, outlet ordering.Outlet, c *circuit) {
	if l.askForTrial(now, outlet, c, l.suspects.failedLast) ||
		l.askForTrial(now, outlet, c, func(string) bool { return false }) {
		return
	}
	for _, lane := range l.lanes {
		if !lane.giving && (lane.gate.Waiting(outlet) || lane.gate.Behind(outlet)) {
			c.until = now.Add(l.cfg.Outage.Initial) // what waits is held up by something under way, or has to be fetched
			return
		}
	}
	l.resume(now, outlet, false)
}

func (l *loop) askForTrial(now time.Time, outlet ordering.Outlet, c *circuit, avoid func(eventID string) bool) bool {
	for _, n := range l.order {
		if lane := l.lanes[n]; !lane.giving && lane.gate.Try(now, outlet, avoid) {
			c.halfOpen, c.trial, c.until = true, lane, now.Add(l.cfg.PublishTimeout+l.cfg.Outage.Max)
			l.fetcher.wake()
			return true
		}
	}
	return false
}

// loseTrial gives up the trials of a lane that is lost.
func (l *loop) loseTrial(lane *lane) {
	for _, c := range l.circuits {
		if c.trial == lane {
			c.trial, c.publishing, c.until = nil, false, time.Time{}
		}
	}
}

// isTrial reports whether the lane has a record to try a circuit with.
func (l *loop) isTrial(lane *lane) bool {
	for _, c := range l.circuits {
		if c.trial == lane {
			return true
		}
	}
	return false
}

// outletsInTrouble returns the outlets that have a circuit, in a fixed order.
func (l *loop) outletsInTrouble() []ordering.Outlet {
	return slices.SortedFunc(maps.Keys(l.circuits), func(a, b ordering.Outlet) int {
		return cmp.Or(cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.Destination, b.Destination))
	})
}

// mayPublish reports whether a call to the outlet may begin.
func (l *loop) mayPublish(outlet ordering.Outlet) bool {
	if !l.publish.free(outlet.Broker) || !l.agreedOn(time.Now(), outlet) {
		return false
	}
	for trouble, c := range l.circuits {
		if trouble.Covers(outlet) && (!c.halfOpen || c.publishing) {
			return false
		}
	}
	return true
}

// trialsOf returns the half-open circuits that a call to the outlet tries.
func (l *loop) trialsOf(outlet ordering.Outlet) []*circuit {
	var out []*circuit
	for trouble, c := range l.circuits {
		if trouble.Covers(outlet) && c.halfOpen {
			out = append(out, c)
		}
	}
	return out
}

// endTrial ends the trials that a call to the outlet was. One that did not work is opened again by the answers of its
// records, or goes on waiting for a record that says more.
func (l *loop) endTrial(outlet ordering.Outlet, works bool) {
	for _, trouble := range l.outletsInTrouble() {
		c := l.circuits[trouble]
		if !trouble.Covers(outlet) || !c.publishing {
			continue
		}
		c.publishing = false
		if works {
			l.resume(time.Now(), trouble, true)
		}
	}
}

// resume closes the circuit: everything goes on, because the outlet works, or because nothing waits for it any more.
func (l *loop) resume(now time.Time, outlet ordering.Outlet, works bool) {
	c := l.circuits[outlet]
	delete(l.circuits, outlet)
	for _, n := range l.order {
		l.lanes[n].gate.Resume(now, outlet)
	}
	l.fetcher.next = time.Time{}
	l.fetcher.wake()
	if works {
		l.suspects.worked(outlet)
		l.log.Info("works again", "what", nameOf(outlet), "failures", c.failures)
	}
	l.observe(ResumeEvent{Broker: outlet.Broker, Destination: outlet.Destination})
}

// brokerPaused reports whether the whole broker is in trouble. One of several brokers is like a destination: the others
// go on.
func (l *loop) brokerPaused() bool { return l.circuits[ordering.Outlet{}] != nil }

// maxErrors bounds how many paused outlets are told one by one.
const maxErrors = 5

// circuitErrors tells what is paused, and why.
func (l *loop) circuitErrors() error {
	if len(l.circuits) == 0 {
		return nil
	}
	outlets := l.outletsInTrouble()
	var all []error
	for _, outlet := range outlets[:min(len(outlets), maxErrors)] {
		all = append(all, fmt.Errorf("%s is paused: %w", nameOf(outlet), l.circuits[outlet].err))
	}
	if more := len(outlets) - maxErrors; more > 0 {
		all = append(all, fmt.Errorf("and %d more are paused", more))
	}
	return errors.Join(all...)
}

func nameOf(outlet ordering.Outlet) string {
	switch {
	case outlet == ordering.Outlet{}:
		return "the broker"
	case outlet.Destination == "":
		return fmt.Sprintf("the broker %q", outlet.Broker)
	default:
		return fmt.Sprintf("destination %q", outlet.Destination)
	}
}
