package storetest

import (
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

func rewindCases() []Case {
	return []Case{
		rule("Fetch/RewindReturnsUnsettledAgain", rewindReturnsUnsettledAgain),
		rule("Fetch/RewindCanBeRepeated", rewindCanBeRepeated),
		rule("Fetch/RequeuedIsReturnedAndNamedInRewound", requeuedIsReturned),
		rule("Fetch/RequeuedWhileHeldIsNamedInRewound", requeuedWhileHeld),
		rule("Fetch/ReplayedIsReturnedWithItsCount", replayedIsReturned),
		rule("Fetch/RequeuedBetweenOwnersIsReturned", requeuedBetweenOwners),
	}
}

// The dispatcher dropped records without settling them: they must come again, and nothing that is settled or held.
func rewindReturnsUnsettledAgain(f *fixture) {
	f.enqueue(events("a", 1, 6)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 6)...)
	r.mustSettle(published(all[0]), published(all[3]))
	r.held = []int64{all[4].ID}
	req := rewind(r.request(), all[1].ID)
	batch := r.fetch(req)
	equal(f, eventsOf(records(batch)), []string{"a.2", "a.3", "a.6"}, "a.1 and a.4 are published, a.5 is held")
	if lane := laneOf(req, batch, all[0].Lane); lane.After >= all[1].ID {
		f.Errorf("After is %d although the lane was rewound to %d", lane.After, all[1].ID)
	}
}

// RewindFrom is sent until a Fetch succeeds, so a store may see it twice.
func rewindCanBeRepeated(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	r.letGo()
	for range 3 {
		got := records(r.fetch(rewind(r.request(), all[1].ID)))
		got = slices.DeleteFunc(got, func(record *core.Record) bool { return record.ID < all[1].ID })
		equal(f, eventsOf(got), eventIDs("a", 2, 3), "rewound to a.2")
	}
}

// A person repaired the consumer and sends the parked event again: its owner must notice although it read past it
// long ago.
func requeuedIsReturned(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	r.mustSettle(parked(all[0], 10), published(all[1]), failed(all[2], 5, time.Hour))
	r.letGo()
	r.fetchAll()
	f.tables.Requeue(f.TB, "a.1", "a.3")

	told := r.awaitRewound(all[0].ID, all[2].ID)
	got := records(r.fetch(rewind(r.request(), all[0].ID)))
	equal(f, eventsOf(got), []string{"a.1", "a.3"}, "requeued")
	for _, record := range got {
		if record.Attempts != 0 || record.Delay > 0 || record.Replay != 1 || !record.FirstFailedAt.IsZero() {
			f.Errorf("requeued %s has attempts %d, delay %v, replay %d, first failed %v; want 0, 0, 1, zero",
				record.EventID, record.Attempts, record.Delay, record.Replay, record.FirstFailedAt)
		}
	}
	slices.Sort(told)
	equal(f, told, []int64{all[0].ID, all[2].ID}, "ids in Rewound")
	equal(f, rewound(r.fetch(r.request())), nil, "ids in Rewound of the next reply, with nothing held")
}

// awaitRewound fetches until these ids were named in Rewound, and returns all that were.
func (r *replica) awaitRewound(ids ...int64) []int64 {
	r.Helper()
	var told []int64
	for deadline := time.Now().Add(r.h.Patience); ; r.pause(5 * time.Millisecond) {
		told = append(told, rewound(r.fetch(r.request()))...)
		missing := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(told, id) })
		if len(missing) == 0 {
			return told
		}
		if time.Now().After(deadline) {
			r.Fatalf("requeued ids %v were never named in Rewound, only %v", missing, told)
		}
	}
}

// The dispatcher must know of a requeue of what it holds: its settle will miss, and it has to fetch the record again.
func requeuedWhileHeld(f *fixture) {
	f.enqueue(events("a", 1, 2)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 2)...)
	f.tables.Requeue(f.TB, "a.1")
	r.awaitRewound(all[0].ID)
	r.held = []int64{all[1].ID}
	again := records(r.fetch(rewind(r.request(), all[0].ID)))
	equal(f, eventsOf(again), []string{"a.1"}, "once a.1 is no longer held")
	if again[0].Replay != 1 {
		f.Errorf("Replay is %d after one requeue", again[0].Replay)
	}
}

func replayedIsReturned(f *fixture) {
	if f.h.DeletesPublished {
		f.Skipf("published rows are deleted: there is nothing to replay")
	}
	f.enqueue(event("a", 1))
	r := f.join("m")
	record := r.await("a.1")[0]
	r.letGo()
	for replay := 1; replay <= 3; replay++ {
		r.mustSettle(published(record))
		f.tables.Requeue(f.TB, "a.1")
		r.awaitRewound(record.ID)
		got := records(r.fetch(rewind(r.request(), record.ID)))
		equal(f, eventsOf(got), []string{"a.1"}, "after a replay")
		if got[0].Replay != replay {
			f.Errorf("Replay is %d after %d replays", got[0].Replay, replay)
		}
		record = got[0]
	}
}

func requeuedBetweenOwners(f *fixture) {
	f.enqueue(events("a", 1, 2)...)
	first := f.join("first")
	all := first.await(eventIDs("a", 1, 2)...)
	first.mustSettle(parked(all[0], 10), published(all[1]))
	first.leave()
	f.tables.Requeue(f.TB, "a.1")
	second := f.join("second")
	equal(f, eventsOf(second.await("a.1")), []string{"a.1"}, "requeued while the lane had no owner")
}
