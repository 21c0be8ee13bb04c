package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// The calls of a process, as the places where it can crash.
const (
	opLease   = "lease"
	opRelease = "release"
	opFetch   = "fetch"
	opPublish = "publish"
	opSettle  = "settle"
)

var (
	errDead = errors.New("the process is dead")
	errLost = errors.New("the answer was lost")
	errBusy = errors.New("too many connections")
)

// process is an operating system's process with a dispatcher. It can be stopped and go on (SIGSTOP, SIGCONT), and be
// killed: then none of its calls does anything any more, but what is under way at a server goes on there.
type process struct {
	w      *world
	name   string
	broker *membroker.Broker
	cancel context.CancelFunc
	died   chan struct{}

	mu      sync.Mutex
	calls   map[string]int // by name
	trusted time.Time      // until when its leases are sure to be its own

	// The rest belongs to the agenda.
	member  string
	dead    bool // killed, or at its end
	leaving bool
	paused  bool
	stalled []func() // moments that wait for the end of the pause
	crashAt string   // op and whether before or after it
}

// join starts a process.
func (w *world) join() *process {
	w.started++
	p := &process{w: w, name: fmt.Sprintf("p%d", w.started), died: make(chan struct{}), calls: map[string]int{}}
	p.broker = membroker.New(membroker.Config{
		Server: w.server, KeyGuarantee: w.plan.guarantee, MaxInFlight: w.plan.calls, MaxBatch: w.plan.batch,
	})
	cfg := w.plan.config
	cfg.Name, cfg.Logger, cfg.Random = p.name, w.logger(p.name), w.source(p.name)
	d, err := core.NewDispatcher(w.backend.store(p), &broker{p: p}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	p.cancel = cancel
	w.processes = append(w.processes, p)
	w.running.Go(func() {
		err := d.Run(ctx)
		w.after(grain, p.name+" ends", func() { p.ended(err) })
	})
	w.say("%s starts", p.name)
	return p
}

func (p *process) ended(err error) {
	p.w.say("%s has ended: %v", p.name, err)
	if !p.dead && err != nil && !errors.Is(err, core.ErrShutdownTimeout) {
		p.w.ledger.bad("%s: Run returned %v", p.name, err)
	}
	p.dead = true
}

// leave asks the process to end in order.
func (p *process) leave() {
	p.w.say("%s is asked to leave", p.name)
	p.leaving = true
	p.cancel()
}

func (p *process) crash() {
	if p.dead {
		return
	}
	p.w.say("%s crashes", p.name)
	p.dead, p.paused, p.crashAt = true, false, ""
	close(p.died)
	p.cancel()
	p.flush() // what stood in its buffers may still arrive
	if r := p.w.draw("late after the crash of " + p.name); r.IntN(2) == 0 {
		p.w.after(time.Duration(r.IntN(300))*grain, p.name+" lands", func() { p.w.landing(p.broker.Land) })
	}
}

// crashesAt crashes the process if this is the place.
func (p *process) crashesAt(op, place string) bool {
	if p.dead || p.crashAt != op+" "+place {
		return false
	}
	p.w.fault("crash " + place + " " + op)
	p.crash()
	return true
}

func (p *process) pause(d time.Duration) {
	p.w.say("%s stops for %v", p.name, d)
	p.paused = true
	p.w.after(d, p.name+" goes on", func() {
		if p.paused {
			p.w.say("%s goes on", p.name)
			p.paused = false
			p.flush()
		}
	})
}

func (p *process) stall(moment func()) { p.stalled = append(p.stalled, moment) }

func (p *process) flush() {
	stalled := p.stalled
	p.stalled = nil
	for i, moment := range stalled { // in their order
		p.w.after(time.Duration(i)*grain, fmt.Sprintf("%s %03d", p.name, i), moment)
	}
}

// isDead is for the process's own goroutines.
func (p *process) isDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// renewed notes a lease call that succeeded.
func (p *process) renewed(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trusted = began.Add(p.w.plan.ttl)
}

// mayPublish reports whether the leases are sure to be the process's own.
func (p *process) mayPublish() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.trusted) || p.isDead()
}

// call is one call of a process to a server, from the request to the reply. The goroutine that made it waits; what
// happens meanwhile are moments of the agenda.
type call struct {
	p        *process
	op, name string
	r        *rand.Rand // follows from the seed and the name
	done     chan struct{}
	gone     atomic.Bool // nobody waits any more
	err      error
	split    bool // the request is sent in parts, so that the server has to wait for a client that is stopped
	arrives  bool // what was sent arrives, although the client has gone
	fate     fate
}

// fate is what the network does to a call.
type fate int

const (
	fateNone fate = iota
	fateRefused
	fateReplyLost
)

func (p *process) call(ctx context.Context, op, subject string, serve func(c *call)) error {
	c := p.newCall(op, subject)
	c.start(serve)
	return c.await(ctx)
}

// start has the request sent. serve is what the server does with it; at its end it calls [call.reply].
func (c *call) start(serve func(c *call)) {
	c.p.w.after(c.latency(), c.name, func() { c.send(serve) })
}

// await waits for the answer.
func (c *call) await(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		c.gone.Store(true)
		return ctx.Err()
	case <-c.p.died:
		c.gone.Store(true)
		return errDead
	}
}

func (p *process) newCall(op, subject string) *call {
	name := strings.Join([]string{p.name, op, subject}, " ")
	p.mu.Lock()
	p.calls[name]++
	name = fmt.Sprintf("%s #%d", name, p.calls[name])
	p.mu.Unlock()
	r := p.w.draw(name)
	return &call{
		p: p, op: op, name: name, r: r, done: make(chan struct{}), split: r.IntN(6) == 0, arrives: r.IntN(2) == 0,
	}
}

// latency is one way. Some are slow.
func (c *call) latency() time.Duration {
	if n := c.r.IntN(100); n < 4 && !c.p.w.calm.Load() {
		return time.Duration(c.r.IntN(400)) * grain
	}
	return time.Duration(1+c.r.IntN(6)) * grain
}

// send is the moment at which the request leaves the process.
func (c *call) send(serve func(c *call)) {
	p := c.p
	if p.paused {
		p.stall(func() { c.send(serve) })
		return
	}
	p.w.say("%s: sent", c.name)
	p.crashesAt(c.op, "before")
	if (p.dead || c.gone.Load()) && !c.arrives || c.op == opPublish && c.gone.Load() && !p.dead {
		return
	}
	if c.op != opPublish && p.w.chance(c.r, 4) {
		c.fate = fate(1 + c.r.IntN(2))
		p.w.fault([]string{"", "store refuses", "store's answer lost"}[c.fate])
	}
	if c.fate == fateRefused {
		c.reply(errBusy)
		return
	}
	serve(c)
}

// reply sends the answer of the server.
func (c *call) reply(err error) {
	c.err = err
	c.p.w.after(c.latency(), c.name+" reply", c.receive)
}

// receive is the moment at which the answer arrives.
func (c *call) receive() {
	p := c.p
	if p.paused {
		p.stall(c.receive)
		return
	}
	if c.gone.Load() || p.dead || p.crashesAt(c.op, "after") {
		return
	}
	if c.fate == fateReplyLost {
		c.err = errLost
	}
	p.w.say("%s: answered, error %v", c.name, c.err)
	close(c.done)
}

// brokenOff reports whether the server finds out that the client has gone.
func (c *call) brokenOff() bool { return (c.gone.Load() || c.p.dead) && (c.split || !c.arrives) }

func leaseOp(req core.LeaseRequest) string {
	if req.Leave || len(req.Release) > 0 {
		return opRelease
	}
	return opLease
}

func subjectOf(req core.Settlement) string {
	first := req.Items[0]
	return fmt.Sprintf("%s/%d/%s", first.Record.EventID, first.Record.Replay, first.Status)
}
