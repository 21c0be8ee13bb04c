package core_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

var randomSeeds = flag.Uint64("core.seeds", 40, "seeds of the random runs")

// TestDispatcher_RandomRuns lets replicas come, go and fail over a store and a broker that fail at random, while
// transactions commit late and in any order, and checks what reached the broker against the order of the commits.
func TestDispatcher_RandomRuns(t *testing.T) {
	t.Parallel()
	for seed := range *randomSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newRandomRun(t, seed).run() })
		})
	}
}

// randomRun is one run with everything that is drawn from its seed.
type randomRun struct {
	*system
	mu    sync.Mutex
	r     *rand.Rand
	calm  bool // no more faults
	order map[ordering.Key][]string
	open  map[ordering.Key]bool
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	t.Helper()
	run := &randomRun{r: rand.New(rand.NewPCG(seed, 7)), order: map[ordering.Key][]string{}, open: map[ordering.Key]bool{}}
	run.system = newSystem(t, memstore.Config{Lanes: 1 + run.r.IntN(8), Fault: run.storeFault}, membroker.Config{
		KeyGuarantee: core.KeyGuarantee(run.r.IntN(2)), MaxInFlight: 1 + run.r.IntN(4), MaxBatch: run.r.IntN(20), Script: run.plan,
	})
	run.cfg.FetchSize = 1 + run.r.IntN(50)
	run.cfg.Retry.MaxAttempts = 1000 // parked events leave the order: another test
	run.cfg.LeaseTTL = time.Duration(1+run.r.IntN(10)) * time.Second
	return run
}

// chance is true in n of 100 draws while faults are on.
func (run *randomRun) chance(n int) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	return !run.calm && run.r.IntN(100) < n
}

func (run *randomRun) draw(n int) int {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.r.IntN(n)
}

func (run *randomRun) storeFault(ctx context.Context, p memstore.Point) error {
	switch {
	case p.Member == "":
		return nil
	case run.chance(5):
		return errBoom
	case run.chance(5):
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(run.draw(8000)) * time.Millisecond):
		}
	}
	return nil
}

func (run *randomRun) plan(membroker.Call) (plan membroker.Plan) {
	switch {
	case run.chance(4):
		plan = membroker.LoseReply()
	case run.chance(4):
		plan = membroker.LandLate()
	case run.chance(4):
		plan = membroker.Reject(passing(), run.draw(5))
	case run.chance(2):
		plan = membroker.BrokerDown()
	case run.chance(3):
		plan = membroker.DestinationDown()
	case run.chance(2):
		plan = membroker.Panic("boom")
	case run.chance(1):
		return membroker.Hang()
	}
	if run.chance(50) {
		plan = plan.After(time.Duration(run.draw(300)) * time.Millisecond)
	}
	return plan
}

func (run *randomRun) run() {
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(run.write)
	}
	var stops []func() error
	for range 20 {
		if len(stops) < 3 {
			_, stop := run.start()
			stops = append(stops, stop)
		}
		pass(time.Duration(run.draw(4000)) * time.Millisecond)
		if run.chance(40) {
			run.end(stops[0])
			stops = stops[1:]
		}
	}
	writers.Wait()
	run.mu.Lock()
	run.calm = true
	run.mu.Unlock()
	_, stop := run.start()
	pass(10 * time.Minute)
	for _, s := range append(stops, stop) {
		run.end(s)
	}
	run.check()
}

func (run *randomRun) end(stop func() error) {
	if err := stop(); err != nil {
		run.t.Logf("Run: %v", err)
	}
}

// write commits transactions of one key at a time, late, and rolls some back.
func (run *randomRun) write() {
	for range 60 {
		topic, key := fmt.Sprint("topic", run.draw(2)), fmt.Sprint("a", run.draw(6))
		k := ordering.Key{Topic: topic, AggregateType: "thing", AggregateID: key}
		run.mu.Lock()
		busy := run.open[k]
		run.open[k] = true
		run.mu.Unlock()
		if busy { // another writer has the aggregate locked
			pass(time.Millisecond)
			continue
		}
		run.transaction(k)
		pass(time.Duration(run.draw(1500)) * time.Millisecond)
	}
}

func (run *randomRun) transaction(k ordering.Key) {
	tx := run.store.Begin()
	ids, err := tx.Enqueue(run.t.Context(), core.Message{
		Topic: k.Topic, AggregateType: k.AggregateType, AggregateID: k.AggregateID, EventType: "thing.changed",
	})
	if err != nil {
		run.t.Error(err)
	}
	pass(time.Duration(run.draw(500)) * time.Millisecond)
	run.mu.Lock()
	defer run.mu.Unlock()
	delete(run.open, k)
	if run.r.IntN(10) == 0 {
		_ = tx.Rollback()
		return
	}
	if err := tx.Commit(); err != nil {
		run.t.Error(err)
	}
	run.order[k] = append(run.order[k], ids...)
}

// check compares the broker's log with the commits.
func (run *randomRun) check() {
	seen := map[string]bool{}
	place := map[ordering.Key]int{}
	for _, messages := range run.broker.Server().All() {
		for _, m := range messages {
			if seen[m.EventID] {
				continue
			}
			seen[m.EventID] = true
			order := run.order[m.Key]
			switch n := place[m.Key]; {
			case n < len(order) && order[n] == m.EventID:
				place[m.Key]++
			default:
				run.t.Errorf("%v: %s is not number %d in commit order", m.Key, m.EventID, n)
			}
		}
	}
	for k, order := range run.order {
		if place[k] != len(order) {
			run.t.Errorf("%v: %d of %d arrived", k, place[k], len(order))
		}
	}
	if err := run.broker.Misuse(); err != nil {
		run.t.Log(err) // two replicas may publish one key at the same time after a pause; one replica never does
	}
}
