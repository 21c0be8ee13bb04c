package ledger

import (
	"cmp"
	"slices"
	"sync"
)

// Ledger is the writers' side: the events of each key whose transaction committed. Safe for concurrent use.
type Ledger struct {
	mu         sync.Mutex
	events     map[string][]string
	committed  int
	rolledBack int
}

// Commit notes events of a key, in their order. Whoever calls it holds off all other writers of the key from before
// their first event until it returns: then the order of the calls is the order of the commits.
func (l *Ledger) Commit(key string, events ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = map[string][]string{}
	}
	l.events[key] = append(l.events[key], events...)
	l.committed += len(events)
}

// RollBack notes how many events will never have been there.
func (l *Ledger) RollBack(events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rolledBack += events
}

// Committed is how many events were committed so far.
func (l *Ledger) Committed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// RolledBack is how many events were rolled back so far.
func (l *Ledger) RolledBack() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rolledBack
}

// Journal is the consumer's side: what arrived, in the order in which it did. Safe for concurrent use.
type Journal struct {
	mu       sync.Mutex
	arrivals []noted
	seen     map[arrival]int // the index in arrivals
	repeats  int
}

type arrival struct{ key, event string }

type noted struct {
	arrival
	rank Rank
}

// Rank is the place of a message among those of its key in the broker, for a consumer that is not handed them in their
// order. The zero value means the order in which they are noted.
type Rank struct{ Time, Number int64 }

func (r Rank) compare(other Rank) int {
	return cmp.Or(cmp.Compare(r.Time, other.Time), cmp.Compare(r.Number, other.Number))
}

// Note notes an event that arrived. Of one that arrives several times the lowest rank counts.
func (j *Journal) Note(key, event string, rank Rank) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = map[arrival]int{}
	}
	a := arrival{key, event}
	if i, again := j.seen[a]; again {
		j.repeats++
		if rank.compare(j.arrivals[i].rank) < 0 {
			j.arrivals[i].rank = rank
		}
		return
	}
	j.seen[a] = len(j.arrivals)
	j.arrivals = append(j.arrivals, noted{a, rank})
}

// Len is how many different events have arrived.
func (j *Journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.arrivals)
}

// ranked are the arrivals in the order in which the broker has them.
func (j *Journal) ranked() []noted {
	return slices.SortedStableFunc(slices.Values(j.arrivals), func(a, b noted) int { return a.rank.compare(b.rank) })
}
