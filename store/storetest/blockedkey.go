package storetest

import (
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func blockedKeyCases() []Case {
	return []Case{
		rule("DeadLetters/UnblockTriesTheHeadAgain", unblockTries),
		rule("DeadLetters/UnblockIsForBlockedKeysOnly", unblockOnlyBlocked),
		rule("DeadLetters/SkipHeadParksItAndTheKeyGoesOn", skipHeadParks),
		rule("DeadLetters/SkipHeadIsForHeadsThatFailed", skipHeadOnlyFailed),
		rule("DeadLetters/SkipHeadInFlightMakesTheLateSettleMiss", skipHeadInFlight),
	}
}

// topical is the first event of an aggregate for a topic: a key of its own for each.
func topical(topic, aggregateID string) core.Message {
	m := event(aggregateID, 1)
	m.EventID, m.Topic = topic+"."+m.EventID, topic
	return m
}

func unblockTries(f *fixture) {
	o := f.operator()
	f.enqueue(topical("x", "a"), topical("y", "a"), event("a", 1), event("b", 1))
	r := f.join("m")
	all := r.await("x.a.1", "y.a.1", "a.1", "b.1")
	for _, record := range all {
		r.mustSettle(blocked(record, 10))
	}
	r.letGo()
	r.fetchAll()
	head := byEvent(all, "a.1")
	o.changed("unblock", 1)(o.store.Unblock(f.within(), head.Key()))
	r.awaitRewound(head.ID)
	for _, record := range r.again() {
		free := record.EventID == "a.1"
		if free && (record.Delay > 0 || record.Attempts != 0 || !record.FirstFailedAt.IsZero()) || !free && (record.Delay != core.Forever || record.Attempts != 10) {
			f.Errorf("%s has delay %v and %d attempts; only a.1 was unblocked", record.EventID, record.Delay, record.Attempts)
		}
	}
	f.wantRow("a.1", Row{State: Pending})
	o.changed("unblock again", 0)(o.store.Unblock(f.within(), head.Key()))
	o.changed("unblock x", 1)(o.store.Unblock(f.within(), byEvent(all, "x.a.1").Key()))
	o.wantListed(core.DeadLetterFilter{State: core.StateBlocked}, "y.a.1", "b.1")
}

func unblockOnlyBlocked(f *fixture) {
	o := f.operator()
	f.enqueue(event("a", 1), event("b", 1), event("c", 1))
	r := f.join("m")
	all := r.await("a.1", "b.1", "c.1")
	r.mustSettle(failed(byEvent(all, "a.1"), 3, time.Hour), parked(byEvent(all, "b.1"), 10))
	for _, key := range []string{"a", "b", "c", "none"} {
		o.changed("unblock "+key, 0)(o.store.Unblock(f.within(), ordering.Key{AggregateType: aggregateType, AggregateID: key}))
	}
	f.wantRow("a.1", Row{State: Pending, Attempts: 3, Reason: "broker said no"})
	f.wantRow("b.1", Row{State: Parked, Attempts: 10, Reason: "too large"})
	equal(f, rewound(r.fetch(r.request())), nil, "ids in Rewound")
}

func skipHeadParks(f *fixture) {
	o := f.operator()
	f.enqueue(events("a", 1, 3)...)
	f.enqueue(events("b", 1, 2)...)
	r := f.join("m")
	all := r.await("a.1", "a.2", "a.3", "b.1", "b.2")
	blockedHead, waitingHead := byEvent(all, "a.1"), byEvent(all, "b.1")
	r.mustSettle(blocked(blockedHead, 10), failed(waitingHead, 3, time.Hour))
	r.letGo()
	r.fetchAll()
	o.changed("skip the blocked head", 1)(o.store.SkipHead(f.within(), blockedHead.Key(), "OPS-8"))
	o.changed("skip the waiting head", 1)(o.store.SkipHead(f.within(), waitingHead.Key(), "OPS-9"))
	r.awaitRewound(blockedHead.ID, waitingHead.ID)
	f.wantRow("a.1", Row{State: Parked, Attempts: 10, Reason: "skipped: OPS-8; rejected"})
	f.wantRow("b.1", Row{State: Parked, Attempts: 3, Reason: "skipped: OPS-9; broker said no"})
	got := r.again()
	equal(f, ofKey(got, "a"), []string{"a.2", "a.3"}, "unsettled of a")
	equal(f, ofKey(got, "b"), []string{"b.2"}, "unsettled of b")
	o.wantListed(core.DeadLetterFilter{}, "a.1", "b.1")
	o.changed("skip again", 0)(o.store.SkipHead(f.within(), blockedHead.Key(), "OPS-8")) // a.2 never failed
}

// The head that a person means is the first event of the key. When that one has not failed, another has its turn.
func skipHeadOnlyFailed(f *fixture) {
	o := f.operator()
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	o.changed("skip a head that did not fail", 0)(o.store.SkipHead(f.within(), all[0].Key(), "OPS-8"))
	r.mustSettle(parked(all[0], 10), blocked(all[1], 10))
	f.tables.Requeue(f.TB, "a.1") // the head again, as new
	o.changed("skip a head that is new", 0)(o.store.SkipHead(f.within(), all[0].Key(), "OPS-8"))
	f.wantRow("a.1", Row{State: Pending})
	f.wantRow("a.2", Row{State: Blocked, Attempts: 10, Reason: "rejected"})
}

// The dispatcher tries the head once more in the moment in which a person gives it up: the person has decided.
func skipHeadInFlight(f *fixture) {
	o := f.operator()
	f.enqueue(events("a", 1, 2)...)
	r := f.join("m")
	r.mustSettle(failed(r.await(eventIDs("a", 1, 2)...)[0], 1, 0))
	r.letGo()
	head := r.again()[0]
	r.hold(head) // in flight from here on
	o.changed("skip", 1)(o.store.SkipHead(f.within(), head.Key(), "OPS-8"))
	reply := r.settle(published(head))
	equal(f, eventsOf(reply.Missed), []string{"a.1"}, "missed")
	r.awaitRewound(head.ID)
	f.wantRow("a.1", Row{State: Parked, Attempts: 1, Reason: "skipped: OPS-8; broker said no"})
}
