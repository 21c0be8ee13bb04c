package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Dispatcher carries records from a [Store] to a [Broker]. Run as many as you like on one table, in one process or in
// many: they share its lanes, and take over from each other within Config.LeaseTTL. All methods are safe for
// concurrent use.
type Dispatcher struct {
	store  Store
	broker Broker
	cfg    Config

	mu      sync.Mutex
	running bool
	health  Health
}

// Health is the state of a [Dispatcher] for a readiness probe.
type Health struct {
	// Ready is true while the dispatcher runs, reaches its store and holds its membership there, and the broker takes
	// messages. A replica that stands by without a lane is ready.
	Ready bool
	// Reason says why it is not ready, or what is in trouble although it is; empty when all is well.
	Reason string
	// Lanes is how many lanes it holds, of TotalLanes.
	Lanes, TotalLanes int
	// Members is how many dispatchers share the table.
	Members int
	// InFlight is how many records it holds in memory.
	InFlight int
}

// NewDispatcher returns a dispatcher for the store and the broker, which stay the caller's to close. The error joins a
// *[FieldError] for each fault of the configuration. It opens no connection.
func NewDispatcher(store Store, broker Broker, cfg Config) (*Dispatcher, error) {
	cfg = cfg.WithDefaults()
	err := cfg.Validate()
	if store == nil {
		err = errors.Join(&FieldError{Path: "store", Reason: "is nil"}, err)
	}
	if broker == nil {
		err = errors.Join(&FieldError{Path: "broker", Reason: "is nil"}, err)
	}
	if err != nil {
		return nil, fmt.Errorf("dispatcher %q: %w", cfg.Name, err)
	}
	return &Dispatcher{store: store, broker: broker, cfg: cfg, health: Health{Reason: "not running"}}, nil
}

// Run dispatches until ctx ends. Then it stops fetching, lets what is being published finish, settles it, gives its
// lanes back and returns nil. When that takes longer than Config.ShutdownTimeout it abandons the rest and returns an
// error that wraps [ErrShutdownTimeout]; what was abandoned is published again by the next owner of its lane.
//
// A store or broker that cannot be reached, or tables that are not there yet, do not end Run: it tries again with
// growing waits and [Dispatcher.Health] says why it is not ready. Run after Run has returned is fine; while one runs,
// another returns [ErrRunning].
func (d *Dispatcher) Run(ctx context.Context) error { return d.run(ctx, false) }

// RunOnce dispatches what is there and returns: nil when nothing is left that it may publish now. Records that wait for
// a later attempt stay for the next run. It returns an error when the store cannot be reached or not be written, or
// when a destination or the broker is in trouble; what could be published has been. Lanes that another live dispatcher
// holds, or that one left behind when it crashed less than its lease ago, are not touched. When ctx ends it finishes
// early and in order like Run, and returns the context's error.
func (d *Dispatcher) RunOnce(ctx context.Context) error { return d.run(ctx, true) }

// Health tells how the dispatcher is. It never blocks.
func (d *Dispatcher) Health() Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health
}

func (d *Dispatcher) setHealth(h Health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = h
}

func (d *Dispatcher) run(ctx context.Context, once bool) error {
	d.mu.Lock()
	if d.running {
		d.mu.Unlock()
		return ErrRunning
	}
	d.running = true
	d.mu.Unlock()
	err := d.work(ctx, once)
	d.mu.Lock()
	d.running = false
	d.health = Health{Reason: "not running"}
	d.mu.Unlock()
	return err
}

func (d *Dispatcher) work(ctx context.Context, once bool) error {
	if !d.cfg.EnqueueOnly {
		return newLoop(d, once).run(ctx)
	}
	const reason = "dispatching is left to others"
	d.cfg.Logger.Info(reason, "outbox", d.cfg.Name)
	d.setHealth(Health{Ready: true, Reason: reason})
	if !once {
		<-ctx.Done()
	}
	return nil
}
