package notify

import (
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
)

// maxTopics bounds the memory. Events of further topics are told together, as those of the topic "". There are no more
// destinations than the dispatcher itself keeps account of.
const maxTopics = 256

// board has all that is not told yet. It does no I/O, so that who reports something never waits.
type board struct {
	minInterval, pausedFor time.Duration
	backoff                core.Backoff

	mu      sync.Mutex
	alerts  map[subject]*alert
	outages map[subject]*outage
}

func newBoard(cfg Config) *board {
	return &board{
		minInterval: cfg.MinInterval, pausedFor: cfg.PausedFor,
		backoff: core.Backoff{Initial: time.Second, Max: max(time.Second, cfg.MinInterval), Multiplier: 2},
		alerts:  map[subject]*alert{}, outages: map[subject]*outage{},
	}
}

// happened notes what happened to one event.
func (b *board) happened(s subject, d detail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alerts[s] == nil && !b.room(d.at) {
		s.topic = ""
	}
	a := b.alerts[s]
	if a == nil {
		a = &alert{}
		b.alerts[s] = a
	}
	a.happened(d, b.minInterval)
}

// stopped notes that a destination is paused or halted, or still is.
func (b *board) stopped(s subject, d detail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.outages[s]
	if o == nil {
		o = &outage{}
		b.outages[s] = o
	}
	o.goesOn(d)
}

// resumed notes that a destination works again.
func (b *board) resumed(broker, destination string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range []kind{paused, halted} {
		s := subject{kind: k, broker: broker, destination: destination}
		if o := b.outages[s]; o != nil {
			o.over, o.last.at, o.retry = true, at, time.Time{}
			b.forget(s, o)
		}
	}
}

// patience is how long trouble has to last before it is told.
func (b *board) patience(k kind) time.Duration {
	if k == paused {
		return b.pausedFor
	}
	return 0
}

func (b *board) forget(s subject, o *outage) {
	if o.ended() {
		delete(b.outages, s)
	}
}

// room makes room for one more topic, if it can.
func (b *board) room(now time.Time) bool {
	if len(b.alerts) < maxTopics {
		return true
	}
	for s, a := range b.alerts {
		if a.forgettable(now, b.minInterval) {
			delete(b.alerts, s)
		}
	}
	return len(b.alerts) < maxTopics
}

// notice is what to tell now. Whoever takes one calls done.
type notice struct {
	subject
	last  detail
	since time.Time // of an outage
	end   bool      // of an outage: it is over
	count int       // how many events it stands for

	alert  *alert
	outage *outage
}

// take returns what is due first, or nil and when that will be: the zero time when nothing is known of. With all, what
// would wait for an interval to end or for another try is due now; not so an outage that has not lasted long enough.
func (b *board) take(now time.Time, all bool) (first *notice, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	consider := func(n *notice, at time.Time) {
		if first == nil || at.Before(due) {
			first, due = n, at
		}
	}
	for s, a := range b.alerts {
		if a.count > 0 {
			at := a.due
			if all {
				at = now
			}
			consider(&notice{subject: s, last: a.last, count: a.count, alert: a}, at)
		}
	}
	for s, o := range b.outages {
		if end, at, ok := o.next(b.patience(s.kind), all); ok {
			if all && o.tries > 0 { // one that is refused again and again must not keep all others from being told
				at = now
			}
			consider(&notice{subject: s, last: o.last, since: o.since, end: end, count: 1, outage: o}, at)
		}
	}
	if first == nil || due.After(now) {
		return nil, due
	}
	if first.alert != nil {
		first.alert.count = 0
	} else {
		first.outage.telling = true
	}
	return first, due
}

// done says what became of a notice.
func (b *board) done(now time.Time, n *notice, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.alert != nil {
		b.doneAlert(now, n, err)
		return
	}
	o := n.outage
	o.telling = false
	if err != nil {
		o.tries++
		o.retry = now.Add(b.backoff.Delay(o.tries))
	} else {
		o.told, o.tries, o.retry = !n.end, 0, time.Time{}
	}
	b.forget(n.subject, o)
}

func (b *board) doneAlert(now time.Time, n *notice, err error) {
	a := n.alert
	if err != nil {
		a.tries++
		if a.count == 0 {
			a.last = n.last
		}
		a.count += n.count
		a.due = now.Add(b.backoff.Delay(a.tries))
		return
	}
	a.told, a.tries = now, 0
	if a.count > 0 { // more happened while it was told
		a.due = now.Add(b.minInterval)
	}
}

// untold is how many events nobody was told of.
func (b *board) untold() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, a := range b.alerts {
		n += a.count
	}
	return n
}
