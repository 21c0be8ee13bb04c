package sqs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/ordering"
)

// Declare creates the missing queues as Config.NewQueue says. A queue that is configured by its URL has to be there.
// Needs the right sqs:CreateQueue.
func (b *Broker) Declare(ctx context.Context, topics ...string) error {
	return b.eachQueue(ctx, "declare", topics, b.declare)
}

// Verify reports queues that are missing, that are not of the kind which the strategy needs, or that are not set up as
// Config.NewQueue and Config.MaxMessageBytes say.
func (b *Broker) Verify(ctx context.Context, topics ...string) error {
	return b.eachQueue(ctx, "verify", topics, b.verify)
}

// eachQueue does something with the queue of each topic, and reports what fails.
func (b *Broker) eachQueue(
	ctx context.Context, verb string, topics []string, do func(context.Context, string) error,
) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("sqs: %s: %w", verb, err)
	}
	defer leave()
	var faults []error
	done := map[string]bool{}
	for _, topic := range topics {
		route, err := b.config.Strategy.Route(ordering.Input{Topic: topic})
		queue := b.config.queueOf(route.Destination)
		if done[queue] && err == nil {
			continue
		}
		done[queue] = true
		if err == nil {
			err = do(ctx, queue)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("sqs: %s: topic %q, queue %q: %w", verb, topic, queue, err))
		}
	}
	return errors.Join(faults...)
}

func (b *Broker) declare(ctx context.Context, queue string) error {
	switch _, err := b.attributes(ctx, queue); {
	case err == nil:
		return nil
	case classify(err).code != codeNoQueue:
		return publishError(err)
	case strings.Contains(queue, "://"):
		return fmt.Errorf("configured by its URL; create it, or leave it to Config.QueueName: %w", err)
	}
	attributes := maps.Clone(b.config.NewQueue.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	if isFIFO(queue) {
		maps.Copy(attributes, b.fifoAttributes())
	}
	ctx, cancel := context.WithTimeout(ctx, b.config.RequestTimeout)
	defer cancel()
	_, err := b.client.CreateQueue(ctx, &sdk.CreateQueueInput{QueueName: &queue, Attributes: attributes}, once)
	if err != nil {
		return fmt.Errorf("create the queue: %w", err)
	}
	return nil
}

// fifoAttributes are those of a FIFO queue.
func (b *Broker) fifoAttributes() map[string]string {
	attributes := map[string]string{string(types.QueueAttributeNameFifoQueue): "true"}
	if b.config.NewQueue.HighThroughput {
		attributes[string(types.QueueAttributeNameDeduplicationScope)] = "messageGroup"
		attributes[string(types.QueueAttributeNameFifoThroughputLimit)] = "perMessageGroupId"
	}
	return attributes
}

// attributes asks SQS about a queue by name or URL.
func (b *Broker) attributes(ctx context.Context, queue string) (map[string]string, error) {
	url, err := b.queues.urlOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	return b.queues.attributesOf(ctx, url, types.QueueAttributeNameAll)
}

func (b *Broker) verify(ctx context.Context, queue string) error {
	attributes, err := b.attributes(ctx, queue)
	if err != nil {
		return publishError(err)
	}
	var faults []error
	if b.config.ordered() || isFIFO(queue) {
		for name, want := range b.fifoAttributes() {
			if got := attributes[name]; got != want {
				faults = append(faults, fmt.Errorf("attribute %s is %q, want %q", name, got, want))
			}
		}
	}
	limit, _ := strconv.Atoi(attributes[string(types.QueueAttributeNameMaximumMessageSize)]) // 0 when not told
	if want := b.config.MaxMessageBytes; want > limit && limit > 0 {
		faults = append(faults, fmt.Errorf("MaximumMessageSize is %d, less than Config.MaxMessageBytes (%d): larger "+
			"messages are parked only after SQS has refused them", limit, want))
	}
	return errors.Join(faults...)
}
