package storetest

import (
	"strings"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

func discardCases() []Case {
	return []Case{
		rule("DeadLetters/DiscardKeepsTheRowAndWhy", discardKeepsWhy),
		rule("DeadLetters/DiscardIsUndoneByRequeue", discardIsUndone),
		rule("DeadLetters/DiscardBoundsTheReason", discardBounds),
	}
}

// A discard is a decision that somebody asks about later.
func discardKeepsWhy(f *fixture) {
	o := f.operator()
	_, r := f.parkAll(events("a", 1, 3)...)
	two := core.DeadLetterFilter{EventIDs: eventIDs("a", 1, 2)}
	o.changed("discard", 2)(o.store.DiscardDead(f.within(), two, "test order, see OPS-7"))
	const why = "discarded: test order, see OPS-7; too large"
	f.wantRow("a.1", Row{State: Discarded, Attempts: 10, Reason: why})
	f.wantRow("a.3", Row{State: Parked, Attempts: 10, Reason: "too large"})
	for _, dead := range o.list(core.DeadLetterFilter{State: core.StateDiscarded}) {
		if dead.State != core.StateDiscarded || dead.Reason != why {
			f.Errorf("%s is %s, %q", dead.Record.EventID, dead.State, dead.Reason)
		}
	}
	o.wantListed(core.DeadLetterFilter{State: core.StateDiscarded, Reason: "ops-7"}, "a.1", "a.2")
	o.wantListed(core.DeadLetterFilter{}, "a.3")
	o.changed("a second discard", 0)(o.store.DiscardDead(f.within(), two, "again"))
	f.wantRow("a.1", Row{State: Discarded, Attempts: 10, Reason: why})
	equal(f, eventsOf(r.again()), []string{}, "unsettled")
}

func discardIsUndone(f *fixture) {
	o := f.operator()
	records, r := f.parkAll(event("a", 1))
	o.changed("discard", 1)(o.store.DiscardDead(f.within(), core.DeadLetterFilter{}, "by mistake"))
	discarded := core.DeadLetterFilter{State: core.StateDiscarded}
	o.changed("requeue parked", 0)(o.store.RequeueDead(f.within(), core.DeadLetterFilter{}))
	o.changed("requeue", 1)(o.store.RequeueDead(f.within(), discarded))
	r.awaitRewound(records[0].ID)
	got := r.again()
	equal(f, eventsOf(got), []string{"a.1"}, "unsettled")
	f.wantRow("a.1", Row{State: Pending})
	o.wantListed(discarded)
	if f.tables.Purge != nil { // nothing may be left of the decision
		if err := f.tables.Purge(f.within()); err != nil {
			f.Fatalf("purge: %v", err)
		}
		f.wantRow("a.1", Row{State: Pending})
	}
	r.mustSettle(parked(got[0], 1))
	f.wantRow("a.1", Row{State: Parked, Attempts: 1, Reason: "too large"})
	o.wantListed(core.DeadLetterFilter{}, "a.1")
}

// What people paste is long and odd; the row must stay readable, and keep the error.
func discardBounds(f *fixture) {
	o := f.operator()
	f.enqueue(event("a", 1))
	r := f.join("m")
	bad := parked(r.await("a.1")[0], 10)
	bad.Reason = strings.Repeat("🦊", 500) // 2,000 bytes, as long as a dispatcher makes it
	r.mustSettle(bad)
	odd := "it's \"so\"\x00 \xff\xfe; " + strings.Repeat("ö€🦊", 5_000)
	o.changed("discard", 1)(o.store.DiscardDead(f.within(), core.DeadLetterFilter{}, odd))
	got := o.list(core.DeadLetterFilter{State: core.StateDiscarded})[0].Reason
	if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > 3_000 {
		f.Errorf("the reason has %d bytes, valid: %t: %q", len(got), utf8.ValidString(got), got)
	}
	if !strings.HasPrefix(got, `discarded: it's "so"`) || !strings.HasSuffix(got, bad.Reason) {
		f.Errorf("the reason is %q; want why it was discarded, and then the whole error", got)
	}
}
