package main

import "fmt"

// verdict is what came of it.
type verdict struct {
	committed  int   // events in the books: those whose transaction committed
	rolledBack int64 // events whose transaction did not
	delivered  int   // events of the books that arrived, each counted once

	lost       int // in the books, but never arrived
	phantom    int // arrived, but not in the books
	outOfOrder int // arrived for the first time after a later event of the same order
	repeats    int // arrived again: at-least-once delivery allows it, consumers recognise the event id
}

func (v verdict) ok() bool { return v.lost == 0 && v.phantom == 0 && v.outOfOrder == 0 }

func (v verdict) String() string {
	return fmt.Sprintf("quickstart: committed=%d rolled_back=%d delivered=%d lost=%d phantom=%d out_of_order=%d repeats=%d",
		v.committed, v.rolledBack, v.delivered, v.lost, v.phantom, v.outOfOrder, v.repeats)
}

// compare holds what arrived against the books: the ids of the events of each order, oldest first.
func compare(books map[string][]string, deliveries []delivery, rolledBack int64) verdict {
	v := verdict{rolledBack: rolledBack}
	place := map[delivery]int{} // of each event in its order's history, from 1
	for order, events := range books {
		v.committed += len(events)
		for i, event := range events {
			place[delivery{order, event}] = i + 1
		}
	}
	arrived := map[delivery]bool{}
	latest := map[string]int{} // the place of the latest event that arrived, by order
	for _, d := range deliveries {
		at, known := place[d]
		switch {
		case arrived[d]:
			v.repeats++
			continue
		case !known:
			v.phantom++
		case at < latest[d.order]:
			v.outOfOrder++
		default:
			latest[d.order] = at
		}
		arrived[d] = true
		if known {
			v.delivered++
		}
	}
	v.lost = v.committed - v.delivered
	return v
}
