package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

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
	ctx := context.Background()
	config, err := rabbitmq.ParseURL(os.Getenv("RABBITMQ_URL") + "?shards=64&groups=billing:4")
	if err != nil {
		log.Fatal(err)
	}
	from, err := rabbitmq.Open(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	config.Strategy = ordering.Shards{Count: 256, Generation: 2}
	config.Groups = map[string][]rabbitmq.Group{"orders": {{Name: "billing", Queues: 16}}}
	to, err := rabbitmq.Open(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	err = rabbitmq.Resharding{
		Topic: "orders", Old: from, New: to,
		Pause:  func(context.Context) error { return nil }, // stop all dispatchers of the topic
		Switch: func(context.Context) error { return nil }, // start them with the strategy of New
	}.Run(ctx)
	if errors.Is(err, rabbitmq.ErrFenced) {
		log.Fatal("leave the dispatchers stopped and run it again: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
}
