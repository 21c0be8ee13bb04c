package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// typeFence is the type property of fences, by which consumers know them.
const typeFence = "outbox.fence"

// Fence ends the Broker's generation of a topic: it takes the bindings away from the queues of each consumer group of
// Config.Groups, so that what is still published to the generation is refused as unroutable, and sends a fence to each
// queue, behind everything that is there. A consumer that meets one knows that nothing follows.
//
// Call it when nobody publishes to this generation any more: no dispatcher, in no process. It is not undone when it
// fails; call it again. Repeating it is harmless.
func (b *Broker) Fence(ctx context.Context, topic string) error {
	queues, err := b.fencedQueues(topic)
	if err != nil {
		return fmt.Errorf("rabbitmq: fence topic %q: %w", topic, err)
	}
	for _, step := range []func(context.Context, *link, fencedQueue) error{unbind, sendFence} {
		for _, q := range queues {
			if err := b.eachFenced(ctx, q, step); err != nil {
				return fmt.Errorf("rabbitmq: fence topic %q: queue %q: call Fence again: %w", topic, q.name, publishError(err))
			}
		}
	}
	return nil
}

func (b *Broker) eachFenced(
	ctx context.Context, q fencedQueue, step func(context.Context, *link, fencedQueue) error,
) error {
	ctx, leave, err := b.enter(ctx, b.config.ConfirmTimeout)
	if err != nil {
		return err
	}
	defer leave()
	l, err := b.connect(ctx)
	if err != nil {
		return err
	}
	return step(ctx, l, q)
}

// fencedQueue is a queue at the end of its generation.
type fencedQueue struct {
	topic, name string
	generation  int
	tokens      []string // by which it is bound
}

func (b *Broker) fencedQueues(topic string) ([]fencedQueue, error) {
	if _, ok := b.config.Strategy.(ordering.Shards); !ok {
		return nil, fmt.Errorf("strategy %s has no generations; only ordering.Shards has", b.config.Strategy.Fingerprint())
	}
	layout, err := layoutOf(b.config.Strategy)
	if err != nil {
		return nil, err
	}
	var queues []fencedQueue
	for _, g := range b.config.groupsOf(topic) {
		for n := range g.Queues {
			queues = append(queues, fencedQueue{
				topic: topic, name: QueueName(topic, g.Name, layout.generation, n), generation: layout.generation,
				tokens: layout.tokensOf(g, n),
			})
		}
	}
	if len(queues) == 0 {
		return nil, errors.New("Config.Groups has no group for it")
	}
	return queues, nil
}

// unbind lets nothing more into the queue by way of the exchange.
func unbind(ctx context.Context, l *link, q fencedQueue) error {
	return l.withChannel(ctx, func(ch *amqp.Channel) error {
		for _, token := range q.tokens {
			if err := ch.QueueUnbind(q.name, token, q.topic, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func sendFence(ctx context.Context, l *link, q fencedQueue) error {
	id := fmt.Sprintf("%s %d", typeFence, q.generation)
	return l.publishTo(ctx, q.name, amqp.Publishing{
		// The headers are those of every message, for readers that know nothing of fences.
		Headers: amqp.Table{headerUUID: id, core.HeaderEventType: typeFence},
		Type:    typeFence, MessageId: id, DeliveryMode: amqp.Persistent, Timestamp: time.Now(),
	})
}

// publishTo publishes to one queue alone.
func (l *link) publishTo(ctx context.Context, queue string, m amqp.Publishing) error {
	return l.withChannel(ctx, func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		returns := ch.NotifyReturn(make(chan amqp.Return, 1))
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
		if err != nil {
			return err
		}
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			return errors.Join(errNack, err)
		}
		select { // it comes before the confirm
		case r := <-returns:
			return &returnedError{r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey}
		default:
			return nil
		}
	})
}

// isFence tells a fence from an event of that type.
func isFence(d *amqp.Delivery) bool {
	_, event := d.Headers[core.HeaderEventID]
	return d.Type == typeFence && !event
}
