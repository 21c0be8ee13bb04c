// Package target is the brokers as the bench sees them: to make and drop a destination, to read back what reached it,
// and to find out how fast it takes messages from a sender that does nothing else.
package target

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-outbox/outbox/core"
)

// Target is one message system.
type Target interface {
	// URL is the address as the outbox's own adapter takes it.
	URL() string
	// Create makes an empty destination of its own.
	Create(ctx context.Context) (topic string, err error)
	// Drop ends a destination, so that a long run does not fill the disk.
	Drop(topic string)
	// Read hands everything that the destination holds to each, one message at a time and in order for each key, until
	// each says that it is enough, returns an error, or ctx ends.
	Read(ctx context.Context, topic string, each func(body []byte) (enough bool, err error)) error
	// Publish sends messages as fast as the broker takes them, with the headers and as durable as ours.
	Publish(ctx context.Context, topic string, rows int) error
	// Close ends the connections.
	Close()
}

// Open connects to the broker at an address.
func Open(ctx context.Context, url string) (Target, error) {
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme {
	case "kafka":
		return openKafka(ctx, url)
	case "amqp", "rabbitmq":
		return openRabbitMQ(url)
	case "sqs":
		return openSQS(url)
	default:
		return nil, fmt.Errorf("target: no broker is known for the scheme %q", scheme)
	}
}

// name is a destination's: never used before.
func name() string { return fmt.Sprintf("bench-%d", time.Now().UnixNano()) }

// cleanup bounds what is done after a scenario, even when that was interrupted.
const cleanup = 20 * time.Second

// message is what our own adapter would send for event n.
func message(topic, key string, n int, body []byte) *core.Record {
	r := &core.Record{ID: int64(n)}
	r.Message = core.Message{
		EventID: "00000000-0000-0000-0000-000000000000", Topic: topic, AggregateType: "order", AggregateID: key,
		EventType: "order.created", Payload: body,
	}
	return r
}

// inBatches calls send for 1 to rows, size at a time, from several goroutines, and returns the first error.
func inBatches(
	ctx context.Context, rows, size, senders int, send func(ctx context.Context, first, last int) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			for ctx.Err() == nil {
				first := int(next.Add(int64(size))) - size + 1
				if first > rows {
					return
				}
				if err := send(ctx, first, min(first+size-1, rows)); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
