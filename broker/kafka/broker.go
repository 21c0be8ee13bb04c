package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Broker   = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
)

// Broker publishes to a Kafka cluster. All methods are safe for concurrent use.
type Broker struct {
	config     Config
	client     *kgo.Client
	admin      *kadm.Client
	ownsClient bool
	encoder    *encoder
	partition  partitioner
	topics     *topics
	producers  *producers

	stopped context.Context // ends the calls in progress when Close cannot wait any longer
	stop    context.CancelFunc

	mu     sync.Mutex
	calls  int
	closed bool
	idle   chan struct{} // closed once closed and no call is in progress
}

// Open makes a client for the configuration and a Broker that owns it. It does not wait for the cluster: a cluster that
// cannot be reached is an error of Check and of PublishBatch. The context bounds Open alone.
func Open(ctx context.Context, config Config) (*Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("kafka: invalid configuration: %w", err)
	}
	config = config.WithDefaults()
	opts, err := config.clientOpts()
	if err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka: open: %w", err)
	}
	b, err := newBroker(client, config)
	if err != nil {
		client.Close()
		return nil, err
	}
	b.ownsClient = true
	if config.TLS.InsecureSkipVerify {
		config.Logger.WarnContext(ctx, "kafka: TLS.InsecureSkipVerify is set: anybody can pose as the broker")
	}
	return b, nil
}

// New makes a Broker from a caller's client, which it never closes. The client's acknowledgements
// ([kgo.RequiredAcks]) must be those of Config.Acks; its own producing (linger, partitioner, idempotence) is not used,
// and its RequestTimeoutOverhead should be about Config.RequestTimeout.
func New(client *kgo.Client, config Config) (*Broker, error) {
	if client == nil {
		return nil, errors.New("kafka: the client is nil")
	}
	if err := errors.Join(config.validateProducing()...); err != nil {
		return nil, fmt.Errorf("kafka: invalid configuration: %w", err)
	}
	return newBroker(client, config.WithDefaults())
}

func newBroker(client *kgo.Client, config Config) (*Broker, error) {
	// The client writes its own acknowledgements into each request, so a difference would go unseen.
	if got, ok := client.OptValue(kgo.RequiredAcks).(kgo.Acks); ok && got != config.requiredAcks() {
		return nil, fmt.Errorf("kafka: the client's RequiredAcks are not those of Config.Acks (%q)", config.Acks)
	}
	encoder, err := newEncoder(config.Compression)
	if err != nil {
		return nil, fmt.Errorf("kafka: compression %q: %w", config.Compression, err)
	}
	if config.Acks != AcksAll {
		config.Logger.Warn("kafka: acks is not all: records marked as published can be lost",
			"acks", string(config.Acks))
	}
	b := &Broker{
		config:    config,
		client:    client,
		admin:     kadm.NewClient(client),
		encoder:   encoder,
		partition: newPartitioner(config.Strategy),
		producers: newProducers(client),
		idle:      make(chan struct{}),
	}
	b.topics = newTopics(client, config)
	b.stopped, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// Capabilities returns PrefixPerKey: the records of a key go to one partition, in batches that Kafka appends wholly or
// not at all, and the next batch is sent only after the one before it was delivered.
func (b *Broker) Capabilities() core.Capabilities {
	return core.Capabilities{
		KeyGuarantee:  core.PrefixPerKey,
		MaxBatchBytes: max(maxCallBytes, b.config.MaxMessageBytes),
		MaxInFlight:   maxInFlight,
	}
}

const (
	// maxInFlight lets calls of different topics go on while one waits; calls to one partition take turns.
	maxInFlight = 8
	// maxCallBytes keeps a request far below socket.request.max.bytes (100 MiB by default).
	maxCallBytes = 16 << 20
)

// Check asks one broker after the other for its view of the cluster until one answers.
func (b *Broker) Check(ctx context.Context) error {
	ctx, leave, err := b.enter(ctx, b.config.DeliveryTimeout)
	if err != nil {
		return fmt.Errorf("kafka: check: %w", err)
	}
	defer leave()
	if err := b.client.Ping(ctx); err != nil {
		return fmt.Errorf("kafka: check: no broker answered: %w", publishError(err))
	}
	return nil
}

// Close waits for calls in progress until ctx ends, then ends them, and closes the client if Open made it. The error
// tells that calls had to be ended: their outcome is unknown.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	if first && b.calls == 0 {
		close(b.idle)
	}
	b.mu.Unlock()

	err := b.drain(ctx)
	b.stop()
	if first && b.ownsClient {
		b.client.Close()
	}
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
		return fmt.Errorf("kafka: close: calls in progress were ended: %w", ctx.Err())
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
