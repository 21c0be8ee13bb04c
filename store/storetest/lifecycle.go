package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-outbox/outbox/core"
)

func lifecycleCases() []Case {
	return []Case{
		rule("Cancel/EveryMethodReturnsAfterCtxEnds", cancelEveryMethod),
		rule("Close/LaterCallsReturnErrClosed", closeLaterCalls),
		rule("Close/TwiceIsNoError", closeTwice),
		rule("Close/OtherHandlesStayOpen", closeOtherHandles),
		{Name: "NotMigrated/SaysSo", Run: notMigratedSaysSo},
	}
}

// call is one call of the contract, for cases about what all of them do.
type call struct {
	name string
	do   func(context.Context) error
}

func (r *replica) calls() []call {
	return []call{
		{"Lease", func(ctx context.Context) error {
			_, err := r.store.Lease(ctx, core.LeaseRequest{Member: r.member, TTL: longTTL})
			return err
		}},
		{"Fetch", func(ctx context.Context) error {
			_, err := r.store.Fetch(ctx, r.request())
			return err
		}},
		{"Settle", func(ctx context.Context) error {
			_, err := r.store.Settle(ctx, core.Settlement{Member: r.member, Leases: r.leases})
			return err
		}},
	}
}

// A dispatcher that shuts down must not hang in its store. What the call answers then is of no interest.
func cancelEveryMethod(f *fixture) {
	f.enqueue(event("a", 1))
	r := f.join("m")
	tx := f.begin()
	calls := append(r.calls(), call{"Enqueue", func(ctx context.Context) error {
		_, err := tx.Enqueue(ctx, event("b", 1))
		return err
	}})
	slices.Reverse(calls) // Enqueue first: with one writer the others may wait for its transaction
	ended, cancel := context.WithCancel(f.Context())
	cancel()
	for _, c := range calls {
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_ = c.do(ended)
		}()
		select {
		case <-returned:
		case <-f.within().Done():
			f.Fatalf("%s did not return within %v although its context has ended", c.name, f.h.Patience)
		}
		if c.name == "Enqueue" {
			_ = tx.Rollback()
		}
	}
	equal(f, eventsOf(r.await("a.1")), []string{"a.1"}, "the store is still usable")
}

func closeLaterCalls(f *fixture) {
	r := f.join("m")
	if err := r.store.Close(); err != nil {
		f.Fatalf("close: %v", err)
	}
	for _, c := range r.calls() {
		if err := c.do(f.within()); !errors.Is(err, core.ErrClosed) {
			f.Errorf("%s after Close: want core.ErrClosed, got %v", c.name, err)
		}
	}
}

func closeTwice(f *fixture) {
	for range 2 {
		if err := f.store.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
	}
}

func closeOtherHandles(f *fixture) {
	f.enqueue(event("a", 1))
	other := f.tables.Store(f.TB)
	if err := f.store.Close(); err != nil {
		f.Fatalf("close: %v", err)
	}
	equal(f, eventsOf(f.joinOn(other, "m", longTTL).await("a.1")), []string{"a.1"}, "through another handle")
}

// A forgotten migration is the first mistake of every deployment; the dispatcher tells it from an outage by this error.
func notMigratedSaysSo(t testing.TB, h Harness) {
	if h.Unmigrated == nil {
		t.Skipf("the harness has no Unmigrated")
	}
	h = h.withDefaults()
	store := h.Unmigrated(t).Store(t)
	r := &replica{fixture: &fixture{TB: t, h: h, store: store}, store: store, member: "m"}
	r.leases = []core.Lease{{Lane: 0, Epoch: 1}}
	for _, c := range r.calls() {
		if err := c.do(r.within()); !errors.Is(err, core.ErrNotMigrated) {
			t.Errorf("%s without tables: want core.ErrNotMigrated, got %v", c.name, err)
		}
	}
}
