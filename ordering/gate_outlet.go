package ordering

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Outlet is something that can be in trouble as a whole: a destination of a broker, or with an empty Destination the
// broker itself. A single broker has the empty name.
type Outlet struct{ Broker, Destination string }

// broker is the outlet of the whole broker.
func (o Outlet) broker() Outlet { return Outlet{Broker: o.Broker} }

// Covers reports whether trouble of o is trouble of the other outlet too.
func (o Outlet) Covers(other Outlet) bool { return o == other || o == other.broker() }

// pause is an outlet in trouble, as one lane sees it. It ends only with a fetch that was sent after the outlet was
// resumed, for that one was rewound below everything that was dropped.
type pause struct {
	low      int64 // lowest id dropped, 0 for none
	lowest   candidate
	second   candidate // the lowest of another key than the lowest's
	resuming bool
	since    uint64 // tick at which the outlet was resumed
}

// candidate is a record of a paused outlet that [Gate.Try] would publish: the first of its key that was dropped.
type candidate struct {
	id      int64 // 0 for none
	eventID string
	key     Key
	outlet  Outlet
}

func drop[T any](p *pause, e *Entry[T]) {
	p.low = lower(p.low, e.ID)
	c := candidate{e.ID, e.EventID, e.Key, e.Outlet}
	switch {
	case p.lowest.id == 0 || c.id < p.lowest.id:
		if c.key != p.lowest.key {
			p.second = p.lowest
		}
		p.lowest = c
	case c.key != p.lowest.key && (p.second.id == 0 || c.id < p.second.id):
		p.second = c
	}
}

// ends reports whether a fetch sent at the tick ends the pause.
func (p *pause) ends(tick uint64) bool { return p.resuming && tick >= p.since }

// Pause stops everything that goes to the outlet: queued records are let go of, and fetched again after
// [Gate.Resume]. Records that are being published are answered as usual.
func (g *Gate[T]) Pause(now time.Time, outlet Outlet) {
	if g.dropped {
		return
	}
	p := g.paused[outlet]
	if p == nil {
		p = &pause{}
		g.paused[outlet] = p
	}
	p.resuming = false
	for _, k := range g.inOrder() {
		g.dropQueued(k, outlet, p)
		g.offer(now, k)
		g.forget(k)
	}
}

// dropQueued lets go of the key's queued records for the outlet.
func (g *Gate[T]) dropQueued(k *keyState[T], outlet Outlet, p *pause) {
	var keep []*Entry[T]
	for k.first != nil {
		e := k.pop()
		if !outlet.Covers(e.Outlet) {
			keep = append(keep, e)
			continue
		}
		if k.closed { // the head itself, read again and ready
			g.waitForOutlet(k)
		} else {
			drop(p, e)
		}
		g.unhold(e)
	}
	for _, e := range keep {
		k.push(e)
	}
}

// Resume lets the outlet go on: what was let go of is fetched again.
func (g *Gate[T]) Resume(now time.Time, outlet Outlet) {
	if g.dropped {
		return
	}
	p := g.paused[outlet]
	if p == nil {
		return
	}
	for _, k := range g.inOrder() { // their heads were passed over when they became due
		if k.forOutlet && outlet.Covers(k.headOutlet) {
			g.setDue(k, now)
		}
	}
	if p.low == 0 {
		delete(g.paused, outlet)
		return
	}
	g.tick++
	p.resuming, p.since = true, g.tick
	g.rewindTo(p.low)
}

// inOrder returns the keys in an order that does not depend on the run.
func (g *Gate[T]) inOrder() []*keyState[T] {
	return slices.SortedFunc(maps.Values(g.keys), func(a, b *keyState[T]) int {
		return cmp.Or(cmp.Compare(a.key.Topic, b.key.Topic), cmp.Compare(a.key.AggregateType, b.key.AggregateType),
			cmp.Compare(a.key.AggregateID, b.key.AggregateID))
	})
}

// Try asks for a single record of the paused outlet, to find out whether it works again: the record is read again by
// id with the next fetch and goes out alone, while everything else stays paused. Records that avoid is true for are
// not taken. It reports whether the lane has one.
func (g *Gate[T]) Try(now time.Time, outlet Outlet, avoid func(eventID string) bool) bool {
	if g.dropped {
		return false
	}
	for _, k := range g.inOrder() {
		if !outlet.Covers(k.headOutlet) || avoid(k.headEvent) {
			continue
		}
		if k.closed && k.first != nil {
			return true // read already, as a trial of the broker or of the destination
		}
		if k.forOutlet || k.blockedAt == nil && k.dueIndex >= 0 && !k.due.After(now) {
			g.setDue(k, now)
			k.probe = true
			return true
		}
	}
	p := g.paused[outlet]
	if p == nil || p.resuming {
		return false
	}
	if g.try(now, p.lowest, avoid) || g.try(now, p.second, avoid) {
		return true
	}
	g.lookAgain(p)
	return false
}

// lookAgain forgets candidates whose keys have closed meanwhile, for a reason of their own, and has everything from
// there on fetched again: what else was dropped is not known.
func (g *Gate[T]) lookAgain(p *pause) {
	if p.lowest.id == 0 || !g.waitsForItself(p.lowest) || p.second.id != 0 && !g.waitsForItself(p.second) {
		return
	}
	g.rewindTo(p.lowest.id)
	p.lowest, p.second = candidate{}, candidate{}
}

// waitsForItself reports whether the candidate's key is closed, and not because of the outlet.
func (g *Gate[T]) waitsForItself(c candidate) bool {
	k := g.keys[c.key]
	return k != nil && k.closed && !k.holdHead && !k.forOutlet
}

// Behind reports whether the lane has to be fetched before [Gate.Try] finds a record: what was dropped may not be the
// first of its key, or its key waits for a fetch to reopen.
func (g *Gate[T]) Behind(outlet Outlet) bool {
	p := g.paused[outlet]
	return p != nil && !p.resuming && (g.rewind != 0 || p.lowest.id > g.covered)
}

// try makes the candidate the head of its key and has it read again, unless something earlier of its key is under way
// or has to be fetched again.
func (g *Gate[T]) try(now time.Time, c candidate, avoid func(string) bool) bool {
	if c.id == 0 || c.id > g.covered || g.keys[c.key] != nil || g.held[c.id] != nil || avoid(c.eventID) {
		return false
	}
	for o, other := range g.paused {
		if o.Covers(c.outlet) && other.mayHold(c) {
			return false // that one holds an earlier record of the key: it is tried first
		}
	}
	k := g.state(c.key)
	g.closeKey(k, &Entry[T]{ID: c.id, EventID: c.eventID, Outlet: c.outlet})
	g.waitUntil(k, now)
	k.probe = true
	return true
}

// mayHold reports whether a record of the candidate's key may have been dropped before the candidate.
func (p *pause) mayHold(c candidate) bool {
	if c.key == p.lowest.key {
		return p.lowest.id < c.id
	}
	return p.second.id != 0 && p.second.id < c.id
}

// Waiting reports whether the lane let go of records of the paused outlet, or keeps heads for it. Heads that wait for
// their time or for a person do not wait for the outlet.
func (g *Gate[T]) Waiting(outlet Outlet) bool {
	if g.dropped {
		return false
	}
	if p := g.paused[outlet]; p != nil && p.lowest.id != 0 {
		return true
	}
	for _, k := range g.keys {
		if k.closed && (k.forOutlet || k.holdHead) && outlet.Covers(k.headOutlet) {
			return true
		}
	}
	return false
}

// isPaused reports whether nothing may go to the outlet.
func (g *Gate[T]) isPaused(outlet Outlet) bool {
	for _, o := range []Outlet{outlet.broker(), outlet} {
		if p := g.paused[o]; p != nil && !p.resuming {
			return true
		}
	}
	return false
}

// pauseAgainst returns the pause that keeps a record of the outlet from being admitted from a fetch that was sent at
// the tick, or nil.
func (g *Gate[T]) pauseAgainst(outlet Outlet, tick uint64) *pause {
	if len(g.paused) == 0 {
		return nil
	}
	for _, o := range []Outlet{outlet.broker(), outlet} {
		if p := g.paused[o]; p != nil && !p.ends(tick) {
			return p
		}
	}
	return nil
}

// endPauses forgets the pauses that the fetch ended.
func (g *Gate[T]) endPauses(tick uint64) {
	for o, p := range g.paused {
		if p.ends(tick) {
			delete(g.paused, o)
		}
	}
}
