package sqs_test

import (
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

func TestDeclareHighThroughput(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	createQueue(t, fake, "old.fifo", nil)
	config := configOf(fake.URL())
	config.NewQueue.HighThroughput = true
	config.NewQueue.Attributes = map[string]string{"MaximumMessageSize": "262144"}
	broker := open(t, config)
	if err := broker.Declare(t.Context(), "new", "old"); err != nil {
		t.Fatal(err)
	}
	if err := broker.Verify(t.Context(), "new"); err != nil {
		t.Error(err)
	}
	err := broker.Verify(t.Context(), "old", "new")
	if err == nil || !strings.Contains(err.Error(), "FifoThroughputLimit") || !strings.Contains(err.Error(), `"old"`) ||
		strings.Contains(err.Error(), `"new"`) {
		t.Errorf("Verify of a queue without high throughput: %v", err)
	}
}

func TestVerifyLimit(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{MaxMessageBytes: 10_000})
	createQueue(t, fake, "orders.fifo", nil)
	config := configOf(fake.URL())
	config.MaxMessageBytes = 20_000
	err := open(t, config).Verify(t.Context(), "orders")
	if err == nil || !strings.Contains(err.Error(), "MaximumMessageSize") {
		t.Errorf("Verify of a queue that takes less than the configuration says: %v", err)
	}
}

func TestDeclareByURL(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	config := configOf(fake.URL())
	config.QueueURLs = map[string]string{"orders": fake.URL() + "/000000000000/orders.fifo"}
	broker := open(t, config)
	if err := broker.Declare(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "URL") {
		t.Errorf("Declare of a queue that is configured by its URL: %v", err)
	}
	createQueue(t, fake, "orders.fifo", nil)
	if err := broker.Declare(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
	deliver(t, broker, oneKey("k", 2)...)
}

// Rights to list queues, or to read their attributes, are not needed.
func TestFewRights(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	fake.SetScript(func(r sqsfake.Request) sqsfake.Fault {
		if r.Action == "SendMessageBatch" || r.Action == "GetQueueUrl" {
			return sqsfake.Fault{}
		}
		return sqsfake.Fault{Error: sqsfake.AccessDenied()}
	})
	if err := broker.Check(t.Context()); err != nil {
		t.Error(err)
	}
	deliver(t, broker, oneKey("k", 2)...)
	fake.SetScript(func(sqsfake.Request) sqsfake.Fault { return sqsfake.Fault{Error: sqsfake.AccessDenied()} })
	result := publish(t, open(t, configOf(fake.URL())), oneKey("k", 1)...)[0]
	wantError(t, result, core.ClassMisconfigured, core.ScopeDestination, core.OutcomeRejected)
}
