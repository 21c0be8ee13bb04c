package sim_test

import (
	"fmt"
	"hash"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// world is one run.
type world struct {
	*agenda
	t         *testing.T
	seed      uint64
	r         *rand.Rand // for moments of the agenda
	plan      plan
	backend   backend
	server    *membroker.Server
	ledger    *ledger
	processes []*process
	started   int
	running   sync.WaitGroup
	calm      atomic.Bool // nothing goes wrong any more
	end       time.Time   // of the troubles

	outages   map[string]time.Time // by destination, "" is the broker; until when
	throttled map[string]time.Time
	poison    map[string]*poison
	skew      time.Duration // of the database's clock
	writing   int           // transactions open
	busyKeys  map[string]bool
	landed    map[string]int // messages of the broker's log that were looked at
	faults    map[string]int

	tracing bool
	trace   hash.Hash64 // of what happened
	start   time.Time
}

func newWorld(t *testing.T, seed uint64, tracing bool) *world {
	w := &world{
		agenda: newAgenda(), t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), server: membroker.NewServer(),
		outages: map[string]time.Time{}, throttled: map[string]time.Time{}, poison: map[string]*poison{},
		busyKeys: map[string]bool{}, landed: map[string]int{}, faults: map[string]int{},
		tracing: tracing, trace: fnv.New64a(), start: time.Now(),
	}
	w.end = w.start.Add(time.Duration(20+w.r.IntN(40)) * time.Second)
	w.ledger = newLedger(w)
	w.plan = newPlan(w.r)
	w.backend = newBackend(w)
	return w
}

func newBackend(w *world) backend {
	if w.plan.memory {
		return newMemory(w)
	}
	b := &model{w: w, db: newDatabase(w.plan.lanes), sweep: w.plan.sweep}
	b.catchUp()
	return b
}

// draw returns what is drawn for something with a name, the same in every run with this seed.
func (w *world) draw(name string) *rand.Rand { return rand.New(w.source(name)) }

func (w *world) source(name string) rand.Source {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.NewPCG(w.seed, h.Sum64())
}

// chance is true in n of 100 draws while things go wrong.
func (w *world) chance(r *rand.Rand, n int) bool { return r.IntN(100) < n && !w.calm.Load() }

func (w *world) fault(kind string) {
	w.faults[kind]++
	w.say("fault: %s", kind)
}

// landing does something that may add to the broker's log, and takes what it added.
func (w *world) landing(do func()) {
	do()
	for _, destination := range w.server.Destinations() {
		messages := w.server.Messages(destination)
		for i := w.landed[destination]; i < len(messages); i++ {
			w.ledger.land(&messages[i])
		}
		w.landed[destination] = len(messages)
	}
}

// checkSettlement looks at what a dispatcher wants to write.
func (w *world) checkSettlement(req core.Settlement) {
	for i := range req.Items {
		if item := &req.Items[i]; item.Status != core.StatusPublished {
			w.ledger.charge(item.Record.EventID, item.Attempts)
		}
	}
}

// settled notes what a settle has written.
func (w *world) settled(req core.Settlement, found func(*core.Record) bool) {
	for i := range req.Items {
		if item := &req.Items[i]; found(item.Record) {
			w.say("settled: row %d %s replay %d is %s", item.Record.ID, item.Record.EventID, item.Record.Replay, item.Status)
			if item.Status == core.StatusParked {
				w.ledger.leave(item.Record.EventID, "parked")
			}
		}
	}
}

// run is the whole life of the world.
func (w *world) run() {
	for range w.plan.replicas {
		w.join()
	}
	w.after(0, "writers", w.write)
	w.after(grain, "troubles", w.troubles)
	w.agenda.run(func() bool { return !time.Now().Before(w.end) })
	w.settleDown()
	limit := time.Now().Add(20 * time.Minute)
	w.agenda.run(func() bool { return w.drained() || time.Now().After(limit) || len(w.ledger.faults) > 0 })
	for _, p := range w.processes {
		if !p.dead {
			p.leave()
		}
	}
	limit = time.Now().Add(5 * time.Minute)
	w.agenda.run(func() bool { return w.ended() || time.Now().After(limit) })
	if !w.ended() {
		w.ledger.bad("a process that was asked to leave still runs")
	}
	w.running.Wait()
	w.landing(func() {})
	w.ledger.verify(w.backend.rows())
	for _, p := range w.processes {
		if err := p.broker.Misuse(); err != nil {
			w.ledger.bad("%s: %v", p.name, err)
		}
	}
}

func (w *world) ended() bool {
	for _, p := range w.processes {
		select {
		case <-p.died:
		default:
			if !p.dead {
				return false
			}
		}
	}
	return true
}

func (w *world) drained() bool {
	if w.writing > 0 {
		return false
	}
	for _, r := range w.backend.rows() {
		if r.state <= blocked {
			return false
		}
	}
	return true
}

// say tells what happens, as it happens: a run that hangs is told too.
func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf("%9.3f %s\n", time.Since(w.start).Seconds(), fmt.Sprintf(format, args...))
	_, _ = w.trace.Write([]byte(line))
	w.show(line)
}

func (w *world) show(line string) {
	if w.tracing {
		_, _ = os.Stdout.WriteString(line)
	}
}

// logger writes into the trace.
func (w *world) logger(name string) *slog.Logger {
	if !w.tracing {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logLines{w, name}, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "outbox" || a.Key == "member" {
				return slog.Attr{}
			}
			return a
		},
	}))
}

type logLines struct {
	w    *world
	name string
}

func (l logLines) Write(line []byte) (int, error) {
	l.w.show(fmt.Sprintf("%9.3f %s says: %s", time.Since(l.w.start).Seconds(), l.name, line))
	return len(line), nil
}
