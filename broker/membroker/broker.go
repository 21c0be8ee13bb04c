package membroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var (
	_ core.Broker   = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
)

// Broker is a [core.Broker] in memory. All methods are safe for concurrent use.
type Broker struct {
	config Config
	server *Server

	mu      sync.Mutex
	script  Script
	calls   int                         // calls so far
	callsTo map[string]int              // the same by destination
	running int                         // calls in progress
	busy    map[ordering.Key]int        // keys of calls in progress
	late    map[ordering.Key][]*Message // what StoredLate keeps back
	misuse  []error
	closed  bool
	idle    chan struct{} // closed once closed and no call is in progress
}

// New returns a broker. Close it when no call is to be accepted any more; there is nothing to release.
func New(config Config) *Broker {
	config = config.WithDefaults()
	return &Broker{
		config:  config,
		server:  config.Server,
		script:  config.Script,
		callsTo: map[string]int{},
		busy:    map[ordering.Key]int{},
		late:    map[ordering.Key][]*Message{},
		idle:    make(chan struct{}),
	}
}

// Capabilities returns what the Config says.
func (b *Broker) Capabilities() core.Capabilities {
	return core.Capabilities{
		KeyGuarantee:  b.config.KeyGuarantee,
		MaxBatch:      b.config.MaxBatch,
		MaxBatchBytes: b.config.MaxBatchBytes,
		MaxInFlight:   b.config.MaxInFlight,
	}
}

// Prepare checks the size and copies what is to be stored, so that the record can change afterwards. Its errors are
// permanent and of the message.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	route, err := b.route(ordering.Input{
		Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventID: r.EventID,
	})
	if err != nil {
		return core.Prepared{}, invalid("NO_ROUTE", fmt.Errorf("membroker: route event %q: %w", r.EventID, err))
	}
	prepared := core.Prepared{Record: r, Destination: route.Destination, Bytes: r.Size()}
	if limit := b.config.MaxMessageBytes; limit > 0 && prepared.Bytes > limit {
		return core.Prepared{}, invalid("MESSAGE_TOO_LARGE", fmt.Errorf(
			"membroker: event %q has %d bytes, the limit MaxMessageBytes is %d", r.EventID, prepared.Bytes, limit))
	}
	if b.config.Discard {
		return prepared, nil
	}
	m := &Message{
		Destination: route.Destination, Token: route.Token, Key: r.Key(), EventID: r.EventID, RecordID: r.ID,
		Payload: bytes.Clone(r.Payload), Headers: make(map[string]string, 6+len(r.Headers)),
	}
	for name, value := range r.WireHeaders() {
		m.Headers[name] = value
	}
	prepared.Native = m
	return prepared, nil
}

// PublishBatch stores the batch, or does with it what the script says.
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	call, script, err := b.enter(batch)
	if err != nil {
		return same(batch, core.Result{Outcome: core.OutcomeRejected, Err: err})
	}
	defer b.leave(batch)
	if err := ctx.Err(); err != nil {
		return same(batch, core.Result{Outcome: core.OutcomeSkipped, Err: interrupted(err)})
	}
	var plan Plan
	if script != nil {
		plan = script(call)
	}
	if plan.Panic != nil {
		panic(plan.Panic) //nolint:forbidigo // the script asks for it
	}
	if plan.Request != nil {
		if err := plan.Request(ctx); err != nil {
			return same(batch, core.Result{Outcome: core.OutcomeUnknown, Err: interrupted(err)})
		}
	}
	results := b.store(batch, plan.Fate)
	if plan.Reply != nil {
		if err := plan.Reply(ctx); err != nil {
			for i := range results {
				if results[i].Outcome == core.OutcomeDelivered {
					results[i] = core.Result{Outcome: core.OutcomeUnknown, Err: interrupted(err)}
				}
			}
		}
	}
	return results
}

// Check fails while the server is stopped and after Close.
func (b *Broker) Check(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("membroker: check: %w", ctx.Err())
	case closed:
		return fmt.Errorf("membroker: check: %w", core.ErrClosed)
	case b.server.isStopped():
		return errors.New("membroker: check: the server is stopped")
	}
	return nil
}

// Close lets calls in progress end until ctx ends, and lands what is late. The error tells that calls were still in
// progress.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		if b.running == 0 {
			close(b.idle)
		}
	}
	b.mu.Unlock()
	defer b.Land()
	select {
	case <-b.idle:
		return nil
	default:
	}
	select {
	case <-b.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("membroker: close: calls are still in progress: %w", ctx.Err())
	}
}

// Declare makes the destinations of the topics on the server.
func (b *Broker) Declare(_ context.Context, topics ...string) error {
	destinations, err := b.destinations(topics)
	b.server.Create(destinations...)
	return err
}

// Verify reports the topics whose destination does not exist.
func (b *Broker) Verify(_ context.Context, topics ...string) error {
	destinations, err := b.destinations(topics)
	faults := []error{err}
	for _, d := range destinations {
		if !b.server.Exists(d) {
			faults = append(faults, fmt.Errorf("membroker: destination %q does not exist", d))
		}
	}
	return errors.Join(faults...)
}

// Server returns the server behind the broker.
func (b *Broker) Server() *Server { return b.server }

// Messages returns what is stored at a destination, oldest first; by default destinations are named as topics.
func (b *Broker) Messages(destination string) []Message { return b.server.Messages(destination) }

// Count returns how many messages the server accepted, discarded ones included.
func (b *Broker) Count() int64 { return b.server.Count() }

// SetScript replaces the script for calls that begin from now on; nil delivers everything. Calls go on being counted.
func (b *Broker) SetScript(script Script) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.script = script
}

// Land stores now what [StoredLate] keeps back.
func (b *Broker) Land() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.late {
		b.land(key)
	}
}

// destinations maps topics, leaving out those that the strategy refuses.
func (b *Broker) destinations(topics []string) ([]string, error) {
	var (
		out    []string
		faults []error
	)
	for _, topic := range topics {
		route, err := b.route(ordering.Input{Topic: topic})
		if err != nil {
			faults = append(faults, fmt.Errorf("membroker: topic %q: %w", topic, err))
			continue
		}
		out = append(out, route.Destination)
	}
	return out, errors.Join(faults...)
}

func (b *Broker) route(in ordering.Input) (ordering.Route, error) {
	if in.Topic == "" {
		return ordering.Route{}, errors.New("the topic is empty")
	}
	return b.config.Strategy.Route(in)
}
