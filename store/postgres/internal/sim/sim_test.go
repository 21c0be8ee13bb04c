package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seeds     = flag.Uint64("sim.seeds", 300, "how many seeds are simulated")
	firstSeed = flag.Uint64("sim.from", 0, "the first of them")
	oneSeed   = flag.Int64("sim.seed", -1, "simulate this one only, and print what happens")
	// unfenced switches off a rule that the database keeps, to see that it is missed.
	unfenced = flag.Bool("sim.unfenced", false, "settle without a look at the leases")
)

func TestMain(m *testing.M) {
	code := m.Run()
	if total.seeds > 0 {
		total.print()
	}
	os.Exit(code)
}

// TestSimulation runs the seeds. Each of them is a world of its own, and replays exactly.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *oneSeed >= 0 {
		synctest.Test(t, func(t *testing.T) { simulate(t, uint64(*oneSeed), true) })
		return
	}
	workers := uint64(runtime.GOMAXPROCS(0))
	for worker := range workers {
		t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
			t.Parallel()
			for seed := *firstSeed + worker; seed < *firstSeed+*seeds && !total.failed.Load(); seed += workers {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { simulate(t, seed, false) })
				})
			}
		})
	}
}

func simulate(t *testing.T, seed uint64, tracing bool) {
	w := newWorld(t, seed, tracing)
	w.run()
	total.add(w)
	if len(w.ledger.faults) > 0 {
		total.failed.Store(true) // the other seeds are left out
		t.Errorf("seed %d: %s\nreplay it: go test ./store/postgres/internal/sim -run Simulation -v -sim.seed %d",
			seed, strings.Join(w.ledger.faults, "\n"), seed)
	}
}

// TestSimulation_ReplaysExactly runs seeds twice: what cannot be repeated cannot be found.
func TestSimulation_ReplaysExactly(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		var first uint64
		for again := range 2 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed, false)
				w.run()
				if again == 1 && w.trace.Sum64() != first {
					t.Errorf("seed %d went another way", seed)
				}
				first = w.trace.Sum64()
			})
		}
	}
}

// total is the sum of all worlds.
var total totals

type totals struct {
	failed                                                    atomic.Bool
	mu                                                        sync.Mutex
	seeds, events, steps, repeats, lost, phantoms, outOfOrder int
	allowed                                                   int
	faults                                                    map[string]int
}

func (s *totals) add(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := w.ledger
	s.seeds++
	s.events += l.committed
	s.steps += w.count
	s.repeats += l.repeats
	s.lost += l.lost
	s.phantoms += l.phantoms
	s.outOfOrder += l.outOfOrder
	s.allowed += l.allowed
	if s.faults == nil {
		s.faults = map[string]int{}
	}
	for kind, n := range w.faults {
		s.faults[kind] += n
	}
}

func (s *totals) print() {
	all := 0
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		_, _ = fmt.Fprintf(os.Stdout, "  %-34s %7d\n", kind, s.faults[kind])
		all += s.faults[kind]
	}
	_, _ = fmt.Fprintf(os.Stdout, "  %d moments; %d messages of events that a failover lost\n", s.steps, s.allowed)
	_, _ = fmt.Fprintf(os.Stdout, "sim: seeds=%d events=%d faults=%d repeats=%d lost=%d phantom=%d out_of_order=%d\n",
		s.seeds, s.events, all, s.repeats, s.lost, s.phantoms, s.outOfOrder)
}
