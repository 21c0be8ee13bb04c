package kafka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/ordering"
)

func TestDeclare(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		there, missing := c.topic(t, 2, nil), newTopicName()
		config := c.config()
		config.NewTopic = kafka.NewTopic{
			Partitions: 5, ReplicationFactor: 1, Configs: map[string]string{"retention.ms": "1000000"},
		}
		broker := open(t, config)
		t.Cleanup(func() { _, _ = c.admin.DeleteTopic(context.Background(), missing) })
		for range 2 { // the second time there is nothing to do
			if err := broker.Declare(t.Context(), there, missing, missing); err != nil {
				t.Fatal(err)
			}
		}
		for {
			topics, err := c.admin.ListTopics(t.Context(), there, missing)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(topics[there].Partitions); n != 2 {
				t.Fatalf("the topic that was there has %d partitions, want 2", n)
			}
			if n := len(topics[missing].Partitions); n == 5 {
				break
			} else if n != 0 {
				t.Fatalf("the new topic has %d partitions, want 5", n)
			}
		}
		configs, err := c.admin.DescribeTopicConfigs(t.Context(), missing)
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range configs[0].Configs {
			if setting.Key == "retention.ms" && setting.MaybeValue() != "1000000" {
				t.Errorf("retention.ms is %s", setting.MaybeValue())
			}
		}
		if err := broker.Declare(t.Context(), "no/slash"); err == nil {
			t.Error("a name that Kafka does not allow is accepted")
		}
	})
}

func TestVerify(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		good := c.topic(t, 3, nil)
		strict := c.topic(t, 3, map[string]string{"min.insync.replicas": "2"})
		small := c.topic(t, 3, map[string]string{"max.message.bytes": "5000"})
		compacted := c.topic(t, 3, map[string]string{"cleanup.policy": "compact"})
		few, missing := c.topic(t, 2, nil), newTopicName()

		config := c.config()
		config.Strategy = ordering.RecordKey{Partitions: 3}
		broker := open(t, config)
		if err := broker.Verify(t.Context(), good, compacted); err != nil {
			t.Errorf("topics in order: %v", err)
		}
		if err := broker.Verify(t.Context()); err != nil {
			t.Errorf("no topics: %v", err)
		}
		err := broker.Verify(t.Context(), good, strict, small, few, missing)
		if err == nil {
			t.Fatal("nothing is reported")
		}
		for topic, text := range map[string]string{
			strict:  "min.insync.replicas is 2, and it has 1 replicas",
			small:   "max.message.bytes is 5000",
			few:     "has 2 partitions, fewer than the 3",
			missing: "UNKNOWN_TOPIC_OR_PARTITION",
		} {
			if !strings.Contains(line(err, topic), text) {
				t.Errorf("topic %s: want %q in %q", topic, text, line(err, topic))
			}
		}
		if text := line(err, good); text != "" {
			t.Errorf("the topic in order: %s", text)
		}
		config.Strategy = ordering.None{}
		if err := open(t, config).Verify(t.Context(), compacted); err == nil || !strings.Contains(err.Error(), "none/v1") {
			t.Errorf("records without keys for a compacted topic: %v", err)
		}
	})
}

// line is the first line of an error that names a topic.
func line(err error, topic string) string {
	for text := range strings.Lines(err.Error()) {
		if strings.Contains(text, topic) {
			return text
		}
	}
	return ""
}
