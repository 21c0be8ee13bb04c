package cursor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// What the model can hardly reach, or cannot see, is tested here.

var start = time.Unix(1000, 0)

// fetch reads one lane that returns the ids, from a server on which so many ids were drawn.
func fetch(c *cursor.Cursor, origin uint64, last int64, snapshot cursor.Snapshot, ids ...int64) cursor.Outcome {
	f := c.Begin(start, []cursor.Want{{Lane: 3, Epoch: 1}})
	return c.End(f, cursor.Reply{
		Origin: origin, Last: last, Snapshot: snapshot, Refused: []bool{false}, UpTo: cursor.Above, IDs: [][]int64{ids},
	})[0]
}

// bounds are those of the next fetch.
func bounds(c *cursor.Cursor) cursor.Bounds {
	f := c.Begin(start, []cursor.Want{{Lane: 3, Epoch: 1}})
	c.Cancel(f)
	return f.Lanes[0]
}

func wantMark(t *testing.T, c *cursor.Cursor, want int64) {
	t.Helper()
	if b := bounds(c); b.Mark != want {
		t.Errorf("the mark is %d, want %d", b.Mark, want)
	}
}

var quietServer = cursor.Snapshot{Xmin: 100, Xmax: 100}

func TestCursor_MarkFollowsASettledSample(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	fetch(c, 1, 5, quietServer, 4, 5)
	c.Sample(start, 1, 5, 100)
	fetch(c, 1, 5, quietServer) // its snapshot settles the sample
	wantMark(t, c, 0)
	fetch(c, 1, 5, quietServer) // sent with that knowledge
	wantMark(t, c, 5)
}

func TestCursor_SampleOfAnotherServerIsDropped(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	c.Sample(start, 1, 5, 50) // nothing is known of any server yet
	fetch(c, 1, 5, quietServer, 4, 5)
	c.Sample(start, 2, 5, 50)
	fetch(c, 1, 5, quietServer)
	fetch(c, 1, 5, quietServer)
	wantMark(t, c, 0)
}

// A restore or TRUNCATE ... RESTART IDENTITY under a running server: ids or xids go back.
func TestCursor_GoingBackwardsResets(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]struct {
		last     int64
		snapshot cursor.Snapshot
	}{
		"ids":  {1, quietServer},
		"xids": {5, cursor.Snapshot{Xmin: 90, Xmax: 90}},
	} {
		c := &cursor.Cursor{}
		fetch(c, 1, 5, quietServer, 4, 5)
		if o := fetch(c, 1, 5, quietServer); o.Reset {
			t.Errorf("%s: reset without reason", name)
		}
		if o := fetch(c, 1, after.last, after.snapshot, 1); !o.Reset {
			t.Errorf("%s went back, and the lane goes on", name)
		}
		if b := bounds(c); b.Position != 0 || b.Mark != 0 {
			t.Errorf("%s: the lane goes on at %+v", name, b)
		}
	}
}

// The next occurrence explains itself.
func TestCursor_SaysWhatGaveTheServerAway(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	fetch(c, 10, 5, quietServer, 4, 5)
	f := c.Begin(start, []cursor.Want{{Lane: 3, Epoch: 1}})
	c.End(f, cursor.Reply{Origin: 10, Last: 3, Snapshot: quietServer, Refused: []bool{false}, UpTo: cursor.Above, IDs: [][]int64{nil}})
	if want := "server a, last id 3, end of the snapshot 100; known were a, 5, 100"; f.Replaced != want {
		t.Errorf("got %q, want %q", f.Replaced, want)
	}
}

// Samples of settles that run at the same time arrive in any order.
func TestCursor_SamplesInAnyOrder(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	fetch(c, 1, 9, cursor.Snapshot{Xmin: 100, Xmax: 100}, 9)
	c.Sample(start, 1, 9, 104)
	c.Sample(start, 1, 7, 102)
	c.Sample(start, 1, 8, 105) // says less than the first
	fetch(c, 1, 9, cursor.Snapshot{Xmin: 103, Xmax: 106, Open: []int64{103}})
	fetch(c, 1, 9, cursor.Snapshot{Xmin: 103, Xmax: 106, Open: []int64{103}})
	b := bounds(c)
	if b.Mark != 7 || b.Gate != 9 {
		t.Errorf("mark %d gate %d, want 7 and 9: transaction 103 is open", b.Mark, b.Gate)
	}
}

func TestCursor_RewindIsToldOnce(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	fetch(c, 1, 9, quietServer, 3, 9)
	c.Rewind(3, 1, 3)
	c.Rewind(3, 2, 1) // of a lease that is not ours
	if b := bounds(c); b.Position != 2 || len(b.Returned) != 0 {
		t.Errorf("after a rewind to 3: %+v", b)
	}
	if o := fetch(c, 1, 9, quietServer, 3); !slices.Equal(o.Rewound, []int64{3}) {
		t.Errorf("told %v, want 3", o.Rewound)
	}
	if o := fetch(c, 1, 9, quietServer); len(o.Rewound) > 0 || o.Forgot {
		t.Errorf("told again: %+v", o)
	}
}

// An idle dispatcher obtains no xids.
func TestCursor_SamplesOnlyWhileTheMarkIsBehind(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	begin := func() bool {
		f := c.Begin(start, []cursor.Want{{Lane: 3, Epoch: 1}})
		c.Cancel(f)
		return f.Sample
	}
	fetch(c, 1, 0, quietServer)
	if begin() {
		t.Error("sampled an empty table")
	}
	fetch(c, 1, 2, quietServer, 2)
	if !begin() {
		t.Error("no sample although the mark is behind")
	}
	c.Sample(start, 1, 2, 101)
	if begin() {
		t.Error("sampled again although a sample waits")
	}
}

func TestCursor_SweepReadsFromTheStart(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{Sweep: time.Minute}
	fetch(c, 1, 2, quietServer, 2)
	f := c.Begin(start.Add(2*time.Minute), []cursor.Want{{Lane: 3, Epoch: 1}})
	if f.Lanes[0].Position != 0 {
		t.Errorf("a sweep reads from %d", f.Lanes[0].Position)
	}
}

func TestCursor_ManySamplesAreThinned(t *testing.T) {
	t.Parallel()
	c := &cursor.Cursor{}
	open := cursor.Snapshot{Xmin: 100, Xmax: 100_000, Open: []int64{100}}
	fetch(c, 1, 50_000, open, 50_000)
	for n := range int64(10_000) {
		c.Sample(start, 1, n+1, 200+n)
	}
	fetch(c, 1, 50_000, open)
	fetch(c, 1, 50_000, open)
	if b := bounds(c); b.Mark != 0 || b.Gate != 10_000 {
		t.Errorf("mark %d gate %d, want 0 and 10000: the newest sample survives", b.Mark, b.Gate)
	}
}
