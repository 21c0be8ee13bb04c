package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

// A row that failed to the limit is found, survives every purge, and is delivered after a requeue with no attempts.
func TestField_028_RowAtTheLimitIsFoundAndComesBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"), message("b", "e2"))
	m := join(t, s, "m")
	for _, r := range m.fetch() {
		m.settle(map[string]core.Status{"e1": core.StatusParked, "e2": core.StatusBlocked}[r.EventID], r)
	}
	execSQL(t, s, `UPDATE {outbox} SET created_at = now() - interval '1 year', first_failed_at = now() - interval '1 year'`)
	if n, err := s.Purge(t.Context(), 0, 0); n != 0 || err != nil {
		t.Fatalf("purged %d (%v), want nothing", n, err)
	}
	for state, want := range map[core.DeadLetterState]string{core.StateParked: "e1", core.StateBlocked: "e2"} {
		filter := core.DeadLetterFilter{State: state}
		dead, err := s.ListDead(t.Context(), filter, 0, 10)
		if err != nil || len(dead) != 1 || dead[0].Record.EventID != want || dead[0].Reason == "" {
			t.Fatalf("%s: %+v, %v; want %s with its reason", state, dead, err, want)
		}
		if n, err := s.RequeueDead(t.Context(), filter); n != 1 || err != nil {
			t.Fatalf("requeue %s: %d, %v", state, n, err)
		}
	}
	got := m.fetch()
	equal(t, "requeued", slices.Sorted(slices.Values(eventIDs(got))), []string{"e1", "e2"})
	for _, r := range got {
		if r.Attempts != 0 || r.Replay != 1 || r.Delay > 0 {
			t.Errorf("%s has %d attempts, replay %d and delay %v", r.EventID, r.Attempts, r.Replay, r.Delay)
		}
	}
	m.settle(core.StatusPublished, got...)
}

// People requeue, discard, purge and skip while rows are settled: nobody is thrown out by a deadlock, and each row is
// somewhere.
func TestField_105_OperatorsDoNotDeadlockWithTheDispatcher(t *testing.T) {
	t.Parallel()
	s := open(t)
	const count, rounds = 400, 15
	enqueue(t, s, numbered(count)...)
	m := join(t, s, "m")
	ctx := within(t)
	operations := []func() error{
		func() error { _, err := s.RequeueDead(ctx, core.DeadLetterFilter{}); return err },
		func() error {
			_, err := s.RequeueDead(ctx, core.DeadLetterFilter{State: core.StateBlocked})
			return err
		},
		func() error {
			_, err := s.RequeueDead(ctx, core.DeadLetterFilter{State: core.StateDiscarded})
			return err
		},
		func() error {
			_, err := s.DiscardDead(ctx, core.DeadLetterFilter{AggregateID: "a3"}, "a test")
			return err
		},
		func() error { _, err := s.Purge(ctx, time.Hour, 0); return err },
		func() error { _, err := s.CountDead(ctx, core.DeadLetterFilter{}); return err },
	}
	errs := make([]error, len(operations))
	var all sync.WaitGroup
	for i, operate := range operations {
		all.Go(func() {
			for range rounds {
				errs[i] = errors.Join(errs[i], operate())
			}
		})
	}
	var settleErr error
	for range rounds {
		records := m.fetch()
		third := len(records) / 3
		for status, part := range map[core.Status][]*core.Record{
			core.StatusFailed: records[:third], core.StatusParked: records[third : 2*third], core.StatusBlocked: records[2*third:],
		} {
			_, err := s.Settle(ctx, m.settlement(status, part...))
			settleErr = errors.Join(settleErr, err)
		}
	}
	all.Wait()
	if err := errors.Join(append(errs, settleErr)...); err != nil {
		t.Fatal(err)
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox}`); n != count {
		t.Errorf("%d rows are there, want %d", n, count)
	}
}

// Somebody wrote a huge error text by SQL: listing it works.
func TestField_133_HugeReasonIsListed(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"))
	m := join(t, s, "m")
	m.settle(core.StatusParked, m.fetch()...)
	execSQL(t, s, `UPDATE {outbox} SET last_error = $1`, strings.Repeat("🦊'\"", 1<<20))
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{Reason: "🦊'"}, 0, 10)
	if err != nil || len(dead) != 1 || !utf8.ValidString(dead[0].Reason) {
		t.Fatalf("%d dead letters, %v; want the one, with text", len(dead), err)
	}
}

// Discarded rows are kept for the retention, counted from the decision.
func TestPurge_KeepsDiscardedRowsForTheRetention(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(3)...)
	m := join(t, s, "m")
	m.settle(core.StatusParked, m.fetch()...)
	two := core.DeadLetterFilter{EventIDs: []string{"e1", "e2"}}
	if n, err := s.DiscardDead(t.Context(), two, "a test"); n != 2 || err != nil {
		t.Fatalf("discarded %d, %v", n, err)
	}
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{State: core.StateDiscarded}, 0, 10)
	if err != nil || len(dead) != 2 || time.Since(dead[0].Since).Abs() > time.Hour {
		t.Fatalf("got %+v, %v; want two, discarded now", dead, err)
	}
	for _, step := range []struct{ limit, want int }{{0, 0}, {1, 1}, {0, 1}, {0, 0}} {
		n, err := s.Purge(t.Context(), time.Hour, step.limit)
		if n != step.want || err != nil {
			t.Fatalf("purged %d, %v; want %d of a limit of %d", n, err, step.want, step.limit)
		}
		if step.limit == 0 && step.want == 0 {
			execSQL(t, s, `UPDATE {outbox} SET discarded_at = discarded_at - interval '2 hours'`)
		}
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox} WHERE dlq`); n != 1 {
		t.Errorf("%d rows are parked, want 1", n)
	}
}

// Plain SQL may say any time: none of them stops a fetch.
func TestFetch_DelayOfAnyTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, at := range []string{"-infinity", "4713-01-01 BC", "now", "294000-01-01", "infinity"} {
		enqueue(t, s, message(at, at))
		execSQL(t, s, `UPDATE {outbox} SET next_attempt_at = event_id::timestamptz WHERE event_id = $1`, at)
	}
	records := join(t, s, "m").fetch()
	if len(records) != 5 {
		t.Fatalf("fetched %v", eventIDs(records))
	}
	for _, r := range records {
		never, later := r.EventID == "infinity", r.EventID == "294000-01-01"
		if (r.Delay == core.Forever) != never || (r.Delay > 0) != (never || later) {
			t.Errorf("next attempt at %s: the delay is %v", r.EventID, r.Delay)
		}
	}
}
