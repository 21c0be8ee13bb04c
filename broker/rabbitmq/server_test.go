package rabbitmq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// wantLog checks what is in the log of a topic.
func (s *server) wantLog(t *testing.T, topic string, records ...*core.Record) {
	t.Helper()
	var got, want []string
	for _, m := range s.messages(t, topic) {
		got = append(got, m.Headers[core.HeaderEventID])
	}
	for _, r := range records {
		want = append(want, r.EventID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

// An exchange that is deleted under way: nothing is lost or taken for delivered, other topics do not notice, and both
// events arrive after it was declared again.
func TestField_020_MissingExchange(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic, other := s.topic(t), s.topic(t)
	b := open(t, s.config(t))
	first := brokertest.NewRecord(topic, "a", 1)
	deliver(t, b, first)
	s.with(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(topic, false, false) })
	second, third := brokertest.NewRecord(topic, "a", 2), brokertest.NewRecord(topic, "a", 3)
	for i := range 3 {
		r := publish(t, b, second)[0]
		want := core.OutcomeRejected
		if i == 0 { // the exchange was there a moment ago
			want = core.OutcomeUnknown
		}
		wantError(t, r, want, core.ClassMisconfigured, core.ScopeDestination, "NOT_FOUND")
		if !strings.Contains(r.Err.Error(), topic) {
			t.Errorf("the error does not name the exchange: %v", r.Err)
		}
		deliver(t, b, brokertest.NewRecord(other, "b", 1))
	}
	s.declare(t, topic)
	deliver(t, b, second)
	deliver(t, b, third)
	s.wantLog(t, topic, first, second, third)
}

// While one topic's exchange is missing, calls of another that are in progress at the same time are not in doubt.
func TestOneTopicNeverTaintsAnother(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	good := s.topic(t)
	b := open(t, s.config(t))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i, r := range publish(t, b, spread(good, 50)...) {
				if r.Outcome != core.OutcomeDelivered {
					t.Errorf("message %d of the good topic: %v: %v", i, r.Outcome, r.Err)
					return
				}
			}
		}
	}()
	for range 10 {
		bad := s.topic(t)
		deliver(t, b, spread(bad, 1)...)
		s.with(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(bad, false, false) })
		for _, r := range publish(t, b, spread(bad, 50)...) {
			wantError(t, r, r.Outcome, core.ClassMisconfigured, core.ScopeDestination, "NOT_FOUND")
		}
	}
	close(stop)
	<-done
}

// An exchange without a queue: the server drops the message, returns it and confirms it all the same.
func TestField_022_Unroutable(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	s.with(t, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(topic, amqp.ExchangeDirect, true, false, false, false, nil)
	})
	config := s.config(t)
	b := open(t, config)
	records := spread(topic, 20)
	for _, r := range publish(t, b, records...) {
		wantError(t, r, core.OutcomeRejected, core.ClassMisconfigured, core.ScopeDestination, "NO_ROUTE")
	}
	config.AcceptUnroutable = []string{topic}
	deliver(t, open(t, config), records...)
	s.declare(t, topic)
	deliver(t, b, records...)
	s.wantLog(t, topic, records...)
}

// Unroutable messages among others.
func TestSomeAreUnroutable(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	s.with(t, func(ch *amqp.Channel) error {
		for shard := 0; shard < shards.Count; shard += 2 {
			for _, queue := range []string{logOf(topic), rabbitmq.QueueName(topic, group, 1, 0)} {
				if err := ch.QueueUnbind(queue, shards.Token(shard), topic, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	config := s.config(t)
	config.Window = 8
	b := open(t, config)
	records := spread(topic, 200)
	batch := prepare(t, b, records...)
	results := b.PublishBatch(t.Context(), batch)
	stored := map[string]bool{}
	for _, m := range s.messages(t, topic) {
		stored[m.Headers[core.HeaderEventID]] = true
	}
	for i, r := range results {
		if stored[records[i].EventID] != (r.Outcome == core.OutcomeDelivered) {
			t.Errorf("message %d: stored %t, %v: %v", i, stored[records[i].EventID], r.Outcome, r.Err)
		}
	}
	if len(stored) == 0 || len(stored) == len(records) {
		t.Errorf("%d of %d are routable", len(stored), len(records))
	}
}

// A full queue refuses: that is no loss, costs no attempt, and ends when the queue is drained.
func TestField_023_FullQueue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	s.with(t, func(ch *amqp.Channel) error {
		arguments := amqp.Table{amqp.QueueMaxLenArg: int32(1), amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish}
		if _, err := ch.QueueDeclare(logOf(topic), true, false, false, false, arguments); err != nil {
			return err
		}
		if err := ch.ExchangeDeclare(topic, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return err
		}
		for shard := range shards.Count {
			if err := ch.QueueBind(logOf(topic), shards.Token(shard), topic, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
	b := open(t, s.config(t))
	records := spread(topic, 3)
	rest := slices.Clone(records)
	for drains := 0; len(rest) > 0; drains++ {
		var refused []*core.Record
		for i, r := range publish(t, b, rest...) {
			if r.Outcome == core.OutcomeDelivered {
				continue
			}
			wantError(t, r, core.OutcomeUnknown, core.ClassThrottled, core.ScopeKey, "NACK")
			refused = append(refused, rest[i])
		}
		if got := len(rest) - len(refused); got != 1 {
			t.Fatalf("%d were delivered to a queue with room for one", got)
		}
		rest = refused
		s.messages(t, topic)
	}
	if got := len(s.messages(t, topic)); got != len(records) {
		t.Errorf("%d are stored, want %d", got, len(records))
	}
}

// Aggregate ids of every kind: an aggregate has one routing key, which is short, and its id arrives as it was.
func TestField_142_OddAggregateIDs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	b := open(t, s.config(t))
	long := strings.Repeat("x", 999)
	for _, id := range []string{"", strings.Repeat("a", 129), long + "1", long + "2", "заказ 1", "a/b?c", "line\n"} {
		first, again := brokertest.NewRecord(topic, id, 1), brokertest.NewRecord(topic, id, 2)
		deliver(t, b, first)
		deliver(t, b, again)
		var tokens []string
		for _, m := range s.messages(t, topic) {
			if e := m.Headers[core.HeaderEventID]; e == first.EventID || e == again.EventID {
				tokens = append(tokens, m.Token)
				if got := m.Headers[core.HeaderAggregateID]; got != id {
					t.Errorf("aggregate id %.20q arrives as %.20q", id, got)
				}
			}
		}
		if len(tokens) != 2 || tokens[0] != tokens[1] || len(tokens[0]) > 16 {
			t.Errorf("aggregate id %.20q has the routing keys %q", id, tokens)
		}
	}
}

// Field case 145 (values of any Go type in a header table) cannot happen: headers are texts, which this line checks.
var _ map[string]string = core.Message{}.Headers

// Topics whose names differ little, and long ones: everything derived from them is distinct and not too long.
func TestField_154_DerivedNames(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	long := s.name(t) + "."
	long += strings.Repeat("x", core.MaxTopicBytes-len(long)-1)
	prefix := s.name(t)
	topics := []string{prefix + ".v1", prefix + "_v1", prefix + "-v1", long + "1", long + "2"}
	config := s.config(t)
	b := open(t, config)
	names := map[string]string{}
	for _, topic := range topics {
		t.Cleanup(func() { s.delete(t, topic) })
		for _, name := range []string{
			rabbitmq.QueueName(topic, group, 1, 0), rabbitmq.QueueName(topic, "v1", 1, 0), rabbitmq.DeadLetterName(topic, group),
		} {
			if other, taken := names[name]; taken || len(name) > 255 {
				t.Errorf("%q (%d bytes) of %q is taken by %q", name, len(name), topic, other)
			}
			names[name] = topic
		}
	}
	if err := errors.Join(b.Declare(t.Context(), topics...), b.Verify(t.Context(), topics...)); err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		records := spread(topic, 3)
		deliver(t, b, records...)
		j := newJournal(len(records))
		consume(t, consumerConfig(config, topic), j.handle)
		j.wait(t)
	}
}

// A password is nowhere: not in errors, not in logs, not in a printed configuration.
func TestField_166_NoSecrets(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const secret = "xyzzy-secret"
	var log lockedBuffer
	for _, host := range []string{s.host(t), "127.0.0.1:1"} {
		config, err := rabbitmq.ParseURL("rabbitmq://nobody:" + secret + "@" + host)
		if err != nil {
			t.Fatal(err)
		}
		config.Logger = log.logger()
		b := open(t, config)
		texts := []string{
			fmt.Sprintf("%v %+v %#v %s", config, config, config, config.Password),
			fmt.Sprint(b.Check(t.Context())), fmt.Sprint(publish(t, b, spread("orders", 1)...)[0].Err),
			fmt.Sprint(rabbitmq.Consume(t.Context(), rabbitmq.ConsumerConfig{Server: config}, nil)), log.String(),
		}
		for _, text := range texts {
			if strings.Contains(text, secret) {
				t.Errorf("the password is in: %s", text)
			}
		}
		var e *core.PublishError
		if err := b.Check(t.Context()); !errors.As(err, &e) || host == s.host(t) && e.Code != "ACCESS_REFUSED" {
			t.Errorf("Check with a wrong password: %v", err)
		}
	}
	_, err := rabbitmq.ParseURL("rabbitmq://nobody:" + secret + "%zz@host/?unknown=1")
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the password is in: %v", err)
	}
}
