package ordering_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

type (
	testEntry = ordering.Entry[string]
	testReply = ordering.Reply[string]
)

// newGate returns a gate with what a first fetch returned.
func newGate(now time.Time, entries ...*testEntry) (*ordering.Gate[string], *ordering.Queue[string]) {
	queue := ordering.NewQueue[string]()
	gate := ordering.NewGate(queue)
	gate.BeginFetch(now)
	gate.EndFetch(now, testReply{UpTo: 1 << 60, Records: entries})
	return gate, queue
}

func TestGate_ARunThatWasSuspendedOffersWhatIsBehindIt(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	key := ordering.Key{AggregateID: "a"}
	first, second := ordering.Outlet{Destination: "first"}, ordering.Outlet{Destination: "second"}
	gate, queue := newGate(now,
		&testEntry{ID: 1, Key: key, Outlet: first}, &testEntry{ID: 2, Key: key, Outlet: first},
		&testEntry{ID: 3, Key: key, Outlet: second})
	run := queue.Take(first, ordering.Limit{Records: 2, Runs: true})
	if len(run) != 2 {
		t.Fatalf("took %d records, want a run of 2", len(run))
	}
	gate.Pause(now, first)
	gate.Suspend(now, run[0], first)
	gate.Retry(now, run[1], now)
	if got := queue.Take(second, ordering.Limit{Records: 1}); len(got) != 1 || got[0].ID != 3 {
		t.Errorf("took %v, want record 3, whose outlet is not in trouble", got)
	}
}

func TestGate_NamesOnlyClosedKeysWithFollowersAndFewOfThem(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var entries []*testEntry
	const keys, crowd = 400, 150
	for i := range keys {
		entries = append(entries, &testEntry{ID: int64(i + 1), Key: ordering.Key{AggregateID: fmt.Sprint(i)}})
	}
	for i := range crowd {
		for n := range 1 + i { // key i has that many followers
			entries = append(entries, &testEntry{ID: int64(1000*(i+1) + n), Key: ordering.Key{AggregateID: fmt.Sprint(i)}})
		}
	}
	gate, queue := newGate(now, entries...)
	for _, e := range queue.Take(ordering.Outlet{}, ordering.Limit{Records: keys}) {
		gate.Retry(now, e, now.Add(time.Hour))
	}
	if got := gate.ClosedKeys(); got != keys {
		t.Fatalf("%d keys are closed, want %d", got, keys)
	}
	plan := gate.BeginFetch(now)
	if len(plan.Closed) != 100 {
		t.Errorf("a fetch names %d closed keys, want 100 of %d", len(plan.Closed), keys)
	}
	for _, k := range plan.Closed {
		if k.Head <= crowd-100 || k.Head > crowd {
			t.Errorf("the fetch names the key of head %d, which has fewer followers than others", k.Head)
		}
	}
}

func TestQueue_HandsOutAloneWhatMustBeAlone(t *testing.T) {
	t.Parallel()
	var entries []*testEntry
	for i, alone := range []bool{false, true, true, false, false} {
		entries = append(entries, &testEntry{ID: int64(i + 1), Key: ordering.Key{AggregateID: fmt.Sprint(i)}, Alone: alone})
	}
	_, queue := newGate(time.Unix(0, 0), entries...)
	var sizes []int
	for {
		batch := queue.Take(ordering.Outlet{}, ordering.Limit{Records: 10})
		if len(batch) == 0 {
			break
		}
		sizes = append(sizes, len(batch))
	}
	if got, want := fmt.Sprint(sizes), "[1 1 1 2]"; got != want {
		t.Errorf("batches of %s, want %s", got, want)
	}
}

func TestGate_ATrialWaitsForWhatHasToBeFetchedAgain(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	outlet, broker := ordering.Outlet{Destination: "orders"}, ordering.Outlet{}
	entry := func(id int64, key string) *testEntry {
		return &testEntry{ID: id, EventID: fmt.Sprint(id), Key: ordering.Key{AggregateID: key}, Outlet: outlet}
	}
	gate, _ := newGate(now, entry(5, "b"), entry(10, "a"))
	gate.Pause(now, outlet) // lets go of both
	gate.BeginFetch(now)
	gate.Pause(now, broker)
	gate.EndFetch(now, testReply{After: 10, UpTo: 1 << 60, Records: []*testEntry{entry(13, "a")}})
	gate.Resume(now, outlet)
	if plan := gate.BeginFetch(now); plan.RewindFrom != 5 {
		t.Fatalf("the lane goes back to %d, want 5", plan.RewindFrom)
	}
	gate.EndFetch(now, testReply{After: 4, UpTo: 5, Records: []*testEntry{entry(5, "b")}}) // cut: 10 is still to come
	not5 := func(eventID string) bool { return eventID == "5" }
	if gate.Try(now, broker, not5) {
		t.Error("the broker is tried with 13, before 10 of the same key was seen again")
	}
	if !gate.Try(now, broker, func(string) bool { return false }) {
		t.Error("5, the lowest of what is there, cannot be tried")
	}
}
