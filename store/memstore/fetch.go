package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// cursor is what a handle remembers of a lane for one lease: a reply has covered every row up to position that was
// committed by then. What is below the position and was committed later is a late commit.
type cursor struct {
	origin   uint64
	epoch    int64
	position int64
}

// reading is one lane of a Fetch at work.
type reading struct {
	lane   int
	reply  *core.LaneBatch
	cursor cursor // as it will be once the answer is out
	// How many of the lane's recent rows and rewinds the answer covers.
	recent, rewinds int

	late   []*row // late commits, by id
	rows   []*row // the rows above the position, by id
	held   []int64
	closed map[ordering.Key]struct{} // only those to leave out
}

// Fetch implements [core.Store]. Where the reply must be cut, the rows with the smallest ids of all lanes go first, so
// that no lane starves another.
func (s *Store) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	var batch core.Batch
	var readings []*reading
	err := s.call(ctx, Point{Op: OpFetch, Member: req.Member}, func() error {
		batch, readings = s.fetch(req)
		return nil
	})
	if err != nil {
		return core.Batch{}, err
	}
	s.remember(readings) // only now: an answer that got lost must move no cursor and use up no rewind
	return batch, nil
}

func (s *Store) fetch(req core.FetchRequest) (core.Batch, []*reading) {
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	s.seen = t.version
	now := time.Now()
	batch := core.Batch{Lanes: make([]core.LaneBatch, len(req.Lanes))}
	readings := make([]*reading, 0, len(req.Lanes))
	for i := range req.Lanes {
		reply := &batch.Lanes[i]
		if !t.holds(req.Member, req.Lanes[i].Lease) {
			reply.Refused = true
			continue
		}
		readings = append(readings, s.start(&req.Lanes[i], reply, now))
	}
	t.fill(readings, req, now)
	return batch, readings
}

// start begins the reading of a lane: everything of the reply but its records.
func (s *Store) start(q *core.LaneFetch, reply *core.LaneBatch, now time.Time) *reading {
	t, lane := s.table, &s.table.lanes[q.Lane]
	r := &reading{lane: q.Lane, reply: reply, cursor: s.cursors[q.Lane]}
	if known := r.cursor; known.epoch != q.Epoch || known.origin != t.origin {
		r.cursor = cursor{origin: t.origin, epoch: q.Epoch}
		if known.epoch == q.Epoch {
			reply.Reset = true
			return r
		}
	}
	if q.RewindFrom != 0 {
		r.cursor.position = max(0, min(r.cursor.position, q.RewindFrom-1))
	}
	r.recent, r.rewinds = len(lane.recent), len(lane.rewinds)
	reply.Rewound = slices.Clone(lane.rewinds)
	reply.After, reply.UpTo = r.cursor.position, core.EverythingAbove
	for _, ref := range q.Heads {
		if row := t.unsettled(ref.ID, ref.EventID); row != nil && row.lane == q.Lane {
			reply.Heads = append(reply.Heads, row.record(t.origin, now))
		}
	}
	r.late, r.rows = lane.split(r.cursor.position)
	r.held, r.closed = q.Held, leftOut(q.Closed, reply.After)
	r.skip()
	return r
}

// next is the row with the smallest id that is left, nil when none is. Late rows are all below the others.
func (r *reading) next() *row {
	switch {
	case len(r.late) > 0:
		return r.late[0]
	case len(r.rows) > 0:
		return r.rows[0]
	default:
		return nil
	}
}

// pass goes on to the next row.
func (r *reading) pass() {
	row := r.next()
	if len(r.late) > 0 {
		r.late = r.late[1:]
	} else {
		r.rows = r.rows[1:]
	}
	r.cursor.position = max(r.cursor.position, row.id)
}

// leftOut picks the closed keys whose head the reply does not cover. The others are returned like any key: the
// dispatcher reopens a closed key on a reply that covers its head.
func leftOut(closed []core.ClosedKey, after int64) map[ordering.Key]struct{} {
	if len(closed) == 0 {
		return nil
	}
	keys := make(map[ordering.Key]struct{}, len(closed))
	for i := range closed {
		if closed[i].Head <= after {
			keys[closed[i].Key] = struct{}{}
		}
	}
	return keys
}

// skip passes over rows that are not to be returned.
func (r *reading) skip() {
	for row := r.next(); row != nil; row = r.next() {
		for len(r.held) > 0 && r.held[0] < row.id {
			r.held = r.held[1:]
		}
		held := len(r.held) > 0 && r.held[0] == row.id
		_, out := r.closed[row.key()]
		if !held && !out {
			return
		}
		r.pass()
	}
}

// fill returns rows, by id over all lanes, until the reply is full.
func (t *table) fill(readings []*reading, req core.FetchRequest, now time.Time) {
	size := 0
	for n := 0; ; n++ {
		r := oldest(readings)
		if r == nil {
			return
		}
		row := r.next()
		size += row.size
		if n > 0 && (n >= req.MaxRecords || size > req.MaxBytes) {
			cut(readings, row.id-1)
			return
		}
		r.reply.Records = append(r.reply.Records, row.record(t.origin, now))
		r.pass()
		r.skip()
	}
}

// oldest finds the lane whose next row has the smallest id, nil when no row is left.
func oldest(readings []*reading) *reading {
	var best *reading
	for _, r := range readings {
		if row := r.next(); row != nil && (best == nil || row.id < best.next().id) {
			best = r
		}
	}
	return best
}

// cut says how far the reply got in the lanes that have more. It may move a cursor back: below it was a late commit
// that found no room.
func cut(readings []*reading, upTo int64) {
	for _, r := range readings {
		if r.next() != nil {
			r.reply.UpTo, r.cursor.position = upTo, upTo
		}
	}
}

// remember keeps how far the answer went, and drops what it told.
func (s *Store) remember(readings []*reading) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, r := range readings {
		s.cursors[r.lane] = r.cursor
		if lane := &s.table.lanes[r.lane]; lane.epoch == r.cursor.epoch {
			lane.told(r.recent, r.rewinds)
		}
	}
}
