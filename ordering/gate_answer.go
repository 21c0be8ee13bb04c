package ordering

import "time"

// Each answer takes an entry that [Queue.Take] handed out, once. The entries of one call are answered in the order in
// which they were taken.

// Delivered says that the broker has the record. It stays held until [Gate.Settled].
func (g *Gate[T]) Delivered(now time.Time, e *Entry[T]) {
	if g.dropped {
		return
	}
	k := e.key
	k.answer()
	e.state = entryAnswered
	if k.isHead(e) {
		g.finishHead(k)
		return
	}
	g.offer(now, k)
	g.forget(k)
}

// Fail says that an attempt of the record failed and that the failure or the park is being written down. Its key closes;
// the record stays held until [Gate.Settled], and only then the key may go on. It returns false, and lets go of the
// record, when an earlier record of its key in the same call failed already: then this one is a follower, and nothing
// is written down for it.
func (g *Gate[T]) Fail(now time.Time, e *Entry[T]) bool {
	if g.dropped {
		return false
	}
	k := e.key
	if g.follows(now, k, e) {
		return false
	}
	k.answer()
	e.state = entryAnswered
	g.closeKey(k, e)
	return true
}

// Retry says that the record was not published and that nothing is charged to it: its key closes until due, when the
// record is fetched again. It returns false when the record is a follower, because an earlier record of its key in the
// same call closed the key already.
func (g *Gate[T]) Retry(now time.Time, e *Entry[T], due time.Time) bool {
	if g.dropped {
		return false
	}
	k := e.key
	if g.follows(now, k, e) {
		return false
	}
	k.answer()
	k.retries++
	g.closeKey(k, e)
	g.waitUntil(k, due)
	g.unhold(e)
	return true
}

// Retries returns how often in a row [Gate.Retry] was called for the head of the record's key: the wait should grow
// with it.
func (g *Gate[T]) Retries(e *Entry[T]) int { return e.key.retries }

// Suspend says that the record was not published because its outlet, which is paused, is in trouble. It is fetched
// again when the outlet is resumed.
func (g *Gate[T]) Suspend(now time.Time, e *Entry[T], outlet Outlet) {
	if g.dropped {
		return
	}
	k, p := e.key, g.paused[outlet]
	if g.follows(now, k, e) {
		return
	}
	if p == nil || p.resuming { // resumed already
		g.Retry(now, e, now)
		return
	}
	k.answer()
	if k.closed {
		g.waitForOutlet(k)
	} else {
		drop(p, e)
		if k.busy > 0 {
			k.suspended = p
		}
	}
	g.unhold(e)
	g.offer(now, k)
	g.forget(k)
}

// follows handles a record that was not published and comes after one of its key in the same call that was not either:
// it is let go of with that one.
func (g *Gate[T]) follows(now time.Time, k *keyState[T], e *Entry[T]) bool {
	switch {
	case k.suspended != nil:
		drop(k.suspended, e)
	case k.closed && !k.isHead(e):
		g.follow(k)
		k.low = lower(k.low, e.ID)
		if !k.holdHead {
			g.fetchSkipped(k)
		}
	default:
		return false
	}
	k.answer()
	g.unhold(e)
	g.offer(now, k)
	g.forget(k)
	return true
}

// answer counts one answered record of the key.
func (k *keyState[T]) answer() {
	if k.busy--; k.busy == 0 {
		k.suspended = nil
	}
}

// Settled says that the result of an answered record is written down, or, with missed, that its row was not found: it
// was deleted, replayed or replaced meanwhile, and whatever is there now has to be fetched again. For a charged record
// Due says when it is due, and Blocked whether it waits for a person.
func (g *Gate[T]) Settled(now time.Time, e *Entry[T], result Settlement, missed bool) {
	if g.dropped || e.state != entryAnswered {
		return
	}
	g.unhold(e)
	if missed {
		g.rewindTo(e.ID)
	}
	k := e.key
	if result == WasDelivered || !k.isHead(e) {
		return
	}
	if result == WasCharged {
		g.setHead(k, e)
		g.waitUntil(k, e.Due)
		return
	}
	g.finishHead(k)
}

// Settlement says which result of a record was written down.
type Settlement uint8

// What [Gate.Settled] is told.
const (
	WasDelivered Settlement = iota
	WasCharged
	WasParked
)

// isHead reports whether the entry is the head of its closed key.
func (k *keyState[T]) isHead(e *Entry[T]) bool {
	return k.closed && k.head == e.ID && k.headEvent == e.EventID
}
