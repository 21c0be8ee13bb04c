package sqs_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/core"
)

// elasticMQLimit is what ElasticMQ takes in a message; it does not tell.
const elasticMQLimit = 256 << 10

// The same against ElasticMQ, behind a proxy for the faults.
func TestConformanceElasticMQ(t *testing.T) {
	t.Parallel()
	elasticMQ(t)
	brokertest.Run(t, brokertest.Harness{
		Start:             startElasticMQ,
		TellsNilFromEmpty: true,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Oversize:          elasticMQLimit,
	})
}

func startElasticMQ(t brokertest.T) brokertest.Server {
	test := t.(*testing.T) //nolint:errcheck // as brokertest.Run promises
	config := elasticMQ(test)
	direct := newReader(test, config)
	front := startProxy(test, config.Endpoint)
	config.Endpoint, config.MaxMessageBytes = front.URL, elasticMQLimit
	return brokertest.Server{
		Open: func() (core.Broker, error) { return sqs.Open(test.Context(), config) },
		Topic: func() string {
			topic := "topic-" + strings.ToLower(rand.Text())
			direct.create(topic)
			return topic
		},
		Read:          direct.read,
		MissingTopic:  func() string { return "missing-" + strings.ToLower(rand.Text()) },
		CreateTopic:   direct.create,
		Refuse:        func(n int) { front.change(func() { front.refuse = n }) },
		RefuseMessage: func(k int) { front.change(func() { front.entry = max(k+1, 0) }) },
		LoseReply:     func(n int) { front.change(func() { front.lose = n }) },
		Cut:           front.CloseClientConnections,
		Hang:          front.hang,
		Down:          func() { front.change(func() { front.down = true }) },
		Up:            func() { front.change(func() { front.down = false }) },
	}
}

// reader reads a real server with a client of its own. Reading consumes, so it remembers.
type reader struct {
	*testing.T
	client *sdk.Client
	urls   map[string]string
	seen   map[string][]brokertest.Message
}

func newReader(t *testing.T, config sqs.Config) *reader {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(config.Endpoint), Retryer: aws.NopRetryer{},
		HTTPClient:  &http.Client{Transport: sqs.WholeReplies(transport)},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	r := &reader{T: t, client: client, urls: map[string]string{}, seen: map[string][]brokertest.Message{}}
	t.Cleanup(func() {
		for _, url := range r.urls {
			if _, err := client.DeleteQueue(context.Background(), &sdk.DeleteQueueInput{QueueUrl: &url}); err != nil {
				t.Errorf("delete queue %s: %v", url, err)
			}
		}
	})
	return r
}

func (r *reader) create(topic string) {
	r.Helper()
	out, err := r.client.CreateQueue(r.Context(), &sdk.CreateQueueInput{
		QueueName: aws.String(topic + ".fifo"), Attributes: map[string]string{"FifoQueue": "true"},
	})
	if err != nil {
		r.Fatal(err)
	}
	r.urls[topic] = *out.QueueUrl
}

func (r *reader) read(topic string) []brokertest.Message {
	r.Helper()
	if r.urls[topic] == "" { // made by the broker under test
		out, err := r.client.GetQueueUrl(r.Context(), &sdk.GetQueueUrlInput{QueueName: aws.String(topic + ".fifo")})
		if err != nil {
			r.Fatal(err)
		}
		r.urls[topic] = *out.QueueUrl
	}
	url := r.urls[topic]
	for {
		out, err := r.client.ReceiveMessage(r.Context(), &sdk.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			r.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return r.seen[topic]
		}
		for _, m := range out.Messages {
			d, err := sqs.Decode(m)
			if err != nil {
				r.Fatal(err)
			}
			r.seen[topic] = append(r.seen[topic],
				brokertest.Message{Token: d.GroupID, Payload: d.Payload, Headers: d.Headers})
			if _, err := r.client.DeleteMessage(r.Context(),
				&sdk.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				r.Fatal(err)
			}
		}
	}
}
