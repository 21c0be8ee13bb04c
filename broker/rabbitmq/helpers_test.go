package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

const (
	envServer  = "OUTBOX_TEST_RABBITMQ_URL"
	envRequire = "OUTBOX_REQUIRE"
)

// shards is the strategy of the tests: fewer shards than by default, so that topics are declared quickly.
var shards = ordering.Shards{Count: 16}

// group is the consumer group of the tests' topics. As its queue has a single active consumer, which excludes reading
// without consuming, tests read what was stored from a log: a queue of their own with everything in it.
const group = "billing"

func logOf(topic string) string { return rabbitmq.QueueName(topic, "log", 0, 0) }

// fullOf is the queue that is always full.
func fullOf(topic string) string { return rabbitmq.QueueName(topic, "full", 0, 0) }

// server is the RabbitMQ that the tests share; each has topics of its own on it.
type server struct {
	url    string
	admin  *rabbitmq.Broker
	conn   *amqp.Connection // not the broker's
	prefix string
	// dispose leaves topics behind: the whole server goes away with the test.
	dispose bool

	mu   sync.Mutex
	made int
	read map[string][]brokertest.Message
}

// startServer connects to the server that the environment names.
func startServer(t testing.TB) *server {
	t.Helper()
	address := os.Getenv(envServer)
	if address == "" {
		if slices.Contains(strings.Split(os.Getenv(envRequire), ","), "rabbitmq") {
			t.Fatalf("%s is not set, but %s demands rabbitmq", envServer, envRequire)
		}
		t.Skipf("%s is not set", envServer)
	}
	conn, err := amqp.Dial(address)
	if err != nil {
		t.Fatalf("connect to %s: %v", envServer, err)
	}
	s := &server{
		url: address, conn: conn, read: map[string][]brokertest.Message{},
		prefix: fmt.Sprintf("test.%s", core.NewEventID()),
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.admin = open(t, s.config(t))
	return s
}

// config is that of a broker at the server.
func (s *server) config(t testing.TB) rabbitmq.Config {
	t.Helper()
	config, err := rabbitmq.ParseURL(s.url)
	if err != nil {
		t.Fatal(err)
	}
	config.Strategy = shards
	config.Groups = map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: group}}}
	config.MaxMessageBytes = 256 << 10
	config.Logger = slog.New(slog.DiscardHandler)
	return config
}

// host is where the server listens.
func (s *server) host(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// name returns the name of a topic that does not exist, and deletes whatever is made for it at the end.
func (s *server) name(t brokertest.T) string {
	s.mu.Lock()
	s.made++
	topic := fmt.Sprintf("%s.%d", s.prefix, s.made)
	s.mu.Unlock()
	if !s.dispose {
		t.Cleanup(func() { s.delete(t, topic) })
	}
	return topic
}

// topic makes a topic with a group, a log, and a queue that is always full.
func (s *server) topic(t brokertest.T) string {
	t.Helper()
	topic := s.name(t)
	s.declare(t, topic)
	return topic
}

func (s *server) declare(t brokertest.T, topic string) {
	t.Helper()
	if err := s.admin.Declare(t.Context(), topic); err != nil {
		t.Fatalf("declare: %v", err)
	}
	s.with(t, func(ch *amqp.Channel) error {
		full := fullOf(topic)
		arguments := amqp.Table{amqp.QueueMaxLenArg: int32(0), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish}
		if _, err := ch.QueueDeclare(full, true, false, false, false, arguments); err != nil {
			return err
		}
		if err := ch.QueueBind(full, refusedKey, topic, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(logOf(topic), true, false, false, false, nil); err != nil {
			return err
		}
		for shard := range shards.Count {
			if err := ch.QueueBind(logOf(topic), shards.Token(shard), topic, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// delete deletes what was made for a topic.
func (s *server) delete(t brokertest.T, topic string) {
	dead := rabbitmq.DeadLetterName(topic, group)
	s.deleteQueues(t, topic, 1, 1)
	s.with(t, func(ch *amqp.Channel) error {
		var faults []error
		for _, queue := range []string{dead, fullOf(topic), logOf(topic)} {
			_, err := ch.QueueDelete(queue, false, false, false)
			faults = append(faults, err)
		}
		return errors.Join(append(faults, ch.ExchangeDelete(topic, false, false), ch.ExchangeDelete(dead, false, false))...)
	})
}

// deleteQueues deletes the queues of a generation of the group.
func (s *server) deleteQueues(t brokertest.T, topic string, generation, queues int) {
	s.with(t, func(ch *amqp.Channel) error {
		for n := range queues {
			if _, err := ch.QueueDelete(rabbitmq.QueueName(topic, group, generation, n), false, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// purge empties the queues of a generation of the group.
func (s *server) purge(t brokertest.T, topic string, generation, queues int) {
	s.with(t, func(ch *amqp.Channel) error {
		for n := range queues {
			if _, err := ch.QueuePurge(rabbitmq.QueueName(topic, group, generation, n), false); err != nil {
				return err
			}
		}
		return nil
	})
}

// with runs f on a channel of its own.
func (s *server) with(t brokertest.T, f func(*amqp.Channel) error) {
	t.Helper()
	ch, err := s.conn.Channel()
	if err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	if err := f(ch); err != nil {
		t.Fatalf("%v", err)
	}
	if err := ch.Close(); err != nil {
		t.Fatalf("close a channel: %v", err)
	}
}

// messages returns everything that was stored for a topic.
func (s *server) messages(t brokertest.T, topic string) []brokertest.Message {
	t.Helper()
	return s.messagesOf(t, logOf(topic))
}

// messagesOf returns everything that is and was in a queue.
func (s *server) messagesOf(t brokertest.T, queue string) []brokertest.Message {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.with(t, func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			m := brokertest.Message{Token: d.RoutingKey, Payload: d.Body, Headers: map[string]string{}}
			for name, value := range d.Headers {
				m.Headers[name] = fmt.Sprint(value)
			}
			s.read[queue] = append(s.read[queue], m)
		}
	})
	return slices.Clone(s.read[queue])
}

// open opens a broker for the time of a test.
func open(t testing.TB, config rabbitmq.Config) *rabbitmq.Broker {
	t.Helper()
	b, err := rabbitmq.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// prepare prepares records that are in order.
func prepare(t testing.TB, b core.Broker, records ...*core.Record) []core.Prepared {
	t.Helper()
	batch := make([]core.Prepared, len(records))
	for i, r := range records {
		p, err := b.Prepare(r)
		if err != nil {
			t.Fatalf("prepare event %s: %v", r.EventID, err)
		}
		batch[i] = p
	}
	return batch
}

// publish makes one call.
func publish(t testing.TB, b core.Broker, records ...*core.Record) []core.Result {
	t.Helper()
	return b.PublishBatch(t.Context(), prepare(t, b, records...))
}

// deliver makes one call, in which everything must be delivered.
func deliver(t testing.TB, b core.Broker, records ...*core.Record) {
	t.Helper()
	for i, r := range publish(t, b, records...) {
		if r.Outcome != core.OutcomeDelivered {
			t.Fatalf("record %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
}

var lastID atomic.Int64

// spread returns records of as many keys.
func spread(topic string, n int) []*core.Record {
	out := make([]*core.Record, n)
	for i := range out {
		out[i] = brokertest.NewRecord(topic, fmt.Sprintf("key-%d", i), lastID.Add(1))
	}
	return out
}

// wantError checks what a result says.
func wantError(t testing.TB, r core.Result, outcome core.Outcome, class core.Class, scope core.Scope, code string) {
	t.Helper()
	var e *core.PublishError
	if !errors.As(r.Err, &e) {
		t.Fatalf("%v with %v, want an error", r.Outcome, r.Err)
	}
	if r.Outcome != outcome || e.Class != class || e.Scope != scope || e.Code != code {
		t.Fatalf("%v, %v of the %v, %s; want %v, %v of the %v, %s: %v",
			r.Outcome, e.Class, e.Scope, e.Code, outcome, class, scope, code, r.Err)
	}
}

// hasFault reports whether a *core.FieldError of this path is in an error.
func hasFault(err error, path string) bool {
	var joined interface{ Unwrap() []error }
	var fault *core.FieldError
	switch {
	case errors.As(err, &joined):
		return slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return hasFault(err, path) })
	case errors.As(err, &fault):
		return fault.Path == path
	default:
		return false
	}
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *lockedBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
