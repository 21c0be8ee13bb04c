package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

func enqueueCases() []Case {
	return []Case{
		rule("Enqueue/ReturnsTheEventIDs", enqueueReturnsTheEventIDs),
		rule("Enqueue/IsInvisibleBeforeCommit", enqueueIsInvisibleBeforeCommit),
		rule("Enqueue/RolledBackIsNeverReturned", enqueueRolledBackIsNeverReturned),
		rule("Enqueue/RefusesAllFaultsAtOnceAndKeepsTheTransactionUsable", enqueueRefusesAllFaultsAtOnce),
		rule("Enqueue/SameEventTwiceIsANoOp", enqueueSameEventTwiceIsANoOp),
		rule("Enqueue/SameIDOtherKeyConflicts", enqueueSameIDOtherKeyConflicts),
		rule("Enqueue/PublishedEventIsKnownWhileItsRowExists", enqueuePublishedEventIsKnown),
		rule("Enqueue/OneCallKeepsItsOrder", enqueueOneCallKeepsItsOrder),
		rule("Enqueue/CopiesWhatItIsGiven", enqueueCopiesWhatItIsGiven),
		rule("Enqueue/AfterTheTransactionItFails", enqueueAfterTheTransactionItFails),
		rule("Enqueue/TwoOpenTransactionsAreAsDeclared", enqueueTwoOpenTransactions),
	}
}

func enqueueReturnsTheEventIDs(f *fixture) {
	anonymous := event("a", 2)
	anonymous.EventID = ""
	other := event("b", 2)
	other.EventID = ""
	ids := f.enqueue(event("a", 1), anonymous, event("a", 3), other)
	if ids[0] != "a.1" || ids[2] != "a.3" {
		f.Fatalf("the event ids of the messages are a.1, -, a.3, -, enqueue returned %q", ids)
	}
	if ids[1] == "" || ids[3] == "" || ids[1] == ids[3] {
		f.Fatalf("messages without an event id got %q and %q, want fresh ones", ids[1], ids[3])
	}
	got := f.join("m").await(ids...)
	equal(f, ofKey(got, "a"), ids[:3], "records of a")
	equal(f, ofKey(got, "b"), ids[3:], "records of b")
}

// An event of a transaction that does not commit in the end would tell the world of a change that never happened.
func enqueueIsInvisibleBeforeCommit(f *fixture) {
	r := f.join("m")
	tx := f.begin()
	f.enqueueIn(tx, event("a", 1))
	equal(f, eventsOf(r.fetchAll()), []string{}, "fetched while the transaction is open")
	f.commit(tx)
	equal(f, eventsOf(r.await("a.1")), []string{"a.1"}, "fetched after the commit")
}

func enqueueRolledBackIsNeverReturned(f *fixture) {
	r := f.join("m")
	tx := f.begin()
	f.enqueueIn(tx, event("a", 1), event("b", 1))
	f.rollback(tx)
	f.enqueue(event("a", 2))
	equal(f, eventsOf(r.await("a.2")), []string{"a.2"}, "fetched after the rollback")
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.2"}, "everything unsettled")
	if row, found := f.tables.Row(f.TB, "a.1"); found {
		f.Errorf("a rolled back event has a row: %+v", row)
	}
}

// A user sees all mistakes in one go, and may catch the error and still commit the rest of the transaction.
func enqueueRefusesAllFaultsAtOnce(f *fixture) {
	broken := event("a", 1)
	broken.AggregateType = ""
	broken.EventType = "order\x00changed"
	broken.Headers = map[string]string{core.HeaderEventID: "mine"}
	unnamed := event("", 3)

	tx := f.begin()
	ids, err := tx.Enqueue(f.within(), broken, event("a", 2), unnamed)
	if err == nil {
		f.Fatalf("four faults in two messages were accepted: %q", ids)
	}
	var got []string
	for _, fault := range invalidMessages(err) {
		got = append(got, fmt.Sprint(fault.Index, " ", fault.Field))
	}
	slices.Sort(got)
	want := []string{"0 AggregateType", "0 EventType", `0 Headers["event_id"]`, "2 AggregateID"}
	equal(f, got, want, "the *core.InvalidMessageError in the error, by index and field")

	f.enqueueIn(tx, event("b", 1))
	f.commit(tx)
	equal(f, eventsOf(f.join("m").await("b.1")), []string{"b.1"}, "committed after the refused call")
}

// A commit whose answer got lost is tried again with the same event ids.
func enqueueSameEventTwiceIsANoOp(f *fixture) {
	tx := f.begin()
	f.enqueueIn(tx, event("a", 1), event("a", 1))
	f.enqueueIn(tx, event("a", 1), event("a", 2))
	f.commit(tx)

	changed := event("a", 1)
	changed.Payload = []byte(`{"n": 999}`)
	equal(f, f.enqueue(changed, event("a", 3)), []string{"a.1", "a.3"}, "ids of a repeat and a new event")

	got := f.join("m").await("a.1", "a.2", "a.3")
	equal(f, eventsOf(got), []string{"a.1", "a.2", "a.3"}, "each event once")
	if bytes.Contains(got[0].Payload, []byte("999")) {
		f.Errorf("the repeat changed the payload of the event that was there")
	}
}

// The same id for another thing is a mistake of the caller: taking it for a repeat would lose the event.
func enqueueSameIDOtherKeyConflicts(f *fixture) {
	f.enqueue(event("a", 1))
	for what, change := range map[string]func(*core.Message){
		"aggregate":      func(m *core.Message) { m.AggregateID = "b" },
		"aggregate type": func(m *core.Message) { m.AggregateType = "invoice" },
		"event type":     func(m *core.Message) { m.EventType = "order.deleted" },
		"topic":          func(m *core.Message) { m.Topic = "orders" },
	} {
		m := event("a", 1)
		change(&m)
		tx := f.begin()
		_, err := tx.Enqueue(f.within(), event("c", 1), m)
		_ = tx.Rollback()
		var conflict *core.EventConflictError
		if !errors.As(err, &conflict) || conflict.EventID != "a.1" {
			f.Errorf("event id a.1 with another %s: want a *core.EventConflictError for a.1, got %v", what, err)
		}
	}
	equal(f, eventsOf(f.join("m").await("a.1")), []string{"a.1"}, "what is there after the conflicts")
}

func enqueuePublishedEventIsKnown(f *fixture) {
	r := f.join("m")
	f.enqueue(event("a", 1))
	r.mustSettle(published(r.await("a.1")[0]))
	f.wantRow("a.1", Row{State: Published})
	r.letGo()
	f.enqueue(event("a", 1), event("a", 2))
	want := []string{"a.2"}
	if f.h.DeletesPublished {
		want = []string{"a.1", "a.2"}
	}
	equal(f, eventsOf(r.await(want...)), want, "after the published event was enqueued again")
}

// Events of one statement share their time stamp; nothing may order by it.
func enqueueOneCallKeepsItsOrder(f *fixture) {
	f.enqueue(events("a", 1, 100)...)
	f.enqueue(events("a", 101, 200)...)
	want := eventIDs("a", 1, 200)
	equal(f, eventsOf(f.join("m").await(want...)), want, "events of two calls of 100")
}

func enqueueCopiesWhatItIsGiven(f *fixture) {
	m := event("a", 1)
	m.Payload = []byte(`"before"`)
	m.Headers = map[string]string{"tenant": "before"}
	tx := f.begin()
	f.enqueueIn(tx, m)
	copy(m.Payload, `"AFTER!"`)
	m.Headers["tenant"] = "after"
	f.commit(tx)
	got := f.join("m").await("a.1")[0]
	if string(got.Payload) != `"before"` || got.Headers["tenant"] != "before" {
		f.Errorf("what the caller did to the message after Enqueue shows in the row: %s %v", got.Payload, got.Headers)
	}
}

// There is no autocommit form: the event must not come without its transaction.
func enqueueAfterTheTransactionItFails(f *fixture) {
	tx := f.begin()
	f.enqueueIn(tx, event("a", 1))
	f.commit(tx)
	if _, err := tx.Enqueue(f.within(), event("a", 2)); err == nil {
		f.Errorf("enqueue after the commit was accepted")
	}
	gone := f.begin()
	f.rollback(gone)
	if _, err := gone.Enqueue(f.within(), event("a", 3)); err == nil {
		f.Errorf("enqueue after the rollback was accepted")
	}
	r := f.join("m")
	r.await("a.1")
	r.letGo()
	equal(f, eventsOf(r.again()), []string{"a.1"}, "what is there")
}

// Checks Harness.OneWriter: cases about late commits depend on it.
func enqueueTwoOpenTransactions(f *fixture) {
	first := f.begin()
	f.enqueueIn(first, event("a", 1))
	ctx, cancel := context.WithTimeout(f.Context(), min(f.h.Patience, 500*time.Millisecond))
	defer cancel()
	if !f.h.OneWriter {
		ctx = f.within()
	}
	second, err := f.tables.Begin(ctx)
	if err == nil {
		defer func() { _ = second.Rollback() }()
		_, err = second.Enqueue(ctx, event("b", 1))
	}
	switch {
	case f.h.OneWriter && err == nil:
		f.Errorf("the harness says OneWriter, but a second transaction enqueued while the first was open")
	case !f.h.OneWriter && err != nil:
		f.Errorf("a second transaction cannot enqueue while the first is open (Harness.OneWriter): %v", err)
	}
}
