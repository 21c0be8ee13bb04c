package storetest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

type fetchFunc = func(context.Context, *memstore.Store, core.FetchRequest) (core.Batch, error)

func fetchMutants() []mutant {
	request := func(change func(*core.LaneFetch)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{fetch: asking(change)} }
	}
	reply := func(change func(core.LaneFetch, *core.LaneBatch)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{fetch: answering(change)} }
	}
	records := func(drop func(core.LaneFetch, *core.Record) bool) func(testing.TB) sabotage {
		return reply(func(q core.LaneFetch, lane *core.LaneBatch) {
			lane.Records = slices.DeleteFunc(lane.Records, func(r *core.Record) bool { return drop(q, r) })
		})
	}
	budget := func(change func(*core.FetchRequest)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage {
			return sabotage{fetch: func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
				change(&req)
				return s.Fetch(ctx, req)
			}}
		}
	}
	return []mutant{
		{"reorders", []string{"Fetch/ReturnsIDOrder", "Enqueue/OneCallKeepsItsOrder"}, reply(
			func(_ core.LaneFetch, lane *core.LaneBatch) { slices.Reverse(lane.Records) },
		)},
		{"returns held records", []string{"Fetch/LeavesOutHeld"}, request(func(q *core.LaneFetch) { q.Held = nil })},
		{"lets closed keys fill the reply", []string{"Fetch/ClosedKeysDoNotFillTheReply"}, request(
			func(q *core.LaneFetch) { q.Closed = nil },
		)},
		{"leaves closed keys out below their head", []string{"Fetch/AClosedKeyIsReadAgainBelowItsHead"}, records(
			func(q core.LaneFetch, r *core.Record) bool {
				return slices.ContainsFunc(q.Closed, func(c core.ClosedKey) bool { return c.Key == r.Key() })
			},
		)},
		{"closes an aggregate for all topics", []string{"Fetch/AClosedKeyIsTopicAndAggregate"}, records(
			func(q core.LaneFetch, r *core.Record) bool {
				return slices.ContainsFunc(q.Closed, func(c core.ClosedKey) bool { return c.AggregateID == r.AggregateID })
			},
		)},
		{"loses a rewind", []string{"Fetch/RewindReturnsUnsettledAgain"}, request(func(q *core.LaneFetch) { q.RewindFrom = 0 })},
		{"tells no requeue", []string{
			"Fetch/RequeuedIsReturnedAndNamedInRewound", "Fetch/RequeuedWhileHeldIsNamedInRewound",
		}, reply(func(_ core.LaneFetch, lane *core.LaneBatch) { lane.Rewound = nil })},
		{"tells a requeue for ever", []string{"Fetch/RequeuedIsReturnedAndNamedInRewound"}, func(testing.TB) sabotage {
			told := map[int][]int64{}
			return sabotage{fetch: answering(func(q core.LaneFetch, lane *core.LaneBatch) {
				told[q.Lane] = append(told[q.Lane], lane.Rewound...)
				lane.Rewound = slices.Clone(told[q.Lane])
			})}
		}},
		{"returns everything with every fetch", []string{"Fetch/ReturnsARecordOnceUntilAskedAgain"}, request(
			func(q *core.LaneFetch) { q.RewindFrom = 1 },
		)},
		{"lies about UpTo", []string{"Fetch/CutByRecordsSaysUpTo", "Fetch/ACutReplyCoversWhatItSays"}, reply(
			func(_ core.LaneFetch, lane *core.LaneBatch) { lane.UpTo = core.EverythingAbove },
		)},
		{"ignores MaxBytes", []string{"Fetch/CutByBytesReturnsAtLeastOne"}, budget(
			func(req *core.FetchRequest) { req.MaxBytes = 1 << 40 },
		)},
		{"ignores MaxRecords", []string{"Fetch/CutByRecordsSaysUpTo"}, budget(
			func(req *core.FetchRequest) { req.MaxRecords = 1 << 20 },
		)},
		{"returns nothing when the first is too large", []string{"Fetch/CutByBytesReturnsAtLeastOne"}, func(testing.TB) sabotage {
			return sabotage{fetch: strictBytes}
		}},
		{"leaves out what is not due", []string{"Fetch/DelayIsByTheStoresClock"}, records(
			func(_ core.LaneFetch, r *core.Record) bool { return r.Delay > 0 },
		)},
		{"leaves out held heads", []string{"Fetch/HeadsAreReadByIDWhateverIsHeld"}, reply(
			func(q core.LaneFetch, lane *core.LaneBatch) {
				lane.Heads = slices.DeleteFunc(lane.Heads, func(r *core.Record) bool { return slices.Contains(q.Held, r.ID) })
			},
		)},
		{"hands out its own memory", []string{"Record/BelongsToTheDispatcher"}, func(testing.TB) sabotage {
			known := map[string]*core.Record{}
			return sabotage{fetch: answering(func(_ core.LaneFetch, lane *core.LaneBatch) {
				for i, r := range lane.Records {
					if known[r.EventID] == nil {
						known[r.EventID] = r
					}
					lane.Records[i] = known[r.EventID]
				}
			})}
		}},
		{"hangs past the context", []string{"Cancel/EveryMethodReturnsAfterCtxEnds"}, func(t testing.TB) sabotage {
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			return sabotage{fetch: func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
				if ctx.Err() != nil {
					<-end
				}
				return s.Fetch(ctx, req)
			}}
		}},
	}
}

// asking sends another request than it was given.
func asking(change func(*core.LaneFetch)) fetchFunc {
	return func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
		req.Lanes = slices.Clone(req.Lanes)
		for i := range req.Lanes {
			change(&req.Lanes[i])
		}
		return s.Fetch(ctx, req)
	}
}

// answering gives another answer than it got.
func answering(change func(core.LaneFetch, *core.LaneBatch)) fetchFunc {
	return func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
		batch, err := s.Fetch(ctx, req)
		for i := range batch.Lanes {
			change(req.Lanes[i], &batch.Lanes[i])
		}
		return batch, err
	}
}

func strictBytes(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
	batch, err := s.Fetch(ctx, req)
	for i := range batch.Lanes {
		lane := &batch.Lanes[i]
		lane.Records = slices.DeleteFunc(lane.Records, func(r *core.Record) bool { return r.Size() > req.MaxBytes })
	}
	return batch, err
}
