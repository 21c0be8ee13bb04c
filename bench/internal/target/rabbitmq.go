package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/bench/internal/load"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/ordering"
)

var _ Target = (*rabbit)(nil)

// rabbit is RabbitMQ: an exchange for each topic, and one consumer group whose quorum queues share the shards.
type rabbit struct {
	url  string
	conn *amqp.Connection
}

// Queues is how many queues each topic has.
const Queues = 4

const group = "bench"

func openRabbitMQ(url string) (*rabbit, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("target: rabbitmq: %w", err)
	}
	return &rabbit{url: url, conn: conn}, nil
}

func (r *rabbit) URL() string { return r.url }
func (r *rabbit) Close()      { _ = r.conn.Close() }

func (r *rabbit) Create(ctx context.Context) (string, error) {
	config, err := rabbitmq.ParseURL(r.url)
	if err != nil {
		return "", err
	}
	config.Groups = map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: group, Queues: Queues}}}
	config.Logger = slog.New(slog.DiscardHandler)
	b, err := rabbitmq.Open(ctx, config)
	if err != nil {
		return "", err
	}
	topic := name()
	return topic, errors.Join(b.Declare(ctx, topic), b.Close(ctx))
}

func (r *rabbit) queues(topic string) []string {
	names := make([]string, Queues)
	for n := range names {
		names[n] = rabbitmq.QueueName(topic, group, ordering.Shards{}.WithDefaults().Generation, n)
	}
	return names
}

func (r *rabbit) Drop(topic string) {
	ch, err := r.conn.Channel()
	if err != nil {
		return
	}
	defer ch.Close() //nolint:errcheck // nothing is left to be done on it
	for _, queue := range append(r.queues(topic), rabbitmq.DeadLetterName(topic, group)) {
		_, _ = ch.QueueDelete(queue, false, false, false)
	}
	_ = ch.ExchangeDelete(topic, false, false)
	_ = ch.ExchangeDelete(rabbitmq.DeadLetterName(topic, group), false, false)
}

func (r *rabbit) Read(ctx context.Context, topic string, each func([]byte) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []<-chan amqp.Delivery
	for _, queue := range r.queues(topic) {
		ch, err := r.conn.Channel()
		if err != nil {
			return err
		}
		defer ch.Close() //nolint:errcheck // what was read is dropped with its queue
		deliveries, err := ch.ConsumeWithContext(ctx, queue, "", true, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("target: rabbitmq: %w", err)
		}
		all = append(all, deliveries)
	}
	errEnough := errors.New("enough")
	var one sync.Mutex
	var wg sync.WaitGroup
	for _, deliveries := range all { // not before all consume: the first one may find enough
		wg.Go(func() {
			for d := range deliveries {
				one.Lock()
				enough, err := each(d.Body)
				one.Unlock()
				if enough {
					err = errEnough
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errEnough) {
		return cause
	}
	return nil
}

func (r *rabbit) Publish(ctx context.Context, topic string, rows int) error {
	const size, channels = 500, 4
	free := make(chan *amqp.Channel, channels)
	for range channels {
		ch, err := r.conn.Channel()
		if err != nil {
			return err
		}
		defer ch.Close() //nolint:errcheck // everything is confirmed by then
		if err := ch.Confirm(false); err != nil {
			return err
		}
		free <- ch
	}
	return inBatches(ctx, rows, size, channels, func(ctx context.Context, first, last int) error {
		ch := <-free
		defer func() { free <- ch }()
		return publishConfirmed(ctx, ch, topic, first, last)
	})
}

// publishConfirmed sends a batch and then waits for all its confirms.
func publishConfirmed(ctx context.Context, ch *amqp.Channel, topic string, first, last int) error {
	confirms := make([]*amqp.DeferredConfirmation, 0, last-first+1)
	for n := first; n <= last; n++ {
		key := load.Key(n)
		route, err := ordering.Shards{}.Route(ordering.Input{Topic: topic, AggregateType: "order", AggregateID: key})
		if err != nil {
			return err
		}
		headers := amqp.Table{}
		for name, value := range message(topic, key, n, nil).WireHeaders() {
			headers[name] = value
		}
		confirm, err := ch.PublishWithDeferredConfirm(route.Destination, route.Token, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(n), Headers: headers, Body: load.Body(n, key),
		})
		if err != nil {
			return err
		}
		confirms = append(confirms, confirm)
	}
	for _, confirm := range slices.Backward(confirms) { // the last one is usually the last to come
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			return errors.Join(errors.New("target: rabbitmq: not confirmed"), err)
		}
	}
	return nil
}
