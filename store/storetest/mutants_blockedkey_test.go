package storetest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

func blockedKeyMutants() []mutant {
	unblock := func(f func(context.Context, *memstore.Store, ordering.Key) (int, error)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{unblock: f} }
	}
	skip := func(f func(context.Context, *memstore.Store, ordering.Key, string) (int, error)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{skipHead: f} }
	}
	settling := func(change func(*core.SettleItem)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage {
			return sabotage{settle: func(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
				req.Items = slices.Clone(req.Items)
				for i := range req.Items {
					if req.Items[i].Status == core.StatusBlocked {
						change(&req.Items[i])
					}
				}
				return s.Settle(ctx, req)
			}}
		}
	}
	const blocked = "Settle/BlockedStaysTheHeadAndIsNeverDue"
	return []mutant{
		{"parks what is blocked", []string{blocked}, settling(func(i *core.SettleItem) { i.Status = core.StatusParked })},
		{"lets what is blocked be due", []string{blocked}, settling(func(i *core.SettleItem) { i.Status = core.StatusFailed })},
		{"lets a zombie block a key", []string{
			"Settle/RefusesAMemberThatWasOvertaken", "Settle/RefusesAnOldEpochAndWritesNothingOfIt",
		}, func(testing.TB) sabotage { return sabotage{settle: blockingUnderAnyLease} }},
		{"unblocks no more than the state", []string{"DeadLetters/UnblockTriesTheHeadAgain"}, unblock(
			func(context.Context, *memstore.Store, ordering.Key) (int, error) { return 1, nil },
		)},
		{"unblocks whatever the topic", []string{"DeadLetters/UnblockTriesTheHeadAgain"}, unblock(
			func(ctx context.Context, s *memstore.Store, key ordering.Key) (int, error) {
				n, err := s.Unblock(ctx, key)
				for _, topic := range []string{"x", "y"} {
					if n == 1 && err == nil {
						_, err = s.Unblock(ctx, ordering.Key{Topic: topic, AggregateType: key.AggregateType, AggregateID: key.AggregateID})
					}
				}
				return n, err
			},
		)},
		{"unblocks keys that wait for the clock", []string{"DeadLetters/UnblockIsForBlockedKeysOnly"}, unblock(
			func(ctx context.Context, s *memstore.Store, key ordering.Key) (int, error) {
				if n, err := s.Unblock(ctx, key); n > 0 || err != nil {
					return n, err
				}
				return requeueHead(s, key)
			},
		)},
		{"leaves a skipped head to the clock", []string{"DeadLetters/SkipHeadParksItAndTheKeyGoesOn"}, skip(
			func(ctx context.Context, s *memstore.Store, key ordering.Key, reason string) (int, error) {
				for _, row := range s.Rows() {
					if row.Key() == key && row.State == memstore.Pending && row.Attempts > 0 {
						return 1, nil
					}
				}
				return s.SkipHead(ctx, key, reason)
			},
		)},
		{"skips heads that did not fail", []string{"DeadLetters/SkipHeadIsForHeadsThatFailed"}, skip(
			func(ctx context.Context, s *memstore.Store, key ordering.Key, reason string) (int, error) {
				if n, err := s.SkipHead(ctx, key, reason); n > 0 || err != nil {
					return n, err
				}
				return requeueHead(s, key)
			},
		)},
		{"keeps a head in flight from being skipped", []string{"DeadLetters/SkipHeadInFlightMakesTheLateSettleMiss"}, skip(
			func(context.Context, *memstore.Store, ordering.Key, string) (int, error) { return 1, nil },
		)},
		{"does not tell whom it skipped", []string{
			"DeadLetters/SkipHeadParksItAndTheKeyGoesOn", "DeadLetters/UnblockTriesTheHeadAgain",
			"DeadLetters/RequeueMakesThemNewAndTellsTheOwner",
		}, func(testing.TB) sabotage {
			return sabotage{fetch: answering(func(_ core.LaneFetch, lane *core.LaneBatch) { lane.Rewound = nil })}
		}},
	}
}

// requeueHead is some change of the first unsettled row of a key.
func requeueHead(s *memstore.Store, key ordering.Key) (int, error) {
	for _, row := range s.Rows() {
		if row.Key() == key && (row.State == memstore.Pending || row.State == memstore.Blocked) {
			return 1, s.Requeue(row.EventID)
		}
	}
	return 0, nil
}

// blockingUnderAnyLease writes blocks although the lane is somebody else's.
func blockingUnderAnyLease(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
	reply, err := s.Settle(ctx, req)
	if err != nil || len(reply.Refused) == 0 {
		return reply, err
	}
	for _, item := range req.Items {
		if item.Status == core.StatusBlocked {
			return reply, s.Delete(item.Record.EventID) // which no other status would do
		}
	}
	return reply, nil
}
