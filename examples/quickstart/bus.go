package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-outbox/outbox/core"
)

// bus is the broker of this run: where dispatchers publish, and where the consumer reads.
type bus struct {
	description string
	// topic is a topic of this run alone.
	topic string
	// broker is what a dispatcher needs.
	broker core.Broker
	// source reads the topic without the outbox.
	source source
	undo
}

// source reads the topic with a plain client: all it knows of the outbox is the name of a header. There is one for each
// broker, in kafka.go, rabbitmq.go and sqs.go.
type source interface {
	// consume hands over events until ctx ends, those of an order one after the other. An event that handle returned nil
	// for is done. What consume returns once ctx has ended means nothing.
	consume(ctx context.Context, handle func(context.Context, delivery) error) error
	// left counts the events that have not been handed over yet.
	left(ctx context.Context) (int64, error)
}

// delivery is one event as it arrived.
type delivery struct {
	order string
	event string
}

// openBus opens the broker and makes the topic. The scheme of the URL is all that it takes to use another one.
func openBus(ctx context.Context, rawURL, topic string) (*bus, error) {
	b := &bus{topic: topic}
	var err error
	switch scheme, _, _ := strings.Cut(rawURL, ":"); scheme {
	case "", "kafka":
		err = b.openKafka(ctx, rawURL)
	case "rabbitmq", "amqp":
		err = b.openRabbitMQ(ctx, rawURL)
	case "sqs":
		err = b.openSQS(ctx, rawURL)
	default:
		err = fmt.Errorf("-broker: unknown scheme %q; known are kafka, rabbitmq and sqs", scheme)
	}
	if err != nil {
		return nil, errors.Join(err, b.cleanUp())
	}
	return b, nil
}

// afterwards is for what is left to do at the end of the run, also of one that was interrupted.
func afterwards(ctx context.Context, do func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return do(ctx)
	}
}

// undo takes back, last first, what opening made.
type undo []func() error

func (u *undo) later(step func() error) { *u = append(*u, step) }

// cleanUp leaves nothing behind.
func (u *undo) cleanUp() error {
	var faults []error
	for i := len(*u) - 1; i >= 0; i-- {
		faults = append(faults, (*u)[i]())
	}
	return errors.Join(faults...)
}
