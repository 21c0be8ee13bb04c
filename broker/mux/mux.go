package mux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Multi    = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
	_ core.Adopter  = (*Broker)(nil)
)

// Config says which topic goes where.
type Config struct {
	// Brokers are the brokers by name. The name stands in logs, events and reasons. They stay the caller's until
	// [Broker.Close], which closes them all.
	Brokers map[string]core.Broker
	// Routes are tried in order; the first that matches decides.
	Routes []Route
}

// Route sends topics to a broker.
type Route struct {
	// Match is a pattern of topics: * stands for any characters but a slash, ? for one of them, [a-z] for one of a
	// range (the rules of [path.Match]).
	Match string
	// Broker is the name of the broker.
	Broker string
}

// Validate reports every fault: no broker, a broker that is nil or without a name, no route, a route with a malformed
// pattern or to a broker that is not there, and one that can never match because an earlier one has the same pattern.
func (c Config) Validate() error {
	var faults []error
	bad := func(field, format string, args ...any) {
		faults = append(faults, &core.FieldError{Path: field, Reason: fmt.Sprintf(format, args...)})
	}
	if len(c.Brokers) == 0 {
		bad("Brokers", "is empty")
	}
	for _, name := range c.names() {
		switch {
		case name == "":
			bad("Brokers", "has a broker without a name")
		case c.Brokers[name] == nil:
			bad(fmt.Sprintf("Brokers[%q]", name), "is nil")
		}
	}
	if len(c.Routes) == 0 {
		bad("Routes", "is empty: no topic goes anywhere")
	}
	seen := map[string]bool{}
	for i, r := range c.Routes {
		field := fmt.Sprintf("Routes[%d]", i)
		if _, err := path.Match(r.Match, ""); err != nil || r.Match == "" {
			bad(field+".Match", "%q is not a pattern", r.Match)
		}
		if seen[r.Match] {
			bad(field+".Match", "%q is never reached, an earlier route has the same pattern", r.Match)
		}
		seen[r.Match] = true
		if _, ok := c.Brokers[r.Broker]; !ok {
			bad(field+".Broker", "there is no broker %q; have: %v", r.Broker, c.names())
		}
	}
	return errors.Join(faults...)
}

func (c Config) names() []string { return slices.Sorted(maps.Keys(c.Brokers)) }

// Broker is several brokers. Safe for concurrent use.
type Broker struct {
	cfg  Config
	caps core.Capabilities
}

// New returns a broker for the configuration, or every fault of it.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("mux: %w", err)
	}
	cfg.Brokers, cfg.Routes = maps.Clone(cfg.Brokers), slices.Clone(cfg.Routes)
	return &Broker{cfg: cfg, caps: common(cfg.Brokers)}, nil
}

// common is what all brokers can do.
func common(brokers map[string]core.Broker) core.Capabilities {
	least := func(a, b int) int {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	all := core.Capabilities{KeyGuarantee: core.PrefixPerKey}
	for _, b := range brokers {
		c := b.Capabilities()
		all.KeyGuarantee = min(all.KeyGuarantee, c.KeyGuarantee)
		all.MaxBatch = least(all.MaxBatch, c.MaxBatch)
		all.MaxBatchBytes = least(all.MaxBatchBytes, c.MaxBatchBytes)
		all.MaxInFlight = least(all.MaxInFlight, max(c.MaxInFlight, 1))
	}
	return all
}

// Capabilities returns what all of the brokers can do; dispatchers ask [Broker.CapabilitiesOf].
func (b *Broker) Capabilities() core.Capabilities { return b.caps }

// CapabilitiesOf returns the capabilities of the broker of that name, and those of none for another name.
func (b *Broker) CapabilitiesOf(name string) core.Capabilities {
	if one, ok := b.cfg.Brokers[name]; ok {
		return one.Capabilities()
	}
	return core.Capabilities{}
}

// route returns the name of the broker that the topic goes to.
func (b *Broker) route(topic string) (name string, err error) {
	for _, r := range b.cfg.Routes {
		if ok, _ := path.Match(r.Match, topic); ok { // New has checked the patterns
			return r.Broker, nil
		}
	}
	return "", fmt.Errorf("mux: no route matches the topic %q", topic)
}

// Prepare lets the topic's broker prepare the record.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	name, err := b.route(r.Topic)
	if err != nil {
		return core.Prepared{}, &core.PublishError{
			Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: "NO_ROUTE", Err: err,
		}
	}
	p, err := b.cfg.Brokers[name].Prepare(r)
	p.Broker = name
	return p, err
}

// PublishBatch lets the broker of the batch publish it.
func (b *Broker) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	return b.cfg.Brokers[batch[0].Broker].PublishBatch(ctx, batch)
}

// Check checks all brokers at the same time, and reports every one that fails by its name.
func (b *Broker) Check(ctx context.Context) error {
	return b.each(func(_ string, one core.Broker) error { return one.Check(ctx) })
}

// Close closes all brokers at the same time.
func (b *Broker) Close(ctx context.Context) error {
	return b.each(func(_ string, one core.Broker) error { return one.Close(ctx) })
}

// each calls f for all brokers at the same time and joins the errors in the order of their names.
func (b *Broker) each(f func(name string, one core.Broker) error) error {
	names := b.cfg.names()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if err := f(name, b.cfg.Brokers[name]); err != nil {
				errs[i] = fmt.Errorf("broker %q: %w", name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Declare makes what is missing for the topics at their brokers. Brokers that are no core.Topology need nothing.
func (b *Broker) Declare(ctx context.Context, topics ...string) error {
	return b.topology(topics, func(t core.Topology, topics []string) error { return t.Declare(ctx, topics...) })
}

// Verify reports every topic that is missing at its broker or not as the strategy there needs it.
func (b *Broker) Verify(ctx context.Context, topics ...string) error {
	return b.topology(topics, func(t core.Topology, topics []string) error { return t.Verify(ctx, topics...) })
}

func (b *Broker) topology(topics []string, f func(core.Topology, []string) error) error {
	byBroker := map[string][]string{}
	var errs []error
	for _, topic := range topics {
		name, err := b.route(topic)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		byBroker[name] = append(byBroker[name], topic)
	}
	err := b.each(func(name string, one core.Broker) error {
		t, ok := one.(core.Topology)
		if !ok || len(byBroker[name]) == 0 {
			return nil
		}
		return f(t, byBroker[name])
	})
	return errors.Join(append(errs, err)...)
}

// Fingerprint asks the broker of that name; one that is no core.Fingerprinter has the fingerprint "".
func (b *Broker) Fingerprint(ctx context.Context, broker, destination string) (string, error) {
	if one, ok := b.cfg.Brokers[broker].(core.Fingerprinter); ok {
		return one.Fingerprint(ctx, "", destination)
	}
	return "", nil
}

// Adopt asks the broker of that name; one that is no core.Adopter goes over to nothing.
func (b *Broker) Adopt(ctx context.Context, broker, destination, fingerprint string) (bool, error) {
	if one, ok := b.cfg.Brokers[broker].(core.Adopter); ok {
		return one.Adopt(ctx, "", destination, fingerprint)
	}
	return false, nil
}
