package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

// openKafka uses a real Kafka, or without a URL one in this process that speaks the same protocol.
func (b *bus) openKafka(ctx context.Context, rawURL string) error {
	b.description = "Kafka, "
	if rawURL == "" {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return err
		}
		b.later(func() error { fake.Close(); return nil })
		rawURL = "kafka://" + strings.Join(fake.ListenAddrs(), ",")
		b.description = "Kafka in this process, "
	}
	cfg, err := kafka.ParseURL(rawURL)
	if err != nil {
		return fmt.Errorf("-broker: %w", err)
	}
	if cfg.SASL.Mechanism != "" || !cfg.TLS.IsZero() {
		return errors.New("-broker: the consumer of this example speaks plain text only, without TLS and passwords")
	}
	b.description += strings.Join(cfg.Brokers, ",")
	cfg.NewTopic.Partitions = 4
	broker, err := kafka.Open(ctx, cfg)
	if err != nil {
		return err
	}
	b.broker = broker
	b.later(afterwards(ctx, broker.Close))
	if err := broker.Declare(ctx, b.topic); err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ConsumeTopics(b.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	b.later(func() error { client.Close(); return nil })
	b.later(afterwards(ctx, func(ctx context.Context) error {
		_, err := kadm.NewClient(client).DeleteTopic(ctx, b.topic)
		return err
	}))
	b.source = &kafkaTopic{client: client, topic: b.topic, next: map[int32]int64{}}
	return nil
}

// kafkaTopic reads all partitions of a topic from the start.
type kafkaTopic struct {
	client *kgo.Client
	topic  string

	mu   sync.Mutex
	next map[int32]int64 // the offset to read next, by partition
}

func (k *kafkaTopic) consume(ctx context.Context, handle func(context.Context, delivery) error) error {
	for {
		fetches := k.client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume %s: %w", k.topic, err)
		}
		for _, record := range fetches.Records() {
			d := delivery{order: string(record.Key)}
			for _, header := range record.Headers {
				if header.Key == core.HeaderEventID {
					d.event = string(header.Value)
				}
			}
			if err := handle(ctx, d); err != nil {
				return err
			}
			k.mu.Lock()
			k.next[record.Partition] = record.Offset + 1
			k.mu.Unlock()
		}
	}
}

func (k *kafkaTopic) left(ctx context.Context) (n int64, err error) {
	ends, err := kadm.NewClient(k.client).ListEndOffsets(ctx, k.topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return 0, fmt.Errorf("find the end of %s: %w", k.topic, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ends.Each(func(end kadm.ListedOffset) { n += end.Offset - k.next[end.Partition] })
	return n, nil
}
