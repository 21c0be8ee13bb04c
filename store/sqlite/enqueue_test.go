package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/go-outbox/outbox/core"
)

func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	boom := errors.New("boom")
	err := s.InTx(t.Context(), func(_ *sql.Tx, box core.Enqueuer) error {
		if _, err := box.Enqueue(t.Context(), message("a", "e1")); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want boom", err)
	}
	if n := queryInt(t, s, `SELECT count(*) FROM outbox`); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestEnqueueFaults(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.In(nil).Enqueue(t.Context(), message("a", "e")); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("nil tx: %v", err)
	}
	bad := message("a", "e2")
	bad.Payload = []byte("not json")
	err := s.InTx(t.Context(), func(_ *sql.Tx, box core.Enqueuer) error {
		_, err := box.Enqueue(t.Context(), message("", "e1"), bad)
		var invalid *core.InvalidMessageError
		if !errors.As(err, &invalid) || invalid.Field != "AggregateID" {
			t.Errorf("faults: %v", err)
		}
		_, err = box.Enqueue(t.Context(), message("a", "e3")) // the transaction is usable
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", join(t, s, "m1").drain(), []string{"e3"})
}

func TestEnqueueTwice(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"))
	enqueue(t, s, message("a", "e1"), message("b", "e2"))
	for what, change := range map[string]func(*core.Message){
		"topic":          func(m *core.Message) { m.Topic = "audit" },
		"aggregate type": func(m *core.Message) { m.AggregateType = "invoice" },
		"aggregate":      func(m *core.Message) { m.AggregateID = "other" },
		"event type":     func(m *core.Message) { m.EventType = "order.paid" },
	} {
		m := message("a", "e1")
		change(&m)
		var conflict *core.EventConflictError
		if err := tryEnqueue(t.Context(), s, m); !errors.As(err, &conflict) || conflict.EventID != "e1" {
			t.Errorf("another %s: %v", what, err)
		}
	}
	equal(t, "events", join(t, s, "m1").drain(), []string{"e1", "e2"})
}

func TestEnqueueManyKeepsOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	messages := numbered(173) // more than one statement
	enqueue(t, s, messages...)
	var want []string
	for _, m := range messages {
		want = append(want, m.EventID)
	}
	equal(t, "events", join(t, s, "m1").drain(), want)
}
