package rabbitmq_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/memstore"
)

var _ = consumeNext // compiled, and shown in docs/resharding.md

func ExampleParseURL() {
	config, err := rabbitmq.ParseURL("rabbitmq://outbox:secret@rabbit-1,rabbit-2/shop?shards=64&groups=billing:4,audit")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(config.Addresses, config.VHost, config.Username, config.Password)
	fmt.Println(config.Strategy.Fingerprint())
	for _, g := range config.Groups[rabbitmq.EveryTopic] {
		fmt.Println(g.Name, g.WithDefaults().Queues)
	}
	// Output:
	// [rabbit-1 rabbit-2] shop outbox ***
	// shards/v1:64:g1
	// billing 4
	// audit 1
}

func ExampleQueueName() {
	fmt.Println(rabbitmq.QueueName("orders", "billing", 1, 3))
	fmt.Println(rabbitmq.DeadLetterName("orders", "billing"))
	// Output:
	// orders.billing.1.3
	// orders.billing.dead
}

func ExampleBroker_Prepare() {
	b, err := rabbitmq.Open(context.Background(), rabbitmq.Config{Addresses: []string{"localhost"}})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(context.Background()) //nolint:errcheck // no call is in progress
	record := &core.Record{Message: core.Message{
		EventID: "e-1", Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Headers: map[string]string{"CC": "elsewhere"},
	}}
	_, err = b.Prepare(record)
	fmt.Println(err)
	record.Headers = nil
	prepared, err := b.Prepare(record)
	fmt.Println(prepared.Destination, err)
	// Output:
	// INVALID_PROPERTY: rabbitmq: event "e-1" for topic "orders": the header name "CC" is read by RabbitMQ: use another
	// orders <nil>
}

// A service that handles the events of its own group, as many of them at a time as the group has queues.
func ExampleConsume() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	config, err := rabbitmq.ParseURL(os.Getenv("RABBITMQ_URL") + "?groups=billing:4")
	if err != nil {
		log.Fatal(err)
	}
	err = rabbitmq.Consume(ctx, rabbitmq.ConsumerConfig{Server: config, Topic: "orders", Group: "billing"},
		func(_ context.Context, d rabbitmq.Delivery) error {
			log.Println(d.EventType, d.AggregateID, string(d.Payload))
			return nil
		})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// Moving a topic to more shards, and its group to more queues, while everything is running.
func ExampleResharding() {
	if err := reshard(context.Background(), memoryStore()); err != nil {
		log.Fatal(err)
	}
}

// reshard moves the topic "orders" from 64 shards to 256, and its group "billing" from 4 queues to 16.
func reshard(ctx context.Context, store core.FingerprintKeeper) error {
	config, err := rabbitmq.ParseURL(os.Getenv("RABBITMQ_URL") + "?shards=64&groups=billing:4")
	if err != nil {
		return err
	}
	from, err := rabbitmq.Open(ctx, config)
	if err != nil {
		return err
	}
	defer from.Close(ctx) //nolint:errcheck // no call is in progress

	config.Strategy = ordering.Shards{Count: 256, Generation: 2}
	config.Groups = map[string][]rabbitmq.Group{"orders": {{Name: "billing", Queues: 16}}}
	to, err := rabbitmq.Open(ctx, config)
	if err != nil {
		return err
	}
	defer to.Close(ctx) //nolint:errcheck // no call is in progress

	return rabbitmq.Resharding{Topic: "orders", Old: from, New: to, Store: store}.Run(ctx)
}

// consumeNext is a consumer of the new generation. It first handles the rest of the old one, up to the fences.
func consumeNext(ctx context.Context, handle rabbitmq.Handler) error {
	config, err := rabbitmq.ParseURL(os.Getenv("RABBITMQ_URL") + "?shards=256&generation=2&groups=billing:16")
	if err != nil {
		return err
	}
	return rabbitmq.Consume(ctx, rabbitmq.ConsumerConfig{
		Server: config, Topic: "orders", Group: "billing", PreviousQueues: 4,
	}, handle)
}

// Another strategy than the one that the dispatchers publish by, decided by a person: "" is the name of the broker,
// where there is only one.
func Example_acceptFingerprint() {
	ctx, store := context.Background(), memoryStore()
	remembered, err := store.Fingerprint(ctx, "", "orders", ordering.Shards{}.Fingerprint())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("published by", remembered)
	if err := store.AcceptFingerprint(ctx, "", "orders", ordering.None{}.Fingerprint()); err != nil {
		log.Fatal(err)
	}
	remembered, err = store.Fingerprint(ctx, "", "orders", "")
	fmt.Println("published by", remembered, err)
	// Output:
	// published by shards/v1:256:g1
	// published by none/v1 <nil>
}

func memoryStore() *memstore.Store {
	store, _ := memstore.New(memstore.Config{}) // nothing is wrong with the defaults
	return store
}
