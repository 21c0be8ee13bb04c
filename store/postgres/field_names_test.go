package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

// works sends events through a store.
func works(t *testing.T, s *postgres.Store) {
	t.Helper()
	enqueue(t, s, numbered(3)...)
	m := join(t, s, "works")
	got := m.drain()
	slices.Sort(got)
	equal(t, "events", got, []string{"e1", "e2", "e3"})
	if _, err := s.Lease(t.Context(), core.LeaseRequest{Member: "works", Leave: true}); err != nil {
		t.Fatal(err)
	}
}

// Eight processes migrate an empty database at once.
func TestField_126_ManyMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for range 3 {
		s := openConfig(t, postgres.Config{DSN: serverURL(t), Schema: newSchema(t), Logger: quiet()})
		errs := make([]error, 8)
		taken := make([]int, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				steps, err := s.Migrate(t.Context(), len(s.Migrations()))
				errs[i], taken[i] = err, len(steps)
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		steps := 0
		for _, n := range taken {
			steps += n
		}
		if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox_migrations}`); n != len(s.Migrations()) || steps != n {
			t.Errorf("%d versions are noted and %d steps were taken, want %d", n, steps, len(s.Migrations()))
		}
		works(t, s)
	}
}

// Names up to the limit work, longer ones are refused with the limit, and nothing derived from them collides.
func TestField_152_LongNames(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	base := strings.Repeat("n", 45)
	for _, table := range []string{base[:40], base + "1", base + "2", "ä" + base[:43]} {
		s := openConfig(t, postgres.Config{
			DSN: serverURL(t), Schema: schema, Table: table, AfterPublish: postgres.Archive, Logger: quiet(),
		})
		migrate(t, s)
		works(t, s)
	}
	for length := 47; length <= 70; length++ {
		err := postgres.Config{Table: strings.Repeat("n", length)}.Validate()
		var fault *core.FieldError
		if !errors.As(err, &fault) || fault.Path != "Table" || !strings.Contains(fault.Reason, "limit is 46") {
			t.Errorf("a name of %d bytes: %v", length, err)
		}
	}
}

// Odd names are quoted, and no search_path matters: not an empty one, nor one with a decoy.
func TestField_153_SchemaAndTableNames(t *testing.T) {
	t.Parallel()
	schema := newSchema(t) + ` "Sales-EU" 'x'`
	if _, err := adminPool(t).Exec(t.Context(), `CREATE SCHEMA `+quoted(schema)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := adminPool(t).Exec(context.Background(), `DROP SCHEMA `+quoted(schema)+` CASCADE`); err != nil {
			t.Error(err)
		}
	})
	for _, table := range []string{"order", "Group By", `"`, "a.b"} {
		s := openConfig(t, postgres.Config{DSN: serverURL(t), Schema: schema, Table: table, Logger: quiet()})
		migrate(t, s)
		works(t, s)
		execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'b', 'c', '{}')`)
	}
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func TestField_103_SearchPath(t *testing.T) {
	t.Parallel()
	decoy := newSchema(t)
	for _, table := range []string{"outbox", "outbox_lanes", "outbox_members", "outbox_rewinds", "outbox_sleepers"} {
		if _, err := adminPool(t).Exec(t.Context(), fmt.Sprintf("CREATE TABLE %s.%s (decoy int)", decoy, table)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := adminPool(t).Exec(t.Context(), fmt.Sprintf(
		`CREATE FUNCTION %s.md5(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'wrong' $$`, decoy)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", decoy, decoy + ",pg_catalog"} {
		s := open(t, func(c *postgres.Config) { c.DSN += "&search_path=" + path })
		works(t, s)
	}
}

// Topics with dots and dashes are data, never names.
func TestField_154_TopicNames(t *testing.T) {
	t.Parallel()
	s := open(t)
	topics := []string{"orders.v1", "orders_v1", "orders-v1", strings.Repeat("t", 249), `"; DROP TABLE outbox; --`}
	for i, topic := range topics {
		m := message("a", fmt.Sprint("e", i))
		m.Topic = topic
		enqueue(t, s, m)
	}
	var got []string
	m := join(t, s, "m")
	for _, r := range m.fetch() {
		got = append(got, r.Topic)
		m.settle(core.StatusParked, r)
	}
	equal(t, "topics", got, topics)
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{}, 0, 10)
	if err != nil || len(dead) != len(topics) {
		t.Errorf("%d dead letters (%v), want %d", len(dead), err, len(topics))
	}
}
