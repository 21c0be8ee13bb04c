package storetest_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

const (
	anyInterleaving = "Concurrency/AnyInterleavingOfTransactionsAndDispatchers"
	twoDispatchers  = "Concurrency/WritersAndTwoDispatchers"
)

// The cursors that outboxes are usually built with.
func cursorMutants() []mutant {
	return []mutant{
		{"goes on from the highest id", []string{
			"Fetch/ReturnsALateCommitBelowThePosition", "Fetch/ALateCommitComesBeforeLaterRecordsOfItsKey",
			anyInterleaving,
		}, func(testing.TB) sabotage {
			return sabotage{fetch: highestID(func(q core.LaneFetch) core.Lease { return q.Lease })}
		}},
		{"keeps its position for the next owner", []string{"Fetch/NewEpochStartsAnew", anyInterleaving}, func(testing.TB) sabotage {
			return sabotage{fetch: highestID(func(q core.LaneFetch) core.Lease { return core.Lease{Lane: q.Lane} })}
		}},
		{"returns new records before late ones", []string{
			"Fetch/ALateCommitComesBeforeLaterRecordsOfItsKey", "Fetch/ACutAmongLateCommitsSkipsNone", anyInterleaving,
		}, func(testing.TB) sabotage { return sabotage{fetch: newBeforeLate} }},
		{"does not move back when late records are cut", []string{"Fetch/ACutAmongLateCommitsSkipsNone"}, func(testing.TB) sabotage {
			return sabotage{fetch: returningOnce()}
		}},
	}
}

// highestID leaves out what is not above the highest id returned under the same name.
func highestID(name func(core.LaneFetch) core.Lease) fetchFunc {
	var mu sync.Mutex
	position := map[core.Lease]int64{}
	return answering(func(q core.LaneFetch, lane *core.LaneBatch) {
		mu.Lock()
		defer mu.Unlock()
		at := position[name(q)]
		if q.RewindFrom != 0 {
			at = min(at, q.RewindFrom-1)
		}
		lane.Records = slices.DeleteFunc(lane.Records, func(r *core.Record) bool { return r.ID <= at })
		for _, r := range lane.Records {
			at = max(at, r.ID)
		}
		position[name(q)] = at
	})
}

// newBeforeLate gives the room of a reply to what is above the position first.
func newBeforeLate(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
	room := req.MaxRecords
	req.MaxRecords = 1 << 20
	batch, err := s.Fetch(ctx, req)
	for i := range batch.Lanes {
		lane := &batch.Lanes[i]
		slices.SortStableFunc(lane.Records, func(a, b *core.Record) int {
			return cmp.Compare(boolToInt(a.ID <= lane.After), boolToInt(b.ID <= lane.After))
		})
		lane.Records = lane.Records[:min(room, len(lane.Records))]
		room -= len(lane.Records)
		slices.SortFunc(lane.Records, func(a, b *core.Record) int { return cmp.Compare(a.ID, b.ID) })
	}
	return batch, err
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// returningOnce looks for late records once, and takes all that it saw then for returned.
func returningOnce() fetchFunc {
	var mu sync.Mutex
	seen := map[int64]bool{}
	return func(ctx context.Context, s *memstore.Store, req core.FetchRequest) (core.Batch, error) {
		mu.Lock()
		defer mu.Unlock()
		room := req.MaxRecords
		req.MaxRecords = 1 << 20
		batch, err := s.Fetch(ctx, req)
		for i := range batch.Lanes {
			lane := &batch.Lanes[i]
			lane.Records = slices.DeleteFunc(lane.Records, func(r *core.Record) bool {
				known := seen[r.ID]
				seen[r.ID] = true
				return known
			})
			lane.Records = lane.Records[:min(room, len(lane.Records))]
			room -= len(lane.Records)
		}
		return batch, err
	}
}
