package memstore_test

import (
	"slices"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func TestRestart_ResetsEachLaneOnce(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{Lanes: 2})
	leases := take(t, store, "m")
	enqueue(t, store, event("e1", "a"), event("e2", "b"))
	fetch(t, store, request("m", leases))
	must(t, store.Restart())

	batch, err := store.Fetch(t.Context(), request("m", leases))
	must(t, err)
	for i, lane := range batch.Lanes {
		if !lane.Reset || len(lane.Records) > 0 {
			t.Errorf("lane %d after a restart: want Reset and no records, got %+v", i, lane)
		}
	}
	batch, err = store.Fetch(t.Context(), request("m", leases))
	must(t, err)
	var got []string
	for i, lane := range batch.Lanes {
		if lane.Reset || lane.After != 0 {
			t.Errorf("lane %d after the reset: want a fetch from the beginning, got %+v", i, lane)
		}
		got = append(got, eventIDs(lane.Records)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"e1", "e2"}) {
		t.Errorf("after the reset came %v", got)
	}
}

// After a failover another event may have the id of one that is lost, and results of records from before are void.
func TestRestart_DrawsLostIDsAgain(t *testing.T) {
	t.Parallel()
	store := open(t, memstore.Config{})
	leases := take(t, store, "m")
	enqueue(t, store, event("kept", "a"), event("lost", "a"))
	before := fetch(t, store, request("m", leases))
	must(t, store.Restart("lost"))
	enqueue(t, store, event("new", "a"))

	settled := settle(t, store, "m", leases, publishedAll(before)...)
	if got := eventIDs(settled.Missed); !slices.Equal(got, []string{"kept", "lost"}) {
		t.Errorf("missed %v, want both records from before", got)
	}
	fetch(t, store, request("m", leases)) // reset
	after := fetch(t, store, request("m", leases))
	if got := eventIDs(after); !slices.Equal(got, []string{"kept", "new"}) || after[1].ID != before[1].ID {
		t.Fatalf("after the failover came %v with ids %d and %d; new should have the id of lost, %d",
			got, after[0].ID, after[1].ID, before[1].ID)
	}
	if settled = settle(t, store, "m", leases, publishedAll(after)...); len(settled.Missed) > 0 {
		t.Errorf("missed %v of fresh records", eventIDs(settled.Missed))
	}
	var none []*core.Record
	if left := fetch(t, store, request("m", leases)); !slices.Equal(left, none) {
		t.Errorf("left: %v", eventIDs(left))
	}
}
