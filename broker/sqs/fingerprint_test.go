package sqs_test

import (
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/ordering"
)

// The fingerprint of where a message goes names the strategy and the kind of the queue.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config func(*sqs.Config)
		want   string
	}{
		{"the default", func(*sqs.Config) {}, "message-group/v1 of a FIFO queue"},
		{"without order", func(c *sqs.Config) { c.Strategy = ordering.None{} }, "none/v1 of a standard queue"},
		{"without order in a FIFO queue", func(c *sqs.Config) {
			c.Strategy, c.QueueName = ordering.None{}, "{topic}.fifo"
		}, "none/v1 of a FIFO queue"},
		{"by URL", func(c *sqs.Config) {
			c.QueueURLs = map[string]string{"orders": "https://sqs.eu-west-1.amazonaws.com/123456789012/shop.fifo"}
		}, "message-group/v1 of a FIFO queue"},
	} {
		config := configOf("http://127.0.0.1:1")
		c.config(&config)
		broker := open(t, config)
		p := prepare(t, broker, brokertest.NewRecord("orders", "k", 1))[0]
		if got, err := broker.Fingerprint(t.Context(), "", p.Destination); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}
