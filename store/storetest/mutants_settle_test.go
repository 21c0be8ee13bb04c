package storetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func settleMutants() []mutant {
	items := func(change func(*memstore.Store, *core.SettleItem)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage {
			return sabotage{settle: func(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
				req.Items = slices.Clone(req.Items)
				for i := range req.Items {
					change(s, &req.Items[i])
				}
				return s.Settle(ctx, req)
			}}
		}
	}
	return []mutant{
		{"loses a result", []string{
			"Settle/PublishedIsNeverReturnedAgain", anyInterleaving, twoDispatchers,
		}, func(testing.TB) sabotage { return sabotage{settle: losingTheLast} }},
		{"counts attempts again on a repeat", []string{"Settle/RepeatChangesNothing"}, items(
			func(s *memstore.Store, item *core.SettleItem) {
				if row, found := s.Row(item.Record.EventID); found && row.Attempts >= item.Attempts {
					item.Attempts = row.Attempts + 1
				}
			},
		)},
		{"keeps parked records in the order", []string{"Settle/ParkedLeavesTheOrder"}, items(
			func(_ *memstore.Store, item *core.SettleItem) {
				if item.Status == core.StatusParked {
					item.Status = core.StatusFailed
				}
			},
		)},
		{"cuts the reason", []string{"Settle/KeepsTheReasonWithOddCharacters"}, items(
			func(_ *memstore.Store, item *core.SettleItem) {
				item.Reason = item.Reason[:min(1000, len(item.Reason))]
			},
		)},
		{"forgets the delay", []string{"Fetch/DelayIsByTheStoresClock"}, items(
			func(_ *memstore.Store, item *core.SettleItem) { item.RetryIn = 0 },
		)},
		{"forgets when it first failed", []string{"Settle/FailedKeepsAttemptsAndDelay"}, func(testing.TB) sabotage {
			return sabotage{fetch: answering(func(_ core.LaneFetch, lane *core.LaneBatch) {
				for _, r := range lane.Records {
					r.FirstFailedAt = time.Now()
				}
			})}
		}},
		{"settles by id alone", []string{"Settle/ByIDAloneIsNotEnough"}, items(forgivingEvent)},
		{"settles a replay by the old result", []string{"Settle/AfterReplayMissesTheOldRecord"}, items(forgivingReplay)},
		{"names no missed records", []string{"Settle/WritesWhatItFindsAndNamesTheRest"}, func(testing.TB) sabotage {
			return sabotage{settle: func(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
				reply, err := s.Settle(ctx, req)
				reply.Missed = nil
				return reply, err
			}}
		}},
		{"writes nothing when something is missing", []string{"Settle/WritesWhatItFindsAndNamesTheRest"}, func(testing.TB) sabotage {
			return sabotage{settle: allOrNothing}
		}},
		{"writes nothing when a lane is refused", []string{"Settle/OtherLanesOfTheSameCallAreWritten"}, func(testing.TB) sabotage {
			return sabotage{settle: noLaneWithoutTheOthers}
		}},
	}
}

func losingTheLast(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
	if len(req.Items) > 0 {
		req.Items = req.Items[:len(req.Items)-1]
	}
	return s.Settle(ctx, req)
}

// forgivingEvent takes whatever event has the record's id.
func forgivingEvent(s *memstore.Store, item *core.SettleItem) {
	for _, row := range s.Rows() {
		if row.ID == item.Record.ID {
			record := *item.Record
			record.EventID = row.EventID
			item.Record = &record
		}
	}
}

// forgivingReplay takes the event however often it was replayed since.
func forgivingReplay(s *memstore.Store, item *core.SettleItem) {
	if row, found := s.Row(item.Record.EventID); found {
		record := *item.Record
		record.Replay = row.Replay
		item.Record = &record
	}
}

func allOrNothing(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
	var missed []*core.Record
	for _, item := range req.Items {
		if row, found := s.Row(item.Record.EventID); !found || row.Replay != item.Record.Replay {
			missed = append(missed, item.Record)
		}
	}
	if len(missed) > 0 {
		return core.Settled{Missed: missed}, nil
	}
	return s.Settle(ctx, req)
}

func noLaneWithoutTheOthers(ctx context.Context, s *memstore.Store, req core.Settlement) (core.Settled, error) {
	asked, err := s.Settle(ctx, core.Settlement{Member: req.Member, Leases: req.Leases})
	if err != nil || len(asked.Refused) > 0 {
		return asked, err
	}
	return s.Settle(ctx, req)
}
