package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/ordering"
)

// books is the consumer group of this example. Its orders are spread over four queues.
var books = rabbitmq.Group{Name: "books", Queues: 4}

// openRabbitMQ uses a RabbitMQ.
func (b *bus) openRabbitMQ(ctx context.Context, rawURL string) error {
	cfg, err := rabbitmq.ParseURL(rawURL)
	if err != nil {
		return fmt.Errorf("-broker: %w", err)
	}
	if !cfg.TLS.IsZero() {
		return errors.New("-broker: this example speaks to RabbitMQ without TLS only")
	}
	cfg.Groups = map[string][]rabbitmq.Group{b.topic: {books}}
	cfg = cfg.WithDefaults()
	b.description = "RabbitMQ, " + strings.Join(cfg.Addresses, ",")
	broker, err := rabbitmq.Open(ctx, cfg)
	if err != nil {
		return err
	}
	b.broker = broker
	b.later(afterwards(ctx, broker.Close))
	if err := broker.Check(ctx); err != nil {
		return err
	}
	source := &rabbitGroup{server: cfg, topic: b.topic}
	b.source = source
	b.later(source.delete)
	return broker.Declare(ctx, b.topic)
}

// rabbitGroup reads the queues of a consumer group.
type rabbitGroup struct {
	server rabbitmq.Config
	topic  string
}

func (r *rabbitGroup) consume(ctx context.Context, handle func(context.Context, delivery) error) error {
	config := rabbitmq.ConsumerConfig{Server: r.server, Topic: r.topic, Group: books.Name}
	return rabbitmq.Consume(ctx, config, func(ctx context.Context, d rabbitmq.Delivery) error {
		return handle(ctx, delivery{order: d.AggregateID, event: d.EventID})
	})
}

func (r *rabbitGroup) left(context.Context) (n int64, err error) {
	err = r.with(func(ch *amqp.Channel) error {
		for _, name := range r.queues() {
			queue, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return fmt.Errorf("count the messages of %s: %w", name, err)
			}
			n += int64(queue.Messages)
		}
		return nil
	})
	return n, err
}

// delete removes the exchanges and queues of the topic. Removing what is not there is no error.
func (r *rabbitGroup) delete() error {
	dead := rabbitmq.DeadLetterName(r.topic, books.Name)
	return r.with(func(ch *amqp.Channel) error {
		var faults []error
		for _, queue := range append(r.queues(), dead) {
			_, err := ch.QueueDelete(queue, false, false, false)
			faults = append(faults, err)
		}
		for _, exchange := range []string{r.topic, dead} {
			faults = append(faults, ch.ExchangeDelete(exchange, false, false))
		}
		return errors.Join(faults...)
	})
}

func (r *rabbitGroup) queues() (names []string) {
	generation := 1
	if shards, ok := r.server.Strategy.(ordering.Shards); ok {
		generation = shards.WithDefaults().Generation
	}
	for n := range books.Queues {
		names = append(names, rabbitmq.QueueName(r.topic, books.Name, generation, n))
	}
	return names
}

// with uses a connection to the first node that can be reached.
func (r *rabbitGroup) with(do func(*amqp.Channel) error) error {
	var faults []error
	for _, address := range r.server.Addresses {
		conn, err := amqp.DialConfig("amqp://"+address, amqp.Config{
			SASL:  []amqp.Authentication{&amqp.PlainAuth{Username: r.server.Username, Password: string(r.server.Password)}},
			Vhost: r.server.VHost,
		})
		if err != nil {
			faults = append(faults, err)
			continue
		}
		defer conn.Close() //nolint:errcheck // everything has been answered
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		return do(ch)
	}
	return errors.Join(faults...)
}
