package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// Every message reaches every group once, whatever shard it is of.
func TestDeclareCoversAllShards(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	config := s.config(t)
	config.Groups = map[string][]rabbitmq.Group{topic: {{Name: group, Queues: 3}, {Name: "audit", Queues: 5}}}
	b := open(t, config)
	for range 2 {
		if err := errors.Join(b.Declare(t.Context(), topic), b.Verify(t.Context(), topic)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		s.deleteQueues(t, topic, 1, 3)
		s.with(t, func(ch *amqp.Channel) error {
			dead := rabbitmq.DeadLetterName(topic, "audit")
			_, err := ch.QueueDelete(dead, false, false, false)
			for n := range 5 {
				_, errQueue := ch.QueueDelete(rabbitmq.QueueName(topic, "audit", 1, n), false, false, false)
				err = errors.Join(err, errQueue)
			}
			return errors.Join(err, ch.ExchangeDelete(dead, false, false))
		})
	})
	records := rounds(t, b, topic, 100, 2)
	for _, name := range []string{group, "audit"} {
		c := consumerConfig(config, topic)
		c.Group = name
		j := newJournal(len(records))
		stop, _ := consume(t, c, j.handle)
		j.wait(t)
		if err := stop(); err != nil {
			t.Error(err)
		}
		j.wantOrder(t, records)
		if j.total != len(records) {
			t.Errorf("group %s: %d messages handled, want %d", name, j.total, len(records))
		}
	}
}

// Verify names everything that is missing or different, at once.
func TestVerifyReportsEverything(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic, missing := s.topic(t), s.name(t)
	for name, c := range map[string]struct {
		change func(*rabbitmq.Config)
		words  []string
	}{
		"another number of queues": {
			func(c *rabbitmq.Config) { c.Groups[rabbitmq.EveryTopic][0].Queues = 2 },
			[]string{"406", "x-dead-letter-routing-key", "NOT_FOUND", rabbitmq.QueueName(topic, group, 1, 1)},
		},
		"another number of shards": {
			func(c *rabbitmq.Config) { c.Strategy = ordering.Shards{Count: 32} }, []string{"406", "1.0/1/32"},
		},
		"another delivery limit": {
			func(c *rabbitmq.Config) { c.Groups[rabbitmq.EveryTopic][0].DeliveryLimit = 3 }, []string{"x-delivery-limit"},
		},
		"another generation": {
			func(c *rabbitmq.Config) { c.Strategy = ordering.Shards{Count: 16, Generation: 2} },
			[]string{rabbitmq.QueueName(topic, group, 2, 0)},
		},
		"a dead-letter exchange of the user's": {
			func(c *rabbitmq.Config) { c.Groups[rabbitmq.EveryTopic][0].DeadLetterExchange = missing + ".dlx" },
			[]string{missing + ".dlx"},
		},
	} {
		config := s.config(t)
		c.change(&config)
		err := open(t, config).Verify(t.Context(), topic, missing)
		for _, word := range append(c.words, missing, rabbitmq.DeadLetterName(missing, group)) {
			if config.Groups[rabbitmq.EveryTopic][0].DeadLetterExchange != "" && strings.HasSuffix(word, ".dead") {
				continue
			}
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in: %v", name, word, err)
			}
		}
		var e *core.PublishError
		if !errors.As(err, &e) {
			t.Errorf("%s: no *core.PublishError in: %v", name, err)
		}
	}
	if err := s.admin.Verify(t.Context(), topic); err != nil {
		t.Errorf("Verify has changed something: %v", err)
	}
}

// What is there and different stays as it is, and Declare says so.
func TestDeclareChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	s.with(t, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(topic, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if err := s.admin.Declare(t.Context(), topic); err == nil || !strings.Contains(err.Error(), "406") {
		t.Errorf("Declare over an exchange of another kind: %v", err)
	}
}

func TestDeclareFaults(t *testing.T) {
	t.Parallel()
	config := rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}, Strategy: token("1")}
	config.Groups = map[string][]rabbitmq.Group{"orders": {{Name: group}}}
	for topic, word := range map[string]string{"orders": "ordering.Shards", "amq.x": "amq."} {
		if err := open(t, config).Declare(t.Context(), topic); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("topic %q: %v, want %q", topic, err, word)
		}
	}
	config.Strategy, config.Groups["orders"][0].Queues = ordering.Shards{Count: 2}, 3
	if err := open(t, config).Declare(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "3 queues") {
		t.Errorf("more queues than shards: %v", err)
	}
}

// Without an order there is one queue, and every consumer of it works.
func TestDeclareWithoutOrder(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.name(t)
	config := s.config(t)
	config.Strategy = ordering.None{}
	b := open(t, config)
	if err := errors.Join(b.Declare(t.Context(), topic), b.Verify(t.Context(), topic)); err != nil {
		t.Fatal(err)
	}
	records := spread(topic, 20)
	deliver(t, b, records...)
	j := newJournal(len(records))
	for range 2 {
		consume(t, consumerConfig(config, topic), j.handle)
	}
	j.wait(t)
}
