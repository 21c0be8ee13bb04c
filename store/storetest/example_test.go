package storetest_test

import (
	"context"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/storetest"
)

// TestConformance of package memstore in short: what a harness has to provide.
func ExampleRun() {
	testConformance := func(t *testing.T) {
		storetest.Run(t, storetest.Harness{
			Lanes:             memstore.DefaultLanes,
			Waker:             true,
			FingerprintKeeper: true,
			Tables: func(t testing.TB) storetest.Tables { // fresh ones for each case
				store, err := memstore.New(memstore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Tables{
					Store: func(testing.TB) core.Store { return store.Replica() },
					Begin: func(context.Context) (storetest.Tx, error) {
						tx := store.Begin()
						return storetest.Tx{Enqueuer: tx, Commit: tx.Commit, Rollback: tx.Rollback}, nil
					},
					Row: func(_ testing.TB, eventID string) (storetest.Row, bool) {
						row, found := store.Row(eventID)
						return storetest.Row{State: storetest.State(row.State), Attempts: row.Attempts, Reason: row.Reason}, found
					},
					Requeue: func(_ testing.TB, eventIDs ...string) { _ = store.Requeue(eventIDs...) },
					Delete:  func(_ testing.TB, eventIDs ...string) { _ = store.Delete(eventIDs...) },
					Expire:  func(_ testing.TB, member string) { store.Expire(member) },
				}
			},
		})
	}
	_ = testConformance // go test calls it
}
