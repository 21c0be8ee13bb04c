package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/consume"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

// embeddedSQS asks for an SQS in this process.
const embeddedSQS = "sqs://embedded"

// openSQS uses Amazon SQS, a server that speaks its protocol, or one in this process.
func (b *bus) openSQS(ctx context.Context, rawURL string) error {
	b.description = "SQS, "
	if rawURL == embeddedSQS {
		fake, err := sqsfake.Start(sqsfake.Config{}) //nolint:contextcheck // it runs until it is closed
		if err != nil {
			return err
		}
		b.later(func() error { fake.Close(); return nil })
		rawURL = "sqs" + strings.TrimPrefix(fake.URL(), "http")
		b.description = "SQS in this process, "
	}
	cfg, err := sqs.ParseURL(rawURL)
	if err != nil {
		return fmt.Errorf("-broker: %w", err)
	}
	cfg = cfg.WithDefaults()
	client, err := b.newSQSClient(ctx, cfg)
	if err != nil {
		return err
	}
	broker, err := sqs.Open(ctx, cfg)
	if err != nil {
		return err
	}
	b.broker = broker
	b.later(afterwards(ctx, broker.Close))
	if err := broker.Declare(ctx, b.topic); err != nil {
		return err
	}
	name := strings.Replace(cfg.QueueName, "{topic}", b.topic, 1)
	queue, err := client.GetQueueUrl(ctx, &sdk.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		return err
	}
	b.description += *queue.QueueUrl
	b.later(afterwards(ctx, func(ctx context.Context) error {
		_, err := client.DeleteQueue(ctx, &sdk.DeleteQueueInput{QueueUrl: queue.QueueUrl})
		return err
	}))
	b.source = &sqsQueue{client: client, url: *queue.QueueUrl}
	return nil
}

// newSQSClient makes a client as any consumer would.
func (b *bus) newSQSClient(ctx context.Context, cfg sqs.Config) (*sdk.Client, error) {
	settings, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	if loaded, ok := settings.HTTPClient.(*awshttp.BuildableClient); ok { // which cannot close its connections
		web := &http.Client{Transport: loaded.GetTransport()}
		b.later(func() error { web.CloseIdleConnections(); return nil })
		settings.HTTPClient = web
	}
	return sdk.NewFromConfig(settings, func(o *sdk.Options) {
		if cfg.Region != "" {
			o.Region = cfg.Region
		}
		if cfg.Endpoint != "" {
			o.BaseEndpoint = &cfg.Endpoint
		}
		if key := cfg.Credentials; !key.IsZero() {
			o.Credentials = credentials.NewStaticCredentialsProvider(key.AccessKeyID, string(key.SecretAccessKey), "")
		}
	}), nil
}

// sqsQueue receives from a queue, the messages of a group in their order.
type sqsQueue struct {
	client *sdk.Client
	url    string
}

func (q *sqsQueue) consume(ctx context.Context, handle func(context.Context, delivery) error) error {
	return consume.Run(ctx, q.client, q.url, func(ctx context.Context, m sqs.Message) error {
		return handle(ctx, delivery{order: m.Headers[core.HeaderAggregateID], event: m.EventID})
	}, consume.Config{Receivers: 4})
}

// left counts what is in the queue, received but not deleted messages included.
func (q *sqsQueue) left(ctx context.Context) (n int64, err error) {
	out, err := q.client.GetQueueAttributes(ctx, &sdk.GetQueueAttributesInput{
		QueueUrl: aws.String(q.url), AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	})
	if err != nil {
		return 0, fmt.Errorf("count the messages of %s: %w", q.url, err)
	}
	for _, count := range out.Attributes {
		inState, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count the messages of %s: %w", q.url, err)
		}
		n += inState
	}
	return n, nil
}
