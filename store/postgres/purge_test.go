package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

func TestArchive(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.AfterPublish = postgres.Archive })
	if n := queryOne[int](t, s, `SELECT count(*) FROM pg_inherits WHERE inhparent = {'outbox_archive'}::regclass`); n != 2 {
		t.Errorf("%d partitions, want this month and the next", n)
	}
	enqueue(t, s, numbered(5)...)
	m := join(t, s, "m")
	m.drain()
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox_archive}`); n != 5 {
		t.Errorf("%d rows in the archive, want 5", n)
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox}`); n != 0 {
		t.Errorf("%d rows in the outbox, want 0", n)
	}
	if n, err := s.Requeue(t.Context(), "e2", "e4", "unknown"); err != nil || n != 2 {
		t.Errorf("requeued %d (%v), want 2", n, err)
	}
	records := m.fetch()
	if len(records) != 2 || records[0].Replay != 1 {
		t.Fatalf("after a requeue from the archive: %v", eventIDs(records))
	}
	m.settle(core.StatusPublished, records...)
	if n, err := s.Purge(t.Context(), 0, 3); err != nil || n != 3 {
		t.Errorf("purged %d (%v), want 3", n, err)
	}
	if n, err := s.Purge(t.Context(), 0, 0); err != nil || n != 2 {
		t.Errorf("purged %d (%v), want 2", n, err)
	}
	execSQL(t, s, `DROP TABLE {outbox_archive} CASCADE`)
}

func TestPurge(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(5)...)
	m := join(t, s, "m")
	records := m.fetch()
	m.settle(core.StatusPublished, records[:3]...)
	m.settle(core.StatusParked, records[3])
	if n, err := s.Purge(t.Context(), time.Hour, 0); err != nil || n != 0 {
		t.Errorf("purged %d (%v) although nothing is that old", n, err)
	}
	if n, err := s.Purge(t.Context(), 0, 2); err != nil || n != 2 {
		t.Errorf("purged %d (%v), want 2", n, err)
	}
	if n, err := s.Purge(t.Context(), 0, 0); err != nil || n != 1 {
		t.Errorf("purged %d (%v), want the last published one", n, err)
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox}`); n != 2 {
		t.Errorf("%d rows are left, want the parked and the pending one", n)
	}
}

// Whole months of the archive are dropped, which leaves nothing to vacuum; rows are deleted in the month of the boundary.
func TestPurge_DropsMonthsOfTheArchive(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *postgres.Config) { c.AfterPublish = postgres.Archive })
	for name, row := range map[string]struct{ bounds, published string }{
		"outbox_archive_long_ago": {`FROM ('2020-01-01') TO ('2020-02-01')`, "2020-01-05"},
		"outbox_archive_boundary": {`FROM ('2020-02-01') TO (date_trunc('month', now()))`, "2020-02-05"},
	} {
		bounds := queryOne[string](t, s, `SELECT replace($1, 'date_trunc(''month'', now())',
			quote_literal(date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'))`, row.bounds)
		execSQL(t, s, `CREATE TABLE {`+name+`} PARTITION OF {outbox_archive} FOR VALUES `+bounds)
		execSQL(t, s, `INSERT INTO {outbox_archive} (id, event_id, aggregate_type, aggregate_id, event_type, created_at, published_at,
				attempt_count, replay)
			SELECT g, $1 || g, 'order', 'a', 'x', $2::timestamptz, $2::timestamptz, 0, 0 FROM generate_series(1, 100) g`,
			name, row.published)
	}
	execSQL(t, s, `ANALYZE {outbox_archive}`)
	untilMarch := time.Since(time.Date(2020, 3, 1, 0, 0, 0, 0, time.UTC))
	if n, err := s.Purge(t.Context(), untilMarch, 3); err != nil || n != 3 {
		t.Errorf("purged %d (%v) with a limit of 3", n, err)
	}
	execSQL(t, s, `ANALYZE {outbox_archive}`)
	if n, err := s.Purge(t.Context(), untilMarch, 0); err != nil || n != 197 {
		t.Errorf("purged %d (%v), want the 197 that are left", n, err)
	}
	wantMonths(t, s, "outbox_archive", "outbox_archive_boundary")
}

// wantMonths compares the partitions of a table with the two or three that are made ahead and the given ones.
func wantMonths(t *testing.T, s *postgres.Store, table string, more ...string) {
	t.Helper()
	months := queryOne[[]string](t, s, `SELECT array_agg(relname::text ORDER BY relname) FROM pg_inherits
		JOIN pg_class ON oid = inhrelid WHERE inhparent = {'`+table+`'}::regclass AND relname !~ '_[0-9]{6}$'
			OR inhparent = {'`+table+`'}::regclass AND relname < $1`, table+time.Now().UTC().Format("_200601"))
	equal(t, "old months of "+table, months, more)
}

// Clean-up by several processes: in batches, one at a time, and all of it.
func TestField_173_ManyPurgeInBoundedBatches(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, 20_000)
	execSQL(t, s, `UPDATE {outbox} SET published_at = now() - interval '1 day' WHERE id % 10 > 0`)
	execSQL(t, s, `CREATE TABLE {outbox_batches} (xid xid8, deleted bigint, locked bigint)`)
	execSQL(t, s, `CREATE FUNCTION {outbox_count}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO `+s.SQL(`{outbox_batches}`)+` SELECT pg_current_xact_id(), count(*),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) FROM gone;
		RETURN NULL; END $$`)
	execSQL(t, s, `CREATE TRIGGER counts AFTER DELETE ON {outbox} REFERENCING OLD TABLE AS gone
		FOR EACH STATEMENT EXECUTE FUNCTION {outbox_count}()`)
	var all sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 3 {
		all.Go(func() {
			n, err := s.Purge(t.Context(), time.Hour, 0)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
		})
	}
	all.Wait()
	if left := queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE published_at IS NOT NULL`); left != 0 || total != 18_000 {
		t.Errorf("%d rows were purged and %d are left, want 18000 and none", total, left)
	}
	if most := queryOne[int](t, s, `SELECT max(deleted) FROM {outbox_batches}`); most != 5000 {
		t.Errorf("a batch of %d rows, want 5000 at most", most)
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox_batches} WHERE deleted > 0 AND locked = 0`); n > 0 {
		t.Errorf("%d batches were deleted without the lock that lets one purge at a time", n)
	}
	busy := begin(t, s)
	if _, err := busy.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, s.LockKey("purge")); err != nil {
		t.Fatal(err)
	}
	execSQL(t, s, `UPDATE {outbox} SET published_at = now() - interval '1 day'`)
	if n, err := s.Purge(t.Context(), time.Hour, 0); err != nil || n != 0 {
		t.Errorf("purged %d (%v) while somebody else purges", n, err)
	}
}
