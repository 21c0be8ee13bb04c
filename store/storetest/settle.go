package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
)

func settleCases() []Case {
	return []Case{
		rule("Settle/PublishedIsNeverReturnedAgain", settlePublished),
		rule("Settle/FailedKeepsAttemptsAndDelay", settleFailed),
		rule("Settle/ParkedLeavesTheOrder", settleParked),
		rule("Settle/BlockedStaysTheHeadAndIsNeverDue", settleBlocked),
		rule("Settle/RepeatChangesNothing", settleRepeat),
		rule("Settle/WhatIsSettledStaysSo", settleStays),
		rule("Settle/WritesWhatItFindsAndNamesTheRest", settleNamesTheRest),
		rule("Settle/AfterReplayMissesTheOldRecord", settleAfterReplay),
		rule("Settle/ByIDAloneIsNotEnough", settleByIDAlone),
		rule("Settle/KeepsTheReasonWithOddCharacters", settleKeepsTheReason),
		rule("Settle/TakesThousandsAtOnce", settleTakesThousands),
	}
}

func settlePublished(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	r.mustSettle(published(all[0]), published(all[1]), published(all[2]))
	r.letGo()
	equal(f, eventsOf(r.again()), []string{}, "the owner rewinds to the start")
	for _, id := range eventIDs("a", 1, 3) {
		f.wantRow(id, Row{State: Published})
	}
	r.leave()
	other := f.joinOn(f.tables.Store(f.TB), "other", longTTL)
	equal(f, eventsOf(other.again()), []string{}, "another process takes over")
}

func settleFailed(f *fixture) {
	f.enqueue(event("a", 1))
	r := f.join("m")
	record := r.await("a.1")[0]
	for attempts := 1; attempts <= 3; attempts++ {
		r.mustSettle(failed(record, attempts, time.Hour))
		f.wantRow("a.1", Row{State: Pending, Attempts: attempts, Reason: "broker said no"})
		r.letGo()
		got := r.again()
		equal(f, eventsOf(got), []string{"a.1"}, "after a failure")
		if got[0].Attempts != attempts || got[0].Delay <= 0 || got[0].Replay != 0 {
			f.Errorf("want %d attempts, a delay and no replay, got %+v", attempts, got[0])
		}
		if attempts > 1 && !got[0].FirstFailedAt.Equal(record.FirstFailedAt) {
			f.Errorf("FirstFailedAt moved from %v to %v", record.FirstFailedAt, got[0].FirstFailedAt)
		}
		record = got[0]
	}
}

// Parking is how a key goes on without an event that cannot be published.
func settleParked(f *fixture) {
	f.enqueue(events("a", 1, 3)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 3)...)
	r.mustSettle(parked(all[1], 10))
	f.wantRow("a.2", Row{State: Parked, Attempts: 10, Reason: "too large"})
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.1", "a.3"}, "with a.2 parked")
}

// A blocked event keeps its place, so that no follower goes out before it, and waits for a person, not for the clock.
func settleBlocked(f *fixture) {
	f.enqueue(events("a", 1, 2)...)
	f.enqueue(event("b", 1))
	r := f.join("m")
	all := r.await("a.1", "a.2", "b.1")
	head := byEvent(all, "a.1")
	r.mustSettle(failed(head, 1, time.Hour))
	r.mustSettle(blocked(head, 2), published(byEvent(all, "b.1")))
	r.mustSettle(blocked(head, 2)) // again, as when the answer got lost
	f.wantRow("a.1", Row{State: Blocked, Attempts: 2, Reason: "rejected"})
	r.letGo()
	got := r.again()
	equal(f, eventsOf(got), eventIDs("a", 1, 2), "with a.1 blocked")
	if got[0].Delay != core.Forever || got[0].Attempts != 2 || got[1].Delay > 0 {
		f.Errorf("want a.1 never due with 2 attempts and a.2 due, got %+v and %+v", got[0], got[1])
	}
	req := askHead(r.request(), head.Lane, core.RecordRef{ID: head.ID, EventID: head.EventID})
	heads := laneOf(req, r.fetch(req), head.Lane).Heads
	if len(heads) != 1 || heads[0].Delay != core.Forever {
		f.Errorf("asked for the head a.1, got %+v; want it, never due", heads)
	}
	f.tables.Requeue(f.TB, "a.1")
	r.awaitRewound(head.ID)
	if got := r.again(); len(got) != 2 || got[0].Delay > 0 || got[0].Attempts != 0 {
		f.Errorf("after a requeue: got %v, want a.1 due, with no attempts, and a.2", got)
	}
}

// A Settle whose answer got lost is sent again.
func settleRepeat(f *fixture) {
	f.enqueue(events("a", 1, 4)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 4)...)
	items := []core.SettleItem{published(all[0]), failed(all[1], 7, 0), parked(all[2], 10)}
	r.mustSettle(items...)
	for range 2 {
		if reply := r.settle(items...); len(reply.Refused) > 0 || byEvent(reply.Missed, "a.2") != nil {
			f.Errorf("the repeat refused lanes %v and missed %v", reply.Refused, eventsOf(reply.Missed))
		}
	}
	f.wantRow("a.1", Row{State: Published})
	f.wantRow("a.2", Row{State: Pending, Attempts: 7, Reason: "broker said no"})
	f.wantRow("a.3", Row{State: Parked, Attempts: 10, Reason: "too large"})
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.2", "a.4"}, "unsettled after the repeats")
}

// An old result that arrives late must not undo a newer one.
func settleStays(f *fixture) {
	f.enqueue(events("a", 1, 2)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 2)...)
	r.mustSettle(published(all[0]), parked(all[1], 10))
	reply := r.settle(failed(all[0], 1, 0), published(all[1]))
	equal(f, slices.Sorted(slices.Values(eventsOf(reply.Missed))), eventIDs("a", 1, 2), "missed, as both are settled")
	f.wantRow("a.1", Row{State: Published})
	f.wantRow("a.2", Row{State: Parked, Attempts: 10, Reason: "too large"})
}

// Finding fewer rows than it was given is no error of a Settle: the others are written all the same.
func settleNamesTheRest(f *fixture) {
	f.enqueue(events("a", 1, 10)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 10)...)
	f.tables.Delete(f.TB, "a.3")
	f.tables.Requeue(f.TB, "a.5", "a.8")
	var items []core.SettleItem
	for _, record := range all {
		items = append(items, published(record))
	}
	reply := r.settle(items...)
	equal(f, reply.Refused, nil, "refused lanes")
	missed := slices.Sorted(slices.Values(eventsOf(reply.Missed)))
	equal(f, missed, []string{"a.3", "a.5", "a.8"}, "missed: one deleted, two requeued")
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.5", "a.8"}, "the next time")
}

// A replay asked for while the first sending was in flight must not be settled by that one's result.
func settleAfterReplay(f *fixture) {
	f.enqueue(event("a", 1))
	r := f.join("m")
	old := r.await("a.1")[0]
	f.tables.Requeue(f.TB, "a.1")
	reply := r.settle(published(old))
	equal(f, eventsOf(reply.Missed), []string{"a.1"}, "missed")
	f.wantRow("a.1", Row{State: Pending})
	r.letGo()
	fresh := r.again()
	equal(f, eventsOf(fresh), []string{"a.1"}, "returned again")
	r.mustSettle(published(fresh[0]))
}

// After a failover the database may have given the id to another event.
func settleByIDAlone(f *fixture) {
	f.enqueue(event("a", 1))
	r := f.join("m")
	record := *r.await("a.1")[0]
	record.EventID = "the event that had this id before"
	for _, item := range allKinds([]*core.Record{&record, &record, &record, &record}) {
		reply := r.settle(item)
		equal(f, eventsOf(reply.Missed), []string{record.EventID}, "missed by a settle of another event's id")
	}
	f.wantRow("a.1", Row{State: Pending})
}

func settleKeepsTheReason(f *fixture) {
	f.enqueue(events("a", 1, 2)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 2)...)
	odd := `it's "quoted" back\slash %s $1 ? ` + "\r\n\tZoë 🦊"
	long := strings.Repeat("🦊", 500) // 2,000 bytes, as long as a dispatcher makes it
	bad, worse := failed(all[0], 1, 0), parked(all[1], 1)
	bad.Reason, worse.Reason = odd, long
	r.mustSettle(bad, worse)
	f.wantRow("a.1", Row{State: Pending, Attempts: 1, Reason: odd})
	f.wantRow("a.2", Row{State: Parked, Attempts: 1, Reason: long})
}

func settleTakesThousands(f *fixture) {
	const count = 2_000
	var messages []core.Message
	for i := range count {
		messages = append(messages, event(fmt.Sprint("k", i%100), i/100))
	}
	ids := f.enqueue(messages...)
	r := f.join("m")
	var items []core.SettleItem
	pending := 0
	for i, record := range r.await(ids...) {
		switch i % 10 {
		case 0:
			items = append(items, failed(record, 1, 0))
			pending++
		case 1:
			items = append(items, parked(record, 10))
		default:
			items = append(items, published(record))
		}
	}
	r.mustSettle(items...)
	r.letGo()
	if got := r.again(); len(got) != pending {
		f.Errorf("%d of %d records are unsettled, want the %d that failed", len(got), count, pending)
	}
}
