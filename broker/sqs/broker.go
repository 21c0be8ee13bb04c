package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/go-outbox/outbox/core"
)

var (
	_ core.Broker   = (*Broker)(nil)
	_ core.Topology = (*Broker)(nil)
)

// Broker publishes to SQS. All methods are safe for concurrent use.
type Broker struct {
	config    Config
	client    *sdk.Client
	closeIdle func() // closes the connections of a client that Open made; nil for another's
	queues    *queues
	slots     chan struct{} // one for each request in flight

	stopped context.Context // ends the calls in progress when Close cannot wait any longer
	stop    context.CancelFunc

	mu     sync.Mutex
	calls  int
	closed bool
	idle   chan struct{} // closed once closed and no call is in progress
}

// Open makes a client for the configuration and a Broker that owns it. It does not wait for SQS: a service that cannot
// be reached is an error of Check and of PublishBatch. The context bounds Open alone, which may read the SDK's files.
func Open(ctx context.Context, config Config) (*Broker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("sqs: invalid configuration: %w", err)
	}
	client, closeIdle, err := newClient(ctx, config.WithDefaults())
	if err != nil {
		return nil, fmt.Errorf("sqs: open: %w", err)
	}
	b := newBroker(client, config.WithDefaults())
	b.closeIdle = closeIdle
	return b, nil
}

// New makes a Broker from a caller's client, which it never closes. Whatever the client's settings, requests of the
// Broker are never repeated by it: the dispatcher repeats, so that two requests of a message group never overlap. The
// client's HTTP transport should keep Config.Concurrency idle connections.
func New(client *sdk.Client, config Config) (*Broker, error) {
	if client == nil {
		return nil, errors.New("sqs: the client is nil")
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("sqs: invalid configuration: %w", err)
	}
	return newBroker(client, config.WithDefaults()), nil
}

func newBroker(client *sdk.Client, config Config) *Broker {
	b := &Broker{
		config: config,
		client: client,
		queues: &queues{client: client, config: config, known: map[string]*queue{}},
		slots:  make(chan struct{}, config.Concurrency),
		idle:   make(chan struct{}),
	}
	b.stopped, b.stop = context.WithCancel(context.Background())
	return b
}

const (
	// maxBatch bounds how long a call with messages of few groups takes, as those go one after the other. It makes ten
	// full requests of one with many groups.
	maxBatch = 100
	// maxBatchBytes bounds what the requests of a call have to share of the network before they time out.
	maxBatchBytes = 4 * MaxMessageBytes
	// maxInFlight fills the requests in flight with calls that overlap, so that none has to wait for the slowest of
	// another.
	maxInFlight = 16
)

// Capabilities returns PrefixPerKey: within a call the next message of a group is sent after the one before it was
// stored (with Config.GroupRuns, with it; then only a refusal of single messages by SQS can break it).
func (b *Broker) Capabilities() core.Capabilities {
	return core.Capabilities{
		KeyGuarantee:  core.PrefixPerKey,
		MaxBatch:      maxBatch,
		MaxBatchBytes: maxBatchBytes,
		MaxInFlight:   maxInFlight,
	}
}

// Check asks for one queue name. That we may not list queues is no fault: the answer proves that SQS is there and knows
// us.
func (b *Broker) Check(ctx context.Context) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return fmt.Errorf("sqs: check: %w", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, b.config.RequestTimeout)
	defer cancel()
	_, err = b.client.ListQueues(ctx, &sdk.ListQueuesInput{MaxResults: aws.Int32(1)}, once)
	if err == nil || classify(err).code == codeAccessDenied {
		return nil
	}
	return fmt.Errorf("sqs: check: %w", publishError(err))
}

// Close waits for calls in progress until ctx ends, then ends them, and closes the connections of a client that Open
// made. The error tells that calls had to be ended: their outcome is unknown.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed && b.calls == 0 {
		close(b.idle)
	}
	b.closed = true
	b.mu.Unlock()

	err := b.drain(ctx)
	b.stop()
	if b.closeIdle != nil {
		b.closeIdle()
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
		return fmt.Errorf("sqs: close: calls in progress were ended: %w", ctx.Err())
	}
}

// enter counts a call in. Its context ends when Close cannot wait any longer.
func (b *Broker) enter(ctx context.Context) (context.Context, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ctx, nil, core.ErrClosed
	}
	b.calls++
	ctx, cancel := context.WithCancel(ctx)
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

// lastStart is when a call stops beginning requests, so that those it has begun can end before the call must.
func (b *Broker) lastStart(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	margin := min(b.config.RequestTimeout, time.Until(deadline)/2)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}
