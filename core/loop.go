package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// loop is one run of a dispatcher. One goroutine, the one that called Run, owns all of its state and makes every
// decision; calls to store and broker run in goroutines of their own, so that fetching, publishing and settling
// overlap, and hand their results back as functions for the loop to call.
type loop struct {
	store  Store
	broker Broker
	cfg    Config
	log    *slog.Logger
	owner  *Dispatcher
	once   bool // return when nothing is left

	member   string
	queue    *ordering.Queue[job]
	lanes    map[int]*lane
	order    []int          // the lanes held, ascending; never changed in place
	dropped  map[int]uint64 // the last publish call before a lane was dropped
	leases   leases
	fetcher  fetcher
	publish  publisher
	settler  settler
	copies   []deadLetterCopy // that wait to be published
	circuits map[ordering.Outlet]*circuit
	suspects suspects
	halts    bool                       // some topics are halted for a blocked record
	places   map[string]ordering.Outlet // where the records of a topic go, if so
	troubles troubles
	// agreements are the destinations whose ordering strategy was compared with the store's.
	agreements map[ordering.Outlet]*agreement

	results chan func()
	workers sync.WaitGroup
	// work is the context of calls; it outlives the caller's until the shutdown timeout.
	work     context.Context //nolint:containedctx // the loop is one call of Run
	stopping bool
	// interrupted is why RunOnce ends before it is done.
	interrupted error
}

// job is what the loop keeps with each record in a gate.
type job struct {
	record   *Record
	prepared Prepared
	err      error // why it cannot be prepared
	attempts int   // charged, once it failed
	reason   string
}

type (
	entry = ordering.Entry[job]
	gate  = ordering.Gate[job]
)

// lane is a lane that this run holds.
type lane struct {
	Lease
	gate *gate
	// after is the last publish call that may have records of this lane from before it was dropped and taken again, or
	// read anew: nothing is fetched before that has returned, as a key is never in two calls at once.
	after uint64
	// giving is set when the lane should go to somebody else: nothing is fetched, and it is released when empty.
	giving bool
}

func newLoop(d *Dispatcher, once bool) *loop {
	member := d.cfg.Name + "-" + NewEventID()
	if d.cfg.Random != nil {
		member = fmt.Sprintf("%s-%016x", d.cfg.Name, d.cfg.Random.Uint64())
	}
	l := &loop{
		store: d.store, broker: d.broker, cfg: d.cfg, owner: d, once: once,
		publish: newPublisher(d.broker),
		log:     d.cfg.Logger.With("outbox", d.cfg.Name, "member", member),
		member:  member, queue: ordering.NewQueue[job](), lanes: map[int]*lane{}, dropped: map[int]uint64{},
		circuits: map[ordering.Outlet]*circuit{}, suspects: newSuspects(),
		halts: d.cfg.halts(), places: map[string]ordering.Outlet{}, agreements: map[ordering.Outlet]*agreement{},
		results: make(chan func(), 16),
	}
	l.troubles.log = l.log
	return l
}

// run is the loop.
func (l *loop) run(ctx context.Context) error {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	l.work = work
	l.log.Info("dispatcher starts")
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	var deadline <-chan time.Time
	for !l.finished() {
		l.start(time.Now())
		l.report()
		timer.Reset(l.nextWake(time.Now()))
		select {
		case result := <-l.results:
			result()
			l.drainResults()
		case <-timer.C:
		case <-stop:
			stop = nil
			if !l.stopping {
				l.interrupted = ctx.Err()
			}
			l.stop()
			shutdown := time.NewTimer(l.cfg.ShutdownTimeout)
			defer shutdown.Stop()
			deadline = shutdown.C
		case <-deadline:
			return l.abandon(abandon)
		}
	}
	return l.leave(abandon)
}

// delay is the wait after so many failures in a row.
func (l *loop) delay(b Backoff, failures int) time.Duration {
	if l.cfg.Random == nil {
		return b.Delay(failures)
	}
	return 1 + time.Duration(rand.New(l.cfg.Random).Int64N(int64(b.Ceiling(failures)))) //nolint:gosec // no secret
}

// start begins every call that may begin now.
func (l *loop) start(now time.Time) {
	l.lease(now)
	l.tryCircuits(now)
	l.fetch(now)
	l.publishReady(now)
	l.copyDeadLetters(now)
	l.settle(now)
	if l.once && !l.stopping && l.drained(now) {
		l.stop()
	}
}

// drainResults takes the results that are there already, so that one pass of the loop serves them all.
func (l *loop) drainResults() {
	for {
		select {
		case result := <-l.results:
			result()
		default:
			return
		}
	}
}

// call runs f in a goroutine; what f returns is run by the loop.
func (l *loop) call(f func(ctx context.Context) func()) {
	l.workers.Add(1)
	go func() {
		defer l.workers.Done()
		l.results <- f(l.work)
	}()
}

// stop begins the end of the run: what is not being published yet goes back to the store.
func (l *loop) stop() {
	if l.stopping {
		return
	}
	l.stopping = true
	l.fetcher.wake()
	if l.fetcher.busy {
		l.fetcher.cancel()
	}
}

// finished reports whether a stopping run has nothing under way.
func (l *loop) finished() bool {
	return l.stopping && !l.calling() && l.settler.idle()
}

// drained reports, for RunOnce, whether nothing is left to do now.
func (l *loop) drained(now time.Time) bool {
	if l.troubles.lasting() {
		l.settler.pending = nil // it is published again by whoever comes next
		return !l.calling()
	}
	if !l.leases.settled || l.busy() || anyWants(now, l.fetcher.lanes) {
		return false
	}
	return len(l.lanes) == 0 || l.fetcher.foundNothing || l.brokerPaused()
}

// busy reports whether a call is under way or a record in memory.
func (l *loop) busy() bool {
	records, _ := l.queue.Held()
	return l.calling() || !l.settler.idle() || records > 0
}

// calling reports whether a call that matters to the end of the run is under way.
func (l *loop) calling() bool {
	return l.fetcher.busy || l.leases.busy || len(l.publish.underWay) > 0 || l.settler.calls > 0
}

// nextWake is how long the loop may sleep if no result arrives.
func (l *loop) nextWake(now time.Time) time.Duration {
	next := now.Add(time.Minute)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if !l.leases.busy {
		earlier(l.leases.next)
	}
	if !l.fetcher.blocked {
		earlier(l.fetcher.next)
	}
	if !l.fetcher.blocked && !l.fetcher.failing {
		for _, f := range l.fetcher.lanes {
			if due, ok := f.gate.NextDue(); ok {
				earlier(due)
			}
		}
	}
	for _, c := range l.circuits {
		if !c.publishing && !l.stopping && !c.halted {
			earlier(c.until)
		}
	}
	if len(l.settler.pending) > 0 && l.settler.calls < maxSettles {
		earlier(l.settler.next)
	}
	return max(next.Sub(now), 0)
}

// leave ends a run whose work is done.
func (l *loop) leave(abandon func()) error {
	l.fetcher.wake()
	l.giveBack(l.cfg.LeaseTTL / leaseRenewals)
	abandon()
	l.wait()
	l.log.Info("dispatcher stops")
	if !l.once {
		return nil
	}
	return errors.Join(l.interrupted, l.troubles.first(), l.circuitErrors())
}

// abandonGrace is how long a run that was abandoned waits for calls that do not heed the end of their context.
const abandonGrace = 5 * time.Second

// abandon ends a run whose shutdown timeout has passed.
func (l *loop) abandon(abandon func()) error {
	records, _ := l.queue.Held()
	abandon()
	l.fetcher.wake()
	l.giveBack(time.Second)
	l.wait()
	return fmt.Errorf("%w: %d records, they are published again", ErrShutdownTimeout, records)
}

// giveBack leaves the table: the lanes are free at once. It goes on when the run was abandoned.
func (l *loop) giveBack(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.work), timeout)
	defer cancel()
	if _, err := l.store.Lease(ctx, LeaseRequest{Member: l.member, TTL: l.cfg.LeaseTTL, Leave: true}); err != nil {
		l.log.Warn("lanes could not be given back; others take them when their lease expires", "error", err)
	}
}

// wait waits for the goroutines of calls, which end soon after their context has.
func (l *loop) wait() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.workers.Wait()
	}()
	timeout := time.NewTimer(abandonGrace)
	defer timeout.Stop()
	for {
		select {
		case <-l.results:
		case <-done:
			return
		case <-timeout.C:
			l.log.Error("a call of the store or broker did not return after its context ended")
			return
		}
	}
}

// report publishes the state of the run.
func (l *loop) report() {
	records, _ := l.queue.Held()
	h := Health{
		Ready: true, Lanes: len(l.lanes), TotalLanes: l.leases.total, Members: len(l.leases.members), InFlight: records,
	}
	if err := l.circuitErrors(); err != nil {
		h.Reason = err.Error()
		h.Ready = !l.brokerPaused() && !l.halted()
	}
	if err := l.troubles.first(); err != nil {
		h.Ready, h.Reason = false, err.Error()
	}
	switch {
	case l.stopping:
		h.Ready, h.Reason = false, "stopping"
	case h.Ready && l.leases.total == 0:
		h.Ready, h.Reason = false, "starting"
	}
	l.owner.setHealth(h)
}

// observe tells the observer, whose panic is its own.
func (l *loop) observe(e Event) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("the observer panicked", "event", fmt.Sprintf("%T", e), "panic", p)
		}
	}()
	l.cfg.Observer.Observe(e)
}

// troubles remembers which operations of the store fail, so that each trouble is logged when it begins, when it
// changes and when it ends, and not each time.
type troubles struct {
	log  *slog.Logger
	open map[string]*trouble
}

type trouble struct {
	err      error
	failures int
}

// note records the result of an operation, and returns how often it failed in a row.
func (t *troubles) note(operation string, err error) int {
	was := t.open[operation]
	if err == nil {
		if was != nil {
			delete(t.open, operation)
			t.log.Info(operation+" works again", "failures", was.failures)
		}
		return 0
	}
	if was == nil {
		was = &trouble{}
		if t.open == nil {
			t.open = map[string]*trouble{}
		}
		t.open[operation] = was
	}
	if was.err == nil || was.err.Error() != err.Error() {
		t.log.Warn(operation+" fails, trying again", "error", err)
	}
	was.err = err
	was.failures++
	return was.failures
}

// first returns one of the troubles, always the same one while it lasts.
func (t *troubles) first() error {
	for _, operation := range slices.Sorted(maps.Keys(t.open)) {
		return fmt.Errorf("%s: %w", operation, t.open[operation].err)
	}
	return nil
}

// lastingFailures is after how many failures in a row a run that should end gives up.
const lastingFailures = 5

// lasting reports whether a trouble does not pass.
func (t *troubles) lasting() bool {
	for _, was := range t.open {
		if was.failures >= lastingFailures {
			return true
		}
	}
	return false
}

// The operations of the store in logs and health.
const (
	opLease  = "lease"
	opFetch  = "fetch"
	opSettle = "settle"
	// opStrategy, with the destination behind it, compares ordering strategies.
	opStrategy = "compare the ordering strategy of "
)
