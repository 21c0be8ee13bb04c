package sqlite_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := open(t)
	want := core.Message{
		EventID: "e1", Topic: "orders", AggregateType: "order", AggregateID: `o"1<&>é`, EventType: "order.created",
		Payload: []byte(`{"b":1, "a":1.10}`), Headers: map[string]string{"tenant": "", "trace": "a\nb"},
	}
	enqueue(t, s, want)
	m := join(t, s, "m1")
	batch := m.fetch()
	if len(batch.Records) != 1 || batch.UpTo != core.EverythingAbove {
		t.Fatalf("fetch: %+v", batch)
	}
	r := batch.Records[0]
	if r.ID < 1 || r.Lane != 0 || r.EventID != "e1" || r.Topic != want.Topic || r.AggregateID != want.AggregateID ||
		string(r.Payload) != string(want.Payload) || len(r.Headers) != 2 || r.Headers["trace"] != "a\nb" {
		t.Errorf("got %+v, want %+v", r, want)
	}
	if age := time.Since(r.CreatedAt); age < -time.Second || age > time.Minute {
		t.Errorf("created at %v", r.CreatedAt)
	}
	if r.Attempts != 0 || !r.FirstFailedAt.IsZero() || r.Delay != 0 || r.Replay != 0 {
		t.Errorf("a fresh row has %+v", r)
	}
}

func TestFailedAndParked(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(2)...)
	m := join(t, s, "m1")
	records := m.fetch().Records
	m.settle(core.StatusFailed, records[0])
	m.settle(core.StatusFailed, records[0]) // the answer was lost
	m.settle(core.StatusParked, records[1])
	left := m.fetch(fromStart).Records
	if len(left) != 1 || left[0].Attempts != 1 || left[0].FirstFailedAt.IsZero() ||
		left[0].Delay < 50*time.Second || left[0].Delay > time.Minute {
		t.Fatalf("left: %+v", left[0])
	}
	n := queryInt(t, s, `SELECT count(*) FROM outbox WHERE event_id = 'e2' AND dlq = 1 AND attempt_count = 1
		AND last_error = 'the broker said no' AND published_at IS NULL`)
	if n != 1 {
		t.Error("e2 is not parked")
	}
	if got := m.settle(core.StatusPublished, records[1]); len(got.Missed) != 1 || got.Missed[0] != records[1] {
		t.Errorf("settling a parked row: %+v, want it missed", got)
	}
}

func TestSettleFence(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(1)...)
	old := join(t, s, "m1")
	records := old.fetch().Records
	if _, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m1", Leave: true}); err != nil {
		t.Fatal(err)
	}
	owner := join(t, s, "m2")
	if owner.lease.Epoch != old.lease.Epoch+1 {
		t.Errorf("epoch went from %d to %d", old.lease.Epoch, owner.lease.Epoch)
	}
	equal(t, "refused", old.settle(core.StatusPublished, records...).Refused, []int{0})
	if !old.fetch().Refused {
		t.Error("the former owner could fetch")
	}
	equal(t, "the owner gets", owner.drain(), []string{"e1"})
}

func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	s := open(t)
	m1 := join(t, s, "m1")
	want := core.LeaseRequest{Member: "m2", TTL: time.Hour, Want: []int{0}}
	leases, err := s.Lease(t.Context(), want)
	if err != nil || len(leases.Held) != 0 || leases.Lanes != 1 || leases.NextExpiry < 50*time.Minute {
		t.Fatalf("an unexpired lease: %+v, %v", leases, err)
	}
	equal(t, "members", leases.Members, []string{"m1", "m2"})
	exec(t, s, `UPDATE outbox_lanes SET expires_at = 1`)
	extended, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m1", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "expired but not taken", extended.Held, []core.Lease{m1.lease})
	exec(t, s, `UPDATE outbox_lanes SET expires_at = 1`)
	exec(t, s, `UPDATE outbox_members SET expires_at = 1 WHERE member = 'm1'`)
	leases, err = s.Lease(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "expired and taken", leases.Held, []core.Lease{{Lane: 0, Epoch: m1.lease.Epoch + 1}})
	equal(t, "members", leases.Members, []string{"m2"})
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(3)...)
	m := join(t, s, "m1")
	records := m.fetch().Records
	m.settle(core.StatusPublished, records[0])
	m.settle(core.StatusParked, records[1])
	n, err := s.Requeue(t.Context(), "e1", "e2", "e3", "unknown")
	if err != nil || n != 3 {
		t.Fatalf("requeued %d, %v; want e1, e2 and e3", n, err)
	}
	equal(t, "rewound", m.fetch().Rewound, []int64{1, 2, 3})
	batch := m.fetch(fromStart, func(l *core.LaneFetch) { l.Held = []int64{3} })
	equal(t, "records", eventIDs(batch.Records), []string{"e1", "e2"})
	if r := batch.Records[1]; r.Replay != 1 || r.Attempts != 0 || !r.FirstFailedAt.IsZero() {
		t.Errorf("requeued: %+v", r)
	}
	for _, status := range []core.Status{core.StatusPublished, core.StatusFailed, core.StatusParked} {
		if got := m.settle(status, records[0]); len(got.Missed) != 1 {
			t.Errorf("%s from before the requeue was written to the replay", status)
		}
	}
	if n := queryInt(t, s, `SELECT count(*) FROM outbox_rewinds`); n != 0 {
		t.Errorf("%d rewinds left", n)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(5)...)
	m := join(t, s, "m1")
	records := m.fetch().Records
	m.settle(core.StatusPublished, records[:3]...)
	m.settle(core.StatusParked, records[3])
	if n, err := s.Purge(t.Context(), time.Hour, 0); n != 0 || err != nil {
		t.Errorf("young rows: purged %d, %v", n, err)
	}
	if n, err := s.Purge(t.Context(), 0, 2); n != 2 || err != nil {
		t.Errorf("limit 2: purged %d, %v", n, err)
	}
	if n, err := s.Purge(t.Context(), 0, 0); n != 1 || err != nil {
		t.Errorf("the rest: purged %d, %v", n, err)
	}
	if n := queryInt(t, s, `SELECT count(*) FROM outbox WHERE event_id IN ('e4', 'e5')`); n != 2 {
		t.Error("a row that was not published is gone")
	}
}

func TestDeleteAfterPublish(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *sqlite.Config) { c.AfterPublish, c.Table = sqlite.Delete, `odd "name` })
	enqueue(t, s, numbered(3)...)
	equal(t, "events", join(t, s, "m1").drain(), []string{"e1", "e2", "e3"})
	if n := queryInt(t, s, `SELECT count(*) FROM "odd ""name"`); n != 0 {
		t.Errorf("%d rows left", n)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	s := open(t)
	m := join(t, s, "m1")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Fetch(t.Context(), m.request())
	if !errors.Is(err, core.ErrClosed) {
		t.Errorf("fetch: %v", err)
	}
	if _, err := s.Lease(t.Context(), core.LeaseRequest{Member: "m1", TTL: time.Hour}); !errors.Is(err, core.ErrClosed) {
		t.Errorf("lease: %v", err)
	}
	if err := s.InTx(t.Context(), nil); !errors.Is(err, core.ErrClosed) {
		t.Errorf("transaction: %v", err)
	}
}
