package storetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

func deadLetterMutants() []mutant {
	return append(listMutants(), changeMutants()...)
}

// allStates are all dead letters, whatever their state.
func allStates(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) []core.DeadLetter {
	var all []core.DeadLetter
	for _, state := range []core.DeadLetterState{core.StateParked, core.StateBlocked, core.StateDiscarded} {
		filter.State = state
		dead, _ := s.ListDead(ctx, filter, 0, 10_000) // it cannot fail
		all = append(all, dead...)
	}
	return all
}

func listMutants() []mutant {
	filtering := func(change func(*core.DeadLetterFilter)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage {
			return sabotage{listDead: func(
				ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, after int64, limit int,
			) ([]core.DeadLetter, error) {
				change(&filter)
				return s.ListDead(ctx, filter, after, limit)
			}}
		}
	}
	showing := func(change func(*core.DeadLetter)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage {
			return sabotage{listDead: func(
				ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, after int64, limit int,
			) ([]core.DeadLetter, error) {
				dead, err := s.ListDead(ctx, filter, after, limit)
				for i := range dead {
					change(&dead[i])
				}
				return dead, err
			}}
		}
	}
	const fields = "DeadLetters/EachFieldOfTheFilterSelects"
	return []mutant{
		{"ignores event ids", []string{fields}, filtering(func(f *core.DeadLetterFilter) { f.EventIDs = nil })},
		{"ignores the topic", []string{fields}, filtering(func(f *core.DeadLetterFilter) { f.Topic = "" })},
		{"ignores upper and lower case of a topic", []string{fields}, filtering(
			func(f *core.DeadLetterFilter) { f.Topic = strings.ToLower(f.Topic) },
		)},
		{"ignores the aggregate type", []string{fields}, filtering(func(f *core.DeadLetterFilter) { f.AggregateType = "" })},
		{"ignores the aggregate id", []string{fields}, filtering(func(f *core.DeadLetterFilter) { f.AggregateID = "" })},
		{"ignores the event type", []string{fields}, filtering(func(f *core.DeadLetterFilter) { f.EventType = "" })},
		{"takes a reason for a pattern", []string{fields}, filtering(
			func(f *core.DeadLetterFilter) {
				f.Reason = strings.NewReplacer("100_ of", "100% of", `\`, "").Replace(f.Reason)
			},
		)},
		{"takes the start of a time for excluded", []string{fields}, filtering(func(f *core.DeadLetterFilter) {
			if !f.CreatedAfter.IsZero() {
				f.CreatedAfter = f.CreatedAfter.Add(1)
			}
		})},
		{"takes the end of a time for included", []string{fields}, filtering(func(f *core.DeadLetterFilter) {
			if !f.CreatedBefore.IsZero() {
				f.CreatedBefore = f.CreatedBefore.Add(1)
			}
		})},
		{"ignores the state", []string{"DeadLetters/EachStateIsListedOnItsOwn"}, filtering(
			func(f *core.DeadLetterFilter) { f.State = core.StateParked },
		)},
		{"takes an unknown state for parked", []string{"DeadLetters/WhatMakesNoSenseIsRefused"}, filtering(
			func(f *core.DeadLetterFilter) { f.State = core.StateParked },
		)},
		{"shows no reason", []string{
			"DeadLetters/ListShowsWhatAPersonNeeds", "DeadLetters/EachStateIsListedOnItsOwn",
		}, showing(func(d *core.DeadLetter) { d.Reason = "" })},
		{"shows no headers", []string{"DeadLetters/ListShowsWhatAPersonNeeds"}, showing(
			func(d *core.DeadLetter) { d.Record.Headers = nil },
		)},
		{"shows no payload", []string{"DeadLetters/ListShowsWhatAPersonNeeds"}, showing(
			func(d *core.DeadLetter) { d.Record.Payload = nil },
		)},
		{"returns each page twice", []string{"DeadLetters/ListIsReadInPages"}, func(testing.TB) sabotage {
			return sabotage{listDead: func(
				ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, after int64, limit int,
			) ([]core.DeadLetter, error) {
				return s.ListDead(ctx, filter, max(0, after-1), limit)
			}}
		}},
	}
}

func changeMutants() []mutant {
	requeue := func(f func(context.Context, *memstore.Store, core.DeadLetterFilter) (int, error)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{requeueDead: f} }
	}
	discard := func(f func(context.Context, *memstore.Store, core.DeadLetterFilter, string) (int, error)) func(testing.TB) sabotage {
		return func(testing.TB) sabotage { return sabotage{discardDead: f} }
	}
	return []mutant{
		{"requeues one too few", []string{
			"DeadLetters/RequeueMakesThemNewAndTellsTheOwner", "DeadLetters/RequeueTakesThousands",
			"DeadLetters/RequeueKeepsTheOrderOfAKey",
		}, requeue(func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) (int, error) {
			dead, err := s.ListDead(ctx, filter, 0, 10_000)
			if err != nil || len(dead) == 0 {
				return 0, err
			}
			return len(dead), s.Requeue(eventsOf(dead[1:])...)
		})},
		{"counts what others requeued", []string{"DeadLetters/RequeuesAtTheSameTimeCountEachRowOnce"}, requeue(
			func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) (int, error) {
				n, err := s.RequeueDead(ctx, filter)
				return n + 1, err
			},
		)},
		{"requeues whatever the state", []string{
			"DeadLetters/RequeueChangesNothingElse", "DeadLetters/DiscardIsUndoneByRequeue",
		}, requeue(func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) (int, error) {
			dead := allStates(ctx, s, core.DeadLetterFilter{})
			return len(dead), s.Requeue(eventsOf(dead)...)
		})},
		{"cannot requeue what is blocked or discarded", []string{
			"DeadLetters/RequeueFreesABlockedKey", "DeadLetters/DiscardIsUndoneByRequeue",
		}, requeue(func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) (int, error) {
			filter.State = core.StateParked
			return s.RequeueDead(ctx, filter)
		})},
		{"deletes what is discarded", []string{
			"DeadLetters/DiscardKeepsTheRowAndWhy", "DeadLetters/DiscardIsUndoneByRequeue",
		}, discard(func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, _ string) (int, error) {
			dead, err := s.ListDead(ctx, filter, 0, 10_000)
			if err != nil {
				return 0, err
			}
			return len(dead), s.Delete(eventsOf(dead)...)
		})},
		{"forgets why it was discarded", []string{
			"DeadLetters/DiscardKeepsTheRowAndWhy", "DeadLetters/DiscardBoundsTheReason",
		}, discard(func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, _ string) (int, error) {
			return s.DiscardDead(ctx, filter, "no longer wanted")
		})},
		{"needs no reason", []string{"DeadLetters/WhatMakesNoSenseIsRefused"}, discard(
			func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, reason string) (int, error) {
				return s.DiscardDead(ctx, filter, reason+" ok")
			},
		)},
		{"discards again what is discarded", []string{"DeadLetters/DiscardKeepsTheRowAndWhy"}, discard(
			func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter, reason string) (int, error) {
				dead := allStates(ctx, s, filter)
				if _, err := s.DiscardDead(ctx, filter, reason); err != nil {
					return 0, err
				}
				return len(dead), nil
			},
		)},
		{"purges what is parked", []string{"DeadLetters/PurgeTakesOnlyWhatIsDiscarded"}, func(testing.TB) sabotage {
			return sabotage{purge: func(s *memstore.Store) {
				for _, row := range s.Rows() {
					if row.State == memstore.Parked || row.State == memstore.Discarded {
						_ = s.Delete(row.EventID) // it is there
					}
				}
			}}
		}},
		{"purges nothing that is discarded", []string{"DeadLetters/PurgeTakesOnlyWhatIsDiscarded"}, func(testing.TB) sabotage {
			return sabotage{purge: func(*memstore.Store) {}}
		}},
		{"purges by what it read before", []string{"DeadLetters/RequeueOrPurgeNeverBoth"}, func(testing.TB) sabotage {
			read, requeued := make(chan struct{}), make(chan struct{})
			return sabotage{
				purge: func(s *memstore.Store) {
					rows := s.Rows()
					close(read)
					<-requeued
					for _, row := range rows {
						_ = s.Delete(row.EventID) // it is there
					}
				},
				requeueDead: func(ctx context.Context, s *memstore.Store, filter core.DeadLetterFilter) (int, error) {
					<-read
					defer close(requeued)
					return s.RequeueDead(ctx, filter)
				},
			}
		}},
	}
}

func eventsOf(dead []core.DeadLetter) []string {
	var ids []string
	for _, d := range dead {
		ids = append(ids, d.Record.EventID)
	}
	return ids
}
