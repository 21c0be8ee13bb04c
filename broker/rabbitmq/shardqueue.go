package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
)

var errQueueLost = errors.New("the server has ended the consuming of a queue")

// shardQueue is one queue of a group.
type shardQueue struct {
	*consumer
	name         string
	mayBeMissing bool
	ended        bool // its fence has come
}

// consume handles the messages of the queue until its fence comes, ctx ends or the connection is lost.
func (q *shardQueue) consume(ctx context.Context, l *link) error {
	if q.ended {
		return nil
	}
	ch, err := l.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close() //nolint:errcheck // what is not acknowledged goes to the next consumer, in order
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := q.subscribe(ch)
	if reply := (*amqp.Error)(nil); q.mayBeMissing && errors.As(err, &reply) && reply.Code == amqp.NotFound {
		q.ended = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("queue %q: %w", q.name, err)
	}
	// A handler must not go on when the queue is somebody else's.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.tasks.Go(func() {
		if e := <-closed; e != nil {
			cancel(e)
		}
		cancel(errQueueLost)
	})
	return q.handleAll(ctx, l, deliveries)
}

// subscribe asks for one message at a time: with more, a message that is redelivered could come behind later ones.
func (q *shardQueue) subscribe(ch *amqp.Channel) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(1, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(q.name, "", false, false, false, false, nil)
}

// handleAll handles what is delivered. It returns nil when the fence has come.
func (q *shardQueue) handleAll(ctx context.Context, l *link, deliveries <-chan amqp.Delivery) error {
	for {
		var d amqp.Delivery
		var ok bool
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case d, ok = <-deliveries:
			if !ok {
				return errors.Join(errQueueLost, context.Cause(ctx))
			}
		}
		if q.ended = isFence(&d); q.ended {
			return q.passFence(ctx, l, &d)
		}
		if err := q.handleOne(ctx, &d); err != nil {
			return err
		}
	}
}

// handleOne calls the handler until it succeeds, and acknowledges the message.
func (q *shardQueue) handleOne(ctx context.Context, d *amqp.Delivery) error {
	delivery := deliveryOf(q.config.Topic, q.name, d)
	pause := q.config.Backoff
	for {
		delivery.Attempt++
		err := q.handle(ctx, delivery)
		switch {
		case ctx.Err() != nil: // if the handler succeeded all the same, the message comes again
			return context.Cause(ctx)
		case err == nil:
			return d.Ack(false)
		case delivery.Attempt == q.config.Attempts:
			q.config.Server.Logger.ErrorContext(ctx, "rabbitmq: gave a message up, it becomes a dead letter",
				"event_id", delivery.EventID, "queue", q.name, "attempts", delivery.Attempt, "error", err)
			return d.Nack(false, false)
		}
		q.config.Server.Logger.WarnContext(ctx, "rabbitmq: the handler failed, its queue waits",
			"event_id", delivery.EventID, "queue", q.name, "attempt", delivery.Attempt, "retry_in", pause, "error", err)
		if wait(ctx, pause) != nil {
			return context.Cause(ctx)
		}
		pause = min(2*pause, q.config.MaxBackoff)
	}
}

// passFence leaves a fence in the queue, for the consumers that come after this one. It is a new one, as one that is
// put back too often would become a dead letter.
func (q *shardQueue) passFence(ctx context.Context, l *link, d *amqp.Delivery) error {
	fence := amqp.Publishing{
		Headers: d.Headers, DeliveryMode: amqp.Persistent, MessageId: d.MessageId, Type: d.Type, Timestamp: d.Timestamp,
	}
	if err := l.publishTo(ctx, q.name, fence); err != nil {
		q.ended = false
		return fmt.Errorf("renew the fence of queue %q: %w", q.name, err)
	}
	return d.Ack(false)
}

// deliveryOf decodes what Prepare made.
func deliveryOf(topic, queue string, d *amqp.Delivery) Delivery {
	text := make(map[string]string, len(d.Headers))
	for name, value := range d.Headers {
		if s, ok := value.(string); ok { // the server adds numbers and lists of its own
			text[name] = s
		}
	}
	out := Delivery{
		Message: core.Message{
			EventID: text[core.HeaderEventID], Topic: topic, AggregateType: text[core.HeaderAggregateType],
			AggregateID: text[core.HeaderAggregateID], EventType: text[core.HeaderEventType], Payload: d.Body, Headers: text,
		},
		Queue: queue, Redelivered: d.Redelivered,
	}
	maps.DeleteFunc(text, func(name, _ string) bool { return core.IsReservedHeader(name) })
	return out
}
