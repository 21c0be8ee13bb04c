package storetest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/core"
)

func migrateCases() []Case {
	return []Case{
		rule("Migrate/IsAsDeclared", migrateIsAsDeclared),
		migration("Migrate/StepsAreNumberedAndNamed", migrateStepsAreNumbered),
		migration("Migrate/UpMakesAStoreThatWorks", migrateUp),
		migration("Migrate/UpAgainDoesNothing", migrateUpAgain),
		migration("Migrate/DownAndUpAgain", migrateDown),
		migration("Migrate/ManyAtOnceTakeEachStepOnce", migrateManyAtOnce),
	}
}

// unmigrated is a Migrator where the tables are still missing.
type unmigrated struct {
	*fixture
	migrator core.Migrator
	latest   int
}

func migration(name string, check func(u *unmigrated)) Case {
	return Case{Name: name, Run: func(t testing.TB, h Harness) {
		t.Helper()
		if !h.Migrator {
			t.Skipf("the store is no core.Migrator")
		}
		h = h.withDefaults()
		tables := h.Unmigrated(t)
		store := tables.Store(t)
		migrator, is := store.(core.Migrator)
		if !is {
			t.Fatalf("the store is no core.Migrator, the harness says it is")
		}
		u := &unmigrated{fixture: &fixture{TB: t, h: h, tables: tables, store: store}, migrator: migrator}
		u.latest = len(migrator.Migrations())
		check(u)
	}}
}

// Checks Harness.Migrator.
func migrateIsAsDeclared(f *fixture) {
	migrator, is := f.store.(core.Migrator)
	if is != f.h.Migrator {
		f.Fatalf("the store is a core.Migrator: %t, the harness says %t", is, f.h.Migrator)
	}
	if !is {
		return
	}
	version, err := migrator.SchemaVersion(f.within())
	if latest := len(migrator.Migrations()); err != nil || version != latest {
		f.Errorf("the tables of the harness are at version %d (%v), the latest is %d", version, err, latest)
	}
}

func migrateStepsAreNumbered(u *unmigrated) {
	if u.latest == 0 {
		u.Fatalf("there are no migrations")
	}
	for i, step := range u.migrator.Migrations() {
		if step.Version != i+1 {
			u.Errorf("migration %d has version %d", i+1, step.Version)
		}
		if step.Name == "" || step.Up == "" || step.Down == "" {
			u.Errorf("migration %d lacks a name, an up or a down step", i+1)
		}
	}
}

func (u *unmigrated) wantVersion(want int) {
	u.Helper()
	got, err := u.migrator.SchemaVersion(u.within())
	if err != nil || got != want {
		u.Fatalf("schema version %d (%v), want %d", got, err, want)
	}
}

// migrate moves to a version and returns the versions of the steps taken.
func (u *unmigrated) migrate(version int) []int {
	u.Helper()
	steps, err := u.migrator.Migrate(u.within(), version)
	if err != nil {
		u.Fatalf("migrate to version %d: %v", version, err)
	}
	u.wantVersion(version)
	return versions(steps)
}

func versions(steps []core.Migration) []int {
	taken := make([]int, 0, len(steps))
	for _, step := range steps {
		taken = append(taken, step.Version)
	}
	return taken
}

func upTo(version int) []int {
	all := make([]int, version)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

func migrateUp(u *unmigrated) {
	u.wantVersion(0)
	equal(u.fixture, u.migrate(u.latest), upTo(u.latest), "steps taken")
	u.enqueue(events("a", 1, 3)...)
	r := u.join("m")
	r.mustSettle(published(r.await(eventIDs("a", 1, 3)...)[0]))
	r.letGo()
	equal(u.fixture, eventsOf(r.again()), eventIDs("a", 2, 3), "unsettled in the new tables")
}

func migrateUpAgain(u *unmigrated) {
	u.migrate(u.latest)
	u.enqueue(event("a", 1))
	equal(u.fixture, u.migrate(u.latest), []int{}, "steps taken")
	equal(u.fixture, eventsOf(u.join("m").await("a.1")), []string{"a.1"}, "what was there before")
}

func migrateDown(u *unmigrated) {
	u.migrate(u.latest)
	down := u.migrate(0)
	slices.Reverse(down)
	equal(u.fixture, down, upTo(u.latest), "steps taken down, reversed")
	if _, err := u.store.Lease(u.within(), core.LeaseRequest{Member: "m", TTL: longTTL}); !errors.Is(err, core.ErrNotMigrated) {
		u.Errorf("lease at version 0: want core.ErrNotMigrated, got %v", err)
	}
	for version := 1; version <= u.latest; version++ {
		equal(u.fixture, u.migrate(version), []int{version}, "steps taken")
	}
	u.enqueue(event("a", 1))
	equal(u.fixture, eventsOf(u.join("m").await("a.1")), []string{"a.1"}, "in the tables made again")
}

// Every replica of a deployment may migrate at its start.
func migrateManyAtOnce(u *unmigrated) {
	const processes = 4
	taken, errs := make([][]core.Migration, processes), make([]error, processes)
	ctx := u.within()
	var all sync.WaitGroup
	for i := range processes {
		migrator, _ := u.tables.Store(u.TB).(core.Migrator)
		all.Go(func() { taken[i], errs[i] = migrator.Migrate(ctx, u.latest) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		u.Fatalf("migrate from %d processes at once: %v", processes, err)
	}
	steps := versions(slices.Concat(taken...))
	slices.Sort(steps)
	equal(u.fixture, steps, upTo(u.latest), "steps taken by all together")
	u.wantVersion(u.latest)
}
