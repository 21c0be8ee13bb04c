package storetest

import (
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

func closedKeyCases() []Case {
	return []Case{
		rule("Fetch/ClosedKeysDoNotFillTheReply", closedKeysDoNotFillTheReply),
		rule("Fetch/AClosedKeyIsReadAgainBelowItsHead", closedKeyIsReadAgain),
		rule("Fetch/AClosedKeyIsTopicAndAggregate", closedKeyIsTopicAndAggregate),
		rule("Fetch/ADeletedHeadIsSeenToBeGone", closedKeyDeletedHead),
	}
}

// One aggregate that fails for hours, with a long backlog behind it, must not hold up its lane.
func closedKeysDoNotFillTheReply(f *fixture) {
	keys := f.oneLane(2)
	poisoned, healthy := keys[0], keys[1]
	f.enqueue(events(poisoned, 1, 500)...)
	f.enqueue(event(healthy, 1))
	r := f.join("m")
	head := r.firstOf(eventID(poisoned, 1))
	r.mustSettle(failed(head, 1, time.Hour))

	for deadline := time.Now().Add(f.h.Patience); ; r.pause(5 * time.Millisecond) {
		req := closeKey(r.request(), head)
		req.MaxRecords = 10
		fetched := records(r.fetch(req))
		if found := byEvent(fetched, eventID(healthy, 1)); found != nil {
			r.hold(found)
			break
		}
		if len(fetched) > 0 || time.Now().After(deadline) {
			f.Fatalf("a closed key with 500 records fills the replies, the healthy one starves; returned: %v", eventsOf(fetched))
		}
	}
	f.enqueue(event(poisoned, 501), event(healthy, 2))
	req := closeKey(r.request(), head)
	equal(f, eventsOf(records(r.fetch(req))), []string{eventID(healthy, 2)}, "with the poisoned key closed")
}

// firstOf fetches one record, which must be this event.
func (r *replica) firstOf(eventID string) *core.Record {
	r.Helper()
	req := r.request()
	req.MaxRecords = 1
	got := records(r.fetch(req))
	equal(r.fixture, eventsOf(got), []string{eventID}, "the first record")
	return got[0]
}

// A key is reopened by a reply that begins below its head: such a reply has to contain what there is of the key, or it
// would look as if nothing were left.
func closedKeyIsReadAgain(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 4)...)
	r.letGo()
	head := all[1]
	r.mustSettle(published(all[0]), failed(head, 1, 0))

	req := closeKey(r.request(), head)
	batch := r.fetch(req)
	if lane := laneOf(req, batch, head.Lane); lane.After >= head.ID {
		equal(f, eventsOf(records(batch)), []string{}, "above the head of the closed key")
	}
	req = closeKey(rewind(r.request(), head.ID), head)
	equal(f, eventsOf(records(r.fetch(req))), eventIDs("a", 2, 4), "rewound to the head of the closed key")
}

// Events of one aggregate for two topics are two keys.
func closedKeyIsTopicAndAggregate(f *fixture) {
	elsewhere := event("a", 2)
	elsewhere.Topic = "audit"
	f.enqueue(event("a", 1), elsewhere, event("a", 3))
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	r.letGo()
	r.mustSettle(failed(all[0], 1, time.Hour))
	late := event("a", 4)
	late.Topic = "audit"
	f.enqueue(late)
	req := closeKey(r.request(), all[0])
	if got := eventsOf(records(r.fetch(req))); !slices.Contains(got, "a.4") {
		f.Errorf("a.4 goes to another topic than the closed key and is left out; returned: %v", got)
	}
}

// Someone deleted the event that blocks a key: the key must go on with the next one.
func closedKeyDeletedHead(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	head := r.await(eventIDs("a", 1, 3)...)[0]
	r.letGo()
	r.mustSettle(failed(head, 1, 0))
	f.tables.Delete(f.TB, "a.1")
	req := closeKey(rewind(r.request(), head.ID), head)
	req = askHead(req, head.Lane, core.RecordRef{ID: head.ID, EventID: head.EventID})
	batch := r.fetch(req)
	equal(f, eventsOf(heads(batch)), []string{}, "the deleted head")
	equal(f, eventsOf(records(batch)), eventIDs("a", 2, 3), "rewound to the deleted head")
}
