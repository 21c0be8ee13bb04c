package sim_test

import (
	"math/rand/v2"
	"time"

	"github.com/go-outbox/outbox/core"
)

// deadSuffix is where copies of dead letters go, in the runs that have them.
const deadSuffix = ".dlq"

// plan is what is fixed for one run.
type plan struct {
	memory                  bool // memstore in place of the model
	lanes, replicas         int
	keys, topics            int
	transactions            int
	sweep                   time.Duration // 0 for never
	ttl                     time.Duration
	guarantee               core.KeyGuarantee
	calls, batch            int // of the broker
	faulty                  int // of 100 publish calls
	restless                int // how often something big goes wrong, in seconds
	config                  core.Config
	halts                   bool
	failovers, holds, skews bool
}

func newPlan(r *rand.Rand) plan {
	one := func(n int) bool { return r.IntN(n) == 0 }
	p := plan{
		memory: one(4), lanes: 1 + r.IntN(5), replicas: 1 + r.IntN(3), keys: 1 + r.IntN(5), topics: 1 + r.IntN(3),
		transactions: 30 + r.IntN(40), ttl: time.Duration(1000+r.IntN(5000)) * time.Millisecond,
		guarantee: core.KeyGuarantee(r.IntN(2)), calls: 1 + r.IntN(3), batch: r.IntN(6), faulty: r.IntN(25),
		restless: 1 + r.IntN(8), halts: one(6), failovers: one(2), holds: one(3), skews: one(2),
	}
	if one(3) {
		p.sweep = 20 * time.Second
	}
	p.config = core.Config{
		FetchSize: 1 + r.IntN(10), PublishSize: 1 + r.IntN(6),
		PublishTimeout: time.Duration(500+r.IntN(7000)) * time.Millisecond,
		PollMin:        time.Duration(5+r.IntN(30)) * grain, PollMax: 2 * time.Second, LeaseTTL: p.ttl,
		ShutdownTimeout: time.Duration(1000+r.IntN(20000)) * time.Millisecond,
		Retry: core.Retry{
			MaxAttempts: 1 + r.IntN(4), Exhausted: core.ExhaustedPark,
			Backoff: core.Backoff{Initial: 100 * time.Millisecond, Max: 3 * time.Second},
		},
		Outage: core.Backoff{Initial: 100 * time.Millisecond, Max: time.Duration(500+r.IntN(4000)) * time.Millisecond},
	}
	p.config.MaxInFlight = p.config.FetchSize * (1 + r.IntN(4))
	if one(3) {
		p.config.Retry.DeadLetterSuffix = deadSuffix
	}
	held := core.ExhaustedBlock
	if p.halts {
		held = core.ExhaustedHalt
	}
	p.config.TopicRetry = []core.TopicRetry{{Match: "topic1", Retry: core.Retry{Exhausted: held}}}
	return p
}
