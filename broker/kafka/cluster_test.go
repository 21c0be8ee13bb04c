package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

// cluster is a Kafka cluster behind proxies.
type cluster struct {
	*network
	proxies []*proxy
	fake    *kfake.Cluster // nil for a real one
	// direct are addresses past the proxies.
	direct []string
	admin  *kadm.Client
}

// proxied is a listener that tells clients the address of the proxy before it.
type proxied struct {
	net.Listener
	proxy *proxy
}

func (p proxied) Addr() net.Addr {
	addr, _ := net.ResolveTCPAddr("tcp", p.proxy.address)
	return addr
}

// startFake starts a cluster of three brokers in this process.
func startFake(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	c := &cluster{network: &network{}}
	listen := func(network, _ string) (net.Listener, error) {
		l, err := net.Listen(network, "127.0.0.1:0") //nolint:noctx // a test
		if err != nil {
			return nil, err
		}
		p := startProxy(t, "127.0.0.1:0", l.Addr().String(), c.network)
		c.proxies, c.direct = append(c.proxies, p), append(c.direct, l.Addr().String())
		return proxied{l, p}, nil
	}
	fake, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(3), kfake.DefaultNumPartitions(6), kfake.ListenFn(listen),
	}, opts...)...)
	if err != nil {
		t.Fatalf("start kfake: %v", err)
	}
	t.Cleanup(fake.Close)
	c.fake = fake
	c.admin = kadm.NewClient(c.client(t))
	return c
}

// realCluster is the real Kafka without a proxy, so that tests can use it side by side.
func realCluster(t testing.TB) *cluster {
	t.Helper()
	direct, _, _ := realKafka(t)
	c := &cluster{network: &network{}, direct: direct}
	c.admin = kadm.NewClient(c.client(t))
	return c
}

// onBoth runs a test against kfake and the real Kafka.
func onBoth(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, startFake(t))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, realCluster(t))
	})
}

// startReal puts a proxy before the listener of a real broker that is advertised at the proxy's address.
func startReal(t testing.TB) *cluster {
	t.Helper()
	direct, listen, upstream := realKafka(t)
	c := &cluster{network: &network{}, direct: direct}
	c.proxies = []*proxy{startProxy(t, listen, upstream, c.network)}
	c.admin = kadm.NewClient(c.client(t))
	return c
}

// realKafka returns the addresses of the real Kafka: past a proxy, where a proxy has to listen, and what is behind it.
func realKafka(t testing.TB) (direct []string, listen, upstream string) {
	t.Helper()
	address := os.Getenv("OUTBOX_TEST_KAFKA_URL")
	listen, upstream = os.Getenv("OUTBOX_TEST_KAFKA_PROXY_LISTEN"), os.Getenv("OUTBOX_TEST_KAFKA_PROXY_UPSTREAM")
	if address == "" || listen == "" || upstream == "" {
		if slices.Contains(strings.Split(os.Getenv("OUTBOX_REQUIRE"), ","), "kafka") {
			t.Fatal("OUTBOX_REQUIRE names kafka, but OUTBOX_TEST_KAFKA_URL or OUTBOX_TEST_KAFKA_PROXY_* is not set")
		}
		t.Skip("OUTBOX_TEST_KAFKA_URL and OUTBOX_TEST_KAFKA_PROXY_* are not set")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("OUTBOX_TEST_KAFKA_URL: %v", err)
	}
	return strings.Split(u.Host, ","), listen, upstream
}

// client connects past the proxies, also where brokers advertise the address of one.
func (c *cluster) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		for _, p := range c.proxies {
			if p.address == address {
				address = p.upstream
			}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.direct...), kgo.Dialer(dial), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// viaProxy sends all connections through a proxy, whatever the broker advertises.
func viaProxy(p *proxy) []kgo.Opt {
	return []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.address)
	})}
}

// config is that of a broker that connects through the proxies and does not wait long.
func (c *cluster) config() kafka.Config {
	config := kafka.Config{
		RequestTimeout:  2 * time.Second,
		DeliveryTimeout: 5 * time.Second,
		RetryBackoff:    2 * time.Millisecond,
		Logger:          slog.New(slog.DiscardHandler),
	}
	for _, p := range c.proxies {
		config.Brokers = append(config.Brokers, p.address)
	}
	if len(c.proxies) == 0 {
		config.Brokers = c.direct
	}
	return config
}

var topicNumber atomic.Int64

func newTopicName() string {
	return fmt.Sprintf("outbox-test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), topicNumber.Add(1))
}

// topic creates a topic for one test.
func (c *cluster) topic(t testing.TB, partitions int32, configs map[string]string) string {
	t.Helper()
	name := newTopicName()
	c.create(t, name, partitions, configs)
	return name
}

func (c *cluster) create(t testing.TB, name string, partitions int32, configs map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	if _, err := c.admin.CreateTopic(t.Context(), partitions, 1, values, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = c.admin.DeleteTopic(ctx, name)
	})
	// A real cluster answers before the leaders know that they are.
	for {
		offsets, err := c.admin.ListEndOffsets(t.Context(), name)
		if err == nil && offsets.Error() == nil && len(offsets[name]) == int(partitions) {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("topic %s: %v", name, err)
		}
	}
}

// read returns all records of a topic, each partition in its order.
func (c *cluster) read(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatalf("end offsets of %s: %v", topic, err)
	}
	from, left := map[int32]kgo.Offset{}, 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			from[o.Partition] = kgo.NewOffset().AtStart()
			left += int(o.Offset)
		}
	})
	var records []*kgo.Record
	if left == 0 {
		return nil
	}
	consumer := c.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxWait(10*time.Millisecond))
	defer consumer.Close()
	for len(records) < left {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %s: %d of %d records: %v", topic, len(records), left, ctx.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, r) })
	}
	slices.SortStableFunc(records, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return records
}

// server offers the cluster to the conformance kit.
func (c *cluster) server(t *testing.T) brokertest.Server {
	each := func(do func(*proxy)) {
		for _, p := range c.proxies {
			do(p)
		}
	}
	return brokertest.Server{
		Open:  func() (core.Broker, error) { return kafka.Open(t.Context(), c.config()) },
		Topic: func() string { return c.topic(t, 6, nil) },
		Read: func(topic string) []brokertest.Message {
			var messages []brokertest.Message
			for _, r := range c.read(t, topic) {
				m := brokertest.Message{Token: string(r.Key), Payload: r.Value, Headers: map[string]string{}}
				for _, h := range r.Headers {
					m.Headers[h.Key] = string(h.Value)
				}
				messages = append(messages, m)
			}
			return messages
		},
		MissingTopic: newTopicName,
		CreateTopic:  func(name string) { c.create(t, name, 6, nil) },
		Refuse:       func(n int) { c.fail(n, 0, kerr.NotEnoughReplicas.Code) },
		LoseReply:    func(n int) { c.fail(0, n, 0) },
		Cut:          func() { each((*proxy).cut) },
		Hang:         func() (<-chan struct{}, func()) { return c.hang(c.proxies, nil) },
		Down:         func() { each((*proxy).down) },
		Up: func() {
			each(func(p *proxy) {
				if err := p.up(); err != nil {
					t.Errorf("proxy: %v", err)
				}
			})
		},
	}
}
