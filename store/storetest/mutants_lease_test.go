package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func leaseMutants() []mutant {
	lease := func(f func(context.Context, *memstore.Store, core.LeaseRequest) (core.Leases, error)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{lease: f} }
	}
	return []mutant{
		{"takes a lease that has not expired", []string{
			"Lease/TwoMembersNeverHoldALane", "Lease/ARaceHasOneWinner",
		}, lease(takingAll)},
		{"does not raise the epoch", []string{
			"Lease/ExpiredIsTakenWithHigherEpoch", "Lease/ReleasedIsFreeAtOnce",
		}, func(testing.TB) sabotage { return new(currentLeases).sameEpoch() }},
		{"raises the epoch at every renewal", []string{
			"Lease/ExtendsUnderTheSameEpoch", "Lease/ExpiredButNotTakenIsExtendedUnderItsEpoch",
		}, lease(raisingAlways)},
		{"never lets a lease expire", []string{"Lease/ExpiresByTheStoresClock"}, lease(
			func(ctx context.Context, s *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
				req.TTL = time.Hour
				return s.Lease(ctx, req)
			},
		)},
		{"keeps a member that left", []string{"Lease/LeaveForgetsTheMember"}, lease(
			func(ctx context.Context, s *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
				req.Leave = false
				return s.Lease(ctx, req)
			},
		)},
		{"fetches under any epoch", []string{"Fetch/RefusesAnOldEpoch"}, func(testing.TB) sabotage {
			return new(currentLeases).unfencedFetch()
		}},
		{"settles under any epoch", []string{
			"Settle/RefusesAnOldEpochAndWritesNothingOfIt", "Settle/RefusesAMemberThatWasOvertaken",
		}, func(testing.TB) sabotage { return new(currentLeases).unfencedSettle() }},
		{"stays open after Close", []string{"Close/LaterCallsReturnErrClosed"}, func(testing.TB) sabotage {
			return sabotage{close: func(*memstore.Store) error { return nil }}
		}},
		{"sleeps until its context ends", []string{
			"Waker/SleepEndsAfterItsTime", "Waker/CommitsEndASleep",
		}, func(testing.TB) sabotage {
			return sabotage{sleep: func(ctx context.Context, _ *memstore.Store, _ time.Duration) { <-ctx.Done() }}
		}},
		{"sleeps past its context", []string{"Waker/SleepEndsWithItsContext"}, func(testing.TB) sabotage {
			return sabotage{sleep: func(context.Context, *memstore.Store, time.Duration) { <-time.After(time.Second) }}
		}},
	}
}

func takingAll(ctx context.Context, s *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
	reply, err := s.Lease(ctx, core.LeaseRequest{Member: req.Member, TTL: req.TTL})
	if err != nil {
		return reply, err
	}
	if len(req.Want) > 0 {
		for _, other := range reply.Members {
			if other != req.Member {
				s.Expire(other)
			}
		}
	}
	return s.Lease(ctx, req)
}

func raisingAlways(ctx context.Context, s *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
	reply, err := s.Lease(ctx, req)
	if err != nil || req.Leave {
		return reply, err
	}
	again := core.LeaseRequest{Member: req.Member, TTL: req.TTL, Release: reply.Held}
	for _, l := range reply.Held {
		again.Want = append(again.Want, l.Lane)
	}
	return s.Lease(ctx, again)
}

// currentLeases knows the leases in force, for stores that do not check what they are given.
type currentLeases struct {
	mu      sync.Mutex
	epochs  map[int]int64
	members map[int]string
}

func (c *currentLeases) lease(ctx context.Context, s *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, err := s.Lease(ctx, req)
	if c.epochs == nil {
		c.epochs, c.members = map[int]int64{}, map[int]string{}
	}
	for _, l := range reply.Held {
		c.epochs[l.Lane], c.members[l.Lane] = l.Epoch, req.Member
	}
	return reply, err
}

func (c *currentLeases) of(lane int) (string, core.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[lane], core.Lease{Lane: lane, Epoch: c.epochs[lane]}
}

func (c *currentLeases) unfencedFetch() sabotage {
	return sabotage{lease: c.lease, fetch: func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
		for i := range req.Lanes {
			req.Member, req.Lanes[i].Lease = c.of(req.Lanes[i].Lane)
		}
		return s.Fetch(ctx, req)
	}}
}

func (c *currentLeases) unfencedSettle() sabotage {
	return sabotage{lease: c.lease, settle: func(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
		for i := range req.Leases {
			req.Member, req.Leases[i] = c.of(req.Leases[i].Lane)
		}
		return s.Settle(ctx, req)
	}}
}

// sameEpoch calls every epoch 1.
func (c *currentLeases) sameEpoch() sabotage {
	s := c.unfencedFetch()
	s.settle = c.unfencedSettle().settle
	s.lease = func(ctx context.Context, store *memstore.Store, req core.LeaseRequest) (core.Leases, error) {
		for i := range req.Release {
			_, req.Release[i] = c.of(req.Release[i].Lane)
		}
		reply, err := c.lease(ctx, store, req)
		for i := range reply.Held {
			reply.Held[i].Epoch = 1
		}
		return reply, err
	}
	return s
}
