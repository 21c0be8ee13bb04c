package storetest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/go-outbox/outbox/core"
)

// ledger writes down what was committed, what was published and what was settled, and compares in the end. Safe for
// concurrent use.
type ledger struct {
	mu        sync.Mutex
	number    int                 // of the last event made
	committed map[string][]string // aggregate -> event ids in commit order
	total     int
	first     map[string][]string // aggregate -> event ids by their first publish
	seen      map[string]bool
	parked    map[string]bool
	settled   map[string]bool
	closed    bool          // nothing more will be committed
	done      chan struct{} // closed when all that was committed is settled
}

func newLedger() *ledger {
	return &ledger{
		committed: map[string][]string{},
		first:     map[string][]string{},
		seen:      map[string]bool{},
		parked:    map[string]bool{},
		settled:   map[string]bool{},
		done:      make(chan struct{}),
	}
}

// event makes a new event of an aggregate.
func (l *ledger) event(key string) core.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	return event(key, l.number)
}

// commit notes a commit. The caller lets nobody else write to these aggregates meanwhile.
func (l *ledger) commit(messages []core.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		l.committed[m.AggregateID] = append(l.committed[m.AggregateID], m.EventID)
		l.total++
	}
}

// close says that nothing more will be committed.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.check()
}

// publish is the broker.
func (l *ledger) publish(r *core.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[r.EventID] {
		l.seen[r.EventID] = true
		l.first[r.AggregateID] = append(l.first[r.AggregateID], r.EventID)
	}
}

// settle notes a result that was written.
func (l *ledger) settle(item core.SettleItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch item.Status {
	case core.StatusPublished:
		l.settled[item.Record.EventID] = true
	case core.StatusParked:
		l.settled[item.Record.EventID], l.parked[item.Record.EventID] = true, true
	case core.StatusFailed, core.StatusBlocked:
	}
	l.check()
}

func (l *ledger) check() {
	if l.closed && len(l.settled) >= l.total {
		select {
		case <-l.done:
		default:
			close(l.done)
		}
	}
}

func (l *ledger) finished() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// faults compares: what was published, without what was parked, is what was committed, in that order.
func (l *ledger) faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ordered := func(ids []string) []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return l.parked[id] })
	}
	var faults []string
	for key := range l.first {
		if len(l.committed[key]) == 0 {
			faults = append(faults, fmt.Sprintf("%v were published and never committed", l.first[key]))
		}
	}
	for key, committed := range l.committed {
		want, got := ordered(committed), ordered(l.first[key])
		if !slices.Equal(got, want) {
			faults = append(faults, fmt.Sprintf("%s: committed %v, first published %v", key, want, got))
		}
	}
	return faults
}

// each calls f for every committed event with the state its row must have in the end.
func (l *ledger) each(f func(eventID string, state State)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ids := range l.committed {
		for _, id := range ids {
			state := Published
			if l.parked[id] {
				state = Parked
			}
			f(id, state)
		}
	}
}
