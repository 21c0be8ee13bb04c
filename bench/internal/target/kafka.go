package target

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/bench/internal/load"
)

var _ Target = (*kafka)(nil)

type kafka struct {
	url    string
	client *kgo.Client
	admin  *kadm.Client
}

// partitions of each topic.
const partitions = 6

func openKafka(ctx context.Context, url string) (*kafka, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(Seeds(url)...))
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("target: kafka: %w", err)
	}
	return &kafka{url: url, client: client, admin: kadm.NewClient(client)}, nil
}

// Seeds are the addresses in a URL of Kafka.
func Seeds(url string) []string { return strings.Split(strings.TrimPrefix(url, "kafka://"), ",") }

func (k *kafka) URL() string { return k.url }
func (k *kafka) Close()      { k.client.Close() }

func (k *kafka) Create(ctx context.Context) (string, error) {
	topic := name()
	_, err := k.admin.CreateTopic(ctx, partitions, 1, nil, topic)
	return topic, err
}

func (k *kafka) Drop(topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	_, _ = k.admin.DeleteTopics(ctx, topic)
}

func (k *kafka) Read(ctx context.Context, topic string, each func([]byte) (bool, error)) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(Seeds(k.url)...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if enough, err := each(it.Next().Value); enough || err != nil {
				return err
			}
		}
	}
}

func (k *kafka) Publish(ctx context.Context, topic string, rows int) error {
	// Without any linger the client sends whatever the first record finds, and is several times slower.
	client, err := kgo.NewClient(kgo.SeedBrokers(Seeds(k.url)...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	const size, inFlight = 1000, 8
	return inBatches(ctx, rows, size, inFlight, func(ctx context.Context, first, last int) error {
		records := make([]*kgo.Record, 0, size)
		for n := first; n <= last; n++ {
			key := load.Key(n)
			r := &kgo.Record{Key: []byte(key), Value: load.Body(n, key)}
			for name, value := range message(topic, key, n, nil).WireHeaders() {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			}
			records = append(records, r)
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	})
}
