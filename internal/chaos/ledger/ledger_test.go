package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	type event struct{ key, id string }
	committed := []event{{"a", "a1"}, {"b", "b1"}, {"a", "a2"}, {"a", "a3"}, {"b", "b2"}}
	tests := []struct {
		name                                string
		arrivals                            []event
		lost, phantom, outOfOrder, repeated int
	}{
		{name: "all of them", arrivals: committed},
		{name: "keys side by side", arrivals: []event{{"b", "b1"}, {"b", "b2"}, {"a", "a1"}, {"a", "a2"}, {"a", "a3"}}},
		{
			name:     "repeats, also of early ones",
			arrivals: append(slices.Clone(committed), event{"a", "a1"}, event{"a", "a2"}, event{"b", "b2"}), repeated: 3,
		},
		{name: "none", lost: 5},
		{name: "one in the middle is missing", arrivals: []event{{"a", "a1"}, {"b", "b1"}, {"a", "a3"}, {"b", "b2"}}, lost: 1},
		{name: "the last one is missing", arrivals: committed[:4], lost: 1},
		{name: "one nobody wrote", arrivals: append(slices.Clone(committed), event{"a", "a4"}), phantom: 1},
		{name: "a key nobody wrote", arrivals: append(slices.Clone(committed), event{"c", "a1"}), phantom: 1},
		{
			name:     "under another key",
			arrivals: []event{{"a", "a1"}, {"a", "b1"}, {"a", "a2"}, {"a", "a3"}, {"b", "b2"}}, phantom: 1, lost: 1,
		},
		{
			name:     "two change places",
			arrivals: []event{{"a", "a2"}, {"b", "b1"}, {"a", "a1"}, {"a", "a3"}, {"b", "b2"}}, outOfOrder: 1,
		},
		{
			name:     "the last comes first",
			arrivals: []event{{"a", "a3"}, {"b", "b1"}, {"a", "a1"}, {"a", "a2"}, {"b", "b2"}}, outOfOrder: 2,
		},
		{
			name:       "too early, and again in its place: the first one counts",
			arrivals:   []event{{"a", "a2"}, {"a", "a1"}, {"a", "a2"}, {"a", "a3"}, {"b", "b1"}, {"b", "b2"}},
			outOfOrder: 1, repeated: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l ledger.Ledger
			var j ledger.Journal
			for _, e := range committed {
				l.Commit(e.key, e.id)
			}
			l.RollBack(2)
			for _, e := range tt.arrivals {
				j.Note(e.key, e.id, ledger.Rank{})
			}
			v := ledger.Compare(&l, &j)
			got := []int{len(v.Lost), len(v.Phantom), len(v.OutOfOrder), v.Repeats, v.Committed, v.RolledBack}
			want := []int{tt.lost, tt.phantom, tt.outOfOrder, tt.repeated, 5, 2}
			if !slices.Equal(got, want) {
				t.Errorf("lost, phantom, out of order, repeats, committed, rolled back = %v, want %v\n%+v", got, want, v)
			}
			if faultless := tt.lost+tt.phantom+tt.outOfOrder == 0; v.Faultless() != faultless {
				t.Errorf("Faultless() = %v, want %v", v.Faultless(), faultless)
			}
			if j.Len() != len(tt.arrivals)-tt.repeated || l.Committed() != 5 || l.RolledBack() != 2 {
				t.Errorf("%d arrivals, %d committed, %d rolled back", j.Len(), l.Committed(), l.RolledBack())
			}
		})
	}
}

// A consumer that is handed messages in another order than the broker has them in says which that is.
func TestRank(t *testing.T) {
	t.Parallel()
	rank := func(time, number int64) ledger.Rank { return ledger.Rank{Time: time, Number: number} }
	tests := []struct {
		name       string
		a1, a2     []ledger.Rank // of each time that it arrives, a2 first
		outOfOrder int
	}{
		{name: "handed over the wrong way round", a1: []ledger.Rank{rank(1, 9)}, a2: []ledger.Rank{rank(2, 1)}},
		{name: "at the same time", a1: []ledger.Rank{rank(1, 8)}, a2: []ledger.Rank{rank(1, 9)}},
		{name: "in the wrong order", a1: []ledger.Rank{rank(2, 1)}, a2: []ledger.Rank{rank(1, 9)}, outOfOrder: 1},
		{name: "a repeat is handed over first", a1: []ledger.Rank{rank(3, 1), rank(1, 1)}, a2: []ledger.Rank{rank(2, 1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l ledger.Ledger
			var j ledger.Journal
			l.Commit("a", "a1", "a2")
			for _, r := range tt.a2 {
				j.Note("a", "a2", r)
			}
			for _, r := range tt.a1 {
				j.Note("a", "a1", r)
			}
			if v := ledger.Compare(&l, &j); len(v.OutOfOrder) != tt.outOfOrder || len(v.Lost) != 0 {
				t.Errorf("%+v, want %d out of order", v, tt.outOfOrder)
			}
		})
	}
}

func ExampleCompare() {
	var l ledger.Ledger
	l.Commit("account-1", "opened", "credited")
	l.Commit("account-2", "opened")
	var j ledger.Journal
	j.Note("account-1", "credited", ledger.Rank{})
	j.Note("account-1", "opened", ledger.Rank{})
	v := ledger.Compare(&l, &j)
	fmt.Println(v.OutOfOrder[0])
	fmt.Println(v.Lost[0])
	// Output:
	// key account-1: event opened, commit 0, is arrival 1, after commit 1, arrival 0
	// key account-2: event opened, commit 0 of 1, has not arrived
}
