package custombroker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// The harness tells the kit how to make a topic, and how to read it with other means than the broker's. Every further
// fault that it could inject (refusals, lost answers, cut connections) would make more cases run.
func TestConformance(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	brokertest.Run(t, brokertest.Harness{
		TellsNilFromEmpty: true,
		Oversize:          MaxMessageBytes + 1,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Start: func(t brokertest.T) brokertest.Server {
			dir := filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "-"))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatalf("%v", err)
			}
			topics := 0
			return brokertest.Server{
				Open: func() (core.Broker, error) { return Open(dir), nil },
				Topic: func() string {
					topics++
					topic := fmt.Sprint("topic-", topics)
					create(t, dir, topic)
					return topic
				},
				Read:         func(topic string) []brokertest.Message { return read(t, dir, topic) },
				MissingTopic: func() string { return "missing" },
				CreateTopic:  func(topic string) { create(t, dir, topic) },
				Down: func() {
					if err := os.Rename(dir, dir+".away"); err != nil {
						t.Fatalf("%v", err)
					}
				},
				Up: func() {
					if err := os.Rename(dir+".away", dir); err != nil {
						t.Fatalf("%v", err)
					}
				},
			}
		},
	})
}

func create(t brokertest.T, dir, topic string) {
	t.Helper()
	if err := Open(dir).Declare(t.Context(), topic); err != nil {
		t.Fatalf("%v", err)
	}
}

func read(t brokertest.T, dir, topic string) []brokertest.Message {
	t.Helper()
	text, err := os.ReadFile(Open(dir).path(topic))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var messages []brokertest.Message
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var line Line
		if err := decoder.Decode(&line); err != nil {
			t.Fatalf("%v", err)
		}
		messages = append(messages, brokertest.Message(line))
	}
	return messages
}

func Example() {
	dir, err := os.MkdirTemp("", "custombroker-*")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx := context.Background()
	broker := Open(dir)
	if err := broker.Declare(ctx, "orders"); err != nil {
		panic(err)
	}
	message, err := broker.Prepare(&core.Record{ID: 1, Message: core.Message{
		EventID: "e1", Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(broker.PublishBatch(ctx, []core.Prepared{message})[0].Outcome)
	text, err := os.ReadFile(broker.path("orders"))
	if err != nil {
		panic(err)
	}
	fmt.Print(string(text))
	// Output:
	// delivered
	// {"token":"ord_1","payload":null,"headers":{"aggregate_id":"ord_1","aggregate_type":"order","event_id":"e1","event_type":"order.created","outbox_id":"1"}}
}
