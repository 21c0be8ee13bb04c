package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres"
)

func byMonth(c *postgres.Config) { c.Partitioned = true }

// monthsAgo makes the partition of a month some months ago, with rows in it that were created then and published a day
// later.
func monthsAgo(t *testing.T, s *postgres.Store, months, rows int) {
	t.Helper()
	execSQL(t, s, `SELECT {outbox_month}(now() - $1 * interval '1 month')`, months)
	execSQL(t, s, `INSERT INTO {outbox} (event_id, aggregate_type, aggregate_id, event_type, created_at, published_at)
		SELECT 'old' || $1 || '.' || g, 'order', 'a' || g, 'x', at, at + interval '1 day'
		FROM (SELECT date_trunc('month', now() - $1 * interval '1 month') + interval '3 days' AS at) m, generate_series(1, $2::int) g`,
		months, rows)
}

// An update never moves a row to another partition, and two dispatchers get at all of them.
func TestField_097_PartitionedByMonth(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	monthsAgo(t, s, 1, 1000)
	execSQL(t, s, `UPDATE {outbox} SET published_at = NULL`)
	b := membroker.New(membroker.Config{})
	r := dispatch(t, s, b)
	dispatch(t, openConfig(t, s.Config()), b)
	for n := range 4 {
		err := s.InTx(t.Context(), func(tx pgx.Tx, _ core.Enqueuer) error {
			var batch []core.Message
			for i := range 1000 {
				batch = append(batch, message(fmt.Sprint("a", i%50), fmt.Sprint("new", n, ".", i)))
			}
			_, err := s.EnqueueCopy(t.Context(), tx, batch...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.await("all are settled", func() bool {
		return queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE published_at IS NULL OR dlq`) == 0
	})
	times := map[string]int{}
	for _, id := range delivered(b) {
		times[id]++
	}
	if len(times) != 5000 {
		t.Errorf("%d of 5000 events were delivered", len(times))
	}
}

func TestPartitioned_PurgeDropsMonths(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	for months := 3; months <= 6; months++ {
		monthsAgo(t, s, months, 10)
	}
	execSQL(t, s, `UPDATE {outbox} SET published_at = NULL WHERE event_id = 'old4.1'`)
	execSQL(t, s, `UPDATE {outbox} SET dlq = true, published_at = NULL WHERE event_id = 'old5.1'`)
	execSQL(t, s, `UPDATE {outbox} SET published_at = now() WHERE event_id = 'old6.1'`)
	execSQL(t, s, `ANALYZE {outbox}`)
	enqueue(t, s, message("a", "e1"))
	name := func(months int) string {
		return queryOne[string](t, s, `SELECT to_char(now() AT TIME ZONE 'UTC' - $1 * interval '1 month', '"outbox_"YYYYMM')`, months)
	}
	if n, err := s.Purge(t.Context(), 45*24*time.Hour, 0); err != nil || n != 37 {
		t.Errorf("purged %d (%v), want 37", n, err)
	}
	wantMonths(t, s, "outbox", name(6), name(5), name(4))
	left := queryOne[[]string](t, s, `SELECT array_agg(event_id ORDER BY event_id) FROM {outbox}`)
	equal(t, "what is left", left, []string{"e1", "old4.1", "old5.1", "old6.1"})
}

// A month that somebody keeps locked must not keep everybody else waiting for its end.
func TestPartitioned_PurgeDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	monthsAgo(t, s, 3, 10)
	reader := begin(t, s)
	if _, err := reader.Exec(t.Context(), s.SQL(`SELECT count(*) FROM {outbox}`)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(within(t), 45*24*time.Hour, 0); err != nil || n != 10 {
		t.Errorf("purged %d (%v), want the rows one by one", n, err)
	}
	commit(t, reader)
	if _, err := s.Purge(t.Context(), 45*24*time.Hour, 0); err != nil {
		t.Error(err)
	}
	wantMonths(t, s, "outbox")
}

// Without a partition for now the business transaction fails, so the error must say what to do; and a dispatcher that is
// at work helps out at once.
func TestPartitioned_NoPartitionForNow(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	enqueue(t, s, message("a", "e1"))
	join(t, s, "m").drain()
	for _, partition := range queryOne[[]string](t, s, `SELECT array_agg(inhrelid::regclass::text) FROM pg_inherits
		WHERE inhparent = {'outbox'}::regclass`) {
		execSQL(t, s, `DROP TABLE `+partition)
	}
	err := s.InTx(t.Context(), func(_ pgx.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(t.Context(), message("a", "e2"))
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "outbox_month") {
		t.Fatalf("want an error that names what makes the partition, got %v", err)
	}
	if _, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, message("a", "e2"))
	wantMonths(t, s, "outbox")
}

// No index keeps an event id from coming twice, so the second of two transactions waits for the first.
func TestPartitioned_EventIDsAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	first, second := begin(t, s), begin(t, s)
	if _, err := s.In(first).Enqueue(t.Context(), message("a", "e1"), message("a", "e2")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.In(second).Enqueue(t.Context(), message("a", "e3"), message("a", "e2"), message("a", "e3"))
		done <- err
	}()
	for ctx := within(t); queryOne[int](t, s, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND (classid::bigint << 32) + objid::bigint = ANY ($1::bigint[])`, s.EventKeys("e1", "e2", "e3")) == 0; {
		select {
		case err := <-done:
			t.Fatalf("the second transaction did not wait (%v)", err)
		default:
		}
		if ctx.Err() != nil {
			t.Fatal("the second transaction neither waits nor ends")
		}
	}
	commit(t, first)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	commit(t, second)
	ids := queryOne[[]string](t, s, `SELECT array_agg(event_id ORDER BY event_id) FROM {outbox}`)
	equal(t, "events", ids, []string{"e1", "e2", "e3"})

	other := message("a", "e1")
	other.EventType = "order.deleted"
	var conflict *core.EventConflictError
	if _, err := s.In(begin(t, s)).Enqueue(t.Context(), other); !errors.As(err, &conflict) || conflict.EventID != "e1" {
		t.Errorf("want a conflict of e1, got %v", err)
	}
}

// The month that an archived event comes back to may be gone.
func TestPartitioned_RequeueOfADroppedMonth(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth, func(c *postgres.Config) { c.AfterPublish = postgres.Archive })
	monthsAgo(t, s, 3, 2)
	execSQL(t, s, `UPDATE {outbox} SET published_at = NULL`)
	m := join(t, s, "m")
	m.drain()
	if _, err := s.Purge(t.Context(), 45*24*time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	wantMonths(t, s, "outbox")
	if n, err := s.Requeue(t.Context(), "old3.2"); err != nil || n != 1 {
		t.Fatalf("requeued %d (%v), want 1", n, err)
	}
	equal(t, "events", eventIDs(m.fetch()), []string{"old3.2"})
}

// With the wrong setting the first enqueue says so.
func TestPartitioned_WrongSetting(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{false, true} {
		s := open(t, func(c *postgres.Config) { c.Partitioned = made })
		cfg := s.Config()
		cfg.Partitioned = !made
		_, err := openConfig(t, cfg).In(begin(t, s)).Enqueue(t.Context(), message("a", "e1"))
		if err == nil || !strings.Contains(err.Error(), "Config.Partitioned") {
			t.Errorf("want an error that names Config.Partitioned, got %v", err)
		}
	}
}
