package storetest

import (
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

func fetchCases() []Case {
	return []Case{
		rule("Fetch/OfAnEmptyTableReturnsAtOnce", fetchOfAnEmptyTable),
		rule("Fetch/ReturnsIDOrder", fetchReturnsIDOrder),
		rule("Fetch/LeavesOutHeld", fetchLeavesOutHeld),
		rule("Fetch/ReturnsARecordOnceUntilAskedAgain", fetchReturnsARecordOnce),
		rule("Fetch/HeadsAreReadByIDWhateverIsHeld", fetchHeadsAreReadByID),
		rule("Fetch/HeadsAreOnlyTheUnsettledOfThatEvent", fetchHeadsAreOnlyTheUnsettled),
		rule("Fetch/DelayIsByTheStoresClock", fetchDelayIsByTheStoresClock),
		rule("Fetch/LeavesOutDeleted", fetchLeavesOutDeleted),
		rule("Fetch/RefusesAnOldEpoch", fetchRefusesAnOldEpoch),
		rule("Fetch/RefusesAnotherMember", fetchRefusesAnotherMember),
		rule("Fetch/ReadsTheOtherLanesOfARefusedCall", fetchReadsTheOtherLanes),
		rule("Fetch/NewEpochStartsAnew", fetchNewEpochStartsAnew),
		rule("Fetch/SecondHandleStartsAnew", fetchSecondHandleStartsAnew),
	}
}

func fetchOfAnEmptyTable(f *fixture) {
	r := f.join("m")
	req := r.request()
	for i, lane := range r.fetch(req).Lanes {
		if lane.Refused || lane.Reset || len(lane.Records)+len(lane.Heads)+len(lane.Rewound) > 0 {
			f.Errorf("lane %d of an empty table: %+v", req.Lanes[i].Lane, lane)
		}
		if lane.UpTo != core.EverythingAbove {
			f.Errorf("lane %d of an empty table: UpTo is %d, want EverythingAbove", req.Lanes[i].Lane, lane.UpTo)
		}
	}
}

func fetchReturnsIDOrder(f *fixture) {
	keys := f.oneLane(3)
	var want []string
	for n := 1; n <= 20; n++ {
		for _, key := range keys {
			want = append(want, f.enqueue(event(key, n))...)
		}
	}
	r := f.join("m")
	r.await(want...)
	r.letGo()
	got := r.again()
	equal(f, eventsOf(got), want, "three aggregates of one lane, enqueued one after the other")
	if !slices.IsSortedFunc(got, func(a, b *core.Record) int { return int(a.ID - b.ID) }) {
		f.Errorf("the ids do not grow")
	}
}

// A dispatcher lets go of the records of a destination in trouble without a word. Were they returned by every fetch,
// they would crowd out everything else for as long as the trouble lasts.
func fetchReturnsARecordOnce(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	first := r.await(eventIDs("a", 1, 3)...)
	r.letGo()
	equal(f, eventsOf(records(r.fetch(r.request()))), []string{}, "what was returned before, let go of and not asked for")
	req := rewind(r.request(), first[1].ID)
	equal(f, eventsOf(records(r.fetch(req))), eventIDs("a", 2, 3), "rewound to the second")
}

// A held record returned again would be published a second time while the first is still on its way.
func fetchLeavesOutHeld(f *fixture) {
	f.enqueue(events("a", 1, 5)...)
	r := f.join("m")
	got := r.await(eventIDs("a", 1, 5)...)
	r.held = []int64{got[0].ID, got[1].ID, got[3].ID}
	equal(f, eventsOf(r.again()), []string{"a.3", "a.5"}, "with a.1, a.2 and a.4 held")
	r.held = []int64{got[4].ID}
	equal(f, eventsOf(r.again()), eventIDs("a", 1, 4), "with a.5 held")
}

// A failed head is tried again alone: it is read fresh by its id, and nothing else of the reply makes room for it.
func fetchHeadsAreReadByID(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	f.enqueue(event("b", 1))
	r := f.join("m")
	got := r.await(append(eventIDs("a", 1, 3), "b.1")...)
	head := byEvent(got, "a.1")
	r.mustSettle(failed(head, 4, time.Hour))

	r.held = []int64{head.ID}
	req := closeKey(r.request(), head)
	req = askHead(req, head.Lane, core.RecordRef{ID: head.ID, EventID: head.EventID})
	req.MaxRecords = 1
	found := heads(r.fetch(req))
	equal(f, eventsOf(found), []string{"a.1"}, "the head asked for")
	if found[0].Attempts != 4 || found[0].Delay <= 0 {
		f.Errorf("the head has attempts %d and delay %v, want 4 and about an hour", found[0].Attempts, found[0].Delay)
	}
}

func fetchHeadsAreOnlyTheUnsettled(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	r := f.join("m")
	got := r.await(eventIDs("a", 1, 4)...)
	r.mustSettle(published(got[0]), parked(got[1], 10))
	f.tables.Delete(f.TB, "a.3")
	req := r.request()
	for _, record := range got {
		req = askHead(req, record.Lane, core.RecordRef{ID: record.ID, EventID: record.EventID})
	}
	req = askHead(req, got[3].Lane, core.RecordRef{ID: got[3].ID, EventID: "another event"})
	equal(f, eventsOf(heads(r.fetch(req))), []string{"a.4"}, "of published, parked, deleted, unsettled, and a wrong event id")
}

// A record that is not due is returned all the same, with its delay: left out, a later one of its key would pass it.
func fetchDelayIsByTheStoresClock(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	got := r.await(eventIDs("a", 1, 3)...)
	r.mustSettle(failed(got[0], 1, time.Hour), failed(got[1], 1, 0))
	r.letGo()
	got = r.again()
	equal(f, eventsOf(got), eventIDs("a", 1, 3), "one is due in an hour")
	if d := got[0].Delay; d > time.Hour || d < time.Hour-f.h.Patience-time.Minute {
		f.Errorf("Delay is %v for a retry in an hour", d)
	}
	if got[1].Delay > 0 || got[2].Delay > 0 {
		f.Errorf("Delay is %v and %v for records that are due", got[1].Delay, got[2].Delay)
	}
	if got[0].FirstFailedAt.IsZero() || !got[2].FirstFailedAt.IsZero() {
		f.Errorf("FirstFailedAt is %v after a failure and %v without", got[0].FirstFailedAt, got[2].FirstFailedAt)
	}
}

func fetchLeavesOutDeleted(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	r.await(eventIDs("a", 1, 3)...)
	f.tables.Delete(f.TB, "a.2")
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.1", "a.3"}, "after a.2 was deleted")
}

// A replica that lost a lane without noticing must hear of it before it publishes anything more.
func fetchRefusesAnOldEpoch(f *fixture) {
	f.enqueue(event("a", 1))
	r := f.join("m")
	old := r.leases
	r.release()
	r.take(longTTL)
	current := r.leases
	r.leases = old
	batch := r.fetch(r.request())
	for _, lane := range batch.Lanes {
		if !lane.Refused {
			f.Fatalf("a lease of an epoch that is over was not refused")
		}
	}
	r.leases = current
	equal(f, eventsOf(r.await("a.1")), []string{"a.1"}, "under the current epoch")
}

func fetchRefusesAnotherMember(f *fixture) {
	f.enqueue(event("a", 1))
	owner := f.join("owner")
	other := &replica{fixture: f, store: f.store, member: "other", leases: owner.leases}
	for _, lane := range other.fetch(other.request()).Lanes {
		if !lane.Refused {
			f.Fatalf("somebody else's lease was not refused")
		}
	}
}

func fetchReadsTheOtherLanes(f *fixture) {
	lost, kept := f.twoLanes()
	f.enqueue(event(lost, 1), event(kept, 1))
	r := f.join("m")
	r.await(eventID(lost, 1), eventID(kept, 1))
	r.letGo()
	r.lease(core.LeaseRequest{TTL: longTTL, Release: r.leasesOf(lost)})
	batch := r.fetch(rewind(r.request(), 1))
	if lane := laneOf(r.request(), batch, f.lane(lost)); !lane.Refused {
		f.Errorf("the lane that was given back is not refused")
	}
	equal(f, eventsOf(records(batch)), []string{eventID(kept, 1)}, "records of the lanes that are held")
}

// leasesOf are the leases of the lane of an aggregate.
func (r *replica) leasesOf(aggregateID string) []core.Lease {
	var leases []core.Lease
	for _, lease := range r.leases {
		if lease.Lane == r.lane(aggregateID) {
			leases = append(leases, lease)
		}
	}
	return leases
}

// What one owner had in flight when it lost a lane is unsettled: the next owner must get all of it, although the store
// has returned it before.
func fetchNewEpochStartsAnew(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	first := f.join("first")
	got := first.await(eventIDs("a", 1, 3)...)
	first.mustSettle(published(got[0]))
	first.release()
	second := f.join("second")
	req := second.request()
	batch := second.fetch(req)
	equal(f, eventsOf(records(batch)), []string{"a.2", "a.3"}, "the next owner's first fetch")
	if lane := laneOf(req, batch, got[0].Lane); lane.After >= got[1].ID {
		f.Errorf("After is %d in the first reply of a lease, above the unsettled id %d", lane.After, got[1].ID)
	}
}

func fetchSecondHandleStartsAnew(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	first := f.join("first")
	first.await(eventIDs("a", 1, 3)...)
	first.leave()
	second := f.joinOn(f.tables.Store(f.TB), "second", longTTL)
	equal(f, eventsOf(second.await(eventIDs("a", 1, 3)...)), eventIDs("a", 1, 3), "another process takes over")
}
