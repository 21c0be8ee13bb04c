package brokertest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// promising is a broker with other capabilities than it has.
type promising struct {
	world
	change func(*core.Capabilities)
}

func (p promising) Capabilities() core.Capabilities {
	c := p.Broker.Capabilities()
	p.change(&c)
	return c
}

// limited refuses batches that are too large for it.
func limited(w world, fits func([]core.Prepared) bool) world {
	sound := w.Broker
	w.Broker = with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
		if !fits(batch) {
			return slices.Repeat([]core.Result{{
				Outcome: core.OutcomeRejected, Err: &core.PublishError{Code: "TOO_MANY", Err: errors.New("split it")},
			}}, len(batch))
		}
		return sound.PublishBatch(ctx, batch)
	}}
	return w
}

func capabilityMutants() []mutant {
	return []mutant{
		{
			name: "another limit after a call", caughtBy: "Capabilities/AreConstant",
			wrap: func(w world) core.Broker {
				var reads atomic.Int64
				return promising{w, func(c *core.Capabilities) { c.MaxBatch = 100 + int(reads.Add(1)) }}
			},
		},
		{
			name: "promises a larger batch than it takes", caughtBy: "Capabilities/FullBatchIsDelivered",
			wrap: func(w world) core.Broker {
				w = limited(w, func(batch []core.Prepared) bool { return len(batch) <= 10 })
				return promising{w, func(c *core.Capabilities) { c.MaxBatch = 11 }}
			},
		},
		{
			name: "promises more bytes than it takes", caughtBy: "Capabilities/BatchOfMaxBatchBytesIsDelivered",
			wrap: func(w world) core.Broker {
				return limited(w, func(batch []core.Prepared) bool {
					size := 0
					for _, m := range batch {
						size += m.Bytes
					}
					return size <= 16<<10
				})
			},
		},
		{
			name: "Check ignores its context", caughtBy: "Check/ReturnsSoonAfterCtxEnds",
			wrap: func(w world) core.Broker {
				end := make(chan struct{})
				w.t.Cleanup(func() { close(end) })
				return with{world: w, check: func(context.Context) error {
					<-end
					return nil
				}}
			},
		},
	}
}

// declaring is a mutant of the topology.
type declaring struct {
	*membroker.Broker
	declare, verify func(ctx context.Context, topics ...string) error
}

func (d declaring) Declare(ctx context.Context, topics ...string) error {
	return d.declare(ctx, topics...)
}

func (d declaring) Verify(ctx context.Context, topics ...string) error {
	return d.verify(ctx, topics...)
}

func topologyMutants() []mutant {
	nothing := func(context.Context, ...string) error { return nil }
	return []mutant{
		{
			name: "finds nothing wrong", caughtBy: "Topology/VerifyNamesWhatIsMissing",
			wrap: func(w world) core.Broker {
				b := membroker.New(membroker.Config{Server: w.server})
				return declaring{Broker: b, declare: b.Declare, verify: nothing}
			},
		},
		{
			name: "reports without a name", caughtBy: "Topology/VerifyNamesWhatIsMissing",
			wrap: func(w world) core.Broker {
				b := membroker.New(membroker.Config{Server: w.server})
				return declaring{Broker: b, declare: b.Declare, verify: func(ctx context.Context, topics ...string) error {
					if b.Verify(ctx, topics...) != nil {
						return errors.New("not as it should be")
					}
					return nil
				}}
			},
		},
		{
			name: "declares nothing", caughtBy: "Topology/DeclareMakesWhatIsMissing",
			wrap: func(w world) core.Broker {
				b := membroker.New(membroker.Config{Server: w.server})
				return declaring{Broker: b, declare: nothing, verify: nothing}
			},
		},
		{
			name: "cannot declare twice", caughtBy: "Topology/DeclareMakesWhatIsMissing",
			wrap: func(w world) core.Broker {
				b := membroker.New(membroker.Config{Server: w.server})
				return declaring{Broker: b, verify: b.Verify, declare: func(ctx context.Context, topics ...string) error {
					if b.Verify(ctx, topics...) == nil {
						return errors.New("already exists")
					}
					return b.Declare(ctx, topics...)
				}}
			},
		},
	}
}
