package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/go-outbox/outbox/broker/mux"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

// Config is a configuration without faults. It prints as [Config.Print] does, whatever the verb. All methods are safe
// for concurrent use.
type Config struct {
	registry   Registry
	root       *node
	store      *section            // nil if there is none
	brokers    map[string]*section // the only one has no name
	routes     []mux.Route
	topics     map[string]string
	dispatcher core.Config
	notify     *notify.Config // nil if there is none
}

// Parts are the two ends that a configuration opened, and what a dispatcher between them needs.
type Parts struct {
	Store      core.Store
	Broker     core.Broker
	Dispatcher core.Config
}

// Close closes the broker, as [core.Broker] says about ctx, and then the store.
func (p Parts) Close(ctx context.Context) error {
	return errors.Join(p.Broker.Close(ctx), p.Store.Close())
}

// Open opens the store and the broker. The logger goes to both and to the dispatcher; nil means slog.Default. What was
// opened is closed again when something else fails.
func (c *Config) Open(ctx context.Context, log *slog.Logger) (Parts, error) {
	store, err := c.OpenStore(ctx, log)
	if err != nil {
		return Parts{}, err
	}
	broker, err := c.OpenBroker(ctx, log)
	if err != nil {
		return Parts{}, errors.Join(err, store.Close())
	}
	return Parts{Store: store, Broker: broker, Dispatcher: c.Dispatcher(log)}, nil
}

// OpenStore opens the store alone.
func (c *Config) OpenStore(ctx context.Context, log *slog.Logger) (core.Store, error) {
	if c.store == nil {
		return nil, errors.New("config: there is no store")
	}
	return c.registry.Stores[c.store.typ](ctx, c.store.decode(log))
}

// OpenBroker opens the broker alone: the only one, or a [mux.Broker] of several, which closes them all.
func (c *Config) OpenBroker(ctx context.Context, log *slog.Logger) (core.Broker, error) {
	if len(c.brokers) == 0 {
		return nil, errors.New("config: there is no broker")
	}
	if one, ok := c.brokers[""]; ok {
		return c.openBroker(ctx, log, one)
	}
	opened := map[string]core.Broker{}
	broker, err := c.openBrokers(ctx, log, opened)
	if err != nil {
		for _, name := range slices.Sorted(maps.Keys(opened)) {
			err = errors.Join(err, opened[name].Close(ctx))
		}
		return nil, err
	}
	return broker, nil
}

func (c *Config) openBroker(ctx context.Context, log *slog.Logger, s *section) (core.Broker, error) {
	return c.registry.Brokers[s.typ](ctx, s.decode(log))
}

func (c *Config) openBrokers(ctx context.Context, log *slog.Logger, opened map[string]core.Broker) (core.Broker, error) {
	for _, name := range slices.Sorted(maps.Keys(c.brokers)) {
		broker, err := c.openBroker(ctx, log, c.brokers[name])
		if err != nil {
			return nil, fmt.Errorf("broker %q: %w", name, err)
		}
		opened[name] = broker
	}
	return mux.New(mux.Config{Brokers: opened, Routes: c.routes})
}

// Dispatcher returns the configuration of the dispatcher. Its Route gives a record without a topic the one that
// "topics" has for its aggregate type, and otherwise the aggregate type itself.
func (c *Config) Dispatcher(log *slog.Logger) core.Config {
	config := c.dispatcher
	config.Logger = log
	if topics := c.topics; len(topics) > 0 {
		config.Route = func(r *core.Record) (string, error) {
			if topic, ok := topics[r.AggregateType]; ok {
				return topic, nil
			}
			return r.AggregateType, nil
		}
	}
	return config
}

// Notify returns the configuration of the webhook that is told what needs a person, with the dispatcher's name unless
// it has one of its own. It is false when there is no section "notify": then nobody is to be told.
func (c *Config) Notify(log *slog.Logger) (notify.Config, bool) {
	if c.notify == nil {
		return notify.Config{}, false
	}
	config := *c.notify
	config.Logger = log
	return config, true
}

// StoreType is the type of the store, as the registry names it, or "".
func (c *Config) StoreType() string {
	if c.store == nil {
		return ""
	}
	return c.store.typ
}
