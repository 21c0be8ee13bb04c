package cursor

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Above is the UpTo of a reply that was not cut.
const Above = math.MaxInt64

// Cursor is what a store remembers of its fetches. Not safe for concurrent use; fetches of different lanes may be
// under way at the same time, each between its [Cursor.Begin] and its [Cursor.End] or [Cursor.Fail].
type Cursor struct {
	// Sweep is how often a lane is read from the very start, for rows that appeared where none can: ids given by hand,
	// rows made unpublished by hand. 0 means never.
	Sweep time.Duration

	server     server
	generation uint64 // grows when the server was replaced
	samples    samples
	lanes      map[int]*lane
}

// server is what must never go back while the server is the same.
type server struct {
	known  bool
	origin uint64
	last   int64 // last id drawn
	xmax   int64
}

// lane is the cursor of one lane for one lease.
type lane struct {
	epoch    int64
	server   uint64  // the generation that the rest belongs to
	position int64   // everything visible up to here was returned
	mark     int64   // nothing can appear any more up to here
	gate     int64   // what appears between mark and gate comes from these transactions:
	few      []int64 // open when the gate was set
	returned []int64 // ids between mark and position that were returned, ascending
	fetch    *Fetch  // the one under way
	rewound  []int64 // to be told with the next reply
	forgot   bool    // rewinds may have been read and lost
	swept    time.Time
}

// Want asks for a lane.
type Want struct {
	Lane  int
	Epoch int64
	// RewindFrom is an id to go back to, 0 for none.
	RewindFrom int64
}

// Fetch is one reading of lanes: what to read, and what may be concluded from the reply.
type Fetch struct {
	// Lanes has one element for each lane wanted.
	Lanes []Bounds
	// Front is the highest position: above it nothing was read before in any of the lanes.
	Front int64
	// Few are the transactions that the rows between a lane's Mark and Gate can come from: while all of them are open,
	// there are none.
	Few []int64
	// Sample asks for a sample from the fetch's own transaction. [Cursor.Sample] takes it.
	Sample bool
	// Replaced says after [Cursor.End] by what this fetch found out that the server was replaced, for a log; empty when
	// it did not.
	Replaced string

	generation uint64
	server     server
	settled    int64
	gate       int64
	few        []int64
	states     []*lane
}

// Bounds is what to read of one lane: ids above Gate, and ids above Mark when one of Few is over.
type Bounds struct {
	Lane                 int
	Mark, Gate, Position int64
	// Returned are ids up to Position that were returned before, ascending. They are not to be returned again.
	Returned []int64
}

// Reply is what a fetch found.
type Reply struct {
	// Origin names the server.
	Origin uint64
	// Last is the last id drawn, Snapshot what is open; both read in the fetch, before the rows or with them.
	Last     int64
	Snapshot Snapshot
	// Refused has true for each lane, in the order of Fetch.Lanes, that is somebody else's.
	Refused []bool
	// UpTo is the id that all lanes were read up to: Above unless a limit cut the reply.
	UpTo int64
	// IDs are the ids returned of each lane, in the order of Fetch.Lanes, ascending.
	IDs [][]int64
}

// Outcome is what became of one lane of a fetch.
type Outcome struct {
	// Reset says that the server was replaced: what was returned before and now is void.
	Reset bool
	// Rewound are ids that the lane went back to since the last reply.
	Rewound []int64
	// Forgot says that such ids may have been lost: every id held may be one.
	Forgot bool
}

// Begin starts a fetch.
func (c *Cursor) Begin(now time.Time, wants []Want) *Fetch {
	f := &Fetch{
		generation: c.generation, server: c.server, settled: c.samples.settled,
		Lanes: make([]Bounds, 0, len(wants)), states: make([]*lane, 0, len(wants)),
	}
	f.gate, f.few = c.samples.gate()
	highest := int64(0)
	for _, w := range wants {
		l := c.lane(now, w)
		if w.RewindFrom != 0 {
			l.back(w.RewindFrom)
		}
		if c.Sweep > 0 && now.Sub(l.swept) >= c.Sweep {
			l.back(1)
			l.swept = now
		}
		l.fetch = f
		f.states = append(f.states, l)
		f.Lanes = append(f.Lanes, Bounds{
			Lane: w.Lane, Mark: l.mark, Gate: max(l.gate, l.mark), Position: l.position, Returned: l.returned,
		})
		f.Front = max(f.Front, l.position)
		if l.gate > l.mark {
			f.Few = union(f.Few, l.few)
		}
		if l.position > l.mark {
			highest = max(highest, l.position)
		}
	}
	f.Sample = c.samples.wanted(now, min(highest, c.server.last))
	return f
}

// lane returns the state of a lane for its lease. A lease that is over gets a state that is thrown away.
func (c *Cursor) lane(now time.Time, w Want) *lane {
	l := c.lanes[w.Lane]
	if l != nil && l.epoch == w.Epoch {
		return l
	}
	fresh := &lane{epoch: w.Epoch, server: c.generation, swept: now.Add(c.Sweep / 16 * time.Duration(w.Lane%16))}
	if l == nil || l.epoch < w.Epoch {
		if c.lanes == nil {
			c.lanes = map[int]*lane{}
		}
		c.lanes[w.Lane] = fresh
	}
	return fresh
}

// End takes the reply of a fetch and tells what became of each lane.
func (c *Cursor) End(f *Fetch, r Reply) []Outcome {
	c.recognise(f, r)
	outcomes := make([]Outcome, len(f.states))
	for i, l := range f.states {
		switch {
		case l.fetch != f: // superseded; the caller broke the rule of one fetch at a time
			outcomes[i].Reset = true
		case len(r.Refused) > i && r.Refused[i]:
			if c.lanes[f.Lanes[i].Lane] == l {
				delete(c.lanes, f.Lanes[i].Lane)
			}
		case l.server != c.generation: // this fetch found out, or one of other lanes since the lane's last
			*l = lane{epoch: l.epoch, server: c.generation, swept: l.swept}
			outcomes[i].Reset = true
		default:
			l.advance(f, f.Lanes[i], r, r.IDs[i])
			outcomes[i].Rewound, outcomes[i].Forgot = l.rewound, l.forgot
			l.rewound, l.forgot = nil, false
		}
	}
	if f.generation == c.generation {
		c.samples.observe(r.Snapshot)
	}
	return outcomes
}

// recognise finds out whether the reply comes from the server that the cursor knows.
func (c *Cursor) recognise(f *Fetch, r Reply) {
	backwards := f.generation == c.generation && (r.Last < f.server.last || r.Snapshot.Xmax < f.server.xmax)
	if c.server.known && (r.Origin != c.server.origin || backwards) {
		f.Replaced = fmt.Sprintf("server %x, last id %d, end of the snapshot %d; known were %x, %d, %d",
			r.Origin, r.Last, r.Snapshot.Xmax, c.server.origin, f.server.last, f.server.xmax)
		c.generation++
		c.samples.forget()
		c.server = server{}
	}
	c.server = server{
		known: true, origin: r.Origin, last: max(c.server.last, r.Last), xmax: max(c.server.xmax, r.Snapshot.Xmax),
	}
}

// advance moves the lane by the reply. All that goes up was known when the fetch was sent.
func (l *lane) advance(f *Fetch, b Bounds, r Reply, ids []int64) {
	l.fetch = nil
	l.position = r.UpTo // cut: also backwards, when the limit struck among late commits
	if r.UpTo == Above {
		l.position = max(f.Front, f.settled)
		for _, returned := range r.IDs {
			if n := len(returned); n > 0 {
				l.position = max(l.position, returned[n-1])
			}
		}
	}
	l.mark = min(max(b.Mark, f.settled), l.position)
	l.gate, l.few = min(f.gate, l.position), f.few
	l.remember(ids)
}

// maxReturned bounds the memory for ids above the mark. Beyond it, the lowest may be returned again.
const maxReturned = 4096

// remember keeps the ids that were returned between mark and position. Fetches under way read the list, so its elements
// stay as they are; new ones are mostly higher, and appended.
func (l *lane) remember(ids []int64) {
	if keep, _ := slices.BinarySearch(l.returned, l.position+1); keep < len(l.returned) { // the others come again
		l.returned = l.returned[:keep:keep]
	}
	if n := len(l.returned); n == 0 || len(ids) == 0 || ids[0] > l.returned[n-1] {
		l.returned = append(l.returned, ids...)
	} else {
		l.returned = slices.Concat(l.returned, ids)
		slices.Sort(l.returned)
	}
	passed, _ := slices.BinarySearch(l.returned, l.mark+1)
	l.returned = l.returned[max(passed, len(l.returned)-maxReturned):]
}

// back makes the next fetch return everything from the id on.
func (l *lane) back(id int64) {
	l.position = max(0, min(l.position, id-1))
	l.mark = min(l.mark, l.position)
	l.gate = min(l.gate, l.position)
	keep, _ := slices.BinarySearch(l.returned, l.position+1)
	l.returned = l.returned[:keep:keep]
}

// Rewind takes ids that were made unsettled again, as the store read them from the database under the lease, while no
// fetch of the lane is under way: the advance of one would undo it. They are told with the lane's next reply.
func (c *Cursor) Rewind(number int, epoch int64, ids ...int64) {
	l := c.lanes[number]
	if l == nil || l.epoch != epoch {
		return
	}
	for _, id := range ids {
		l.back(id)
	}
	l.rewound = append(l.rewound, ids...)
}

// Forgot says that rewinds of the lane may have been deleted unread.
func (c *Cursor) Forgot(number int, epoch int64) {
	if l := c.lanes[number]; l != nil && l.epoch == epoch {
		l.forgot = true
		l.back(1)
	}
}

// Cancel ends a fetch whose reply is not used.
func (c *Cursor) Cancel(f *Fetch) {
	for _, l := range f.states {
		if l.fetch == f {
			l.fetch = nil
		}
	}
}

// Fail ends a fetch that gave no reply. The connection may be lost and the server be another one, so its lanes start
// anew.
func (c *Cursor) Fail(f *Fetch) {
	c.Disconnected()
	for _, l := range f.states {
		if l.fetch == f {
			l.fetch = nil
			l.position, l.mark, l.gate, l.few, l.returned = 0, 0, 0, nil, nil
		}
	}
}

// Disconnected says that a connection was lost: what was sampled may be of another server.
func (c *Cursor) Disconnected() { c.samples.forget() }

// Sample takes a sample: the last id drawn, read from the server, and the xid that the same transaction got afterwards.
func (c *Cursor) Sample(now time.Time, origin uint64, last, xid int64) {
	if c.server.known && origin == c.server.origin {
		c.samples.add(now, sample{last: last, xid: xid})
	}
}

// LowestMark is the lowest mark of all lanes, 0 without one: how far behind the oldest open transaction holds fetches.
func (c *Cursor) LowestMark() int64 {
	lowest := int64(0)
	for _, l := range c.lanes {
		if lowest == 0 || l.mark < lowest {
			lowest = l.mark
		}
	}
	return lowest
}
