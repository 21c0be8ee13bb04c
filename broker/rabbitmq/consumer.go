package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The defaults of [ConsumerConfig].
const (
	// DefaultBackoff is the pause before a handler gets a message again.
	DefaultBackoff = 100 * time.Millisecond
	// DefaultMaxBackoff is where the pause stops growing.
	DefaultMaxBackoff = 10 * time.Second
)

// ErrGenerationEnded is returned by [Consume] when the last message of the generation was handled: go on with the next.
var ErrGenerationEnded = errors.New("rabbitmq: the generation has ended")

// Delivery is a message as a consumer gets it.
type Delivery struct {
	// Message is the event as it was enqueued. Its headers are the user's; those of the outbox are its other fields.
	core.Message
	// Queue is where it comes from.
	Queue string
	// Attempt counts how often this consumer has tried to handle it, from 1.
	Attempt int
	// Redelivered says that another consumer, or this one on another connection, may have handled it already.
	Redelivered bool
}

// Handler handles one message. Returning nil acknowledges it. After an error it gets the same message again, before
// any other of its queue. Its context ends when the queue is lost to another consumer: then return, as that one gets
// the same message. Handlers of different queues run at the same time.
type Handler func(ctx context.Context, d Delivery) error

// ConsumerConfig configures [Consume]. Server, Topic and Group are required.
type ConsumerConfig struct {
	// Server is how to connect, and which generation to consume (Strategy) in how many queues (Groups), as it was given
	// to the Broker that declared them.
	Server Config
	// Topic is the topic, and Group the consumer group.
	Topic, Group string
	// PreviousQueues is how many queues the group had in the generation before, whose rest is handled first: Consume
	// goes on to this generation when all of those queues have come to their fence ([Broker.Fence]), whoever consumed
	// them, so that no aggregate is handled out of order. A queue that is missing counts as ended. 0 means that there
	// is no such generation.
	PreviousQueues int
	// Attempts is after how many errors in a row a message becomes a dead letter, which lets later ones of its
	// aggregate pass. 0 means never: its queue waits until the handler succeeds.
	Attempts int
	// Backoff is the pause before the handler gets a message again, and before a new connection; it doubles up to
	// MaxBackoff. 0 means DefaultBackoff and DefaultMaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// WithDefaults returns a copy in which every default is spelled out.
func (c ConsumerConfig) WithDefaults() ConsumerConfig {
	c.Server = c.Server.WithDefaults()
	orElse(&c.Backoff, DefaultBackoff)
	orElse(&c.MaxBackoff, DefaultMaxBackoff)
	return c
}

// Validate reports everything wrong with the configuration, defaults applied: a *[core.FieldError] for each fault,
// joined, or nil.
func (c ConsumerConfig) Validate() error {
	c = c.WithDefaults()
	faults := []error{c.Server.Validate()}
	if reason := badExchangeName(c.Topic); reason != "" {
		faults = append(faults, fault("Topic", fmt.Sprintf("%q %s", c.Topic, reason)))
	}
	if _, ok := c.group(); !ok {
		faults = append(faults, fault("Group", fmt.Sprintf("%q is not among Server.Groups of topic %q", c.Group, c.Topic)))
	}
	if _, err := layoutOf(c.Server.Strategy); err != nil {
		faults = append(faults, fault("Server.Strategy", err.Error()))
	}
	if s, ok := c.Server.Strategy.(ordering.Shards); c.PreviousQueues != 0 && (!ok || s.WithDefaults().Generation == 1) {
		faults = append(faults, fault("PreviousQueues", "is set, but there is no generation before this one"))
	}
	if c.PreviousQueues < 0 {
		faults = append(faults, fault("PreviousQueues", "is negative; 0 means no generation before this one"))
	}
	if c.Attempts < 0 {
		faults = append(faults, fault("Attempts", "is negative; 0 means to try for ever"))
	}
	if c.Backoff < 0 || c.MaxBackoff < c.Backoff {
		faults = append(faults, fault("Backoff",
			fmt.Sprintf("%v is negative or above MaxBackoff %v", c.Backoff, c.MaxBackoff)))
	}
	return errors.Join(faults...)
}

func (c ConsumerConfig) group() (Group, bool) {
	groups := c.Server.groupsOf(c.Topic)
	i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == c.Group })
	if i < 0 {
		return Group{}, false
	}
	return groups[i], true
}

// Consume handles the messages of a topic for a consumer group, those of an aggregate in their order and one at a time.
// It consumes all queues of the group, each in a goroutine of its own with one message at a time. Start it in as many
// processes as you like: the server lets one of them consume a queue at a time, the first that came, and the next one
// when that is gone. Messages come at least once: let the handler recognise repeats by their event id.
//
// A lost connection is made anew. Consume returns nil when ctx has ended and the handlers have returned, and
// [ErrGenerationEnded] when all queues have come to their fence ([Broker.Fence]): go on with the next generation. It
// returns another error when a person has to act: missing queues, wrong credentials.
//
// It is a plain consumer, for examples, tests, and services that need no more.
func Consume(ctx context.Context, config ConsumerConfig, handle Handler) error {
	if err := config.Validate(); err != nil {
		return fmt.Errorf("rabbitmq: invalid configuration: %w", err)
	}
	c, err := newConsumer(config.WithDefaults(), handle)
	if err != nil {
		return fmt.Errorf("rabbitmq: consume: %w", err)
	}
	for pause := c.config.Backoff; ctx.Err() == nil; pause = min(2*pause, c.config.MaxBackoff) {
		began := time.Now()
		err := c.session(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // whatever was interrupted: the caller has asked for the end
		}
		if err == nil {
			return ErrGenerationEnded
		}
		if classify(err).class == core.ClassMisconfigured {
			return fmt.Errorf("rabbitmq: consume topic %q as %q: %w", c.config.Topic, c.config.Group, publishError(err))
		}
		c.config.Server.Logger.WarnContext(ctx, "rabbitmq: consuming was interrupted, will connect again",
			"topic", c.config.Topic, "group", c.config.Group, "pause", pause, "error", err)
		if time.Since(began) > c.config.MaxBackoff {
			pause = c.config.Backoff // it had worked for a while
		}
		_ = wait(ctx, pause) // the loop looks at ctx
	}
	return nil
}

// consumer consumes the queues of one group.
type consumer struct {
	config            ConsumerConfig
	handle            Handler
	dialer            *dialer
	previous, current []*shardQueue
}

func newConsumer(config ConsumerConfig, handle Handler) (*consumer, error) {
	server := config.Server
	server.DisableLock = true // consumers publish nothing
	dialer, err := newDialer(server)
	if err != nil {
		return nil, err
	}
	layout, err := layoutOf(server.Strategy)
	if err != nil {
		return nil, err
	}
	c := &consumer{config: config, handle: handle, dialer: dialer}
	group, _ := config.group()
	for n := range config.PreviousQueues {
		name := QueueName(config.Topic, group.Name, layout.generation-1, n)
		c.previous = append(c.previous, &shardQueue{consumer: c, name: name, mayBeMissing: true})
	}
	for n := range group.Queues {
		name := QueueName(config.Topic, group.Name, layout.generation, n)
		c.current = append(c.current, &shardQueue{consumer: c, name: name})
	}
	return c, nil
}

// session consumes over one connection. It returns nil when all queues have come to their end.
func (c *consumer) session(ctx context.Context) error {
	l, err := c.dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer c.dialer.tasks.Wait()
	defer l.close(context.WithoutCancel(ctx))
	if err := consumeAll(ctx, l, c.previous); err != nil {
		return err
	}
	return consumeAll(ctx, l, c.current)
}

// consumeAll consumes queues until all of them have come to their end, or one is lost.
func consumeAll(ctx context.Context, l *link, queues []*shardQueue) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	faults := make([]error, len(queues))
	var running sync.WaitGroup
	for i, q := range queues {
		running.Go(func() {
			if faults[i] = q.consume(ctx, l); faults[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(faults...)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
