package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Lease is described at [core.Store]. One round trip.
func (s *Store) Lease(ctx context.Context, req core.LeaseRequest) (core.Leases, error) {
	s.monthsAhead(ctx)
	var reply core.Leases
	var lanes []int16
	var epochs []int64
	read := one(&reply.Lanes, &reply.Members, &lanes, &epochs, &reply.NextExpiry)
	if err := s.transact(ctx, s.leaseSteps(req, step{sql: s.queries.leases, args: []any{req.Member}, read: read})...); err != nil {
		return core.Leases{}, fmt.Errorf("postgres: lease: %w", err)
	}
	for i, lane := range lanes {
		reply.Held = append(reply.Held, core.Lease{Lane: int(lane), Epoch: epochs[i]})
	}
	return reply, nil
}

func (s *Store) leaseSteps(req core.LeaseRequest, state step) []step {
	var steps []step
	if len(req.Release) > 0 {
		lanes, epochs := leaseArrays(req.Release)
		steps = append(steps, step{sql: s.queries.release, args: []any{req.Member, lanes, epochs}})
	}
	if req.Leave {
		return append(steps, step{sql: s.queries.leave, args: []any{req.Member}}, state)
	}
	s.noteTTL(req.TTL)
	steps = append(steps, step{sql: s.queries.join, args: []any{req.Member, req.TTL}})
	if len(req.Want) > 0 {
		want := make([]int16, len(req.Want))
		for i, lane := range req.Want {
			want[i] = int16(lane) //nolint:gosec // lanes are few
		}
		steps = append(steps, step{sql: s.queries.take, args: []any{req.Member, want}})
	}
	return append(steps, step{sql: s.queries.dropMembers}, state)
}

// noteTTL remembers the shortest TTL, which bounds how long a settle may hold lanes.
func (s *Store) noteTTL(ttl time.Duration) {
	for old := s.leaseTTL.Load(); int64(ttl) < old; old = s.leaseTTL.Load() {
		if s.leaseTTL.CompareAndSwap(old, int64(ttl)) {
			return
		}
	}
}

func leaseArrays(leases []core.Lease) (lanes []int16, epochs []int64) {
	lanes, epochs = make([]int16, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		lanes[i], epochs[i] = int16(l.Lane), l.Epoch //nolint:gosec // lanes are few
	}
	return lanes, epochs
}
