package storetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

type enqueueFunc = func(context.Context, *memstore.Tx, []core.Message) ([]string, error)

func enqueueMutants() []mutant {
	return []mutant{
		{"commits what was rolled back", []string{"Enqueue/RolledBackIsNeverReturned"}, func(testing.TB) sabotage {
			return sabotage{rollback: (*memstore.Tx).Commit}
		}},
		{"shows rows before the commit", []string{"Enqueue/IsInvisibleBeforeCommit"}, func(testing.TB) sabotage {
			return sabotage{enqueue: func(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
				ids, err := tx.Enqueue(ctx, ms...)
				return ids, errors.Join(err, tx.Commit()) //nolint:contextcheck // a commit takes none
			}}
		}},
		{"reports the first fault only", []string{"Enqueue/RefusesAllFaultsAtOnceAndKeepsTheTransactionUsable"}, func(testing.TB) sabotage {
			return sabotage{enqueue: oneByOne}
		}},
		{"breaks the transaction by a fault", []string{"Enqueue/RefusesAllFaultsAtOnceAndKeepsTheTransactionUsable"}, func(testing.TB) sabotage {
			return sabotage{enqueue: func(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
				ids, err := tx.Enqueue(ctx, ms...)
				if err != nil {
					_ = tx.Rollback()
				}
				return ids, err
			}}
		}},
		{"writes a known event again", []string{"Enqueue/SameEventTwiceIsANoOp"}, func(testing.TB) sabotage {
			return sabotage{enqueue: ignoringKnownIDs()}
		}},
		{"takes another event for a repeat", []string{"Enqueue/SameIDOtherKeyConflicts"}, func(testing.TB) sabotage {
			return sabotage{enqueue: func(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
				ids, err := tx.Enqueue(ctx, ms...)
				if conflict := (*core.EventConflictError)(nil); errors.As(err, &conflict) {
					return make([]string, len(ms)), nil
				}
				return ids, err
			}}
		}},
		{"drops headers", []string{"Headers/KeepsOddCharacters"}, func(testing.TB) sabotage {
			return sabotage{enqueue: changed(func(m *core.Message) { m.Headers = nil })}
		}},
		{"drops empty header values", []string{"Headers/KeepsOddCharacters"}, func(testing.TB) sabotage {
			return sabotage{enqueue: changed(func(m *core.Message) { delete(m.Headers, "empty") })}
		}},
		{"turns nil into empty", []string{"Payload/NilStaysNil"}, func(testing.TB) sabotage {
			return sabotage{enqueue: changed(func(m *core.Message) { m.Payload = append([]byte{}, m.Payload...) })}
		}},
		{"turns empty into nil", []string{"Payload/EmptyStaysEmptyOrIsRefused"}, func(testing.TB) sabotage {
			return sabotage{enqueue: changed(func(m *core.Message) { m.Payload = append([]byte(nil), m.Payload...) })}
		}},
		{"turns null into nil", []string{"Payload/ComesBackAsItWas"}, func(testing.TB) sabotage {
			return sabotage{enqueue: changed(func(m *core.Message) {
				if string(m.Payload) == "null" {
					m.Payload = nil
				}
			})}
		}},
	}
}

func oneByOne(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
	var all []string
	for _, m := range ms {
		ids, err := tx.Enqueue(ctx, m)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	return all, nil
}

// changed enqueues something else than it was given.
func changed(change func(*core.Message)) enqueueFunc {
	return func(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
		for i := range ms {
			change(&ms[i])
		}
		return tx.Enqueue(ctx, ms...)
	}
}

func ignoringKnownIDs() enqueueFunc {
	known := map[string]bool{}
	return func(ctx context.Context, tx *memstore.Tx, ms []core.Message) ([]string, error) {
		ids := make([]string, len(ms))
		for i := range ms {
			ids[i] = ms[i].EventID
			if known[ids[i]] {
				ms[i].EventID = ""
			}
			known[ids[i]] = true
		}
		_, err := tx.Enqueue(ctx, ms...)
		return ids, err
	}
}
