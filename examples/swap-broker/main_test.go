package main

import (
	"context"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/consume"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/config"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic    = "shop-orders"
	events   = orders * 3
	patience = time.Minute // bounds the wait for events
)

// output is what has arrived: the payloads of each order, in the order of their arrival.
type output map[string][]string

func (o output) add(order string, payload []byte) (complete bool) {
	o[order] = append(o[order], string(payload))
	n := 0
	for _, payloads := range o {
		n += len(payloads)
	}
	return n >= events
}

func (o output) String() string {
	var b strings.Builder
	for _, order := range slices.Sorted(maps.Keys(o)) {
		b.WriteString(order + " " + strings.Join(o[order], " ") + "\n")
	}
	return b.String()
}

// swap runs the program with one of its files.
func swap(t *testing.T, file string, memory *membroker.Server, environ ...string) {
	t.Helper()
	in := config.Input{
		Files:   []string{file},
		Environ: append(environ, "SHOP_DB="+filepath.ToSlash(filepath.Join(t.TempDir(), "shop.db"))),
	}
	got, err := run(t.Context(), registry(memory), in)
	if err != nil || got != events {
		t.Fatalf("%d events, error %v; want %d", got, err, events)
	}
}

// TestTheOutputIsTheSame runs the program with each file, reads what has arrived with a consumer of that broker, and
// compares.
func TestTheOutputIsTheSame(t *testing.T) {
	t.Parallel()
	want := throughMemory(t).String()
	const first = `ord_1 {"order":"ord_1","status":"created"} {"order":"ord_1","status":"paid"} {"order":"ord_1","status":"shipped"}`
	if !strings.HasPrefix(want, first+"\n") || strings.Count(want, "\n") != orders {
		t.Fatalf("through memory came\n%s", want)
	}
	for name, through := range map[string]func(*testing.T) output{
		"kafka": throughKafka, "rabbitmq": throughRabbitMQ, "sqs": throughSQS,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := through(t).String(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func throughMemory(t *testing.T) output {
	server := membroker.NewServer()
	swap(t, "memory.yaml", server)
	out := output{}
	for _, m := range server.Messages(topic) {
		out.add(m.Key.AggregateID, m.Payload)
	}
	return out
}

func throughKafka(t *testing.T) output {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	address := cluster.ListenAddrs()[0]
	swap(t, "kafka.yaml", nil, "KAFKA_ADDRESS="+address)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	out := output{}
	for complete := false; !complete; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("not all events came:\n%s", out)
		}
		fetches.EachRecord(func(r *kgo.Record) { complete = out.add(string(r.Key), r.Value) })
	}
	return out
}

func throughSQS(t *testing.T) output {
	server, err := sqsfake.Start(sqsfake.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	swap(t, "sqs.yaml", nil, "SQS_ENDPOINT="+server.URL(),
		"OUTBOX_BROKER_SQS_CREDENTIALS_ACCESS_KEY_ID=shop", "OUTBOX_BROKER_SQS_CREDENTIALS_SECRET_ACCESS_KEY=shop")

	client := sdk.New(sdk.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String(server.URL()),
		Credentials: credentials.NewStaticCredentialsProvider("shop", "shop", ""),
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	queue, err := client.GetQueueUrl(ctx, &sdk.GetQueueUrlInput{QueueName: aws.String(topic + ".fifo")})
	if err != nil {
		t.Fatal(err)
	}
	return gather(t, ctx, func(ctx context.Context, got func(order string, payload []byte)) error {
		return consume.Run(ctx, client, *queue.QueueUrl, func(_ context.Context, m sqs.Message) error {
			got(m.GroupID, m.Payload)
			return nil
		}, consume.Config{})
	})
}

func throughRabbitMQ(t *testing.T) output {
	const variable = "OUTBOX_TEST_RABBITMQ_URL"
	address := os.Getenv(variable)
	if address == "" {
		if slices.Contains(strings.Split(os.Getenv("OUTBOX_REQUIRE"), ","), "rabbitmq") {
			t.Fatalf("%s is not set, but OUTBOX_REQUIRE names rabbitmq", variable)
		}
		t.Skipf(`%s is not set; eval "$(scripts/services up rabbitmq)"`, variable)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("%s is not a URL", variable)
	}
	password, _ := u.User.Password()
	mine := topic + "-" + core.NewEventID() // the server is shared
	t.Cleanup(func() { dropTopic(t, address, mine) })
	swap(t, "rabbitmq.yaml", nil, "RABBITMQ_ADDRESS="+u.Host, "RABBITMQ_USERNAME="+u.User.Username(),
		"RABBITMQ_PASSWORD="+password, "SHOP_TOPIC="+mine)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	consumer := rabbitmq.ConsumerConfig{
		Server: rabbitmq.Config{
			Addresses: []string{u.Host}, Username: u.User.Username(), Password: rabbitmq.Secret(password),
			Strategy: ordering.Shards{Count: 16},
			Groups:   map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: "billing", Queues: 2}}},
		},
		Topic: mine, Group: "billing",
	}
	return gather(t, ctx, func(ctx context.Context, got func(order string, payload []byte)) error {
		return rabbitmq.Consume(ctx, consumer, func(_ context.Context, d rabbitmq.Delivery) error {
			got(d.AggregateID, d.Payload)
			return nil
		})
	})
}

// gather consumes until all events have come. Handlers may run at the same time.
func gather(t *testing.T, ctx context.Context, consume func(context.Context, func(string, []byte)) error) output {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type arrival struct {
		order   string
		payload []byte
	}
	arrivals := make(chan arrival, events)
	ended := make(chan error, 1)
	go func() {
		ended <- consume(ctx, func(order string, payload []byte) {
			select {
			case arrivals <- arrival{order, payload}:
			case <-ctx.Done():
			}
		})
	}()
	out := output{}
	for complete := false; !complete; {
		select {
		case a := <-arrivals:
			complete = out.add(a.order, a.payload)
		case err := <-ended:
			t.Fatalf("the consumer ended with %v; it got\n%s", err, out)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the consumer ended with %v", err)
	}
	return out
}

// dropTopic deletes what was declared for a topic.
func dropTopic(t *testing.T, address, name string) {
	t.Helper()
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	channel, err := conn.Channel()
	if err != nil {
		t.Error(err)
		return
	}
	dead := name + ".billing.dead"
	for _, queue := range []string{
		rabbitmq.QueueName(name, "billing", 1, 0), rabbitmq.QueueName(name, "billing", 1, 1), dead,
	} {
		if _, err := channel.QueueDelete(queue, false, false, false); err != nil {
			t.Errorf("delete queue: %v", err)
		}
	}
	for _, exchange := range []string{name, dead} {
		if err := channel.ExchangeDelete(exchange, false, false); err != nil {
			t.Errorf("delete exchange: %v", err)
		}
	}
}

func TestAFileThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), registry(nil), config.Input{Files: []string{"kafka.yaml"}, Environ: []string{
		"OUTBOX_BROKER_TYPE=sqs",
	}})
	if err == nil || !strings.Contains(err.Error(), "kafka.yaml:7:3 broker.kafka: is settings for another type") {
		t.Errorf("got %v", err)
	}
}
