package brokertest_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

func publishMutants() []mutant {
	return []mutant{
		{
			name: "drops but says delivered", caughtBy: "Publish/DeliveredIsReadable",
			wrap: func(w world) core.Broker {
				return with{world: w, publish: func(_ context.Context, batch []core.Prepared) []core.Result {
					return delivered(len(batch))
				}}
			},
		},
		{
			name: "loses the headers of the outbox", caughtBy: "Publish/DeliveredIsReadable",
			wrap: stored(func(m *membroker.Message) { delete(m.Headers, core.HeaderOutboxID) }),
		},
		{
			name: "spoils binary payloads", caughtBy: "Publish/DeliveredIsReadable",
			wrap: stored(func(m *membroker.Message) {
				if m.Payload != nil {
					m.Payload = []byte(strings.ToValidUTF8(string(m.Payload), "?"))
				}
			}),
		},
		{
			name: "another key for each message", caughtBy: "Publish/DeliveredIsReadable",
			wrap: stored(func(m *membroker.Message) { m.Token = m.EventID }),
		},
		{
			name: "nil becomes empty", caughtBy: "Publish/NilAndEmptyPayloads",
			wrap: stored(func(m *membroker.Message) { m.Payload = append([]byte{}, m.Payload...) }),
		},
		{
			name: "swallows replays as repeats", caughtBy: "Publish/ReplayIsDeliveredAgain",
			wrap: func(w world) core.Broker {
				seen := map[string]bool{}
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					if seen[batch[0].Record.EventID] {
						return delivered(len(batch))
					}
					seen[batch[0].Record.EventID] = true
					return w.PublishBatch(ctx, batch)
				}}
			},
		},
		{
			name: "too few results", caughtBy: "Publish/ResultsInOrderOnePerMessage",
			wrap: results(func(_ []core.Prepared, r []core.Result) []core.Result { return r[1:] }),
		},
		{
			name: "results in the wrong order", caughtBy: "Publish/ResultsInOrderOnePerMessage",
			wrap: results(func(_ []core.Prepared, r []core.Result) []core.Result {
				slices.Reverse(r)
				return r
			}),
		},
		{
			name: "keeps the batch", caughtBy: "Publish/DoesNotKeepTheBatch",
			wrap: func(w world) core.Broker {
				var kept []core.Prepared
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					later := slices.DeleteFunc(kept, func(p core.Prepared) bool { return p.Record == nil })
					if len(later) > 0 {
						w.PublishBatch(ctx, later)
					}
					kept = batch
					return delivered(len(batch))
				}}
			},
		},
		{
			name: "refuses calls at the same time", caughtBy: "Publish/DisjointKeysConcurrently",
			config: func(c *membroker.Config) {
				c.Script = membroker.Always(membroker.Deliver().After(time.Millisecond))
			},
			wrap: func(w world) core.Broker {
				var busy atomic.Bool
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					if !busy.CompareAndSwap(false, true) {
						return make([]core.Result, len(batch))
					}
					defer busy.Store(false)
					return w.PublishBatch(ctx, batch)
				}}
			},
		},
		{
			name: "ignores the context", caughtBy: "Publish/ReturnsSoonAfterCtxEnds",
			wrap: func(w world) core.Broker {
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					return w.PublishBatch(context.WithoutCancel(ctx), batch)
				}}
			},
		},
		{
			name: "returns two seconds late", caughtBy: "Publish/ReturnsSoonAfterCtxEnds",
			wrap: func(w world) core.Broker {
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					late, cancel := context.WithCancel(context.WithoutCancel(ctx))
					defer cancel()
					stop := context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, cancel) })
					defer stop()
					return w.PublishBatch(late, batch)
				}}
			},
		},
		{
			name:     "a cancelled call lands late",
			caughtBy: "Publish/NothingOfACancelledCallLandsAfterTheNextCallOfItsKey",
			wrap:     landsLate,
		},
		{
			name:     "a cancelled call goes on in the background",
			caughtBy: "Publish/NothingOfACancelledCallLandsAfterTheNextCallOfItsKey",
			wrap:     writesOn,
		},
		{
			name:     "a cancelled call lands late where no network hangs",
			caughtBy: "Publish/NothingOfACancelledCallLandsAfterTheNextCallOfItsKey",
			config: func(c *membroker.Config) {
				c.Script = membroker.Always(membroker.Deliver().After(250 * time.Microsecond))
			},
			wrap: landsLate, bare: true,
		},
	}
}

// writesOn goes on with a cancelled call in the background, as a client does that cannot recall a request.
func writesOn(w world) core.Broker {
	client := membroker.New(membroker.Config{Server: w.server})
	return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
		kept := slices.Clone(batch)
		r := w.PublishBatch(ctx, batch)
		if ctx.Err() != nil {
			t := time.AfterFunc(100*time.Millisecond, func() { client.PublishBatch(context.WithoutCancel(ctx), kept) })
			w.t.Cleanup(func() { t.Stop() })
		}
		return r
	}}
}

// landsLate writes what was cancelled when it is closed, as a client does that flushes its buffer then.
func landsLate(w world) core.Broker {
	var late [][]core.Prepared
	return with{
		world: w,
		publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
			kept := slices.Clone(batch)
			r := w.PublishBatch(ctx, batch)
			if ctx.Err() != nil {
				late = append(late, kept)
			}
			return r
		},
		close: func(ctx context.Context) error {
			for _, batch := range late {
				w.PublishBatch(ctx, batch)
			}
			late = nil
			return w.Close(ctx)
		},
	}
}

func orderMutants() []mutant {
	return []mutant{
		{
			name: "stores a batch backwards", caughtBy: "Publish/KeepsOrderOfAKeyWithinABatch",
			wrap: func(w world) core.Broker {
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					backwards := slices.Clone(batch)
					slices.Reverse(backwards)
					r := w.PublishBatch(ctx, backwards)
					slices.Reverse(r)
					return r
				}}
			},
		},
		{
			name: "every other call overtakes the one before", caughtBy: "Publish/KeepsOrderOfAKeyAcrossBatches",
			wrap: func(w world) core.Broker {
				var waiting []core.Prepared
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					if waiting == nil {
						waiting = slices.Clone(batch)
						return delivered(len(batch))
					}
					w.PublishBatch(ctx, batch)
					w.PublishBatch(ctx, waiting)
					waiting = nil
					return delivered(len(batch))
				}}
			},
		},
		{
			name: "goes on after a failure of the key", caughtBy: "Publish/PrefixPerKeyHoldsUnderFaults",
			config: func(c *membroker.Config) { c.KeyGuarantee = core.OnePerKey },
			wrap: func(w world) core.Broker {
				return promising{w, func(c *core.Capabilities) { c.KeyGuarantee = core.PrefixPerKey }}
			},
		},
		{
			name: "delivered although refused", caughtBy: "Publish/FirstOccurrencesStayInOrderUnderFaults",
			wrap: eachResult(func(r *core.Result) {
				if r.Outcome == core.OutcomeRejected {
					*r = core.Result{Outcome: core.OutcomeDelivered}
				}
			}),
		},
	}
}
