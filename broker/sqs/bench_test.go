package sqs_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

func BenchmarkPrepare(b *testing.B) {
	broker := open(b, configOf("http://127.0.0.1:1"))
	r := benchRecords("orders", 0, 1)[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := broker.Prepare(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRoundTrips publishes to the fake over a network of 5 ms: the adapter, and a sender of one message after the
// other for each key that it knows, as most relays are.
func BenchmarkRoundTrips(b *testing.B) {
	fake := startFake(b, sqsfake.Config{})
	fake.SetLatency(5 * time.Millisecond)
	config := configOf(fake.URL())
	b.Run("one-by-one", func(b *testing.B) {
		url := createQueue(b, fake, "one-by-one.fifo", nil)
		client := benchClient(config)
		benchSend(b, func(i int) {
			id := "e-" + strconv.Itoa(i)
			body := benchBody(i)
			if _, err := client.SendMessage(b.Context(), &sdk.SendMessageInput{
				QueueUrl: &url, MessageBody: &body, MessageGroupId: aws.String(benchKey(i)), MessageDeduplicationId: &id,
			}); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, concurrency := range []int{8, 16, 32, 64} {
		b.Run(fmt.Sprint("adapter/concurrency=", concurrency), func(b *testing.B) {
			topic := "adapter-" + strconv.Itoa(concurrency)
			createQueue(b, fake, topic+".fifo", nil)
			config := config
			config.Concurrency = concurrency
			benchPublish(b, config, topic)
		})
	}
}

// BenchmarkElasticMQ publishes to a real server: the adapter, and a bare loop of full batches on as many connections.
func BenchmarkElasticMQ(b *testing.B) {
	config := elasticMQ(b)
	newQueue := func(b *testing.B) (topic, url string) {
		b.Helper()
		topic = "bench-" + strings.ToLower(rand.Text())
		out, err := benchClient(config).CreateQueue(b.Context(), &sdk.CreateQueueInput{
			QueueName: aws.String(topic + ".fifo"), Attributes: map[string]string{"FifoQueue": "true"},
		})
		if err != nil {
			b.Fatal(err)
		}
		return topic, *out.QueueUrl
	}
	for _, concurrency := range []int{8, 32} {
		b.Run(fmt.Sprint("raw/concurrency=", concurrency), func(b *testing.B) {
			_, url := newQueue(b)
			benchRaw(b, config, url, concurrency)
		})
		b.Run(fmt.Sprint("adapter/concurrency=", concurrency), func(b *testing.B) {
			topic, _ := newQueue(b)
			config := config
			config.Concurrency = concurrency
			benchPublish(b, config, topic)
		})
	}
}

const benchKeys = 1000

func benchKey(i int) string { return "order-" + strconv.Itoa(i%benchKeys) }

func benchBody(i int) string {
	return fmt.Sprintf(`{"id":%d,"lines":[%s]}`, i, strings.Repeat(`{"sku":"12345","n":1},`, 18)+`{}`)
}

// benchRecords returns records over many keys.
func benchRecords(topic string, from, n int) []*core.Record {
	records := make([]*core.Record, n)
	for i := range records {
		r := brokertest.NewRecord(topic, benchKey(from+i), int64(from+i+1))
		r.Payload = []byte(benchBody(from + i))
		records[i] = r
	}
	return records
}

func benchClient(config sqs.Config) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(config.Endpoint), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

func benchSend(b *testing.B, send func(i int)) {
	b.Helper()
	i := 0
	for b.Loop() {
		send(i)
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// benchPublish makes as many calls at the same time as a dispatcher does. Preparing is part of it.
func benchPublish(b *testing.B, config sqs.Config, topic string) {
	b.Helper()
	broker := open(b, config)
	caps := broker.Capabilities()
	deliver(b, broker, benchRecords(topic, 0, 1)...)
	const calls = 40
	records := make([][]*core.Record, calls)
	for i := range records {
		records[i] = benchRecords(topic, i*caps.MaxBatch, caps.MaxBatch)
	}
	b.ResetTimer()
	for b.Loop() {
		b.StopTimer()
		for i := range records { // new ids, or the queue takes them for repeats
			for _, r := range records[i] {
				r.EventID = core.NewEventID()
			}
		}
		b.StartTimer()
		var wg sync.WaitGroup
		next := make(chan []*core.Record)
		for range caps.MaxInFlight {
			wg.Go(func() {
				for some := range next {
					for _, r := range publish(b, broker, some...) {
						if r.Outcome != core.OutcomeDelivered {
							b.Errorf("%v: %v", r.Outcome, r.Err)
						}
					}
				}
			})
		}
		for _, some := range records {
			next <- some
		}
		close(next)
		wg.Wait()
	}
	b.ReportMetric(float64(b.N*calls*caps.MaxBatch)/b.Elapsed().Seconds(), "msg/s")
}

// benchRaw sends the same messages in full batches without looking at anything.
func benchRaw(b *testing.B, config sqs.Config, url string, concurrency int) {
	b.Helper()
	client := sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(config.Endpoint), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:  manyConnections(concurrency),
	})
	const messages = 4000
	for b.Loop() {
		var wg sync.WaitGroup
		next := make(chan int)
		for range concurrency {
			wg.Go(func() {
				for from := range next {
					if _, err := client.SendMessageBatch(b.Context(), &sdk.SendMessageBatchInput{
						QueueUrl: &url, Entries: rawEntries(from),
					}); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for from := 0; from < messages; from += 10 {
			next <- from
		}
		close(next)
		wg.Wait()
	}
	b.ReportMetric(float64(b.N*messages)/b.Elapsed().Seconds(), "msg/s")
}

func rawEntries(from int) []types.SendMessageBatchRequestEntry {
	entries := make([]types.SendMessageBatchRequestEntry, 10)
	for i := range entries {
		r := benchRecords("raw", from+i, 1)[0]
		attributes := map[string]types.MessageAttributeValue{}
		for name, value := range r.WireHeaders() {
			attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
		}
		entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(r.Payload)), MessageAttributes: attributes,
			MessageGroupId: &r.AggregateID, MessageDeduplicationId: &r.EventID,
		}
	}
	return entries
}

func manyConnections(n int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
}
