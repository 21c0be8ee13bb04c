package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// fixture is what a case works with: fresh tables and a store on them.
type fixture struct {
	testing.TB
	h      Harness
	tables Tables
	store  core.Store
}

func newFixture(t testing.TB, h Harness) *fixture {
	t.Helper()
	tables := h.Tables(t)
	if err := tables.validate(); err != nil {
		t.Fatalf("storetest: the harness is not complete:\n%v", err)
	}
	return &fixture{TB: t, h: h, tables: tables, store: tables.Store(t)}
}

// The kind of thing that most events of the kit are about.
const aggregateType = "order"

// event is the n-th event of an aggregate; its event id is "key.n".
func event(key string, n int) core.Message {
	return core.Message{
		EventID:       eventID(key, n),
		AggregateType: aggregateType,
		AggregateID:   key,
		EventType:     "order.changed",
		Payload:       fmt.Appendf(nil, `{"n": %d}`, n),
	}
}

func eventID(key string, n int) string { return fmt.Sprintf("%s.%d", key, n) }

// events are the events from to to, inclusive, of an aggregate.
func events(key string, from, to int) []core.Message {
	var all []core.Message
	for n := from; n <= to; n++ {
		all = append(all, event(key, n))
	}
	return all
}

func eventIDs(key string, from, to int) []string {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, eventID(key, n))
	}
	return all
}

// oneLane returns so many aggregates that share a lane.
func (f *fixture) oneLane(count int) []string {
	return f.aggregates(count, func(lane, first int) bool { return lane == first })
}

// twoLanes returns two aggregates of different lanes; the case is skipped when there is only one lane.
func (f *fixture) twoLanes() (string, string) {
	f.Helper()
	if f.h.Lanes == 1 {
		f.Skipf("the store has one lane")
	}
	keys := f.aggregates(2, func(lane, first int) bool { return lane != first })
	return keys[0], keys[1]
}

func (f *fixture) aggregates(count int, fits func(lane, first int) bool) []string {
	keys := []string{"a0"}
	first := f.lane("a0")
	for n := 1; len(keys) < count; n++ {
		if key := fmt.Sprint("a", n); fits(f.lane(key), first) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (f *fixture) lane(aggregateID string) int {
	return ordering.Lane(aggregateType, aggregateID, f.h.Lanes)
}

// within is a context for one step of a case: a store that hangs fails the case instead of holding up the run.
func (f *fixture) within() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), f.h.Patience)
	f.Cleanup(cancel)
	return ctx
}

// begin begins a transaction that is rolled back at the end of the case at the latest.
func (f *fixture) begin() Tx {
	f.Helper()
	tx, err := f.tables.Begin(f.Context())
	if err != nil {
		f.Fatalf("begin: %v", err)
	}
	f.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// begin2 begins two transactions; the case is skipped where they cannot both write.
func (f *fixture) begin2() (Tx, Tx) {
	f.Helper()
	if f.h.OneWriter {
		f.Skipf("the store has one writer: no transaction commits later than one that began after it")
	}
	return f.begin(), f.begin()
}

func (f *fixture) enqueueIn(tx Tx, messages ...core.Message) []string {
	f.Helper()
	ids, err := tx.Enqueue(f.within(), messages...)
	if err != nil {
		f.Fatalf("enqueue: %v", err)
	}
	if len(ids) != len(messages) {
		f.Fatalf("enqueue of %d messages returned %d ids: %q", len(messages), len(ids), ids)
	}
	return ids
}

func (f *fixture) commit(tx Tx) {
	f.Helper()
	if err := tx.Commit(); err != nil {
		f.Fatalf("commit: %v", err)
	}
}

func (f *fixture) rollback(tx Tx) {
	f.Helper()
	if err := tx.Rollback(); err != nil {
		f.Fatalf("rollback: %v", err)
	}
}

// enqueue commits messages in a transaction of their own.
func (f *fixture) enqueue(messages ...core.Message) []string {
	f.Helper()
	tx := f.begin()
	ids := f.enqueueIn(tx, messages...)
	f.commit(tx)
	return ids
}

// wantRow checks a row as read past the store. Rows that may be deleted when published count as published when gone.
func (f *fixture) wantRow(eventID string, want Row) {
	f.Helper()
	got, found := f.tables.Row(f.TB, eventID)
	switch {
	case !found && want.State == Published && f.h.DeletesPublished:
	case !found:
		f.Fatalf("the row of %s is gone, want %+v", eventID, want)
	case got.State != want.State:
		f.Errorf("the row of %s is %s, want %s", eventID, got.State, want.State)
	case want.State != Published && got != want:
		f.Errorf("the row of %s is %+v, want %+v", eventID, got, want)
	case f.h.DeletesPublished && want.State == Published:
		f.Errorf("the row of %s is still there, but the harness says DeletesPublished", eventID)
	}
}

// equal compares lists, of event ids mostly, and ends the case when they differ.
func equal[E comparable](f *fixture, got, want []E, what string) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// ttl is for leases that the case lets expire by [fixture.expire]. All others are longTTL.
func (f *fixture) ttl() time.Duration {
	if f.tables.Expire == nil {
		return 300 * time.Millisecond
	}
	return longTTL
}

// longTTL outlives every case.
const longTTL = time.Hour

// expire lets the leases of a member, taken with [fixture.ttl], run out.
func (f *fixture) expire(member string) {
	f.Helper()
	if f.tables.Expire != nil {
		f.tables.Expire(f.TB, member)
		return
	}
	f.pause(f.ttl() + f.ttl()/10)
}

// pause waits where only real time will do.
func (f *fixture) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.Context().Done():
	}
}

// invalidMessages collects the *core.InvalidMessageError in an error tree.
func invalidMessages(err error) []*core.InvalidMessageError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*core.InvalidMessageError
		for _, e := range joined.Unwrap() {
			all = append(all, invalidMessages(e)...)
		}
		return all
	}
	if fault, ok := err.(*core.InvalidMessageError); ok { //nolint:errorlint // see above
		return []*core.InvalidMessageError{fault}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return invalidMessages(inner)
	}
	return nil
}
