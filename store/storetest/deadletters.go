package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
)

func deadLetterCases() []Case {
	return []Case{
		rule("DeadLetters/AreAsDeclared", deadAsDeclared),
		rule("DeadLetters/ListShowsWhatAPersonNeeds", deadListShows),
		rule("DeadLetters/EachStateIsListedOnItsOwn", deadStates),
		rule("DeadLetters/EachFieldOfTheFilterSelects", deadFilter),
		rule("DeadLetters/ListIsReadInPages", deadPages),
		rule("DeadLetters/WhatMakesNoSenseIsRefused", deadRefused),
	}
}

// Checks Harness.DeadLetters.
func deadAsDeclared(f *fixture) {
	if _, is := f.store.(core.DeadLetters); is != f.h.DeadLetters {
		f.Errorf("the store is a core.DeadLetters: %t, the harness says %t", is, f.h.DeadLetters)
	}
}

// operator is a person's handle on the tables, in a process that dispatches nothing; the case is skipped when the store
// has no such methods.
type operator struct {
	*fixture
	store core.DeadLetters
}

func (f *fixture) operator() *operator {
	f.Helper()
	store, is := f.tables.Store(f.TB).(core.DeadLetters)
	if !is {
		f.Skipf("the store is no core.DeadLetters")
	}
	return &operator{fixture: f, store: store}
}

// list returns all that the filter selects, and checks that the count agrees.
func (o *operator) list(filter core.DeadLetterFilter) []core.DeadLetter {
	o.Helper()
	dead, err := o.store.ListDead(o.within(), filter, 0, 10_000)
	if err != nil {
		o.Fatalf("list %+v: %v", filter, err)
	}
	o.count(filter, len(dead))
	return dead
}

func (o *operator) count(filter core.DeadLetterFilter, want int) {
	o.Helper()
	if n, err := o.store.CountDead(o.within(), filter); err != nil || n != want {
		o.Fatalf("count %+v: got %d (%v), want %d", filter, n, err, want)
	}
}

// wantListed checks which events the filter selects, in order.
func (o *operator) wantListed(filter core.DeadLetterFilter, want ...string) {
	o.Helper()
	if got := eventsOf(recordsOf(o.list(filter))); !slices.Equal(got, append([]string{}, want...)) {
		o.Errorf("%+v lists %v, want %v", filter, got, want)
	}
}

// changed checks what a method that changes rows returned.
func (o *operator) changed(what string, want int) func(int, error) {
	o.Helper()
	return func(n int, err error) {
		o.Helper()
		if err != nil || n != want {
			o.Fatalf("%s: changed %d rows (%v), want %d", what, n, err, want)
		}
	}
}

func recordsOf(dead []core.DeadLetter) []*core.Record {
	all := make([]*core.Record, len(dead))
	for i := range dead {
		all[i] = dead[i].Record
	}
	return all
}

// parkAll enqueues events and parks them, and returns their records by id and the replica that did it.
func (f *fixture) parkAll(messages ...core.Message) ([]*core.Record, *replica) {
	f.Helper()
	ids := f.enqueue(messages...)
	r := f.join("m")
	all := r.await(ids...)
	var items []core.SettleItem
	for _, record := range all {
		items = append(items, parked(record, 10))
	}
	r.mustSettle(items...)
	r.letGo()
	slices.SortFunc(all, func(a, b *core.Record) int { return int(a.ID - b.ID) })
	return all, r
}

func deadListShows(f *fixture) {
	o := f.operator()
	m := event("a", 1)
	m.Topic = "orders"
	m.Headers = map[string]string{"tenant": "acme", "empty": ""}
	records, _ := f.parkAll(m, event("b", 1))
	dead := o.list(core.DeadLetterFilter{})
	equal(f, eventsOf(recordsOf(dead)), eventsOf(records), "parked")
	got := dead[0]
	switch r := got.Record; {
	case got.State != core.StateParked, got.Reason != "too large":
		f.Errorf("got state %q and reason %q, want parked, too large", got.State, got.Reason)
	case r.ID != records[0].ID, r.Lane != records[0].Lane, r.Key() != records[0].Key(), r.EventType != m.EventType:
		f.Errorf("got %+v, want the record %+v", r, records[0])
	case r.Attempts != 10, r.Replay != 0, r.FirstFailedAt.IsZero(), !r.CreatedAt.Equal(records[0].CreatedAt):
		f.Errorf("got %+v, want 10 attempts, no replay, when it failed first, and created at %v", r, records[0].CreatedAt)
	case !maps.Equal(r.Headers, m.Headers), !strings.Contains(string(r.Payload), "1"):
		f.Errorf("got headers %v and payload %s", r.Headers, r.Payload)
	}
}

// Parked, blocked and discarded events are three lists; what merely waits or is published stands in none.
func deadStates(f *fixture) {
	o := f.operator()
	f.enqueue(event("a", 1), event("b", 1), event("c", 1), event("d", 1), event("e", 1), event("f", 1))
	r := f.join("m")
	all := r.await("a.1", "b.1", "c.1", "d.1", "e.1", "f.1")
	r.mustSettle(parked(byEvent(all, "a.1"), 10), blocked(byEvent(all, "b.1"), 10), parked(byEvent(all, "c.1"), 10),
		failed(byEvent(all, "d.1"), 3, time.Hour), published(byEvent(all, "e.1")))
	o.changed("discard c.1", 1)(o.store.DiscardDead(f.within(), core.DeadLetterFilter{EventIDs: []string{"c.1"}}, "a test"))
	o.wantListed(core.DeadLetterFilter{}, "a.1")
	o.wantListed(core.DeadLetterFilter{State: core.StateParked}, "a.1")
	o.wantListed(core.DeadLetterFilter{State: core.StateBlocked}, "b.1")
	o.wantListed(core.DeadLetterFilter{State: core.StateDiscarded}, "c.1")
	dead := o.list(core.DeadLetterFilter{State: core.StateBlocked})[0]
	if dead.State != core.StateBlocked || dead.Reason != "rejected" || dead.Record.Delay != core.Forever {
		f.Errorf("the blocked one is %+v with delay %v; want its reason, and that it is never due", dead, dead.Record.Delay)
	}
}

func deadFilter(f *fixture) {
	o := f.operator()
	first, second := event("a", 1), event("b", 1)
	first.Topic, second.Topic = "orders", "invoices"
	second.AggregateType, second.EventType = "invoice", "invoice.paid"
	f.enqueue(first)
	f.pause(20 * time.Millisecond) // stores keep the time to the millisecond at least
	f.enqueue(second)
	r := f.join("m")
	all := r.await("a.1", "b.1")
	odd := parked(byEvent(all, "b.1"), 10)
	odd.Reason = `kafka: 100% of _it is TOO large\`
	r.mustSettle(parked(byEvent(all, "a.1"), 10), odd)
	second1 := byEvent(all, "b.1")
	for _, test := range []struct {
		filter core.DeadLetterFilter
		want   []string
	}{
		{core.DeadLetterFilter{}, []string{"a.1", "b.1"}},
		{core.DeadLetterFilter{EventIDs: []string{"b.1", "none"}}, []string{"b.1"}},
		{core.DeadLetterFilter{EventIDs: []string{"b.1", "a.1", "b.1"}}, []string{"a.1", "b.1"}},
		{core.DeadLetterFilter{Topic: "orders"}, []string{"a.1"}},
		{core.DeadLetterFilter{Topic: "Orders"}, nil},
		{core.DeadLetterFilter{AggregateType: "invoice"}, []string{"b.1"}},
		{core.DeadLetterFilter{AggregateID: "a"}, []string{"a.1"}},
		{core.DeadLetterFilter{EventType: "invoice.paid"}, []string{"b.1"}},
		{core.DeadLetterFilter{Reason: "too LARGE"}, []string{"a.1", "b.1"}},
		{core.DeadLetterFilter{Reason: "100% of _it"}, []string{"b.1"}},
		{core.DeadLetterFilter{Reason: "100_ of"}, nil},
		{core.DeadLetterFilter{Reason: `large\`}, []string{"b.1"}},
		{core.DeadLetterFilter{CreatedAfter: second1.CreatedAt}, []string{"b.1"}},
		{core.DeadLetterFilter{CreatedAfter: second1.CreatedAt.Add(time.Microsecond)}, nil},
		{core.DeadLetterFilter{CreatedBefore: second1.CreatedAt}, []string{"a.1"}},
		{core.DeadLetterFilter{CreatedBefore: second1.CreatedAt.Add(time.Microsecond)}, []string{"a.1", "b.1"}},
		{core.DeadLetterFilter{AggregateID: "a", Topic: "invoices"}, nil},
	} {
		o.wantListed(test.filter, test.want...)
	}
}

func deadPages(f *fixture) {
	o := f.operator()
	const count, page = 25, 10
	var messages []core.Message
	for n := range count {
		messages = append(messages, event(fmt.Sprint("k", n%7), n))
	}
	records, _ := f.parkAll(messages...)
	var got []*core.Record
	for after := int64(0); ; {
		dead, err := o.store.ListDead(f.within(), core.DeadLetterFilter{}, after, page)
		if err != nil || len(dead) > page {
			f.Fatalf("a page after %d: %d dead letters, %v; want at most %d", after, len(dead), err, page)
		}
		if len(dead) == 0 {
			break
		}
		got = append(got, recordsOf(dead)...)
		if len(got) > count {
			f.Fatalf("the pages have %v", eventsOf(got))
		}
		after = got[len(got)-1].ID
	}
	equal(f, eventsOf(got), eventsOf(records), "all pages")
}

// A typing error in a state must not select something else, nor may a discard go without a trace of why.
func deadRefused(f *fixture) {
	o := f.operator()
	f.parkAll(event("a", 1))
	ctx := f.within()
	list := func(filter core.DeadLetterFilter, limit int) error {
		_, err := o.store.ListDead(ctx, filter, 0, limit)
		return err
	}
	only := func(_ int, err error) error { return err }
	typo, blocked := core.DeadLetterFilter{State: "dead"}, core.DeadLetterFilter{State: core.StateBlocked}
	key := core.Message{AggregateType: aggregateType, AggregateID: "a"}
	for what, err := range map[string]error{
		"list of an unknown state":    list(typo, 1),
		"list of at most 0":           list(core.DeadLetterFilter{}, 0),
		"count of an unknown state":   only(o.store.CountDead(ctx, typo)),
		"requeue of an unknown state": only(o.store.RequeueDead(ctx, typo)),
		"discard of an unknown state": only(o.store.DiscardDead(ctx, typo, "why")),
		"discard of blocked events":   only(o.store.DiscardDead(ctx, blocked, "why")),
		"discard without a reason":    only(o.store.DiscardDead(ctx, core.DeadLetterFilter{}, "")),
		"skip without a reason":       only(o.store.SkipHead(ctx, (&core.Record{Message: key}).Key(), "")),
	} {
		if err == nil {
			f.Errorf("%s: no error", what)
		}
	}
	f.wantRow("a.1", Row{State: Parked, Attempts: 10, Reason: "too large"})
}
