package core

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

const (
	// leaseRenewals is how many renewals fit into one TTL.
	leaseRenewals = 3
	// leaseMargin is the part of the TTL, one in so many, by which this process trusts its leases less long than the
	// store does.
	leaseMargin = 5
)

// leases is the loop's share in the table.
type leases struct {
	busy    bool
	next    time.Time // when to call again
	trusted time.Time // until when the leases are sure to be ours
	total   int
	members []string
	// settled is set once this member got what it wants.
	settled bool
}

// lease renews the membership and the leases, and takes and gives lanes as the members around require.
func (l *loop) lease(now time.Time) {
	if l.leases.busy {
		return
	}
	release := l.emptied()
	if len(release) == 0 && now.Before(l.leases.next) {
		return
	}
	req := LeaseRequest{Member: l.member, TTL: l.cfg.LeaseTTL, Release: release}
	if !l.stopping {
		req.Want = l.wanted()
	}
	for _, r := range release {
		l.drop(l.lanes[r.Lane])
	}
	l.leases.busy = true
	l.call(func(ctx context.Context) func() {
		start := time.Now()
		ctx, cancel := context.WithTimeout(ctx, l.cfg.LeaseTTL/leaseRenewals)
		defer cancel()
		got, err := l.store.Lease(ctx, req)
		return func() { l.leased(start, got, err) }
	})
}

// emptied returns the leases of the lanes to give away that nothing is in flight of.
func (l *loop) emptied() []Lease {
	var out []Lease
	for _, n := range l.order {
		if lane := l.lanes[n]; lane.giving && lane.gate.Held() == 0 && !lane.gate.Fetching() {
			out = append(out, lane.Lease)
		}
	}
	return out
}

// wanted returns the lanes that should be ours and are not.
func (l *loop) wanted() []int {
	var want []int
	for n, owner := range ordering.Assign(l.leases.total, l.leases.members) {
		if owner == l.member && l.lanes[n] == nil {
			want = append(want, n)
		}
	}
	return want
}

// leased takes the result of a Lease call.
func (l *loop) leased(start time.Time, got Leases, err error) {
	l.leases.busy = false
	now := time.Now()
	if failures := l.troubles.note(opLease, err); err != nil {
		l.leases.next = now.Add(min(l.delay(l.cfg.Outage, failures), l.cfg.LeaseTTL/leaseRenewals))
		return
	}
	l.leases.trusted = start.Add(l.cfg.LeaseTTL - l.cfg.LeaseTTL/leaseMargin)
	l.leases.next = start.Add(l.cfg.LeaseTTL / leaseRenewals)
	if got.NextExpiry > 0 {
		l.leases.next = earliest(l.leases.next, now.Add(max(got.NextExpiry, time.Millisecond)))
	}
	members := slices.Sorted(slices.Values(got.Members))
	changed := l.leases.total != got.Lanes || !slices.Equal(l.leases.members, members)
	l.leases.total, l.leases.members = got.Lanes, members
	taken, lost := l.takeOver(got.Held)
	l.giveAway()
	if changed {
		l.leases.next = now // the members have just become known: ask for our share at once
	}
	l.leases.settled = !changed
	if changed || taken > 0 || lost > 0 {
		l.log.Info("lanes", "held", len(l.lanes), "total", got.Lanes, "members", len(got.Members), "lost", lost)
		l.observe(LanesEvent{Held: len(l.lanes), Total: got.Lanes, Lost: lost, Members: len(got.Members)})
	}
}

// takeOver makes the lanes held equal to the leases held.
func (l *loop) takeOver(held []Lease) (taken, lost int) {
	mine := map[int]int64{}
	for _, h := range held {
		mine[h.Lane] = h.Epoch
	}
	for _, n := range l.order {
		if lane := l.lanes[n]; mine[n] != lane.Epoch {
			l.drop(lane)
			lost++
		}
	}
	if l.stopping {
		return 0, lost
	}
	for _, h := range held {
		if l.lanes[h.Lane] == nil {
			l.lanes[h.Lane] = l.newLane(h)
			taken++
		}
	}
	if taken > 0 {
		l.order = slices.Sorted(maps.Keys(l.lanes))
		l.fetcher.next = time.Time{}
		l.fetcher.foundNothing = false
		l.fetcher.wake()
	}
	return taken, lost
}

// newLane starts a lane with nothing fetched; what is paused is paused for it too.
func (l *loop) newLane(lease Lease) *lane {
	n := &lane{Lease: lease, gate: ordering.NewGate(l.queue), after: l.dropped[lease.Lane]}
	for outlet := range l.circuits {
		n.gate.Pause(time.Now(), outlet)
	}
	return n
}

// giveAway marks the lanes that should be somebody else's.
func (l *loop) giveAway() {
	for n, owner := range ordering.Assign(l.leases.total, l.leases.members) {
		if lane := l.lanes[n]; lane != nil {
			lane.giving = owner != l.member
		}
	}
}

// drop forgets a lane with everything held of it.
func (l *loop) drop(lane *lane) {
	lane.gate.Drop()
	delete(l.lanes, lane.Lane)
	l.order = slices.Sorted(maps.Keys(l.lanes))
	l.dropped[lane.Lane] = l.publish.last
	l.loseTrial(lane)
	l.suspects = newSuspects() // whoever has the lane next finds out for himself
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
