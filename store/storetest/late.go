package storetest

import "time"

func lateCommitCases() []Case {
	return []Case{
		rule("Fetch/ReturnsALateCommitBelowThePosition", lateCommitIsReturned),
		rule("Fetch/ALateCommitComesBeforeLaterRecordsOfItsKey", lateCommitComesFirst),
		rule("Fetch/ACutAmongLateCommitsSkipsNone", lateCommitsAreCut),
		rule("Fetch/ALateCommitOfASecondProcessIsReturned", lateCommitOfASecondProcess),
	}
}

// Ids are drawn at the insert and become visible at the commit. A cursor that goes on from the highest id it saw loses
// every transaction that commits late.
func lateCommitIsReturned(f *fixture) {
	keys := f.oneLane(2)
	r := f.join("m")
	slow, fast := f.begin2()
	f.enqueueIn(slow, event(keys[0], 1))
	f.enqueueIn(fast, event(keys[1], 1))
	f.commit(fast)
	equal(f, eventsOf(r.await(eventID(keys[1], 1))), []string{eventID(keys[1], 1)}, "while the slow transaction is open")
	f.commit(slow)
	equal(f, eventsOf(r.await(eventID(keys[0], 1))), []string{eventID(keys[0], 1)}, "after the slow one committed")
}

// The late event was committed before the next one of its aggregate was enqueued, so it goes first, also where the
// reply has room for one only.
func lateCommitComesFirst(f *fixture) {
	keys := f.oneLane(2)
	r := f.join("m")
	slow, fast := f.begin2()
	f.enqueueIn(slow, event(keys[0], 1))
	f.enqueueIn(fast, event(keys[1], 1))
	f.commit(fast)
	r.await(eventID(keys[1], 1))
	f.commit(slow)
	f.enqueue(events(keys[0], 2, 3)...)

	req := r.request()
	req.MaxRecords = 1
	got := records(r.fetch(req))
	if len(got) == 0 { // a stream may be a little behind
		got = r.await(eventIDs(keys[0], 1, 3)...)
		equal(f, eventsOf(got), eventIDs(keys[0], 1, 3), "the key")
		return
	}
	equal(f, eventsOf(got[:1]), []string{eventID(keys[0], 1)}, "first record of the key, with MaxRecords 1")
	r.hold(got[0])
	rest := r.await(eventIDs(keys[0], 2, 3)...)
	equal(f, eventsOf(rest), eventIDs(keys[0], 2, 3), "the rest of the key")
}

// Late commits that found no room in a reply are below the position; it must move back for them.
func lateCommitsAreCut(f *fixture) {
	keys := f.oneLane(2)
	late, early := keys[0], keys[1]
	r := f.join("m")
	slow, fast := f.begin2()
	f.enqueueIn(slow, events(late, 1, 5)...)
	f.enqueueIn(fast, event(early, 1))
	f.commit(fast)
	r.await(eventID(early, 1))
	f.commit(slow)
	f.enqueue(events(late, 6, 8)...)
	var got []string
	for deadline := time.Now().Add(f.h.Patience); len(got) < 8 && time.Now().Before(deadline); {
		req := r.request()
		req.MaxRecords = 2
		for _, record := range records(r.fetch(req)) {
			got = append(got, record.EventID)
			r.hold(record)
		}
	}
	equal(f, got, eventIDs(late, 1, 8), "two at a time")
}

func lateCommitOfASecondProcess(f *fixture) {
	keys := f.oneLane(2)
	first := f.join("first")
	slow, fast := f.begin2()
	f.enqueueIn(slow, event(keys[0], 1))
	f.enqueueIn(fast, event(keys[1], 1))
	f.commit(fast)
	first.mustSettle(published(first.await(eventID(keys[1], 1))[0]))
	first.leave()
	second := f.joinOn(f.tables.Store(f.TB), "second", longTTL)
	equal(f, eventsOf(second.fetchAll()), []string{}, "the next owner, while the slow transaction is open")
	f.commit(slow)
	f.enqueue(event(keys[0], 2))
	want := eventIDs(keys[0], 1, 2)
	equal(f, eventsOf(second.await(want...)), want, "the next owner, after the commit")
}
