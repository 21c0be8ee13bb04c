package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/bench/internal/load"
	outboxsqs "github.com/go-outbox/outbox/broker/sqs"
)

var _ Target = (*queues)(nil)

// queues is Amazon SQS, or a server that speaks its protocol: a FIFO queue for each topic.
type queues struct {
	url    string
	client *sdk.Client
}

const (
	fifo = ".fifo"
	// inFlight is how many requests the raw sender has on the way, as our adapter has by default.
	inFlight = outboxsqs.DefaultConcurrency
	// perRequest is the most that SQS takes.
	perRequest = 10
)

func openSQS(url string) (*queues, error) {
	config, err := outboxsqs.ParseURL(url)
	if err != nil {
		return nil, err
	}
	config.Logger = slog.New(slog.DiscardHandler)
	return &queues{url: url, client: SQSClient(config)}, nil
}

// SQSClient is a plain client of the server that a configuration names.
func SQSClient(config outboxsqs.Config) *sdk.Client {
	config = config.WithDefaults()
	return sdk.New(sdk.Options{
		Region: config.Region, BaseEndpoint: aws.String(config.Endpoint), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inFlight}},
	})
}

func (q *queues) URL() string { return q.url }
func (q *queues) Close()      {}

func (q *queues) Create(ctx context.Context) (string, error) {
	topic := name()
	_, err := q.client.CreateQueue(ctx, &sdk.CreateQueueInput{
		QueueName: aws.String(topic + fifo), Attributes: map[string]string{"FifoQueue": "true"},
	})
	return topic, err
}

func (q *queues) urlOf(ctx context.Context, topic string) (*string, error) {
	out, err := q.client.GetQueueUrl(ctx, &sdk.GetQueueUrlInput{QueueName: aws.String(topic + fifo)})
	if err != nil {
		return nil, err
	}
	return out.QueueUrl, nil
}

func (q *queues) Drop(topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	if url, err := q.urlOf(ctx, topic); err == nil {
		_, _ = q.client.DeleteQueue(ctx, &sdk.DeleteQueueInput{QueueUrl: url})
	}
}

func (q *queues) Read(ctx context.Context, topic string, each func([]byte) (bool, error)) error {
	url, err := q.urlOf(ctx, topic)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errEnough := errors.New("enough")
	var one sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := q.receive(ctx, url, func(body []byte) error {
					one.Lock()
					defer one.Unlock()
					enough, err := each(body)
					if enough {
						err = errEnough
					}
					return err
				}); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errEnough) {
		return cause
	}
	return nil
}

// receive takes some messages and deletes them: until then their groups give nothing to the other receivers.
func (q *queues) receive(ctx context.Context, url *string, each func([]byte) error) error {
	out, err := q.client.ReceiveMessage(ctx, &sdk.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: perRequest, WaitTimeSeconds: 1,
	})
	if err != nil || len(out.Messages) == 0 {
		return err
	}
	var done []types.DeleteMessageBatchRequestEntry
	for i, m := range out.Messages {
		if err := each([]byte(*m.Body)); err != nil {
			return err
		}
		done = append(done, types.DeleteMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle,
		})
	}
	_, err = q.client.DeleteMessageBatch(ctx, &sdk.DeleteMessageBatchInput{QueueUrl: url, Entries: done})
	return err
}

func (q *queues) Publish(ctx context.Context, topic string, rows int) error {
	url, err := q.urlOf(ctx, topic)
	if err != nil {
		return err
	}
	run := time.Now().UnixNano() // de-duplication ids must be new
	return inBatches(ctx, rows, perRequest, inFlight, func(ctx context.Context, first, last int) error {
		entries := make([]types.SendMessageBatchRequestEntry, 0, perRequest)
		for n := first; n <= last; n++ {
			entries = append(entries, entry(topic, n, fmt.Sprintf("%d-%d", run, n)))
		}
		out, err := q.client.SendMessageBatch(ctx, &sdk.SendMessageBatchInput{QueueUrl: url, Entries: entries})
		if err == nil && len(out.Failed) > 0 {
			err = fmt.Errorf("target: sqs: refused: %s", aws.ToString(out.Failed[0].Message))
		}
		return err
	})
}

func entry(topic string, n int, id string) types.SendMessageBatchRequestEntry {
	key := load.Key(n)
	attributes := map[string]types.MessageAttributeValue{}
	for name, value := range message(topic, key, n, nil).WireHeaders() {
		attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
	}
	return types.SendMessageBatchRequestEntry{
		Id: aws.String(strconv.Itoa(n)), MessageBody: aws.String(string(load.Body(n, key))), MessageAttributes: attributes,
		MessageGroupId: &key, MessageDeduplicationId: &id,
	}
}
