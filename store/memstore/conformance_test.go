package memstore_test

import (
	"context"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]memstore.Config{
		"default":  {},
		"one lane": {Lanes: 1},
		"delete":   {AfterPublish: memstore.Delete},
		"json":     {JSON: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, harness(cfg))
		})
	}
}

func harness(cfg memstore.Config) storetest.Harness {
	return storetest.Harness{
		Lanes:             cfg.WithDefaults().Lanes,
		JSONOnly:          cfg.JSON,
		DeletesPublished:  cfg.AfterPublish == memstore.Delete,
		Waker:             true,
		FingerprintKeeper: true,
		DeadLetters:       true,
		Tables:            func(t testing.TB) storetest.Tables { return tables(t, cfg) },
	}
}

func tables(t testing.TB, cfg memstore.Config) storetest.Tables {
	t.Helper()
	root, err := memstore.New(cfg)
	must(t, err)
	return storetest.Tables{
		Store: func(t testing.TB) core.Store {
			store := root.Replica()
			t.Cleanup(func() { _ = store.Close() })
			return store
		},
		Begin: func(context.Context) (storetest.Tx, error) {
			tx := root.Begin()
			return storetest.Tx{Enqueuer: tx, Commit: tx.Commit, Rollback: tx.Rollback}, nil
		},
		Row: func(_ testing.TB, eventID string) (storetest.Row, bool) {
			row, found := root.Row(eventID)
			return storetest.Row{State: storetest.State(row.State), Attempts: row.Attempts, Reason: row.Reason}, found
		},
		Requeue: func(t testing.TB, eventIDs ...string) { t.Helper(); must(t, root.Requeue(eventIDs...)) },
		Delete:  func(t testing.TB, eventIDs ...string) { t.Helper(); must(t, root.Delete(eventIDs...)) },
		Expire:  func(_ testing.TB, member string) { root.Expire(member) },
		Purge:   func(context.Context) error { root.Purge(0); return nil },
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
