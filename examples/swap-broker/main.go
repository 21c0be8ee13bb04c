// Swap-broker is one program for every broker: which one it uses is said by a file, and nothing in the code.
//
//	go run ./examples/swap-broker kafka.yaml
//	go run ./examples/swap-broker rabbitmq.yaml
//	go run ./examples/swap-broker sqs.yaml
//	go run ./examples/swap-broker memory.yaml
//
// It places a few orders, each with its event in the same transaction, and carries the events to the broker. The events
// of one order arrive there in their order, by a partition, a shard queue or a message group.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/store/sqlite"
)

func main() { os.Exit(start()) }

func start() (exitCode int) {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: swap-broker FILE.yaml")
		return 2
	}
	in := config.Input{Files: os.Args[1:], Environ: os.Environ()}
	events, err := run(context.Background(), registry(membroker.NewServer()), in)
	if err != nil {
		fmt.Fprintln(os.Stderr, "swap-broker:", err)
		return 1
	}
	fmt.Printf("swap-broker: %d events are at the broker\n", events)
	return 0
}

// registry names what a file may choose from. A service with one broker names one, and links one.
func registry(memory *membroker.Server) config.Registry {
	return config.Registry{
		Stores: map[string]config.StoreFactory{
			"sqlite": config.Store(sqlite.Open, sqlite.ParseURL),
		},
		Brokers: map[string]config.BrokerFactory{
			"kafka":    config.Broker(kafka.Open, kafka.ParseURL, config.OrderingRecordKey),
			"rabbitmq": config.Broker(rabbitmq.Open, rabbitmq.ParseURL, config.OrderingShards),
			"sqs":      config.Broker(sqs.Open, sqs.ParseURL, config.OrderingMessageGroup),
			"memory": config.Broker(func(_ context.Context, c membroker.Config) (*membroker.Broker, error) {
				c.Server = memory
				return membroker.New(c), nil
			}, nil, config.OrderingRecordKey),
		},
	}
}

// run is the program. It returns how many events it has brought to the broker.
func run(ctx context.Context, registry config.Registry, in config.Input) (events int, err error) {
	loaded, err := config.Load(ctx, registry, in)
	if err != nil {
		return 0, err
	}
	parts, err := loaded.Open(ctx, slog.Default())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, parts.Close(ctx)) }()
	store, ok := parts.Store.(*sqlite.Store) // the service's own tables are there too
	if !ok {
		return 0, fmt.Errorf("this service needs SQLite, not %T", parts.Store)
	}
	if err := prepare(ctx, store, parts); err != nil {
		return 0, err
	}
	if err := placeOrders(ctx, store); err != nil {
		return 0, err
	}
	count := &counter{}
	parts.Dispatcher.Observer = count
	dispatcher, err := core.NewDispatcher(store, parts.Broker, parts.Dispatcher)
	if err != nil {
		return 0, err
	}
	err = dispatcher.RunOnce(ctx) // a service has it run in the background
	return count.published, err
}

// prepare makes the tables, and the topic where the broker has such.
func prepare(ctx context.Context, store *sqlite.Store, parts config.Parts) error {
	if _, err := store.Migrate(ctx, len(store.Migrations())); err != nil {
		return err
	}
	if _, err := store.DB().ExecContext(ctx, createOrders); err != nil {
		return err
	}
	topology, ok := parts.Broker.(core.Topology)
	if !ok {
		return nil
	}
	topic, err := parts.Dispatcher.Route(&core.Record{Message: core.Message{AggregateType: aggregateType}})
	if err != nil {
		return err
	}
	return topology.Declare(ctx, topic)
}

// counter counts what was published.
type counter struct{ published int }

// Observe is called by the dispatcher from one goroutine.
func (c *counter) Observe(event core.Event) {
	if settled, ok := event.(core.SettleEvent); ok && settled.Err == nil {
		c.published += settled.Published
	}
}
