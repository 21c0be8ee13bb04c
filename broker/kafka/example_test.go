package kafka_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1)) // stands for your cluster
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	ctx := context.Background()
	broker, err := kafka.Open(ctx, kafka.Config{
		Brokers:  cluster.ListenAddrs(),
		NewTopic: kafka.NewTopic{Partitions: 12, ReplicationFactor: 1},
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
	// Output: orders delivered <nil>
}

func ExampleParseURL() {
	config, err := kafka.ParseURL("kafka://app:s3cret@kafka-1:9092,kafka-2:9092?tls=true&compression=zstd&partitions=12")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.Brokers, config.SASL.Username, config.SASL.Password, config.Strategy.Fingerprint())

	_, err = kafka.ParseURL("kafka://kafka-1:9092?acks=leader")
	fmt.Println(err)
	// Output:
	// [kafka-1:9092 kafka-2:9092] app *** record-key/v1:murmur2:p12
	// kafka: invalid URL: Acks: "leader" can lose records that the outbox has marked as published; use "all", or set UnsafeAcks
}

// A topic that sarama or Watermill wrote to keeps its keys in their partitions with the hash of those.
func ExampleConfig_strategy() {
	config := kafka.Config{
		Brokers:  []string{"kafka-1:9092"},
		Strategy: ordering.RecordKey{Hash: ordering.FNV1a, Partitions: 12},
	}
	fmt.Println(config.Strategy.Fingerprint(), config.Validate())
	// Output: record-key/v1:fnv1a:p12 <nil>
}
