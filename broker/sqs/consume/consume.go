package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/broker/sqs"
)

// The defaults of [Config].
const (
	DefaultReceivers  = 1
	DefaultVisibility = 30 * time.Second
	DefaultRetryDelay = time.Second
)

// Handler handles one message. An error lets it be received again after Config.RetryDelay. It is called by several
// goroutines at the same time, for different groups.
type Handler func(ctx context.Context, m sqs.Message) error

// Config configures [Run]. The zero value is ready to use.
type Config struct {
	// Receivers is how many loops receive at the same time, up to 10 messages each. 0 means DefaultReceivers.
	Receivers int
	// Visibility is how long a message is ours without a sign of life; it is extended every third of it. Whole seconds,
	// from 3. 0 means DefaultVisibility.
	Visibility time.Duration
	// RetryDelay is how long a failed message, and so its group, rests. Whole seconds. 0 means DefaultRetryDelay, less
	// than 0 none.
	RetryDelay time.Duration
	// Logger receives failed handlers and requests, never a payload. Nil means slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Receivers == 0 {
		c.Receivers = DefaultReceivers
	}
	if c.Visibility == 0 {
		c.Visibility = DefaultVisibility
	}
	if c.RetryDelay == 0 {
		c.RetryDelay = DefaultRetryDelay
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Run receives from a queue until ctx ends, and returns nil then, once all handlers have returned: what they finished
// is deleted, the rest goes back to the queue. Requests that fail are repeated after a pause, however long an outage
// is; only a queue that does not exist, or that we may not read, is an error.
func Run(ctx context.Context, client *sdk.Client, queueURL string, handle Handler, config Config) error {
	config = config.withDefaults()
	if config.Visibility < 3*time.Second || config.Receivers < 1 {
		return fmt.Errorf("consume: %d receivers and a visibility of %v: at least 1 and 3s are needed", config.Receivers,
			config.Visibility)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &consumer{client: client, url: queueURL, handle: handle, config: config}
	var wg sync.WaitGroup
	for range config.Receivers {
		wg.Go(func() {
			if err := c.loop(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	var fatal *fatalError
	if errors.As(context.Cause(ctx), &fatal) {
		return fatal
	}
	return nil
}

// fatalError is one that no repeat helps against.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return "consume: " + e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

type consumer struct {
	client *sdk.Client
	url    string
	handle Handler
	config Config
}

const (
	longPoll  = 20 // seconds: SQS's longest
	batchSize = 10 // SQS's largest
	// settleTimeout bounds the requests that must go through although ctx has ended.
	settleTimeout = 5 * time.Second
)

// loop receives and handles until ctx ends.
func (c *consumer) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		out, err := c.client.ReceiveMessage(ctx, &sdk.ReceiveMessageInput{
			QueueUrl: &c.url, MaxNumberOfMessages: batchSize, WaitTimeSeconds: longPoll,
			VisibilityTimeout: seconds(c.config.Visibility), MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		var missing *types.QueueDoesNotExist
		switch {
		case err == nil:
			c.handleAll(ctx, out.Messages)
		case ctx.Err() != nil:
		case errors.As(err, &missing):
			return &fatalError{err}
		default:
			c.config.Logger.WarnContext(ctx, "consume: receive failed, will try again", "queue", c.url, "error", err)
			pause(ctx, c.config.RetryDelay)
		}
	}
	return nil
}

// handleAll handles what was received: groups at the same time, messages without a group each on its own.
func (c *consumer) handleAll(ctx context.Context, messages []types.Message) {
	groups := map[string][]types.Message{}
	for _, m := range messages {
		name, ok := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
		if !ok {
			name = "\x00" + aws.ToString(m.MessageId)
		}
		groups[name] = append(groups[name], m)
	}
	var wg sync.WaitGroup
	for _, group := range groups {
		wg.Go(func() { c.handleGroup(ctx, group) })
	}
	wg.Wait()
}

// handleGroup handles the messages of one group in order, until one is not done.
func (c *consumer) handleGroup(ctx context.Context, group []types.Message) {
	stop := c.keep(ctx, group)
	done := 0
	for ; done < len(group); done++ {
		if err := c.handleOne(ctx, group[done]); err != nil {
			if ctx.Err() == nil {
				c.config.Logger.WarnContext(ctx, "consume: not done, the message goes back to the queue", "queue", c.url,
					"message_id", aws.ToString(group[done].MessageId), "error", err)
			}
			break
		}
	}
	stop()
	c.giveBack(ctx, group[done:])
}

// handleOne handles and deletes a message.
func (c *consumer) handleOne(ctx context.Context, m types.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	decoded, err := sqs.Decode(m)
	if err != nil {
		return err
	}
	if err := c.handle(ctx, decoded); err != nil {
		return fmt.Errorf("event %s: %w", decoded.EventID, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	_, err = c.client.DeleteMessage(ctx, &sdk.DeleteMessageInput{QueueUrl: &c.url, ReceiptHandle: m.ReceiptHandle})
	if err != nil {
		return fmt.Errorf("event %s: delete: %w", decoded.EventID, err)
	}
	return nil
}

// keep extends the visibility timeout of messages until stop, which waits for its end. Those that were deleted
// meanwhile are refused by SQS, which does no harm.
func (c *consumer) keep(ctx context.Context, group []types.Message) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(c.config.Visibility / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				for _, m := range group {
					_ = c.setVisibility(ctx, m, c.config.Visibility) // the next tick tries again
				}
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// giveBack makes messages of a group receivable again, the last first: as long as the first is ours, SQS gives nobody
// the others.
func (c *consumer) giveBack(ctx context.Context, group []types.Message) {
	stopping := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	for i := len(group) - 1; i >= 0; i-- {
		delay := time.Duration(0)
		if i == 0 && !stopping {
			delay = max(c.config.RetryDelay, 0)
		}
		if err := c.setVisibility(ctx, group[i], delay); err != nil {
			c.config.Logger.WarnContext(ctx, "consume: cannot give a message back, it returns by itself after its "+
				"visibility timeout", "queue", c.url, "message_id", aws.ToString(group[i].MessageId), "error", err)
			return
		}
	}
}

func (c *consumer) setVisibility(ctx context.Context, m types.Message, d time.Duration) error {
	_, err := c.client.ChangeMessageVisibility(ctx, &sdk.ChangeMessageVisibilityInput{
		QueueUrl: &c.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds(d),
	})
	return err
}

// seconds are whole ones, rounded up.
func seconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second) //nolint:gosec // SQS refuses more than 12 hours
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
