package storetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/storetest"
)

// sabotage replaces calls of an honest store; what is nil stays honest.
type sabotage struct {
	lease       func(context.Context, *memstore.Store, core.LeaseRequest) (core.Leases, error)
	fetch       func(context.Context, *memstore.Store, core.FetchRequest) (core.Batch, error)
	settle      func(context.Context, *memstore.Store, core.Settlement) (core.Settled, error)
	sleep       func(context.Context, *memstore.Store, time.Duration)
	close       func(*memstore.Store) error
	fingerprint func(ctx context.Context, s *memstore.Store, broker, name, given string) (string, error)
	listDead    func(context.Context, *memstore.Store, core.DeadLetterFilter, int64, int) ([]core.DeadLetter, error)
	// fingerprints changes what is listed.
	fingerprints func(map[ordering.Outlet]string) map[ordering.Outlet]string
	requeueDead  func(context.Context, *memstore.Store, core.DeadLetterFilter) (int, error)
	discardDead  func(context.Context, *memstore.Store, core.DeadLetterFilter, string) (int, error)
	unblock      func(context.Context, *memstore.Store, ordering.Key) (int, error)
	skipHead     func(context.Context, *memstore.Store, ordering.Key, string) (int, error)
	purge        func(*memstore.Store)
	enqueue      func(context.Context, *memstore.Tx, []core.Message) ([]string, error)
	rollback     func(*memstore.Tx) error
}

// saboteur is a store with some of its calls replaced.
type saboteur struct {
	*memstore.Store
	sabotage
}

func (s *saboteur) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	if s.lease != nil {
		return s.lease(ctx, s.Store, req)
	}
	return s.Store.Lease(ctx, req)
}

func (s *saboteur) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	if s.fetch != nil {
		return s.fetch(ctx, s.Store, req)
	}
	return s.Store.Fetch(ctx, req)
}

func (s *saboteur) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	if s.settle != nil {
		return s.settle(ctx, s.Store, req)
	}
	return s.Store.Settle(ctx, req)
}

func (s *saboteur) Sleep(ctx context.Context, d time.Duration) {
	if s.sleep != nil {
		s.sleep(ctx, s.Store, d)
		return
	}
	s.Store.Sleep(ctx, d)
}

func (s *saboteur) Close() error {
	if s.close != nil {
		return s.close(s.Store)
	}
	return s.Store.Close()
}

func (s *saboteur) Fingerprint(ctx context.Context, broker, name, given string) (string, error) {
	if s.fingerprint != nil {
		return s.fingerprint(ctx, s.Store, broker, name, given)
	}
	return s.Store.Fingerprint(ctx, broker, name, given)
}

func (s *saboteur) Fingerprints(ctx context.Context) (map[ordering.Outlet]string, error) {
	all, err := s.Store.Fingerprints(ctx)
	if s.fingerprints != nil {
		all = s.fingerprints(all)
	}
	return all, err
}

func (s *saboteur) ListDead(
	ctx context.Context, filter core.DeadLetterFilter, after int64, limit int,
) ([]core.DeadLetter, error) {
	if s.listDead != nil {
		return s.listDead(ctx, s.Store, filter, after, limit)
	}
	return s.Store.ListDead(ctx, filter, after, limit)
}

func (s *saboteur) RequeueDead(ctx context.Context, filter core.DeadLetterFilter) (int, error) {
	if s.requeueDead != nil {
		return s.requeueDead(ctx, s.Store, filter)
	}
	return s.Store.RequeueDead(ctx, filter)
}

func (s *saboteur) DiscardDead(ctx context.Context, filter core.DeadLetterFilter, reason string) (int, error) {
	if s.discardDead != nil {
		return s.discardDead(ctx, s.Store, filter, reason)
	}
	return s.Store.DiscardDead(ctx, filter, reason)
}

func (s *saboteur) Unblock(ctx context.Context, key ordering.Key) (int, error) {
	if s.unblock != nil {
		return s.unblock(ctx, s.Store, key)
	}
	return s.Store.Unblock(ctx, key)
}

func (s *saboteur) SkipHead(ctx context.Context, key ordering.Key, reason string) (int, error) {
	if s.skipHead != nil {
		return s.skipHead(ctx, s.Store, key, reason)
	}
	return s.Store.SkipHead(ctx, key, reason)
}

type sabotagedTx struct {
	*memstore.Tx
	sabotage
}

func (tx *sabotagedTx) Enqueue(ctx context.Context, messages ...core.Message) ([]string, error) {
	if tx.enqueue != nil {
		return tx.enqueue(ctx, tx.Tx, messages)
	}
	return tx.Tx.Enqueue(ctx, messages...)
}

func (tx *sabotagedTx) Rollback() error {
	if tx.rollback != nil {
		return tx.rollback(tx.Tx)
	}
	return tx.Tx.Rollback()
}

// harness describes a memory store; each set of tables is sabotaged anew.
func harness(sabotaged func(testing.TB) sabotage) storetest.Harness {
	return storetest.Harness{
		Lanes:             8,
		Waker:             true,
		FingerprintKeeper: true,
		DeadLetters:       true,
		Patience:          300 * time.Millisecond,
		Tables:            func(t testing.TB) storetest.Tables { return tables(t, sabotaged(t)) },
	}
}

func honest(testing.TB) sabotage { return sabotage{} }

func tables(t testing.TB, s sabotage) storetest.Tables {
	t.Helper()
	return tablesOf(t, memstore.Config{Lanes: 8}, s)
}

func tablesOf(t testing.TB, cfg memstore.Config, s sabotage) storetest.Tables {
	t.Helper()
	root, err := memstore.New(cfg)
	must(t, err)
	return storetest.Tables{
		Store: func(t testing.TB) core.Store {
			handle := root.Replica()
			t.Cleanup(func() { _ = handle.Close() })
			return &saboteur{Store: handle, sabotage: s}
		},
		Begin: func(context.Context) (storetest.Tx, error) {
			tx := &sabotagedTx{Tx: root.Begin(), sabotage: s}
			return storetest.Tx{Enqueuer: tx, Commit: tx.Commit, Rollback: tx.Rollback}, nil
		},
		Row: func(_ testing.TB, eventID string) (storetest.Row, bool) {
			row, found := root.Row(eventID)
			return storetest.Row{State: storetest.State(row.State), Attempts: row.Attempts, Reason: row.Reason}, found
		},
		Requeue: func(t testing.TB, eventIDs ...string) { t.Helper(); must(t, root.Requeue(eventIDs...)) },
		Delete:  func(t testing.TB, eventIDs ...string) { t.Helper(); must(t, root.Delete(eventIDs...)) },
		Expire:  func(_ testing.TB, member string) { root.Expire(member) },
		Purge: func(context.Context) error {
			if s.purge != nil {
				s.purge(root)
				return nil
			}
			root.Purge(0)
			return nil
		},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
