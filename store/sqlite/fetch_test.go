package sqlite_test

import (
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestFetchPosition(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(5)...)
	m := join(t, s, "m1")
	req := m.request()
	req.MaxRecords = 2
	first := m.do(req)
	equal(t, "first", ids(first.Records), []int64{1, 2})
	if first.UpTo != 2 || first.After != 0 {
		t.Errorf("first covers (%d, %d]", first.After, first.UpTo)
	}
	held := func(l *core.LaneFetch) { l.Held = []int64{1, 2} }
	second := m.fetch(held)
	equal(t, "second", ids(second.Records), []int64{3, 4, 5})
	if second.After != 2 || second.UpTo != core.EverythingAbove {
		t.Errorf("second covers (%d, %d]", second.After, second.UpTo)
	}
	again := m.fetch(held, func(l *core.LaneFetch) { l.RewindFrom = 4 })
	equal(t, "after a rewind", ids(again.Records), []int64{4, 5})
	equal(t, "let go without a rewind", ids(m.fetch().Records), nil)
}

func TestFetchBytes(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, numbered(3)...)
	m := join(t, s, "m1")
	req := m.request()
	req.MaxBytes = 1
	if got := m.do(req); len(got.Records) != 1 || got.UpTo != 1 {
		t.Errorf("1 byte: %v up to %d, want the first record", ids(got.Records), got.UpTo)
	}
	req.MaxBytes = 2 * len("e1"+"a1"+"order"+"order.created"+"{}")
	fromStart(&req.Lanes[0])
	if got := m.do(req); len(got.Records) != 2 || got.UpTo != 2 {
		t.Errorf("%d bytes: %v up to %d, want two records", req.MaxBytes, ids(got.Records), got.UpTo)
	}
}

func TestFetchClosedKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"), message("a", "e2"), message("b", "e3"))
	m := join(t, s, "m1")
	m.fetch()
	a := core.ClosedKey{Key: ordering.Key{AggregateType: "order", AggregateID: "a"}, Head: 1}
	closed := func(l *core.LaneFetch) { l.Closed = []core.ClosedKey{a} }
	elsewhere := message("a", "e6")
	elsewhere.Topic = "audit"
	enqueue(t, s, message("a", "e4"), message("b", "e5"), elsewhere)
	equal(t, "head at or below After", ids(m.fetch(closed).Records), []int64{5, 6})
	audit := a
	audit.Topic = "audit"
	elsewhere.EventID = "e7"
	enqueue(t, s, elsewhere, message("a", "e8"))
	other := func(l *core.LaneFetch) { l.Closed = []core.ClosedKey{audit} }
	equal(t, "with the other topic closed", ids(m.fetch(other).Records), []int64{8})
	rewound := m.fetch(closed, func(l *core.LaneFetch) { l.RewindFrom = 1 })
	equal(t, "head above After", ids(rewound.Records), []int64{1, 2, 3, 4, 5, 6, 7, 8})
	heads := m.fetch(closed, func(l *core.LaneFetch) {
		l.Heads = []core.RecordRef{{ID: 1, EventID: "e1"}, {ID: 2, EventID: "another"}, {ID: 99, EventID: "e9"}}
	})
	equal(t, "heads", ids(heads.Heads), []int64{1})
}
