package storetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
	"github.com/go-outbox/outbox/store/storetest"
)

// Stores of other kinds than memstore pass the kit too: it asks nothing of them that their facts rule out.
func TestKindsOfStores(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]storetest.Harness{
		"one writer":            oneWriter(patient(harness(honest))),
		"migrates itself":       migrating(patient(harness(honest))),
		"leases cannot be aged": withoutExpire(patient(harness(honest))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, h)
		})
	}
}

// A fact that is claimed and does not hold, or holds and is not claimed, is found.
func TestFactsAreCheckedBothWays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		caught string
		lie    func(h storetest.Harness) storetest.Harness
	}{
		{"OneWriter claimed", "Enqueue/TwoOpenTransactionsAreAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.OneWriter = true
			return h
		}},
		{"OneWriter not claimed", "Enqueue/TwoOpenTransactionsAreAsDeclared", func(h storetest.Harness) storetest.Harness {
			h = oneWriter(h)
			h.OneWriter = false
			return h
		}},
		{"JSONOnly claimed", "Payload/OtherThanJSONIsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.JSONOnly = true
			return h
		}},
		{"JSONOnly not claimed", "Payload/OtherThanJSONIsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.Tables = func(t testing.TB) storetest.Tables {
				return tablesOf(t, memstore.Config{Lanes: 8, JSON: true}, sabotage{})
			}
			return h
		}},
		{"DeletesPublished claimed", "Enqueue/PublishedEventIsKnownWhileItsRowExists", func(h storetest.Harness) storetest.Harness {
			h.DeletesPublished = true
			return h
		}},
		{"DeletesPublished not claimed", "Enqueue/PublishedEventIsKnownWhileItsRowExists", func(h storetest.Harness) storetest.Harness {
			h.Tables = func(t testing.TB) storetest.Tables {
				return tablesOf(t, memstore.Config{Lanes: 8, AfterPublish: memstore.Delete}, sabotage{})
			}
			return h
		}},
		{"Waker not claimed", "Waker/IsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.Waker = false
			return h
		}},
		{"FingerprintKeeper not claimed", "Fingerprint/KeeperIsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.FingerprintKeeper = false
			return h
		}},
		{"FingerprintKeeper claimed", "Fingerprint/KeeperIsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h = migrating(h)
			h.FingerprintKeeper = true
			return h
		}},
		{"DeadLetters not claimed", "DeadLetters/AreAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.DeadLetters = false
			return h
		}},
		{"DeadLetters claimed", "DeadLetters/AreAsDeclared", func(h storetest.Harness) storetest.Harness {
			h = migrating(h)
			h.DeadLetters = true
			return h
		}},
		{"Migrator claimed", "Migrate/IsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.Migrator = true
			return h
		}},
		{"Migrator not claimed", "Migrate/IsAsDeclared", func(h storetest.Harness) storetest.Harness {
			h = migrating(h)
			h.Migrator = false
			return h
		}},
		{"other Lanes claimed", "Lease/LanesAreAsDeclared", func(h storetest.Harness) storetest.Harness {
			h.Lanes = 4
			return h
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if r := try(t, caseNamed(t, c.caught), c.lie(harness(honest))); !r.Failed() {
				t.Errorf("%s passes", c.caught)
			}
		})
	}
}

// A migrator that is broken fails, too.
func TestMigrationMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for name, caught := range map[string]string{
		"takes steps twice":     "Migrate/ManyAtOnceTakeEachStepOnce",
		"repeats the last step": "Migrate/UpAgainDoesNothing",
		"says nothing":          "NotMigrated/SaysSo",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := caseNamed(t, caught)
			if r := try(t, c, migrating(patient(harness(honest)))); r.Failed() || r.Skipped() {
				t.Fatalf("%s fails or is skipped with an honest store: %q", caught, r.said())
			}
			if r := try(t, c, migratingWith(harness(honest), name)); !r.Failed() {
				t.Errorf("%s passes", caught)
			}
		})
	}
}

// patient is for runs in which nothing is expected to fail.
func patient(h storetest.Harness) storetest.Harness {
	h.Patience = 0
	return h
}

func withoutExpire(h storetest.Harness) storetest.Harness {
	inner := h.Tables
	h.Tables = func(t testing.TB) storetest.Tables {
		tb := inner(t)
		tb.Expire = nil
		return tb
	}
	return h
}

// oneWriter lets transactions wait for each other.
func oneWriter(h storetest.Harness) storetest.Harness {
	inner := h.Tables
	h.OneWriter = true
	h.Tables = func(t testing.TB) storetest.Tables {
		tb := inner(t)
		begin, busy := tb.Begin, make(chan struct{}, 1)
		tb.Begin = func(ctx context.Context) (storetest.Tx, error) {
			select {
			case busy <- struct{}{}:
			case <-ctx.Done():
				return storetest.Tx{}, ctx.Err()
			}
			tx, err := begin(ctx)
			var once sync.Once
			end := func(f func() error) func() error {
				return func() error {
					defer once.Do(func() { <-busy })
					return f()
				}
			}
			return storetest.Tx{Enqueuer: tx, Commit: end(tx.Commit), Rollback: end(tx.Rollback)}, err
		}
		return tb
	}
	return h
}

func migrating(h storetest.Harness) storetest.Harness { return migratingWith(h, "") }

func migratingWith(h storetest.Harness, fault string) storetest.Harness {
	h.Migrator, h.FingerprintKeeper, h.DeadLetters = true, false, false
	at := func(version int) func(testing.TB) storetest.Tables {
		inner := h.Tables
		return func(t testing.TB) storetest.Tables {
			tb, schema := inner(t), &schema{version: version, fault: fault}
			open := tb.Store
			tb.Store = func(t testing.TB) core.Store { return &migrator{Store: open(t), schema: schema} }
			return tb
		}
	}
	h.Tables, h.Unmigrated = at(len(steps)), at(0)
	return h
}

var steps = []core.Migration{
	{Version: 1, Name: "make the table", Up: "create", Down: "drop"},
	{Version: 2, Name: "add a column", Up: "add", Down: "remove"},
}

type schema struct {
	mu      sync.Mutex
	version int
	fault   string
}

// migrator is a store that only works at the latest version.
type migrator struct {
	core.Store
	schema *schema
}

func (m *migrator) Migrations() []core.Migration { return slices.Clone(steps) }

func (m *migrator) SchemaVersion(context.Context) (int, error) {
	m.schema.mu.Lock()
	defer m.schema.mu.Unlock()
	return m.schema.version, nil
}

func (m *migrator) Migrate(_ context.Context, version int) ([]core.Migration, error) {
	m.schema.mu.Lock()
	defer m.schema.mu.Unlock()
	from := m.schema.version
	m.schema.version = version
	switch {
	case m.schema.fault == "takes steps twice":
		return slices.Clone(steps[:version]), nil
	case m.schema.fault == "repeats the last step" && from == version:
		return slices.Clone(steps[version-1:]), nil
	case version < from:
		down := slices.Clone(steps[version:from])
		slices.Reverse(down)
		return down, nil
	}
	return slices.Clone(steps[from:version]), nil
}

func (m *migrator) ready(ctx context.Context) error {
	version, _ := m.SchemaVersion(ctx)
	if version < len(steps) && m.schema.fault != "says nothing" {
		return core.ErrNotMigrated
	}
	return nil
}

func (m *migrator) Sleep(ctx context.Context, d time.Duration) {
	if waker, is := m.Store.(core.Waker); is {
		waker.Sleep(ctx, d)
	}
}

func (m *migrator) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	if err := m.ready(ctx); err != nil {
		return core.Leases{}, err
	}
	return m.Store.Lease(ctx, req)
}

func (m *migrator) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	if err := m.ready(ctx); err != nil {
		return core.Batch{}, err
	}
	return m.Store.Fetch(ctx, req)
}

func (m *migrator) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	if err := m.ready(ctx); err != nil {
		return core.Settled{}, err
	}
	return m.Store.Settle(ctx, req)
}
