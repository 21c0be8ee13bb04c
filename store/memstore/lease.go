package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Lease implements [core.Store].
func (s *Store) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	var reply core.Leases
	err := s.call(ctx, Point{Op: OpLease, Member: req.Member}, func() error {
		s.table.mu.Lock()
		defer s.table.mu.Unlock()
		now := time.Now()
		s.table.lease(req, now)
		reply = s.table.leases(req.Member, now)
		return nil
	})
	if err != nil {
		return core.Leases{}, err
	}
	return reply, nil
}

func (t *table) lease(req core.LeaseRequest, now time.Time) {
	for _, l := range req.Release {
		if t.holds(req.Member, l) {
			t.lanes[l.Lane].owner = ""
		}
	}
	if req.Leave {
		t.leave(req.Member)
		return
	}
	until := now.Add(req.TTL)
	t.members[req.Member] = until
	for _, i := range req.Want {
		if i < 0 || i >= len(t.lanes) {
			continue
		}
		if lane := &t.lanes[i]; lane.owner != req.Member && lane.free(now) {
			lane.owner = req.Member
			lane.epoch++
		}
	}
	for i := range t.lanes {
		if lane := &t.lanes[i]; lane.owner == req.Member {
			lane.expires = until
		}
	}
}

func (t *table) leave(member string) {
	delete(t.members, member)
	for i := range t.lanes {
		if t.lanes[i].owner == member {
			t.lanes[i].owner = ""
		}
	}
}

func (l *lane) free(now time.Time) bool { return l.owner == "" || !now.Before(l.expires) }

// leases is the answer to a member: what it holds, who else is alive, and when that may change.
func (t *table) leases(member string, now time.Time) core.Leases {
	reply := core.Leases{Lanes: len(t.lanes)}
	expires := func(at time.Time) {
		if d := at.Sub(now); reply.NextExpiry == 0 || d < reply.NextExpiry {
			reply.NextExpiry = d
		}
	}
	maps.DeleteFunc(t.members, func(_ string, until time.Time) bool { return !now.Before(until) })
	for name, until := range t.members {
		reply.Members = append(reply.Members, name)
		if name != member {
			expires(until)
		}
	}
	slices.Sort(reply.Members)
	for i := range t.lanes {
		switch lane := &t.lanes[i]; {
		case lane.owner == member && member != "":
			reply.Held = append(reply.Held, core.Lease{Lane: i, Epoch: lane.epoch})
		case !lane.free(now):
			expires(lane.expires)
		}
	}
	return reply
}
