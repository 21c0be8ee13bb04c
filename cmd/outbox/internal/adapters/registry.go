// Package adapters is the one place that knows every store and broker, each by its type. A new adapter is one more entry
// in a list here.
package adapters

import (
	"context"
	"errors"
	"log/slog"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/memstore"
)

// Forms of URLs, as users write them.
const (
	StoreForms  = "sqlite:FILE, postgres://HOST/DATABASE, memory:"
	BrokerForms = "kafka://HOST:PORT, rabbitmq://HOST:PORT, sqs:?region=REGION, memory:"
)

// Registry is every store and broker, to dispatch from one to the other.
func Registry(log *slog.Logger) config.Registry {
	return registry(log, map[string]config.StoreFactory{
		"postgres": config.Store(openPostgres, postgresFromURL),
		"sqlite":   config.Store(openSQLite, sqliteFromURL),
	})
}

// Existing is the Registry for what needs tables: it makes no database file.
func Existing(log *slog.Logger) config.Registry {
	return registry(log, map[string]config.StoreFactory{
		"postgres": config.Store(openPostgres, postgresFromURL),
		"sqlite":   config.Store(existingSQLite, sqliteFromURL),
	})
}

// Offline is the Registry with stores that connect to nothing and know only their Migrations.
func Offline(log *slog.Logger) config.Registry {
	return registry(log, map[string]config.StoreFactory{
		"postgres": config.Store(openPostgres, postgresFromURL),
		"sqlite":   config.Store(offlineSQLite, sqliteFromURL),
	})
}

func registry(log *slog.Logger, stores map[string]config.StoreFactory) config.Registry {
	stores["memory"] = config.Store(func(_ context.Context, c memstore.Config) (*memstore.Store, error) {
		log.Warn("the store is in memory: it is empty, and nobody can write to it")
		return memstore.New(c)
	}, memory[memstore.Config])
	return config.Registry{
		Stores: stores,
		Brokers: map[string]config.BrokerFactory{
			"kafka":    config.Broker(kafka.Open, kafka.ParseURL, config.OrderingRecordKey, config.OrderingNone),
			"rabbitmq": config.Broker(rabbitmq.Open, rabbitmq.ParseURL, config.OrderingShards, config.OrderingNone),
			"sqs":      config.Broker(sqs.Open, sqs.ParseURL, config.OrderingMessageGroup, config.OrderingNone),
			"memory": config.Broker(func(_ context.Context, c membroker.Config) (*membroker.Broker, error) {
				log.Warn("the broker is in memory: what is published is gone when this process ends")
				return membroker.New(c), nil
			}, memory[membroker.Config],
				config.OrderingRecordKey, config.OrderingShards, config.OrderingMessageGroup, config.OrderingNone),
		},
		Schemes: map[string]string{
			"postgresql": "postgres",
			"amqp":       "rabbitmq",
			"amqps":      "rabbitmq",
			"rabbitmqs":  "rabbitmq",
		},
	}
}

// memory reads the URL of what has no address.
func memory[C any](url string) (c C, err error) {
	if url != "memory:" {
		return c, errors.New(`is just "memory:"; settings have to be given in a file`)
	}
	return c, nil
}

// offline is a store that is asked for its Migrations only.
type offline struct {
	core.Store
	core.Migrator
	release func() error
}

func (o offline) Close() error { return errors.Join(o.Store.Close(), o.release()) }
