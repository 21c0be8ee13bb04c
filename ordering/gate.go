package ordering

import (
	"slices"
	"time"
)

// Gate decides which records of one lane may be published, and when. It holds each key to one unanswered call at a
// time, keeps the followers of a failed record back, and knows what has to be fetched again.
//
// The life of a record: a fetch returns it ([Gate.EndFetch]) and the gate admits it; when it is the first of its key
// it becomes ready in the [Queue]; [Queue.Take] hands it out to be published; the answer comes back ([Gate.Delivered],
// [Gate.Charge], [Gate.Park], [Gate.Retry], [Gate.Suspend]); when its result is written down ([Gate.Settled]) the
// gate forgets it. From admission until then it is held, and no fetch may return it.
//
// A record that fails closes its key: it is the head, its followers are dropped from memory, and nothing of the key is
// admitted before the head was published, parked or found to be gone. Then the lane is rewound to the head, so that
// the followers are fetched again. An outlet (a destination or a whole broker) in trouble is paused in the same way
// for all its records at once.
//
// Rules whose absence loses or reorders events, each found by a model of the protocol:
//   - a closed key reopens only by a fetch that was sent below its head, and sent after the head was let go;
//   - records skipped below the head lower the point to rewind to;
//   - a record made unsettled again while it is held is fetched again when it is let go;
//   - the followers of a parked record wait until the park is written down.
//
// A Gate is not safe for concurrent use; its owner calls it from one goroutine. Time is passed in.
type Gate[T any] struct {
	queue *Queue[T]
	keys  map[Key]*keyState[T]
	held  map[int64]*Entry[T]
	// first and last chain the held entries in the order of admission, which is nearly the order of ids.
	first, last *Entry[T]
	closed      int                       // how many keys are closed
	highest     int64                     // no closed key has a higher head
	crowded     map[*keyState[T]]struct{} // closed keys with followers
	blocked     map[Outlet]int            // how many closed keys have a blocked head
	due         dueHeap[T]
	paused      map[Outlet]*pause
	again       map[int64]bool // held ids that were made unsettled again
	rewind      int64          // from where to fetch again, 0 for nowhere
	covered     int64          // nothing up to here has to be fetched again
	fetch       *openFetch[T]  // the outstanding fetch
	tick        uint64         // counts what must be told apart in time: fetches sent, heads let go
	dropped     bool
	free        *keyState[T]
}

// Entry is one record in a [Gate]. Its owner fills in the exported fields and then leaves the entry to the gate until
// it is settled or dropped.
type Entry[T any] struct {
	// ID and EventID name the record.
	ID      int64
	EventID string
	// Key is the record's unit of order.
	Key Key
	// Outlet is where it goes.
	Outlet Outlet
	// Bytes is its size, for the limits of [Queue.Take].
	Bytes int
	// Due is when it may be published; the zero time means at once.
	Due time.Time
	// Blocked says that it is not published before a person acts. Due is when to see whether one did.
	Blocked bool
	// Solo keeps it from being handed out in one call with others of its key, Alone with any others.
	Solo, Alone bool
	// Value is the owner's.
	Value T

	gate       *Gate[T]
	key        *keyState[T]
	next       *Entry[T] // in the key's queue
	prev, succ *Entry[T] // in the gate's chain of held entries
	state      entryState
}

type entryState uint8

const (
	entryNew      entryState = iota
	entryQueued              // waits behind others of its key, or for its turn
	entryReady               // offered in the Queue
	entryBusy                // handed out to be published
	entryAnswered            // its result is being written down
	entryDropped             // no longer held
)

// keyState is what a gate knows of a key with records in memory or with a closed head.
type keyState[T any] struct {
	key         Key
	first, last *Entry[T] // queued records
	offered     bool      // first is in the Queue
	busy        int       // records handed out
	suspended   *pause    // set while a call is answered whose earlier record of this key was suspended

	closed     bool
	holdHead   bool // the head is held: being read again, published, or written down
	head       int64
	headEvent  string
	headOutlet Outlet
	due        time.Time // when the head is due
	dueIndex   int       // in the heap of due heads, -1 when not there
	forOutlet  bool      // the head waits for its paused outlet
	blockedAt  *Outlet   // set while the head is blocked
	probe      bool      // the head goes out although its outlet is paused, to try it
	low        int64     // lowest id skipped below the head, 0 for none
	followers  int       // how many records were let go of because of the head
	since      uint64    // tick at which the head was let go
	seen       uint64    // tick of the last fetch that returned a record of it
	retries    int       // of the head in a row, that charged nothing

	nextFree *keyState[T]
}

// NewGate returns an empty gate that offers its records in the queue. Knowing nothing of what was fetched before, its
// first fetch asks for everything from the beginning.
func NewGate[T any](queue *Queue[T]) *Gate[T] {
	return &Gate[T]{
		queue:   queue,
		keys:    map[Key]*keyState[T]{},
		held:    map[int64]*Entry[T]{},
		paused:  map[Outlet]*pause{},
		again:   map[int64]bool{},
		crowded: map[*keyState[T]]struct{}{},
		blocked: map[Outlet]int{},
		rewind:  1,
	}
}

// Held returns how many records the gate holds; [Queue.Held] sums up all gates of a queue.
func (g *Gate[T]) Held() int { return len(g.held) }

// ClosedKeys returns how many keys wait for their head.
func (g *Gate[T]) ClosedKeys() int { return g.closed }

// Blocked reports whether a key waits for a person because its head, which goes to the outlet, is blocked.
func (g *Gate[T]) Blocked(outlet Outlet) bool {
	for o := range g.blocked {
		if outlet.Covers(o) {
			return true
		}
	}
	return false
}

// Drop forgets everything: the lane has gone to somebody else. Later answers for its entries are ignored, and entries
// that were ready are never taken.
func (g *Gate[T]) Drop() {
	g.dropped = true
	for g.first != nil {
		g.unhold(g.first)
	}
	g.keys, g.due, g.paused, g.again, g.crowded, g.blocked, g.closed = nil, nil, nil, nil, nil, nil, 0
}

// Dropped reports whether [Gate.Drop] was called.
func (g *Gate[T]) Dropped() bool { return g.dropped }

// rewindTo makes the next fetch return everything from the id on again.
func (g *Gate[T]) rewindTo(id int64) {
	if g.rewind == 0 || id < g.rewind {
		g.rewind = max(id, 1)
	}
	g.covered = min(g.covered, g.rewind-1)
}

// hold makes the entry held.
func (g *Gate[T]) hold(e *Entry[T]) {
	g.held[e.ID] = e
	e.gate = g
	e.prev = g.last
	if g.last == nil {
		g.first = e
	} else {
		g.last.succ = e
	}
	g.last = e
	g.queue.records++
	g.queue.bytes += e.Bytes
}

// unhold lets go of the entry. If its record was made unsettled again meanwhile, it is fetched again.
func (g *Gate[T]) unhold(e *Entry[T]) {
	e.state = entryDropped
	if g.held[e.ID] != e {
		return
	}
	delete(g.held, e.ID)
	if e.prev == nil {
		g.first = e.succ
	} else {
		e.prev.succ = e.succ
	}
	if e.succ == nil {
		g.last = e.prev
	} else {
		e.succ.prev = e.prev
	}
	e.prev, e.succ = nil, nil
	g.queue.records--
	g.queue.bytes -= e.Bytes
	if g.again[e.ID] {
		delete(g.again, e.ID)
		g.rewindTo(e.ID)
	}
}

// state returns the key's state, making one if there is none.
func (g *Gate[T]) state(key Key) *keyState[T] {
	if k := g.keys[key]; k != nil {
		return k
	}
	k := g.free
	if k == nil {
		k = &keyState[T]{}
	} else {
		g.free = k.nextFree
	}
	*k = keyState[T]{key: key, dueIndex: -1}
	g.keys[key] = k
	return k
}

// forget drops the state of a key that has nothing to remember.
func (g *Gate[T]) forget(k *keyState[T]) {
	if k.first != nil || k.busy > 0 || k.closed || g.keys[k.key] != k {
		return
	}
	delete(g.keys, k.key)
	k.nextFree, g.free = g.free, k
}

// push appends the entry to its key's queue.
func (k *keyState[T]) push(e *Entry[T]) {
	e.key, e.state = k, entryQueued
	if k.last == nil {
		k.first = e
	} else {
		k.last.next = e
	}
	k.last = e
}

// pop takes the first entry off the key's queue.
func (k *keyState[T]) pop() *Entry[T] {
	e := k.first
	k.first = e.next
	if k.first == nil {
		k.last = nil
	}
	e.next = nil
	k.offered = false
	return e
}

// offer makes the key's first record ready, if nothing stands against it.
func (g *Gate[T]) offer(now time.Time, k *keyState[T]) {
	if k.first == nil || k.busy > 0 || k.offered || (k.closed && !k.holdHead) {
		return
	}
	e := k.first
	if e.Due.After(now) && !k.closed {
		k.pop()
		g.closeKey(k, e)
		g.waitUntil(k, e.Due)
		g.unhold(e)
		return
	}
	k.offered = true
	e.state = entryReady
	g.queue.push(e)
}

// closeKey makes the entry the head of its closed key and drops the followers, which are covered by it. The caller
// says what the head waits for.
func (g *Gate[T]) closeKey(k *keyState[T], head *Entry[T]) {
	low := int64(0)
	if k.closed {
		low = k.low
	} else {
		g.closed++
	}
	for k.first != nil {
		e := k.pop()
		low = lower(low, e.ID)
		g.follow(k)
		g.unhold(e)
	}
	k.closed, k.holdHead = true, true
	g.setHead(k, head)
	k.low = low
	g.undue(k)
}

// setHead makes the entry the head of its closed key.
func (g *Gate[T]) setHead(k *keyState[T], e *Entry[T]) {
	k.head, k.headEvent, k.headOutlet = e.ID, e.EventID, e.Outlet
	g.highest = max(g.highest, e.ID)
	g.unblock(k)
	if e.Blocked {
		outlet := e.Outlet
		k.blockedAt = &outlet
		g.blocked[outlet]++
	}
}

// unblock says that the head of the key, if it has one, does not wait for a person.
func (g *Gate[T]) unblock(k *keyState[T]) {
	if k.blockedAt == nil {
		return
	}
	if g.blocked[*k.blockedAt]--; g.blocked[*k.blockedAt] == 0 {
		delete(g.blocked, *k.blockedAt)
	}
	k.blockedAt = nil
}

// follow counts a record that is let go of because the key is closed, or closes.
func (g *Gate[T]) follow(k *keyState[T]) {
	k.followers++
	g.crowded[k] = struct{}{}
}

// waitUntil lets go of the head of a closed key until it is due.
func (g *Gate[T]) waitUntil(k *keyState[T], due time.Time) {
	g.tick++
	k.holdHead, k.since, k.probe = false, g.tick, false
	g.setDue(k, due)
	g.fetchSkipped(k)
}

// waitForOutlet lets go of the head of a closed key until its outlet is resumed.
func (g *Gate[T]) waitForOutlet(k *keyState[T]) {
	g.waitUntil(k, time.Time{})
	g.undue(k)
	k.forOutlet = true
}

// finishHead lets the key go on after its head left the order: its followers are fetched again, and the key reopens
// with the first fetch that was sent from now on below the head.
func (g *Gate[T]) finishHead(k *keyState[T]) {
	g.tick++
	k.holdHead, k.since, k.probe, k.retries = false, g.tick, false, 0
	g.undue(k)
	g.rewindTo(k.head)
	g.fetchSkipped(k)
}

// fetchSkipped rewinds to what was skipped below the head of the key.
func (g *Gate[T]) fetchSkipped(k *keyState[T]) {
	if k.low != 0 && k.low < k.head {
		g.rewindTo(k.low)
	}
	k.low = 0
}

// reopen ends the closing of the key.
func (g *Gate[T]) reopen(k *keyState[T]) {
	k.closed, k.low, k.probe, k.retries, k.followers = false, 0, false, 0, 0
	delete(g.crowded, k)
	if g.closed--; g.closed == 0 {
		g.highest = 0
	}
	g.undue(k)
	g.unblock(k)
}

// lower returns the lower of two ids, where 0 means none.
func lower(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// heldIDs returns the held ids in ascending order.
func (g *Gate[T]) heldIDs(buf []int64) []int64 {
	for e := g.first; e != nil; e = e.succ {
		buf = append(buf, e.ID)
	}
	slices.Sort(buf)
	return buf
}
