package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

var (
	_ core.Broker   = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
)

// Broker publishes to a RabbitMQ server or cluster over one connection of its own. All methods are safe for concurrent
// use.
type Broker struct {
	config     Config
	connector  connector
	slots      chan struct{} // one for each call that may be in progress
	frameMax   atomic.Int64  // as negotiated with the last connection
	returned   atomic.Uint64
	strategies strategies

	stopped context.Context // ends the calls in progress when Close cannot wait any longer
	stop    context.CancelFunc

	mu     sync.Mutex
	calls  int
	closed bool
	idle   chan struct{} // closed once closed and no call is in progress
}

// Open makes a Broker with a connection of its own. It does not wait for the server: the first call connects, and a
// call that finds the connection lost makes another. A server that cannot be reached is an error of Check and of
// PublishBatch. The context bounds Open alone.
func Open(ctx context.Context, config Config) (*Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rabbitmq: open: %w", err)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("rabbitmq: invalid configuration: %w", err)
	}
	config = config.WithDefaults()
	dialer, err := newDialer(config)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: open: %w", err)
	}
	if config.TLS.InsecureSkipVerify {
		config.Logger.WarnContext(ctx, "rabbitmq: TLS.InsecureSkipVerify is set: anybody can pose as the server")
	}
	return newBroker(config, dialer.dial, dialer.tasks), nil
}

// New makes a Broker that uses a caller's connection, which it does not close when it is closed. It cannot make
// another: once the connection is closed, every call fails, so prefer Open where you can. Use the connection for
// nothing else: a server that blocks publishers blocks consumers on the same connection too. When a write hangs for
// longer than the context of a call allows, the connection is closed, as nothing else ends the write.
func New(conn *amqp.Connection, config Config) (*Broker, error) {
	if conn == nil {
		return nil, errors.New("rabbitmq: the connection is nil")
	}
	if err := errors.Join(config.validatePublishing()...); err != nil {
		return nil, fmt.Errorf("rabbitmq: invalid configuration: %w", err)
	}
	config = config.WithDefaults()
	// Its goroutines end with the connection, which may live on after Close, so that nobody waits for them.
	given := newLink(conn, nil, &sync.WaitGroup{}, config.Logger)
	return newBroker(config, func(context.Context) (*link, error) {
		if conn.IsClosed() {
			return nil, errGivenClosed
		}
		return given, nil
	}, &sync.WaitGroup{}), nil
}

func newBroker(config Config, dial func(context.Context) (*link, error), tasks *sync.WaitGroup) *Broker {
	b := &Broker{
		config:     config,
		connector:  connector{dial: dial, tasks: tasks, turn: make(chan struct{}, 1)},
		slots:      make(chan struct{}, config.Channels),
		idle:       make(chan struct{}),
		strategies: strategies{configured: config.Strategy, adopted: map[string]ordering.Shards{}},
	}
	b.frameMax.Store(int64(config.FrameMax))
	b.stopped, b.stop = context.WithCancel(context.Background())
	if config.Transient {
		config.Logger.Warn("rabbitmq: Transient is set: a restart of the server loses what is marked as published")
	}
	return b
}

// Capabilities returns OnePerKey: a queue can refuse one message and take the next.
func (b *Broker) Capabilities() core.Capabilities {
	return core.Capabilities{
		KeyGuarantee:  core.OnePerKey,
		MaxBatchBytes: max(maxCallBytes, b.config.MaxMessageBytes+b.config.FrameMax),
		MaxInFlight:   b.config.Channels,
	}
}

// maxCallBytes bounds what one call keeps in memory and on the wire.
const maxCallBytes = 16 << 20

// Returned counts the messages that the server has returned as unroutable and that count as delivered all the same,
// because their topic is one of Config.AcceptUnroutable.
func (b *Broker) Returned() uint64 { return b.returned.Load() }

// accepts says whether an unroutable message of an exchange counts as delivered.
func (b *Broker) accepts(exchange string) bool {
	return slices.Contains(b.config.AcceptUnroutable, exchange) || slices.Contains(b.config.AcceptUnroutable, EveryTopic)
}

// Check connects if there is no connection, and opens and closes a channel. A server that blocks publishers is an
// error.
func (b *Broker) Check(ctx context.Context) error {
	ctx, leave, err := b.enter(ctx, b.config.ConfirmTimeout)
	if err != nil {
		return fmt.Errorf("rabbitmq: check: %w", err)
	}
	defer leave()
	l, err := b.connect(ctx)
	if err != nil {
		return fmt.Errorf("rabbitmq: check: %w", publishError(err))
	}
	if err := l.blockedErr(); err != nil {
		return fmt.Errorf("rabbitmq: check: %w", publishError(err))
	}
	if err := l.withChannel(ctx, func(*amqp.Channel) error { return nil }); err != nil {
		return fmt.Errorf("rabbitmq: check: %w", publishError(err))
	}
	return nil
}

// connect returns the connection, and makes one when there is none.
func (b *Broker) connect(ctx context.Context) (*link, error) {
	l, err := b.connector.connect(ctx)
	if err == nil {
		b.frameMax.Store(int64(l.frameMax()))
	}
	return l, err
}

// Close waits for calls in progress until ctx ends, then ends them, and closes the connection if Open made the Broker.
// The error tells that calls had to be ended: their outcome is unknown.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	if b.calls == 0 && !isDone(b.idle) {
		close(b.idle)
	}
	b.mu.Unlock()
	err := b.drain(ctx)
	b.stop()
	b.connector.close(ctx)
	return err
}

// drain waits for the calls in progress, and ends them when ctx ends.
func (b *Broker) drain(ctx context.Context) error {
	select {
	case <-b.idle: // also when ctx has ended already
		return nil
	default:
	}
	select {
	case <-b.idle:
		return nil
	case <-ctx.Done():
		b.stop()
		<-b.idle
		return fmt.Errorf("rabbitmq: close: calls in progress were ended: %w", ctx.Err())
	}
}

// enter counts a call in. Its context ends after the timeout, and when Close cannot wait any longer.
func (b *Broker) enter(ctx context.Context, timeout time.Duration) (context.Context, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ctx, nil, core.ErrClosed
	}
	b.calls++
	ctx, cancel := context.WithTimeout(ctx, timeout)
	unwatch := context.AfterFunc(b.stopped, cancel)
	return ctx, func() {
		unwatch()
		cancel()
		b.leave()
	}, nil
}

func (b *Broker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	if b.closed && b.calls == 0 {
		close(b.idle)
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
