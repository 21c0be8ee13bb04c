package cursor_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// dispatcher is a process: one cursor, a gate for each lane it holds, one queue.
type dispatcher struct {
	m        *model
	member   string
	cursor   *cursor.Cursor
	queue    *ordering.Queue[read]
	lanes    map[int]*lane
	trusted  bool
	silences int
	dead     bool
	leasing  bool
	fetching bool
	settling bool
	answered []*item
}

type lane struct {
	number int
	epoch  int64
	gate   *ordering.Gate[read]
}

// read is a record with the server it was read from.
type read struct {
	row
	origin uint64
}

type item struct {
	entry *ordering.Entry[read]
	read
	epoch int64
	kind  ordering.Settlement
	wait  int64
}

func newDispatcher(m *model) *dispatcher {
	m.members++
	return &dispatcher{
		m: m, member: fmt.Sprintf("d%d", m.members), cursor: &cursor.Cursor{Sweep: sweep(m)},
		queue: ordering.NewQueue[read](), lanes: map[int]*lane{},
	}
}

func sweep(m *model) time.Duration {
	if m.seed%3 == 0 {
		return 100 * time.Second // steps
	}
	return 0
}

func (d *dispatcher) act() {
	switch n := d.m.r.IntN(10); {
	case n < 2:
		d.lease()
	case n < 5:
		d.fetch()
	case n < 8:
		d.publish()
	default:
		d.settle()
	}
}

// lease takes what is free and learns what is held.
func (d *dispatcher) lease() {
	if d.leasing {
		return
	}
	d.leasing = true
	silences := d.silences
	d.m.remote(func() {
		db := d.m.db
		delete(db.expired, d.member)
		held := map[int]int64{}
		for n := range db.lanes {
			l := &db.lanes[n]
			free := l.owner == "" || l.owner != d.member && (db.expired[l.owner] || !d.m.alive(l.owner))
			if free && db.shared[n] == 0 && d.m.r.IntN(2) == 0 {
				*l = leased{d.member, l.epoch + 1}
			}
			if l.owner == d.member {
				held[n] = l.epoch
			}
		}
		d.m.local(d, func() { d.leased(held, silences) })
	})
}

func (d *dispatcher) leased(held map[int]int64, silences int) {
	d.leasing = false
	d.trusted = silences == d.silences
	for n := range d.m.db.lanes {
		l, epoch := d.lanes[n], held[n]
		if l != nil && l.epoch != epoch {
			d.drop(l)
		}
		if epoch != 0 && d.lanes[n] == nil {
			d.m.say("%s takes lane %d epoch %d", d.member, n, epoch)
			d.lanes[n] = &lane{n, epoch, ordering.NewGate(d.queue)}
		}
	}
}

func (d *dispatcher) drop(l *lane) {
	l.gate.Drop()
	if d.lanes[l.number] == l {
		delete(d.lanes, l.number)
	}
}

// fetch is Store.Fetch of some lanes: one statement that looks around, perhaps one that takes a xid, one that reads.
func (d *dispatcher) fetch() {
	if d.fetching || len(d.lanes) == 0 {
		return
	}
	var lanes []*lane
	var wants []cursor.Want
	q := query{limit: d.m.limit}
	all := d.m.r.IntN(3) > 0
	for n := range d.m.db.lanes {
		l := d.lanes[n]
		if l == nil || !all && len(lanes) > 0 {
			continue
		}
		plan := l.gate.BeginFetch(d.m.now())
		lanes, q.plans = append(lanes, l), append(q.plans, plan)
		wants = append(wants, cursor.Want{Lane: n, Epoch: l.epoch, RewindFrom: plan.RewindFrom})
	}
	d.fetching = true
	d.ask(lanes, wants, q)
}

func (d *dispatcher) ask(lanes []*lane, wants []cursor.Want, q query) {
	m := d.m
	q.Fetch = d.cursor.Begin(m.now(), wants)
	origin := m.db.origin
	m.say("%s fetches %+v front %d few %v sample %t plans %+v", d.member, q.Lanes, q.Front, q.Few, q.Sample, q.plans)
	m.remote(func() {
		lost := m.db.origin != origin && m.r.IntN(2) == 0 || !m.draining && m.r.IntN(25) == 0
		if lost {
			m.local(d, func() { d.fetchFailed(lanes, q) })
			return
		}
		reply := cursor.Reply{Origin: m.db.origin, Last: m.db.drawn(), Snapshot: m.db.snapshot()}
		origin := m.db.origin
		var rewinds []rewound
		for i, w := range wants {
			reply.Refused = append(reply.Refused, !m.db.holds(d.member, w.Lane, w.Epoch))
			for _, r := range m.db.rewinds {
				if r.lane == w.Lane && !reply.Refused[i] {
					rewinds = append(rewinds, r)
				}
			}
		}
		m.remote(func() {
			xid := int64(0)
			if q.Sample && m.db.origin == origin {
				xid = d.takeXid()
			}
			m.remote(func() {
				if m.db.origin != origin { // the connection broke in between
					m.local(d, func() { d.fetchFailed(lanes, q) })
					return
				}
				rows, upTo := m.db.read(q)
				reply.UpTo = upTo
				heads := d.readHeads(q)
				if xid != 0 {
					m.db.end(xid)
				}
				m.fetches++
				m.local(d, func() { d.fetched(lanes, wants, q, reply, rows, heads, rewinds, xid) })
			})
		})
	})
}

// takeXid obtains a xid as the second half of a sample.
func (d *dispatcher) takeXid() int64 {
	db := d.m.db
	if *broken == "xmax" {
		xmax := db.snapshot().Xmax
		db.end(db.begin())
		return xmax
	}
	return db.begin()
}

func (d *dispatcher) readHeads(q query) (heads []row) {
	for _, plan := range q.plans {
		for _, ref := range plan.Heads {
			if w := d.m.db.rows[ref.ID]; w != nil && w.event == ref.EventID && !w.settled && !w.parked {
				heads = append(heads, *w)
			}
		}
	}
	return heads
}

func (d *dispatcher) fetchFailed(lanes []*lane, q query) {
	d.m.say("%s: the fetch fails", d.member)
	d.fetching = false
	d.cursor.Fail(q.Fetch)
	for _, l := range lanes {
		l.gate.FailFetch(d.m.now())
	}
}

func (d *dispatcher) fetched(lanes []*lane, wants []cursor.Want, q query, reply cursor.Reply, rows, heads []row, rewinds []rewound, xid int64) {
	if len(rewinds) > 0 {
		d.cursor.Cancel(q.Fetch)
		d.takeRewinds(lanes, wants, q, rewinds)
		return
	}
	m := d.m
	d.fetching = false
	reply.IDs = make([][]int64, len(lanes))
	rows = slices.DeleteFunc(rows, func(w row) bool {
		i := slices.IndexFunc(wants, func(want cursor.Want) bool { return want.Lane == w.lane })
		if slices.Contains(q.Lanes[i].Returned, w.id) {
			return true
		}
		reply.IDs[i] = append(reply.IDs[i], w.id)
		return false
	})
	outcomes := d.cursor.End(q.Fetch, reply)
	if xid != 0 {
		d.cursor.Sample(m.now(), reply.Origin, reply.Last, xid)
	}
	for i, l := range lanes {
		o, b := outcomes[i], q.Lanes[i]
		m.say("%s lane %d: ids %v up to %d refused %t %+v", d.member, l.number, reply.IDs[i], reply.UpTo, reply.Refused[i], o)
		switch {
		case l.gate.Dropped():
		case reply.Refused[i]:
			d.drop(l)
		case o.Reset:
			l.gate.Drop()
			l.gate = ordering.NewGate(d.queue)
		default:
			answer := ordering.Reply[read]{After: b.Position, UpTo: reply.UpTo, Rewound: o.Rewound}
			if o.Forgot {
				answer.Rewound = append(answer.Rewound, q.plans[i].Held...)
			}
			answer.Records = d.entries(rows, l.number, reply.Origin)
			answer.Heads = d.entries(heads, l.number, reply.Origin)
			l.gate.EndFetch(m.now(), answer)
		}
	}
}

func (d *dispatcher) entries(rows []row, lane int, origin uint64) (out []*ordering.Entry[read]) {
	for _, w := range rows {
		if w.lane != lane {
			continue
		}
		e := &ordering.Entry[read]{ID: w.id, EventID: w.event, Key: w.key, Bytes: 1, Value: read{w, origin}}
		if w.due > d.m.step {
			e.Due = d.m.now().Add(time.Duration(w.due-d.m.step) * time.Second)
		}
		out = append(out, e)
	}
	return out
}

// takeRewinds deletes the rewinds under the lease, and asks again.
func (d *dispatcher) takeRewinds(lanes []*lane, wants []cursor.Want, q query, found []rewound) {
	m := d.m
	origin := m.db.origin
	m.remote(func() {
		gone := m.db.origin != origin
		lost := gone || !m.draining && m.r.IntN(8) == 0
		taken := map[int][]int64{}
		if !gone || m.r.IntN(2) == 0 {
			for _, w := range wants {
				if !m.db.holds(d.member, w.Lane, w.Epoch) {
					continue
				}
				m.db.rewinds = slices.DeleteFunc(m.db.rewinds, func(r rewound) bool {
					mine := r.lane == w.Lane && slices.Contains(found, r)
					if mine {
						taken[w.Lane] = append(taken[w.Lane], r.id)
					}
					return mine
				})
			}
		}
		m.local(d, func() {
			for _, w := range wants {
				if lost {
					d.cursor.Forgot(w.Lane, w.Epoch)
				} else {
					d.cursor.Rewind(w.Lane, w.Epoch, taken[w.Lane]...)
				}
			}
			m.say("%s took rewinds %v, lost %t", d.member, taken, lost)
			if !lost {
				d.ask(lanes, wants, q)
				return
			}
			d.fetching = false
			for _, l := range lanes {
				l.gate.FailFetch(m.now())
			}
		})
	})
}

// publish hands one batch to the broker. A landing can be late, or its answer lost.
func (d *dispatcher) publish() {
	m := d.m
	if !d.trusted {
		return
	}
	batch := d.queue.Take(ordering.Outlet{}, ordering.Limit{Records: 1 + m.r.IntN(2)})
	for _, e := range batch {
		kind := m.r.IntN(8)
		if m.draining {
			kind = 7
		}
		if m.poison[e.EventID] {
			kind = 0
		}
		m.say("%s publishes %d %s, kind %d", d.member, e.ID, e.EventID, kind)
		m.remote(func() {
			if kind > 0 {
				m.land(e.EventID)
			}
			m.local(d, func() { d.answer(e, kind) })
		})
	}
}

func (d *dispatcher) answer(e *ordering.Entry[read], kind int) {
	g := e.Gate()
	if g.Dropped() {
		return
	}
	result := &item{entry: e, read: e.Value, epoch: d.lanes[e.Value.lane].epoch, wait: d.m.r.Int64N(20)}
	switch {
	case kind == 0 && e.Value.attempts >= 2:
		result.kind = ordering.WasParked
	case kind == 0:
		result.kind = ordering.WasCharged
	case kind == 1:
		g.Retry(d.m.now(), e, d.m.now().Add(time.Duration(d.m.r.IntN(10))*time.Second))
		return
	default:
		g.Delivered(d.m.now(), e)
		d.answered = append(d.answered, result)
		return
	}
	if g.Fail(d.m.now(), e) {
		d.answered = append(d.answered, result)
	}
}

// settle is Store.Settle: the first half of a sample, the lock on the lanes with the second half, the rows and the
// commit.
func (d *dispatcher) settle() {
	d.answered = slices.DeleteFunc(d.answered, func(i *item) bool { return i.entry.Gate().Dropped() })
	if d.settling || len(d.answered) == 0 {
		return
	}
	m := d.m
	d.settling = true
	items := d.answered
	d.answered = nil
	m.remote(func() {
		last, origin := m.db.drawn(), m.db.origin
		m.remote(func() {
			if m.db.origin != origin {
				m.local(d, func() { d.settled(items, nil, nil, true) })
				return
			}
			locked := map[int]bool{}
			for _, i := range items {
				if !locked[i.lane] && m.db.holds(d.member, i.lane, i.epoch) {
					locked[i.lane] = true
					m.db.shared[i.lane]++
				}
			}
			xid := d.takeXid()
			m.remote(func() { d.write(items, locked, origin, last, xid) })
		})
	})
}

func (d *dispatcher) write(items []*item, locked map[int]bool, origin uint64, last, xid int64) {
	m := d.m
	if m.db.origin != origin {
		m.local(d, func() { d.settled(items, nil, nil, true) })
		return
	}
	missed := map[*item]bool{}
	for _, i := range items {
		switch {
		case !locked[i.lane]:
		case !m.db.settle(i, m.step):
			missed[i] = true
		case i.kind == ordering.WasParked:
			m.exempt[i.event] = true
		}
	}
	for n := range locked {
		m.db.shared[n]--
	}
	m.db.end(xid)
	lost := !m.draining && m.r.IntN(10) == 0
	m.local(d, func() {
		if len(locked) > 0 && !lost {
			d.cursor.Sample(m.now(), origin, last, xid)
		}
		d.settled(items, locked, missed, lost)
	})
}

func (d *dispatcher) settled(items []*item, locked map[int]bool, missed map[*item]bool, lost bool) {
	d.settling = false
	if lost {
		d.cursor.Disconnected()
		d.answered = append(d.answered, items...)
		return
	}
	for _, i := range items {
		g := i.entry.Gate()
		switch {
		case g.Dropped():
		case !locked[i.lane]:
			if l := d.lanes[i.lane]; l != nil && l.gate == g {
				d.drop(l)
			}
		default:
			d.m.say("%s settled %d kind %d missed %t", d.member, i.id, i.kind, missed[i])
			i.entry.Due = d.m.now().Add(time.Duration(i.wait) * time.Second)
			g.Settled(d.m.now(), i.entry, i.kind, missed[i])
		}
	}
}
