package ledger

import (
	"fmt"
	"maps"
	"slices"
)

// Verdict is what a comparison found. The lists have one line for each event, for a person.
type Verdict struct {
	// Committed and RolledBack are how many events the writers wrote.
	Committed, RolledBack int
	// Repeats is how many events arrived again: delivery is at least once, so that this is no fault.
	Repeats int
	// Lost are the events that committed and never arrived.
	Lost []string
	// Phantom are those that arrived and never committed, or arrived under another key.
	Phantom []string
	// OutOfOrder are those that arrived for the first time after a later event of their key.
	OutOfOrder []string
}

// Faultless says that every promise was kept.
func (v Verdict) Faultless() bool {
	return len(v.Lost) == 0 && len(v.Phantom) == 0 && len(v.OutOfOrder) == 0
}

// Compare holds the journal against the ledger. Both have come to their end.
func Compare(l *Ledger, j *Journal) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	v := Verdict{Committed: l.committed, RolledBack: l.rolledBack, Repeats: j.repeats}
	place := make(map[arrival]int, l.committed) // of each event among those of its key
	for key, events := range l.events {
		for i, event := range events {
			place[arrival{key, event}] = i
		}
	}
	type position struct{ place, arrival int }
	latest := map[string]position{} // the latest event of each key that has arrived
	for n, a := range j.ranked() {
		at, known := place[a.arrival]
		if !known {
			v.Phantom = append(v.Phantom, fmt.Sprintf("key %s: event %s, arrival %d, was never committed", a.key, a.event, n))
			continue
		}
		before, any := latest[a.key]
		if any && at < before.place {
			v.OutOfOrder = append(v.OutOfOrder, fmt.Sprintf("key %s: event %s, commit %d, is arrival %d, after commit %d, arrival %d",
				a.key, a.event, at, n, before.place, before.arrival))
			continue
		}
		latest[a.key] = position{at, n}
	}
	for _, key := range slices.Sorted(maps.Keys(l.events)) {
		for i, event := range l.events[key] {
			if _, arrived := j.seen[arrival{key, event}]; !arrived {
				v.Lost = append(v.Lost, fmt.Sprintf("key %s: event %s, commit %d of %d, has not arrived", key, event, i, len(l.events[key])))
			}
		}
	}
	return v
}
