package ordering

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Plan is what a fetch of the lane has to ask for.
type Plan struct {
	// RewindFrom, when not 0, asks for everything from this id on again.
	RewindFrom int64
	// Held are the ids not to return, ascending.
	Held []int64
	// Closed are keys that wait for their head and have records behind it that are better not returned, with the head's
	// id. Not all of them: a record of another closed key is let go of when it comes.
	Closed []ClosedKey
	// Heads are records to read again by id.
	Heads []Ref
}

// ClosedKey is a closed key and the id of its head.
type ClosedKey struct {
	Key
	Head int64
}

// Ref names a record.
type Ref struct {
	ID      int64
	EventID string
}

// Reply is what a fetch returned.
type Reply[T any] struct {
	// After and UpTo bound what the fetch covered: all unsettled records with After < ID <= UpTo that were not held
	// and not of a key that was closed at or below After.
	After, UpTo int64
	// Records are the records by ascending id, possibly with late ones at or below After.
	Records []*Entry[T]
	// Heads are the heads that still exist.
	Heads []*Entry[T]
	// Rewound are ids that were made unsettled again.
	Rewound []int64
}

// openFetch is what must be remembered of the outstanding fetch.
type openFetch[T any] struct {
	tick   uint64
	rewind int64
	heads  []*openHead[T]
}

// openHead is one head being read again.
type openHead[T any] struct {
	key  *keyState[T]
	ref  Ref
	hold *Entry[T] // keeps the id held meanwhile
}

// maxHeads bounds how many heads one fetch reads again.
const maxHeads = 500

// Fetching reports whether a fetch is outstanding.
func (g *Gate[T]) Fetching() bool { return g.fetch != nil }

// Wants reports whether something has to be fetched without waiting for new records: a rewind, or a head that is due.
func (g *Gate[T]) Wants(now time.Time) bool {
	if g.rewind != 0 {
		return true
	}
	due, ok := g.NextDue()
	return ok && !due.After(now)
}

// NextDue returns when the next head is due, if one waits for its time.
func (g *Gate[T]) NextDue() (time.Time, bool) {
	if len(g.due) > 0 {
		return g.due[0].due, true
	}
	return time.Time{}, false
}

// BeginFetch says what to ask for, and remembers that the fetch is under way. Exactly one of [Gate.EndFetch] and
// [Gate.FailFetch] follows. At most one fetch is outstanding.
func (g *Gate[T]) BeginFetch(now time.Time) Plan {
	g.tick++
	f := &openFetch[T]{tick: g.tick, rewind: g.rewind}
	g.fetch, g.rewind = f, 0
	plan := Plan{RewindFrom: f.rewind}
	for len(g.due) > 0 && len(f.heads) < maxHeads && !g.due[0].due.After(now) {
		k := g.due[0]
		g.undue(k)
		if g.isPaused(k.headOutlet) && !k.probe {
			k.forOutlet = true
			continue
		}
		k.holdHead = true
		plan.Heads = append(plan.Heads, g.readAgain(f, k))
	}
	plan.Closed = g.crowdedKeys()
	if len(g.held) > 0 {
		plan.Held = g.heldIDs(make([]int64, 0, len(g.held)))
	}
	return plan
}

// maxClosed bounds how many closed keys one fetch names. The records of the others are returned once and let go of.
const maxClosed = 100

// crowdedKeys returns the closed keys whose records should not be returned: those with the most.
func (g *Gate[T]) crowdedKeys() []ClosedKey {
	if len(g.crowded) == 0 {
		return nil
	}
	keys := slices.Collect(maps.Keys(g.crowded))
	if len(keys) > maxClosed {
		slices.SortFunc(keys, func(a, b *keyState[T]) int { return cmp.Compare(b.followers, a.followers) })
		keys = keys[:maxClosed]
	}
	closed := make([]ClosedKey, len(keys))
	for i, k := range keys {
		closed[i] = ClosedKey{Key: k.key, Head: k.head}
	}
	return closed
}

// readAgain adds the key's head to the fetch and keeps it from being returned among the records.
func (g *Gate[T]) readAgain(f *openFetch[T], k *keyState[T]) Ref {
	h := &openHead[T]{key: k, ref: Ref{ID: k.head, EventID: k.headEvent}}
	if g.held[k.head] == nil {
		h.hold = &Entry[T]{ID: k.head, EventID: k.headEvent}
		g.hold(h.hold)
	}
	f.heads = append(f.heads, h)
	return h.ref
}

// FailFetch says that the fetch gave no reply: whatever it asked for is asked for again.
func (g *Gate[T]) FailFetch(now time.Time) {
	if g.dropped {
		return
	}
	f := g.fetch
	g.fetch = nil
	if f.rewind != 0 {
		g.rewindTo(f.rewind)
	}
	for _, h := range f.heads {
		g.endHold(h)
		g.waitUntil(h.key, now)
	}
}

func (g *Gate[T]) endHold(h *openHead[T]) {
	if h.hold != nil {
		g.unhold(h.hold)
	}
}

// EndFetch takes the reply of the fetch: it admits the records that may go on, makes the first of each key ready, and
// forgets the others, which are fetched again when their time has come.
func (g *Gate[T]) EndFetch(now time.Time, reply Reply[T]) {
	if g.dropped {
		return
	}
	f := g.fetch
	g.fetch = nil
	g.covered = reply.UpTo
	if g.rewind != 0 {
		g.covered = min(reply.UpTo, g.rewind-1)
	}
	for _, id := range reply.Rewound {
		if g.held[id] != nil {
			g.again[id] = true
		} else { // it may have been held when the fetch was sent, and so be missing from the reply
			g.rewindTo(id)
		}
	}
	for _, e := range reply.Records {
		g.admit(now, f, reply.After, e)
	}
	if g.closed > 0 && reply.After < g.highest {
		g.reopenVanished(f, reply)
	}
	g.endPauses(f.tick)
	for _, h := range f.heads {
		g.endHead(now, h, reply.Heads)
	}
}

// admit takes one record of a reply if nothing stands against it.
func (g *Gate[T]) admit(now time.Time, f *openFetch[T], after int64, e *Entry[T]) {
	if g.held[e.ID] != nil {
		return
	}
	k := g.state(e.Key)
	if k.closed && !g.reopens(now, f, after, k, e) {
		return
	}
	if p := g.pauseAgainst(e.Outlet, f.tick); p != nil {
		drop(p, e)
		if p.resuming {
			g.rewindTo(p.low)
		}
		g.forget(k)
		return
	}
	g.hold(e)
	k.push(e)
	g.offer(now, k)
	if k.closed { // the record is not due: it became the head of its key
		k.seen = f.tick
	}
}

// reopens lets a record of a closed key reopen it, if the fetch was sent below the head and after the head was let go.
// The first record of the key in such a fetch is its head, whatever its id.
func (g *Gate[T]) reopens(now time.Time, f *openFetch[T], after int64, k *keyState[T], e *Entry[T]) bool {
	if k.seen == f.tick { // behind the head that this very fetch returned, and that is not due
		g.follow(k)
		return false
	}
	if k.holdHead || after >= k.head || f.tick < k.since {
		g.follow(k)
		if e.ID < k.head {
			k.low = lower(k.low, e.ID)
			if !k.holdHead {
				g.fetchSkipped(k)
			}
		}
		return false
	}
	if e.Due.After(now) {
		k.seen = f.tick
		g.setHead(k, e)
		k.low = 0
		g.setDue(k, e.Due)
		return false
	}
	g.reopen(k)
	return true
}

// reopenVanished reopens the keys whose head and followers are gone: the fetch covered the head and found no record.
func (g *Gate[T]) reopenVanished(f *openFetch[T], reply Reply[T]) {
	for _, k := range g.keys {
		if k.closed && !k.holdHead && k.seen != f.tick &&
			reply.After < k.head && f.tick >= k.since && reply.UpTo >= k.head {
			g.reopen(k)
			g.forget(k)
		}
	}
}

// endHead takes the answer for one head that was read again: it goes out alone, or, when it is gone, the key goes on.
func (g *Gate[T]) endHead(now time.Time, h *openHead[T], found []*Entry[T]) {
	again := g.again[h.ref.ID]
	delete(g.again, h.ref.ID)
	g.endHold(h)
	var e *Entry[T]
	for _, candidate := range found {
		if candidate.ID == h.ref.ID && candidate.EventID == h.ref.EventID {
			e = candidate
		}
	}
	k := h.key
	switch {
	case e == nil:
		g.finishHead(k)
	case g.isPaused(e.Outlet) && !k.probe:
		g.waitForOutlet(k)
	case e.Due.After(now):
		g.setHead(k, e)
		g.waitUntil(k, e.Due)
		if again {
			g.rewindTo(k.head)
		}
	default:
		g.unblock(k)
		if again {
			g.again[e.ID] = true
		}
		g.hold(e)
		k.push(e)
		g.offer(now, k)
	}
}
