package sqlite_test

import (
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// A row that failed to the limit is found, survives every purge, and is delivered after a requeue with no attempts.
func TestField_028_RowAtTheLimitIsFoundAndComesBack(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"), message("b", "e2"))
	m := join(t, s, "m1")
	records := m.fetch().Records
	m.settle(core.StatusParked, records[0])
	m.settle(core.StatusBlocked, records[1])
	exec(t, s, `UPDATE outbox SET created_at = 1, first_failed_at = 1`) // long ago
	if n, err := s.Purge(t.Context(), time.Second, 0); n != 0 || err != nil {
		t.Fatalf("purged %d (%v), want nothing", n, err)
	}
	for state, want := range map[core.DeadLetterState]string{core.StateParked: "e1", core.StateBlocked: "e2"} {
		filter := core.DeadLetterFilter{State: state}
		dead, err := s.ListDead(t.Context(), filter, 0, 10)
		if err != nil || len(dead) != 1 || dead[0].Record.EventID != want || dead[0].Reason != "the broker said no" {
			t.Fatalf("%s: %+v, %v; want %s with its reason", state, dead, err, want)
		}
		if n, err := s.RequeueDead(t.Context(), filter); n != 1 || err != nil {
			t.Fatalf("requeue %s: %d, %v", state, n, err)
		}
	}
	got := m.fetch(fromStart).Records
	equal(t, "requeued", eventIDs(got), []string{"e1", "e2"})
	for _, r := range got {
		if r.Attempts != 0 || r.Replay != 1 || r.Delay > 0 {
			t.Errorf("%s has %d attempts, replay %d and delay %v", r.EventID, r.Attempts, r.Replay, r.Delay)
		}
	}
	equal(t, "delivered", m.drain(), []string{"e1", "e2"})
}

// Plain SQL left attempts at or above the limit on pending rows: they are returned like any other.
func TestField_095_AttemptsAtTheLimitBreakNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(12)...)
	exec(t, s, `UPDATE outbox SET attempt_count = 10 * id WHERE id <= 2`)
	m := join(t, s, "m1")
	records := m.fetch().Records
	if len(records) != 12 || records[0].Attempts != 10 || records[1].Attempts != 20 {
		t.Fatalf("fetched %v", eventIDs(records))
	}
	m.settle(core.StatusParked, records[:2]...)
	m.settle(core.StatusPublished, records[2:]...)
	if n, err := s.CountDead(t.Context(), core.DeadLetterFilter{}); n != 2 || err != nil {
		t.Errorf("%d are parked (%v), want 2", n, err)
	}
}

// Somebody wrote a huge and invalid error text by SQL: listing it works, and what is shown is text.
func TestField_133_HugeReasonIsListed(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"))
	m := join(t, s, "m1")
	m.settle(core.StatusParked, m.fetch().Records...)
	huge := strings.Repeat("x", 5<<20) + "'\"" + "\xf0\x9f\xa6"
	exec(t, s, `UPDATE outbox SET last_error = CAST(? AS TEXT)`, []byte(huge))
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{Reason: "XXX"}, 0, 10)
	if err != nil || len(dead) != 1 || !utf8.ValidString(dead[0].Reason) {
		t.Fatalf("%d dead letters, %v; want the one, with text", len(dead), err)
	}
	if n, err := s.RequeueDead(t.Context(), core.DeadLetterFilter{}); n != 1 || err != nil {
		t.Fatalf("requeued %d, %v", n, err)
	}
	equal(t, "delivered", m.drain(), []string{"e1"})
}

func TestField_149_RequeuedDeadLetterIsTheSameEvent(t *testing.T) {
	t.Parallel()
	s := open(t)
	want := message("a", "e1")
	want.Topic = "orders"
	want.Headers = map[string]string{"a": "1", "b": "", "c": "3", "d": "4", "content-type": "application/json"}
	enqueue(t, s, want)
	m := join(t, s, "m1")
	m.settle(core.StatusParked, m.fetch().Records...)
	if _, err := s.DiscardDead(t.Context(), core.DeadLetterFilter{}, "by mistake"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.RequeueDead(t.Context(), core.DeadLetterFilter{State: core.StateDiscarded}); n != 1 || err != nil {
		t.Fatalf("requeued %d, %v", n, err)
	}
	got := m.fetch(fromStart).Records[0]
	if got.EventID != want.EventID || got.Key() != (ordering.Key{Topic: "orders", AggregateType: "order", AggregateID: "a"}) ||
		!maps.Equal(got.Headers, want.Headers) || string(got.Payload) != string(want.Payload) || got.Attempts != 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A row that was parked because it cannot be read is listed with what can be read of it.
func TestListDead_ShowsUnreadableRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s, `INSERT INTO outbox (event_id, aggregate_type, aggregate_id, event_type, headers)
		VALUES ('e1', 'order', 'a', 'order.created', '{broken')`)
	join(t, s, "m1").fetch()
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{Reason: "headers"}, 0, 10)
	if err != nil || len(dead) != 1 || dead[0].Record.EventID != "e1" {
		t.Fatalf("got %+v, %v; want e1", dead, err)
	}
}

// Discarded rows are kept for the retention, counted from the decision.
func TestPurge_KeepsDiscardedRowsForTheRetention(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(3)...)
	m := join(t, s, "m1")
	m.settle(core.StatusParked, m.fetch().Records...)
	if n, err := s.DiscardDead(t.Context(), core.DeadLetterFilter{EventIDs: []string{"e1", "e2"}}, "a test"); n != 2 || err != nil {
		t.Fatalf("discarded %d, %v", n, err)
	}
	dead, err := s.ListDead(t.Context(), core.DeadLetterFilter{State: core.StateDiscarded}, 0, 10)
	if err != nil || len(dead) != 2 || time.Since(dead[0].Since).Abs() > time.Hour {
		t.Fatalf("got %+v, %v; want two, discarded now", dead, err)
	}
	if n, err := s.Purge(t.Context(), time.Hour, 0); n != 0 || err != nil {
		t.Fatalf("purged %d, %v; want nothing within the retention", n, err)
	}
	exec(t, s, `UPDATE outbox SET discarded_at = discarded_at - 7200000 WHERE discarded_at IS NOT NULL`)
	if n, err := s.Purge(t.Context(), time.Hour, 1); n != 1 || err != nil {
		t.Fatalf("purged %d, %v; want the one of the limit", n, err)
	}
	if n, err := s.Purge(t.Context(), time.Hour, 0); n != 1 || err != nil {
		t.Fatalf("purged %d, %v; want the other", n, err)
	}
	if n := queryInt(t, s, `SELECT count(*) FROM outbox WHERE dlq = 1`); n != 1 {
		t.Errorf("%d rows are parked, want 1", n)
	}
}
