package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-outbox/outbox/core"
)

func requeueCases() []Case {
	return []Case{
		rule("DeadLetters/RequeueMakesThemNewAndTellsTheOwner", requeueMakesNew),
		rule("DeadLetters/RequeueChangesNothingElse", requeueNothingElse),
		rule("DeadLetters/RequeueKeepsTheOrderOfAKey", requeueKeepsOrder),
		rule("DeadLetters/RequeueFreesABlockedKey", requeueBlocked),
		rule("DeadLetters/RequeueTakesThousands", requeueThousands),
		rule("DeadLetters/RequeuesAtTheSameTimeCountEachRowOnce", requeueOnce),
		rule("DeadLetters/PurgeTakesOnlyWhatIsDiscarded", purgeTakesDiscarded),
		rule("DeadLetters/RequeueOrPurgeNeverBoth", requeueOrPurge),
	}
}

func requeueMakesNew(f *fixture) {
	o := f.operator()
	records, r := f.parkAll(events("a", 1, 2)...)
	r.fetchAll()
	o.changed("requeue", 2)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{Reason: "large"}))
	r.awaitRewound(records[0].ID, records[1].ID)
	got := r.again()
	equal(f, eventsOf(got), eventIDs("a", 1, 2), "requeued")
	for _, record := range got {
		if record.Attempts != 0 || record.Delay > 0 || record.Replay != 1 || !record.FirstFailedAt.IsZero() {
			f.Errorf("requeued %s has attempts %d, delay %v, replay %d, first failed %v; want 0, 0, 1, zero",
				record.EventID, record.Attempts, record.Delay, record.Replay, record.FirstFailedAt)
		}
	}
	f.wantRow("a.1", Row{State: Pending})
	o.wantListed(core.DeadLetterFilter{})
	o.changed("a second requeue", 0)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{}))
	r.mustSettle(published(got[0]), published(got[1]))
}

// What the filter does not select stays as it is, and so does what was published behind the parked event.
func requeueNothingElse(f *fixture) {
	o := f.operator()
	f.enqueue(slices.Concat(events("a", 1, 2), events("b", 1, 2))...)
	r := f.join("m")
	all := r.await("a.1", "a.2", "b.1", "b.2")
	r.mustSettle(parked(byEvent(all, "a.1"), 10), published(byEvent(all, "a.2")),
		parked(byEvent(all, "b.1"), 9), blocked(byEvent(all, "b.2"), 3))
	r.letGo()
	o.changed("requeue a", 1)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{AggregateID: "a"}))
	equal(f, slices.Sorted(slices.Values(eventsOf(r.again()))), []string{"a.1", "b.2"}, "unsettled")
	f.wantRow("a.2", Row{State: Published})
	f.wantRow("b.1", Row{State: Parked, Attempts: 9, Reason: "too large"})
	f.wantRow("b.2", Row{State: Blocked, Attempts: 3, Reason: "rejected"})
}

// Whoever parked a thousand events of one aggregate wants them back in the order in which they were made.
func requeueKeepsOrder(f *fixture) {
	o := f.operator()
	const count = 50
	var messages []core.Message
	for n := 1; n <= count; n++ {
		messages = append(messages, event("a", n), event("b", n))
	}
	_, r := f.parkAll(messages...)
	o.changed("requeue a", count)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{AggregateType: aggregateType, AggregateID: "a"}))
	r.leave()
	f.enqueue(event("a", count+1))
	next := f.joinOn(f.tables.Store(f.TB), "next", longTTL)
	equal(f, eventsOf(next.await(eventIDs("a", 1, count+1)...)), eventIDs("a", 1, count+1), "fetched")
}

func requeueBlocked(f *fixture) {
	o := f.operator()
	f.enqueue(events("a", 1, 2)...)
	r := f.join("m")
	all := r.await(eventIDs("a", 1, 2)...)
	r.mustSettle(blocked(all[0], 10))
	r.letGo()
	o.changed("requeue blocked", 1)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{State: core.StateBlocked}))
	r.awaitRewound(all[0].ID)
	got := r.again()
	equal(f, eventsOf(got), eventIDs("a", 1, 2), "unsettled")
	if got[0].Delay > 0 || got[0].Attempts != 0 || got[0].Replay != 1 {
		f.Errorf("a.1 is %+v; want it due, with no attempts and replayed once", got[0])
	}
}

func requeueThousands(f *fixture) {
	o := f.operator()
	const count = 2_500
	var messages []core.Message
	for i := range count {
		messages = append(messages, event(fmt.Sprint("k", i%100), i/100))
	}
	_, r := f.parkAll(messages...)
	o.changed("requeue", count)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{}))
	if got := r.again(); len(got) != count {
		f.Errorf("%d of %d events are unsettled", len(got), count)
	}
}

func requeueOnce(f *fixture) {
	const callers, count = 4, 200
	operators := []*operator{f.operator(), f.operator()}
	_, r := f.parkAll(events("a", 1, count)...)
	changed, errs := make([]int, callers), make([]error, callers)
	ctx := f.within()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { changed[i], errs[i] = operators[i%2].store.RequeueDead(ctx, core.DeadLetterFilter{}) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatalf("requeue: %v", err)
	}
	total := 0
	for _, n := range changed {
		total += n
	}
	if total != count {
		f.Errorf("callers at the same time counted %v, %d in all; there were %d", changed, total, count)
	}
	for _, record := range r.again() {
		if record.Replay != 1 {
			f.Fatalf("%s was requeued %d times", record.EventID, record.Replay)
		}
	}
}

func (f *fixture) purge(ctx context.Context) error {
	if f.tables.Purge == nil {
		f.Skipf("the harness has no Purge")
	}
	return f.tables.Purge(ctx)
}

func purgeTakesDiscarded(f *fixture) {
	o := f.operator()
	f.enqueue(event("a", 1), event("b", 1), event("c", 1), event("d", 1))
	r := f.join("m")
	all := r.await("a.1", "b.1", "c.1", "d.1")
	r.mustSettle(parked(byEvent(all, "a.1"), 10), parked(byEvent(all, "b.1"), 10), blocked(byEvent(all, "c.1"), 10))
	o.changed("discard", 1)(o.store.DiscardDead(f.within(), core.DeadLetterFilter{AggregateID: "a"}, "a test"))
	if err := f.purge(f.within()); err != nil {
		f.Fatalf("purge: %v", err)
	}
	if row, found := f.tables.Row(f.TB, "a.1"); found {
		f.Errorf("the discarded a.1 was not purged: %+v", row)
	}
	f.wantRow("b.1", Row{State: Parked, Attempts: 10, Reason: "too large"})
	f.wantRow("c.1", Row{State: Blocked, Attempts: 10, Reason: "rejected"})
	f.wantRow("d.1", Row{State: Pending})
}

// Somebody brings discarded events back while a purge runs: each is either back or gone, and counted if it is back.
func requeueOrPurge(f *fixture) {
	const count = 200
	o := f.operator()
	f.parkAll(events("a", 1, count)...)
	if f.tables.Purge == nil {
		f.Skipf("the harness has no Purge")
	}
	o.changed("discard", count)(o.store.DiscardDead(f.within(), core.DeadLetterFilter{}, "a test"))
	ctx := f.within()
	var requeued int
	var requeueErr, purgeErr error
	var both sync.WaitGroup
	both.Go(func() {
		requeued, requeueErr = o.store.RequeueDead(ctx, core.DeadLetterFilter{State: core.StateDiscarded})
	})
	both.Go(func() { purgeErr = f.tables.Purge(ctx) })
	both.Wait()
	if err := errors.Join(requeueErr, purgeErr); err != nil {
		f.Fatalf("requeue and purge: %v", err)
	}
	back := 0
	for _, id := range eventIDs("a", 1, count) {
		if row, found := f.tables.Row(f.TB, id); found {
			back++
			if row.State != Pending {
				f.Fatalf("%s is %+v; want it pending or gone", id, row)
			}
		}
	}
	if back != requeued {
		f.Errorf("%d were requeued, %d of %d are there", requeued, back, count)
	}
}
