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

// Fence marks the end of the Broker's generation of a topic: it sends a fence to each queue of each consumer group of
// Config.Groups, behind everything that was published before. A consumer that meets one knows that nothing follows.
//
// Call it when nobody publishes to this generation any more: no dispatcher, in no process. It is not undone when it
// fails; call it again. Repeating it is harmless.
func (b *Broker) Fence(ctx context.Context, topic string) error {
	batch, err := b.fences(topic)
	if err != nil {
		return fmt.Errorf("rabbitmq: fence topic %q: %w", topic, err)
	}
	var faults []error
	for _, r := range b.PublishBatch(ctx, batch) {
		faults = append(faults, r.Err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("rabbitmq: fence topic %q: call Fence again: %w", topic, err)
	}
	return nil
}

// fences returns the messages. As shard n of every group is bound to its queue n, the shards below the largest number
// of queues reach all queues of all groups; those of smaller groups get more than one, of which the first counts.
func (b *Broker) fences(topic string) ([]core.Prepared, error) {
	strategy, ok := b.config.Strategy.(ordering.Shards)
	if !ok {
		return nil, fmt.Errorf("strategy %s has no generations; only ordering.Shards has", b.config.Strategy.Fingerprint())
	}
	queues := 0
	for _, g := range b.config.groupsOf(topic) {
		queues = max(queues, g.Queues)
	}
	if queues == 0 {
		return nil, errors.New("Config.Groups has no group for it")
	}
	batch := make([]core.Prepared, queues)
	for shard := range batch {
		token := strategy.Token(shard)
		batch[shard] = core.Prepared{Destination: topic, Native: &publication{
			exchange: topic, token: token, message: amqp.Publishing{
				// The headers are those of every message, for readers that know nothing of fences.
				Headers: amqp.Table{headerUUID: typeFence + " " + token, core.HeaderEventType: typeFence},
				Type:    typeFence, MessageId: typeFence + " " + token, DeliveryMode: amqp.Persistent, Timestamp: time.Now(),
			},
		}}
	}
	return batch, nil
}

// isFence tells a fence from an event of that type.
func isFence(d *amqp.Delivery) bool {
	_, event := d.Headers[core.HeaderEventID]
	return d.Type == typeFence && !event
}

// Resharding moves a topic from one generation of [ordering.Shards] to the next, with another number of shards or with
// other numbers of queues, while consumers are running.
type Resharding struct {
	// Topic is the topic to move.
	Topic string
	// Old and New are Brokers of the same server with the Strategy and Groups of each generation.
	Old, New *Broker
	// Pause makes sure that nobody publishes to the topic: it returns when no call is in progress, in no process, and
	// none will begin. Switch makes everybody publish with the strategy of New from then on, and go on.
	Pause, Switch func(context.Context) error
}

// Run declares the new generation, pauses publishing, sends the fences, and switches. Events wait in the outbox while
// publishing is paused, which takes as long as Pause and a few milliseconds.
//
// Consumers of the old generation end at the fences (Consume returns [ErrGenerationEnded]); those of the new one
// (ConsumerConfig.PreviousQueues) handle the rest of the old generation before they begin. Start them whenever you
// like. When the old queues are no longer consumed, delete them.
//
// When it fails before the first fence was sent, publishing may go on as before. When the error wraps [ErrFenced],
// publishing must stay paused: run it again.
func (r Resharding) Run(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	if err := r.New.Declare(ctx, r.Topic); err != nil {
		return fmt.Errorf("rabbitmq: reshard topic %q: %w", r.Topic, err)
	}
	if err := r.Pause(ctx); err != nil {
		return fmt.Errorf("rabbitmq: reshard topic %q: pause publishing: %w", r.Topic, err)
	}
	if err := r.Old.Fence(ctx, r.Topic); err != nil {
		return fmt.Errorf("rabbitmq: reshard topic %q: %w: %w", r.Topic, ErrFenced, err)
	}
	if err := r.Switch(ctx); err != nil {
		return fmt.Errorf("rabbitmq: reshard topic %q: switch: %w: %w", r.Topic, ErrFenced, err)
	}
	return nil
}

// ErrFenced is wrapped by errors of [Resharding.Run] after which nothing may be published to the old generation.
var ErrFenced = errors.New("fences may be in the old queues, so nothing may be published there")

func (r Resharding) validate() error {
	var faults []error
	if r.Old == nil || r.New == nil || r.Pause == nil || r.Switch == nil {
		return fault("Resharding", "needs Old, New, Pause and Switch")
	}
	from, okFrom := r.Old.config.Strategy.(ordering.Shards)
	to, okTo := r.New.config.Strategy.(ordering.Shards)
	if from, to = from.WithDefaults(), to.WithDefaults(); !okFrom || !okTo || to.Generation != from.Generation+1 {
		faults = append(faults, fault("Resharding.New", fmt.Sprintf("has strategy %s, which is not the generation after %s",
			r.New.config.Strategy.Fingerprint(), r.Old.config.Strategy.Fingerprint())))
	}
	if len(r.Old.config.groupsOf(r.Topic)) == 0 || len(r.New.config.groupsOf(r.Topic)) == 0 {
		faults = append(faults, fault("Resharding.Topic", fmt.Sprintf("%q has no consumer groups in Config.Groups", r.Topic)))
	}
	return errors.Join(faults...)
}
