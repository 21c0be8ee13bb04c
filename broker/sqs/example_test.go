package sqs_test

import (
	"context"
	"fmt"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

func Example() {
	fake, err := sqsfake.Start(sqsfake.Config{}) // stands for SQS
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fake.Close()

	ctx := context.Background()
	broker, err := sqs.Open(ctx, sqs.Config{
		Endpoint:    fake.URL(),                                                    // leave it out on AWS,
		Credentials: sqs.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, // and these to your role
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = broker.Close(ctx) }()
	if err := broker.Declare(ctx, "orders"); err != nil {
		fmt.Println(err)
		return
	}

	// A dispatcher does the rest: core.NewDispatcher(store, broker, core.Config{}).
	prepared, err := broker.Prepare(&core.Record{ID: 1, Message: core.Message{
		EventID: "e-1", Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		Payload: []byte(`{"total":42}`),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, result := range broker.PublishBatch(ctx, []core.Prepared{prepared}) {
		fmt.Println(prepared.Destination, result.Outcome, result.Err)
	}
	for _, m := range fake.Messages("orders.fifo") {
		fmt.Println(m.GroupID, m.DeduplicationID, m.Body)
	}
	// Output:
	// orders.fifo delivered <nil>
	// ord_1 e-1 {"total":42}
}

func ExampleParseURL() {
	config, err := sqs.ParseURL("sqs:?region=eu-west-1&prefix=prod-&high_throughput=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.Region, config.QueueName, config.NewQueue.HighThroughput)

	_, err = sqs.ParseURL("sqs:?concurrency=many&queue_name=orders.fifo")
	fmt.Println(err)
	// Output:
	// eu-west-1 prod-{topic}.fifo true
	// sqs: invalid URL: parameter concurrency: "many" is not a whole number
	// QueueName: "orders.fifo" does not have {topic} once; without it all topics would share one queue
}
