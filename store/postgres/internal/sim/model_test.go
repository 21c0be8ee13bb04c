package sim_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// model is the PostgreSQL store over the model of the server.
type model struct {
	w       *world
	db      *database
	standby *database // as far as it has got; nil before the first time
	down    bool
	sweep   time.Duration
}

// now is the server's clock.
func (b *model) now() time.Time { return time.Now().Add(b.w.skew) }

func (b *model) store(p *process) core.Store {
	return &store{b: b, p: p, cursor: cursor.Cursor{Sweep: b.sweep}}
}

func (b *model) record(r row) *core.Record {
	record := &core.Record{
		Message: core.Message{
			EventID: r.event, Topic: r.key.Topic, AggregateType: r.key.AggregateType, AggregateID: r.key.AggregateID,
			EventType: "thing.changed",
		},
		ID: r.id, Lane: r.lane, Attempts: r.attempts, Replay: r.replay, Origin: b.db.origin,
	}
	switch {
	case r.state == blocked:
		record.Delay = core.Forever
	case !r.due.IsZero():
		record.Delay = max(r.due.Sub(b.now()), 0)
	}
	return record
}

// store is what a process has of it: its memory.
type store struct {
	b *model
	p *process

	mu     sync.Mutex
	cursor cursor.Cursor
}

var _ core.Store = (*store)(nil)

func (s *store) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	var reply core.Leases
	began := time.Now()
	statements := []statement{func(*tx) bool { s.p.member = req.Member; return true }}
	if len(req.Release) > 0 {
		statements = append(statements, release(req.Member, req.Release))
	}
	if req.Leave {
		statements = append(statements, leave(req.Member))
	} else {
		statements = append(statements, s.b.join(req.Member, req.TTL))
		if len(req.Want) > 0 {
			statements = append(statements, s.b.take(req.Member, req.Want))
		}
		statements = append(statements, s.b.dropMembers)
	}
	err := s.transact(ctx, leaseOp(req), "", 0, append(statements, s.b.leases(req.Member, &reply))...)
	if err != nil {
		return core.Leases{}, err
	}
	s.p.renewed(began)
	return reply, nil
}

// page is what a fetch read.
type page struct {
	reply   cursor.Reply
	xid     int64
	rewinds []int64
	records []*core.Record
	heads   []*core.Record
}

// maxRewindReads is as in the store.
const maxRewindReads = 3

func (s *store) Fetch(ctx context.Context, req core.FetchRequest) (core.Batch, error) {
	for attempt := 0; ; attempt++ {
		f := s.begin(req)
		p := &page{}
		statements := []statement{observe(req, p)}
		if f.Sample {
			statements = append(statements, obtainXid(p))
		}
		err := s.transact(ctx, opFetch, "", 0, append(statements, s.b.readRows(req, f, p), s.b.readHeads(req, p))...)
		if err != nil {
			s.locked(func() { s.cursor.Fail(f) })
			return core.Batch{}, err
		}
		if len(p.rewinds) == 0 || attempt == maxRewindReads {
			return s.end(req, f, p), nil
		}
		s.locked(func() { s.cursor.Cancel(f) })
		if err := s.takeRewinds(ctx, req, p.rewinds); err != nil {
			return core.Batch{}, err
		}
	}
}

func (s *store) begin(req core.FetchRequest) (f *cursor.Fetch) {
	wants := make([]cursor.Want, len(req.Lanes))
	for i := range req.Lanes {
		q := &req.Lanes[i]
		wants[i] = cursor.Want{Lane: q.Lane, Epoch: q.Epoch, RewindFrom: q.RewindFrom}
	}
	s.locked(func() { f = s.cursor.Begin(time.Now(), wants) })
	return f
}

// end installs what was read and makes the reply of it.
func (s *store) end(req core.FetchRequest, f *cursor.Fetch, p *page) core.Batch {
	places := map[int]int{}
	p.reply.IDs = make([][]int64, len(req.Lanes))
	for i := range req.Lanes {
		places[req.Lanes[i].Lane] = i
	}
	p.records = slices.DeleteFunc(p.records, func(r *core.Record) bool {
		i := places[r.Lane]
		if slices.Contains(f.Lanes[i].Returned, r.ID) {
			return true
		}
		p.reply.IDs[i] = append(p.reply.IDs[i], r.ID)
		return false
	})
	var outcomes []cursor.Outcome
	s.locked(func() {
		outcomes = s.cursor.End(f, p.reply)
		if p.xid != 0 {
			s.cursor.Sample(time.Now(), p.reply.Origin, p.reply.Last, p.xid)
		}
	})
	batch := core.Batch{Lanes: make([]core.LaneBatch, len(req.Lanes))}
	for i := range req.Lanes {
		b, o := &batch.Lanes[i], outcomes[i]
		switch {
		case p.reply.Refused[i]:
			b.Refused = true
		case o.Reset:
			b.Reset = true
		default:
			b.After, b.UpTo, b.Rewound = f.Lanes[i].Position, p.reply.UpTo, o.Rewound
			if o.Forgot {
				b.Rewound = append(b.Rewound, req.Lanes[i].Held...)
			}
			b.Records, b.Heads = ofLane(p.records, req.Lanes[i].Lane), ofLane(p.heads, req.Lanes[i].Lane)
		}
	}
	return batch
}

func ofLane(records []*core.Record, lane int) (out []*core.Record) {
	for _, r := range records {
		if r.Lane == lane {
			out = append(out, r)
		}
	}
	return out
}

// takeRewinds deletes rewinds that were read and moves the cursor back.
func (s *store) takeRewinds(ctx context.Context, req core.FetchRequest, seqs []int64) error {
	leases := make([]core.Lease, len(req.Lanes))
	for i := range req.Lanes {
		leases[i] = req.Lanes[i].Lease
	}
	locked, ids := map[int]bool{}, map[int][]int64{}
	err := s.transact(ctx, opFetch, "rewinds", 0, fence(req.Member, leases, locked), forgetRewinds(seqs, locked, ids))
	s.locked(func() {
		for _, l := range leases {
			if err != nil { // they may be deleted all the same
				s.cursor.Forgot(l.Lane, l.Epoch)
			} else {
				s.cursor.Rewind(l.Lane, l.Epoch, ids[l.Lane]...)
			}
		}
	})
	return err
}

func (s *store) Settle(ctx context.Context, req core.Settlement) (core.Settled, error) {
	if s.p.isDead() { // let the rest of its loop end
		return core.Settled{}, nil
	}
	var origin uint64
	var last, xid int64
	locked, found := map[int]bool{}, map[int64]bool{}
	err := s.transact(ctx, opSettle, subjectOf(req), min(s.p.w.plan.ttl/2, 5*time.Second),
		func(t *tx) bool {
			s.p.w.checkSettlement(req)
			origin, last = t.db.origin, t.db.last
			return true
		},
		fence(req.Member, req.Leases, locked),
		func(t *tx) bool {
			xid = t.obtainXid()
			t.ends = append(t.ends, func(commit bool) {
				if commit {
					s.p.w.settled(req, func(r *core.Record) bool { return found[r.ID] })
					s.b.checkFence(req, found)
				}
			})
			return true
		},
		s.b.write(req.Items, locked, found))
	if err != nil {
		s.locked(s.cursor.Disconnected)
		return core.Settled{}, err
	}
	if len(locked) > 0 {
		s.locked(func() { s.cursor.Sample(time.Now(), origin, last, xid) })
	}
	var reply core.Settled
	for _, l := range req.Leases {
		if !locked[l.Lane] {
			reply.Refused = append(reply.Refused, l.Lane)
		}
	}
	for i := range req.Items {
		if r := req.Items[i].Record; locked[r.Lane] && !found[r.ID] {
			reply.Missed = append(reply.Missed, r)
		}
	}
	return reply, nil
}

// checkFence checks that what is being committed is of lanes that are the dispatcher's.
func (b *model) checkFence(req core.Settlement, found map[int64]bool) {
	epochs := map[int]int64{}
	for _, l := range req.Leases {
		epochs[l.Lane] = l.Epoch
	}
	for i := range req.Items {
		r := req.Items[i].Record
		if found[r.ID] && b.db.lanes[r.Lane].value != (leased{req.Member, epochs[r.Lane]}) {
			b.w.ledger.bad("%s settles %s of lane %d, which is somebody else's", req.Member, r.EventID, r.Lane)
		}
	}
}

// Close does nothing: the server is everybody's.
func (s *store) Close() error { return nil }

func (s *store) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// transact is one round trip.
func (s *store) transact(ctx context.Context, op, subject string, idle time.Duration, statements ...statement) error {
	return s.p.call(ctx, op, subject, func(c *call) {
		s.b.transact(&work{name: c.name, r: c.r, statements: statements, client: c, idle: idle, end: c.reply})
	})
}

// The rest is what writers and people do by SQL.

type modelTx struct {
	b *model
	t *tx
}

func (b *model) begin(early bool) transaction {
	t := b.db.begin()
	if early {
		t.obtainXid()
	}
	return &modelTx{b, t}
}

func (t *modelTx) enqueue(event string, key ordering.Key) {
	lane := ordering.Lane(key.AggregateType, key.AggregateID, len(t.t.db.lanes))
	t.t.insert(row{id: t.t.nextval(), event: event, key: key, lane: lane})
}

func (t *modelTx) end(commit bool) bool {
	alive := t.t.db == t.b.db && !t.b.down
	t.t.end(commit && alive)
	return alive
}
