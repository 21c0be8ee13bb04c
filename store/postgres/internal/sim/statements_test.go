package sim_test

import (
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/postgres/internal/cursor"
)

// The statements of the store in the model; each says which SQL it is.

// release is releaseSQL.
func release(member string, leases []core.Lease) statement {
	return func(t *tx) bool {
		for _, l := range leases {
			c := t.db.lanes[l.Lane]
			if c.see(t) != (leased{member, l.Epoch}) {
				continue
			}
			if !c.lock(t) {
				return false
			}
			c.next.owner = ""
		}
		return true
	}
}

// leave is leaveSQL with what its foreign key does.
func leave(member string) statement {
	return func(t *tx) bool {
		m := t.db.members[member]
		if m == nil {
			return true
		}
		if !m.lock(t) {
			return false
		}
		m.next.known = false
		for _, c := range t.db.lanes {
			if c.see(t).owner != member {
				continue
			}
			if !c.lock(t) {
				return false
			}
			c.next.owner = ""
		}
		return true
	}
}

// join is joinSQL.
func (b *model) join(member string, ttl time.Duration) statement {
	return func(t *tx) bool {
		m := t.db.members[member]
		if m == nil {
			m = &cell[membership]{}
			t.db.members[member] = m
		}
		if !m.lock(t) {
			return false
		}
		m.next = membership{known: true, expires: b.now().Add(ttl)}
		return true
	}
}

// take is takeSQL: what is locked is skipped.
func (b *model) take(member string, want []int) statement {
	return func(t *tx) bool {
		expired := map[string]bool{"": true}
		for _, name := range t.db.memberNames() {
			m := t.db.members[name]
			if seen := m.see(t); seen.known && !seen.expires.After(b.now()) && m.lock(t) {
				expired[name] = true
			}
		}
		for _, n := range want {
			if c := t.db.lanes[n]; expired[c.see(t).owner] && c.lock(t) {
				c.next = leased{member, c.next.epoch + 1}
			}
		}
		return true
	}
}

// dropMembers is dropMembersSQL.
func (b *model) dropMembers(t *tx) bool {
	for _, name := range t.db.memberNames() {
		m := t.db.members[name]
		owns := slices.ContainsFunc(t.db.lanes, func(c *cell[leased]) bool { return c.see(t).owner == name })
		if seen := m.see(t); seen.known && !seen.expires.After(b.now()) && !owns && m.lock(t) {
			m.next.known = false
		}
	}
	return true
}

// leases is leasesSQL.
func (b *model) leases(member string, reply *core.Leases) statement {
	return func(t *tx) bool {
		*reply = core.Leases{Lanes: len(t.db.lanes)}
		for _, name := range t.db.memberNames() {
			seen := t.db.members[name].see(t)
			left := seen.expires.Sub(b.now())
			if !seen.known || left <= 0 {
				continue
			}
			reply.Members = append(reply.Members, name)
			if name != member && (reply.NextExpiry == 0 || left < reply.NextExpiry) {
				reply.NextExpiry = left
			}
		}
		for n, c := range t.db.lanes {
			if seen := c.see(t); seen.owner == member {
				reply.Held = append(reply.Held, core.Lease{Lane: n, Epoch: seen.epoch})
			}
		}
		return true
	}
}

// observe is observeSQL.
func observe(req core.FetchRequest, p *page) statement {
	return func(t *tx) bool {
		p.reply = cursor.Reply{Origin: t.db.origin, Last: t.db.last, Snapshot: t.db.snapshot()}
		for i := range req.Lanes {
			l := req.Lanes[i].Lease
			held := t.db.lanes[l.Lane].see(t) == leased{req.Member, l.Epoch}
			p.reply.Refused = append(p.reply.Refused, !held)
			for _, r := range t.db.rewinds {
				if held && r.lane == l.Lane {
					p.rewinds = append(p.rewinds, r.seq)
				}
			}
		}
		return true
	}
}

// obtainXid is xidSQL.
func obtainXid(p *page) statement {
	return func(t *tx) bool {
		p.xid = t.obtainXid()
		return true
	}
}

// readRows is rowsSQL, with the cut that the store makes.
func (b *model) readRows(req core.FetchRequest, f *cursor.Fetch, p *page) statement {
	return func(t *tx) bool {
		p.reply.UpTo = cursor.Above
		for _, c := range t.db.rows {
			r := c.see(t)
			i := slices.IndexFunc(f.Lanes, func(b cursor.Bounds) bool { return b.Lane == r.lane })
			if i < 0 || r.state != pending && r.state != blocked || !wants(t.db, f, &f.Lanes[i], &req.Lanes[i], &r) {
				continue
			}
			p.records = append(p.records, b.record(r))
			if len(p.records) == req.MaxRecords {
				p.reply.UpTo = r.id
				break
			}
		}
		return true
	}
}

func wants(db *database, f *cursor.Fetch, b *cursor.Bounds, q *core.LaneFetch, r *row) bool {
	switch {
	case slices.Contains(q.Held, r.id), r.id > b.Gate && slices.Contains(b.Returned, r.id):
		return false
	case slices.ContainsFunc(q.Closed, func(c core.ClosedKey) bool { return c.Key == r.key && c.Head <= b.Position }):
		return false
	}
	return r.id > b.Gate || r.id > b.Mark && db.anyOver(f.Few)
}

// readHeads is headsSQL.
func (b *model) readHeads(req core.FetchRequest, p *page) statement {
	return func(t *tx) bool {
		for i := range req.Lanes {
			for _, head := range req.Lanes[i].Heads {
				if c := t.db.row(head.ID); c != nil {
					if r := c.see(t); r.event == head.EventID && r.lane == req.Lanes[i].Lane && r.state <= blocked {
						p.heads = append(p.heads, b.record(r))
					}
				}
			}
		}
		return true
	}
}

// fence is fenceSQL: it locks the lanes that are the member's.
func fence(member string, leases []core.Lease, locked map[int]bool) statement {
	return func(t *tx) bool {
		for _, l := range leases {
			c := t.db.lanes[l.Lane]
			if locked[l.Lane] {
				continue
			}
			if *unfenced {
				locked[l.Lane] = true
				continue
			}
			if c.value != (leased{member, l.Epoch}) {
				continue
			}
			if !c.share(t) {
				return false
			}
			locked[l.Lane] = true
		}
		t.obtainXid()
		return true
	}
}

// forgetRewinds is forgetRewindsSQL.
func forgetRewinds(seqs []int64, locked map[int]bool, ids map[int][]int64) statement {
	return func(t *tx) bool {
		mine := func(r rewind) bool { return locked[r.lane] && slices.Contains(seqs, r.seq) }
		for _, r := range t.db.rewinds {
			if mine(r) {
				ids[r.lane] = append(ids[r.lane], r.id)
			}
		}
		t.ends = append(t.ends, func(commit bool) {
			if commit {
				t.db.rewinds = slices.DeleteFunc(t.db.rewinds, mine)
			}
		})
		return true
	}
}

// write is publishedSQL or failedSQL: it locks the rows that are as they were read, and changes them.
func (b *model) write(items []core.SettleItem, locked map[int]bool, found map[int64]bool) statement {
	return func(t *tx) bool {
		settleable := func(item *core.SettleItem) *cell[row] {
			r := item.Record
			c := t.db.row(r.ID)
			if c == nil || !locked[r.Lane] || r.Origin != t.db.origin {
				return nil
			}
			if seen := c.see(t); seen.event != r.EventID || seen.replay != r.Replay || seen.state > blocked || seen.deleted {
				return nil
			}
			return c
		}
		for i := range items {
			if c := settleable(&items[i]); c != nil && !c.lock(t) {
				return false
			}
		}
		for i := range items {
			if c := settleable(&items[i]); c != nil {
				b.apply(&c.next, &items[i])
				found[c.next.id] = true
			}
		}
		return true
	}
}

func (b *model) apply(r *row, item *core.SettleItem) {
	if item.Status == core.StatusPublished {
		r.state = published
		return
	}
	r.attempts = item.Attempts
	switch item.Status {
	case core.StatusParked:
		r.state, r.due = parked, time.Time{}
	case core.StatusBlocked:
		r.state, r.due = blocked, time.Time{}
	default:
		r.state, r.due = pending, b.now().Add(item.RetryIn)
	}
}
