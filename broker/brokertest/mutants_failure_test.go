package brokertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

func errorMutants() []mutant {
	return []mutant{
		{
			name: "delivered with an error", caughtBy: "Publish/ErrorIsNilExactlyWhenDelivered",
			wrap: eachResult(func(r *core.Result) {
				if r.Outcome == core.OutcomeDelivered {
					r.Err = errors.New("ok")
				}
			}),
		},
		{
			name: "failed without an error", caughtBy: "Publish/ErrorIsNilExactlyWhenDelivered",
			wrap: eachResult(func(r *core.Result) { r.Err = nil }),
		},
		{
			name: "a refusal is taken for a success", caughtBy: "Publish/RefusedIsNotDelivered",
			wrap: eachResult(func(r *core.Result) { *r = core.Result{Outcome: core.OutcomeDelivered} }),
		},
		{
			name: "a passing refusal is permanent", caughtBy: "Publish/RefusedIsNotDelivered",
			wrap: eachError(func(e *core.PublishError) { e.Class = core.ClassPermanent }),
		},
		{
			name: "one failure fails the batch", caughtBy: "Publish/RefusedMessageDoesNotHurtOthers",
			wrap: results(func(_ []core.Prepared, r []core.Result) []core.Result {
				for _, one := range r {
					if one.Err != nil {
						return slices.Repeat([]core.Result{{Err: one.Err}}, len(r))
					}
				}
				return r
			}),
		},
		{
			name: "unknown is claimed to be rejected", caughtBy: "Publish/LostReplyIsNotClaimedRejected",
			wrap: eachResult(func(r *core.Result) {
				if r.Outcome == core.OutcomeUnknown {
					r.Outcome = core.OutcomeRejected
				}
			}),
		},
		{
			name: "a missing topic is the message's fault", caughtBy: "Publish/MissingTopicIsMisconfiguredAndNamesIt",
			wrap: eachError(func(e *core.PublishError) { e.Class, e.Scope = core.ClassPermanent, core.ScopeMessage }),
		},
		{
			name: "a missing topic without its name", caughtBy: "Publish/MissingTopicIsMisconfiguredAndNamesIt",
			wrap: eachError(func(e *core.PublishError) { e.Err = errors.New("unknown topic or partition") }),
		},
		{
			name: "an outage is the message's fault", caughtBy: "Publish/OutageSpendsNoAttempts",
			wrap: eachError(func(e *core.PublishError) { e.Scope = core.ScopeMessage }),
		},
		{
			name: "dead after an outage", caughtBy: "Publish/RecoversAfterAnOutage",
			wrap: func(w world) core.Broker {
				var dead atomic.Bool
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					dead.CompareAndSwap(false, w.Check(ctx) != nil)
					if dead.Load() {
						return slices.Repeat([]core.Result{{Err: errors.New("not connected")}}, len(batch))
					}
					return w.PublishBatch(ctx, batch)
				}}
			},
		},
		{
			name: "does not connect again", caughtBy: "Publish/RecoversAfterACut",
			wrap: func(w world) core.Broker {
				return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
					if w.cuts.Load() > 0 {
						return slices.Repeat([]core.Result{{Err: errors.New("EOF")}}, len(batch))
					}
					return w.PublishBatch(ctx, batch)
				}}
			},
		},
		{
			name: "always healthy", caughtBy: "Check/FailsWhileDown",
			wrap: func(w world) core.Broker {
				return with{world: w, check: func(context.Context) error { return nil }}
			},
		},
		{
			name: "errors without a class", caughtBy: "Errors/ClassAndScopeAreReachableByErrorsAs",
			wrap: eachResult(func(r *core.Result) {
				if r.Err != nil {
					r.Err = errors.New(r.Err.Error())
				}
			}),
		},
		{
			name: "typed nil as an error", caughtBy: "Errors/ClassAndScopeAreReachableByErrorsAs",
			wrap: eachResult(func(r *core.Result) {
				if r.Err != nil {
					var none *core.PublishError
					r.Err = none
				}
			}),
		},
		{
			name: "payload in the error", caughtBy: "Errors/ClassAndScopeAreReachableByErrorsAs",
			wrap: results(func(batch []core.Prepared, r []core.Result) []core.Result {
				for i := range r {
					if r[i].Err != nil {
						r[i].Err = fmt.Errorf("publish %s: %w", batch[i].Record.Payload, r[i].Err)
					}
				}
				return r
			}),
		},
	}
}

func closeMutants() []mutant {
	return []mutant{
		{
			name: "does not wait", caughtBy: "Close/WaitsForCallsInProgress",
			wrap: func(w world) core.Broker {
				return with{world: w, close: func(ctx context.Context) error {
					ended, cancel := context.WithCancel(ctx)
					cancel()
					_ = w.Close(ended)
					return nil
				}}
			},
		},
		{
			name: "calls go on after Close", caughtBy: "Close/WritesNothingAfterItReturns",
			config: func(c *membroker.Config) {
				c.Script = membroker.Always(membroker.Deliver().After(time.Millisecond))
			},
			wrap: func(w world) core.Broker {
				return with{world: w, close: func(context.Context) error { return nil }}
			},
		},
		{
			name: "waits for ever", caughtBy: "Close/EndsWithItsContext",
			wrap: func(w world) core.Broker {
				return with{world: w, close: func(ctx context.Context) error {
					return w.Close(context.WithoutCancel(ctx))
				}}
			},
		},
		{
			name: "publishes after Close", caughtBy: "Close/LaterCallsAreRejectedWithErrClosed",
			wrap: func(w world) core.Broker {
				return with{world: w, close: func(context.Context) error { return nil }}
			},
		},
		{
			name: "closed is unknown", caughtBy: "Close/LaterCallsAreRejectedWithErrClosed",
			wrap: eachResult(func(r *core.Result) {
				if errors.Is(r.Err, core.ErrClosed) {
					r.Outcome = core.OutcomeUnknown
				}
			}),
		},
		{
			name: "an error when closed twice", caughtBy: "Close/TwiceIsNoError",
			wrap: func(w world) core.Broker {
				var closed atomic.Bool
				return with{world: w, close: func(ctx context.Context) error {
					if closed.Swap(true) {
						return core.ErrClosed
					}
					return w.Close(ctx)
				}}
			},
		},
		{
			name: "leaves a goroutine", caughtBy: "Close/LeaksNoGoroutine",
			wrap: func(w world) core.Broker {
				end := make(chan struct{})
				w.t.Cleanup(func() { close(end) })
				go func() { <-end }()
				return w.Broker
			},
		},
	}
}
