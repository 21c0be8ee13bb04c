package brokertest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// mutant is a broker that breaks one promise.
type mutant struct {
	name     string
	caughtBy string
	config   func(*membroker.Config)
	wrap     func(world) core.Broker
	bare     bool // the server can inject no faults
}

func mutants() []mutant {
	return slices.Concat(capabilityMutants(), prepareMutants(), publishMutants(), orderMutants(), errorMutants(),
		closeMutants(), topologyMutants())
}

// with makes a mutant of functions that replace methods of the sound broker.
type with struct {
	world
	prepare func(*core.Record) (core.Prepared, error)
	publish func(context.Context, []core.Prepared) []core.Result
	check   func(context.Context) error
	close   func(context.Context) error
}

func (w with) Prepare(r *core.Record) (core.Prepared, error) {
	if w.prepare == nil {
		return w.Broker.Prepare(r)
	}
	return w.prepare(r)
}

func (w with) PublishBatch(ctx context.Context, batch []core.Prepared) []core.Result {
	if w.publish == nil {
		return w.Broker.PublishBatch(ctx, batch)
	}
	return w.publish(ctx, batch)
}

func (w with) Check(ctx context.Context) error {
	if w.check == nil {
		return w.Broker.Check(ctx)
	}
	return w.check(ctx)
}

func (w with) Close(ctx context.Context) error {
	if w.close == nil {
		return w.Broker.Close(ctx)
	}
	return w.close(ctx)
}

// results makes a mutant that changes what it reports.
func results(change func(batch []core.Prepared, results []core.Result) []core.Result) func(world) core.Broker {
	return func(w world) core.Broker {
		return with{world: w, publish: func(ctx context.Context, batch []core.Prepared) []core.Result {
			return change(batch, w.PublishBatch(ctx, batch))
		}}
	}
}

// eachResult makes a mutant that changes each result it reports.
func eachResult(change func(r *core.Result)) func(world) core.Broker {
	return results(func(_ []core.Prepared, results []core.Result) []core.Result {
		for i := range results {
			change(&results[i])
		}
		return results
	})
}

// eachError makes a mutant that changes the PublishError of each failure.
func eachError(change func(e *core.PublishError)) func(world) core.Broker {
	return eachResult(func(r *core.Result) {
		var e *core.PublishError
		if errors.As(r.Err, &e) {
			changed := *e
			change(&changed)
			r.Err = &changed
		}
	})
}

// stored makes a mutant that changes each message before it is stored.
func stored(change func(m *membroker.Message)) func(world) core.Broker {
	return func(w world) core.Broker {
		return with{world: w, prepare: func(r *core.Record) (core.Prepared, error) {
			p, err := w.Prepare(r)
			if m, ok := p.Native.(*membroker.Message); ok {
				change(m)
			}
			return p, err
		}}
	}
}

func delivered(n int) []core.Result {
	out := make([]core.Result, n)
	for i := range out {
		out[i].Outcome = core.OutcomeDelivered
	}
	return out
}

// perAggregate sends every aggregate to a destination of its own.
type perAggregate struct{ ordering.RecordKey }

func (perAggregate) Route(in ordering.Input) (ordering.Route, error) {
	return ordering.Route{Destination: in.Topic + "." + in.AggregateID, Token: in.AggregateID}, nil
}

func prepareMutants() []mutant {
	return []mutant{
		{
			name: "writes to the record", caughtBy: "Prepare/IsPure",
			wrap: func(w world) core.Broker {
				var mu sync.Mutex
				return with{world: w, prepare: func(r *core.Record) (core.Prepared, error) {
					mu.Lock()
					defer mu.Unlock()
					r.Headers["content_type"] = "application/json"
					return w.Prepare(r)
				}}
			},
		},
		{
			name: "asks the server in Prepare", caughtBy: "Prepare/NeedsNoServer",
			wrap: func(w world) core.Broker {
				return with{world: w, prepare: func(r *core.Record) (core.Prepared, error) {
					if err := w.Check(context.Background()); err != nil {
						return core.Prepared{}, err
					}
					return w.Prepare(r)
				}}
			},
		},
		{
			name: "one destination for each key", caughtBy: "Prepare/DestinationDependsOnTheTopicAlone",
			config: func(c *membroker.Config) { c.Strategy = perAggregate{} },
		},
		{
			name: "accepts what is too large", caughtBy: "Prepare/OversizeIsPermanentAndNamesTheLimit",
			config: func(c *membroker.Config) { c.MaxMessageBytes = -1 },
		},
		{
			name: "too large is called transient", caughtBy: "Prepare/OversizeIsPermanentAndNamesTheLimit",
			wrap: func(w world) core.Broker {
				return with{world: w, prepare: func(r *core.Record) (core.Prepared, error) {
					p, err := w.Prepare(r)
					if err != nil {
						err = &core.PublishError{Code: "TOO_LARGE", Err: err}
					}
					return p, err
				}}
			},
		},
		{
			name: "drops empty headers", caughtBy: "Prepare/OddHeaders",
			wrap: stored(func(m *membroker.Message) {
				maps.DeleteFunc(m.Headers, func(_, value string) bool { return value == "" })
			}),
		},
		{
			name: "cuts long headers", caughtBy: "Prepare/OddHeaders",
			wrap: stored(func(m *membroker.Message) {
				for name, value := range m.Headers {
					m.Headers[name] = value[:min(len(value), 1024)]
				}
			}),
		},
		{
			name: "header names in lower case", caughtBy: "Prepare/OddHeaderNamesRoundTripOrAreRefused",
			wrap: stored(func(m *membroker.Message) {
				lower := map[string]string{}
				for name, value := range m.Headers {
					lower[strings.ToLower(name)] = value
				}
				m.Headers = lower
			}),
		},
	}
}
