package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/kafka"
)

// cluster is Kafka: a real one, or one in this process that speaks the same protocol.
type cluster struct {
	description string
	broker      *kafka.Broker
	topic       string
	addresses   []string
	cleanUp     func() error
}

// openCluster opens the broker and makes a topic for this run.
func openCluster(ctx context.Context, rawURL, topic string) (*cluster, error) {
	c := &cluster{topic: topic}
	stop := func() {}
	if rawURL == "" {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, err
		}
		stop = fake.Close
		rawURL = "kafka://" + strings.Join(fake.ListenAddrs(), ",")
		c.description = "Kafka in this process, "
	}
	if err := c.open(ctx, rawURL); err != nil {
		stop()
		return nil, err
	}
	c.cleanUp = func() error {
		defer stop()
		return c.close(ctx)
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context, rawURL string) error {
	cfg, err := kafka.ParseURL(rawURL)
	if err != nil {
		return fmt.Errorf("-broker: %w", err)
	}
	if cfg.SASL.Mechanism != "" || !cfg.TLS.IsZero() {
		return errors.New("-broker: the consumer of this example speaks plain text only, without TLS and passwords")
	}
	cfg.NewTopic.Partitions = 4
	c.addresses = cfg.Brokers
	c.description += strings.Join(cfg.Brokers, ",")
	if c.broker, err = kafka.Open(ctx, cfg); err != nil {
		return err
	}
	if err := c.broker.Declare(ctx, c.topic); err != nil {
		return errors.Join(err, c.broker.Close(ctx))
	}
	return nil
}

// close deletes the topic, also when the run was interrupted.
func (c *cluster) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	faults := []error{c.broker.Close(ctx)}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses...))
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, c.topic)
	return errors.Join(append(faults, err)...)
}
