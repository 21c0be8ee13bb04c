package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// locked reports whether somebody holds a lock on the rows of a query.
func locked(t *testing.T, tx pgx.Tx, query string, args ...any) bool {
	t.Helper()
	var n int
	err := tx.QueryRow(t.Context(), `WITH free AS (`+query+` FOR UPDATE SKIP LOCKED) SELECT count(*) FROM free`, args...).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n == 0
}

// While a settle writes, nobody can take its lanes: otherwise the next owner could read what is about to be settled,
// and a zombie settle what is no longer its own.
func TestSettle_LocksItsLanes(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"))
	m := join(t, s, "m")
	records := m.fetch()
	blocker := begin(t, s) // holds the row, so that the settle stands still after it has locked the lane
	if _, err := blocker.Exec(t.Context(), s.SQL(`SELECT FROM {outbox} FOR UPDATE`)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Settle(t.Context(), m.settlement(core.StatusPublished, records...))
		done <- err
	}()
	ctx := within(t)
	for queryOne[int](t, s, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`,
		s.SQL("%UPDATE {outbox} o SET published_at%")) == 0 && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	if !locked(t, begin(t, s), s.SQL(`SELECT FROM {outbox_lanes} WHERE lane = $1`), records[0].Lane) {
		t.Error("the lane can be taken while a settle under its lease is writing")
	}
	commit(t, blocker)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A member whose lease ran out and that is just renewing it keeps its lanes: it locks its own row first.
func TestLease_RenewalUnderWayKeepsTheLanes(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := join(t, s, "first")
	execSQL(t, s, `UPDATE {outbox_members} SET expires_at = now() - interval '1 second'`)
	renewing := begin(t, s)
	if _, err := renewing.Exec(t.Context(), s.SQL(`UPDATE {outbox_members} SET expires_at = now() + interval '1 hour'`)); err != nil {
		t.Fatal(err)
	}
	want := make([]int, len(first.leases))
	for i := range want {
		want[i] = i
	}
	got, err := s.Lease(t.Context(), core.LeaseRequest{Member: "second", TTL: time.Hour, Want: want})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Held) > 0 {
		t.Errorf("%d lanes were taken from a member that is renewing its lease", len(got.Held))
	}
	commit(t, renewing)
}
