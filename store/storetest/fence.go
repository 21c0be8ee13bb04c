package storetest

import (
	"github.com/go-outbox/outbox/core"
)

func fenceCases() []Case {
	return []Case{
		rule("Settle/RefusesAnOldEpochAndWritesNothingOfIt", fenceOldEpoch),
		rule("Settle/RefusesAMemberThatWasOvertaken", fenceOvertaken),
		rule("Settle/RefusesALaneThatWasGivenBack", fenceGivenBack),
		rule("Settle/OtherLanesOfTheSameCallAreWritten", fenceOtherLanes),
	}
}

// allKinds is one item of each kind for four records.
func allKinds(four []*core.Record) []core.SettleItem {
	return []core.SettleItem{published(four[0]), failed(four[1], 3, 0), parked(four[2], 10), blocked(four[3], 10)}
}

// wantUntouched checks that no result of [allKinds] was written.
func (f *fixture) wantUntouched(key string) {
	f.Helper()
	for _, id := range eventIDs(key, 1, 4) {
		f.wantRow(id, Row{State: Pending})
	}
}

// A replica that slept through the end of its leases must not write over what the next owner did.
func fenceOldEpoch(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	r := f.join("m")
	old := r.leases
	all := r.await(eventIDs("a", 1, 4)...)
	r.release()
	r.take(longTTL)
	reply := r.settleUnder(old, allKinds(all)...)
	equal(f, reply.Refused, []int{all[0].Lane}, "refused lanes")
	f.wantUntouched("a")
	r.letGo()
	equal(f, eventsOf(r.again()), eventIDs("a", 1, 4), "unsettled")
	r.mustSettle(allKinds(all)...)
}

func fenceOvertaken(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	sleeper := f.joinOn(f.store, "sleeper", f.ttl())
	all := sleeper.await(eventIDs("a", 1, 4)...)
	f.expire("sleeper")
	f.joinOn(f.tables.Store(f.TB), "owner", longTTL)
	reply := sleeper.settle(allKinds(all)...)
	equal(f, reply.Refused, []int{all[0].Lane}, "refused lanes")
	f.wantUntouched("a")
}

func fenceGivenBack(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 4)...)
	r.leave()
	reply := r.settle(allKinds(all)...)
	equal(f, reply.Refused, []int{all[0].Lane}, "refused lanes")
	f.wantUntouched("a")
}

// One lane that was lost must not cost the work of the others in the same transaction.
func fenceOtherLanes(f *fixture) {
	lost, kept := f.twoLanes()
	f.enqueue(event(lost, 1), event(kept, 1), event(lost, 2), event(kept, 2))
	r := f.join("m")
	all := r.await(append(eventIDs(lost, 1, 2), eventIDs(kept, 1, 2)...)...)
	r.lease(core.LeaseRequest{TTL: longTTL, Release: r.leasesOf(lost)})
	var items []core.SettleItem
	for _, record := range all {
		items = append(items, published(record))
	}
	reply := r.settle(items...)
	equal(f, reply.Refused, []int{f.lane(lost)}, "refused lanes")
	equal(f, eventsOf(reply.Missed), []string{}, "missed (of lanes not refused)")
	for n := 1; n <= 2; n++ {
		f.wantRow(eventID(lost, n), Row{State: Pending})
		f.wantRow(eventID(kept, n), Row{State: Published})
	}
}
