package membroker_test

import (
	"fmt"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("PrefixPerKey", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, harness(membroker.Config{KeyGuarantee: core.PrefixPerKey, MaxInFlight: 8}))
	})
	t.Run("OnePerKey", func(t *testing.T) {
		t.Parallel()
		brokertest.Run(t, harness(membroker.Config{MaxBatch: 10, MaxBatchBytes: 10 << 10}))
	})
}

// harness tests brokers of this configuration. Cut has no meaning here: there are no connections.
func harness(config membroker.Config) brokertest.Harness {
	config.MaxMessageBytes = 8 << 10
	return brokertest.Harness{
		TellsNilFromEmpty: true,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Oversize:          config.MaxMessageBytes,
		Start: func(t brokertest.T) brokertest.Server {
			server, faults := membroker.NewServer("topic-0"), &membroker.Faults{}
			config := config
			config.Server, config.Script = server, faults.Script
			topics := 0
			return brokertest.Server{
				Open: func() (core.Broker, error) {
					b := membroker.New(config)
					t.Cleanup(func() {
						if err := b.Misuse(); err != nil {
							t.Errorf("the kit breaks the contract itself: %v", err)
						}
					})
					return b, nil
				},
				Topic: func() string {
					topics++
					topic := fmt.Sprint("topic-", topics)
					server.Create(topic)
					return topic
				},
				Read:          func(topic string) []brokertest.Message { return read(server, topic) },
				MissingTopic:  func() string { return "missing" },
				CreateTopic:   func(topic string) { server.Create(topic) },
				Refuse:        faults.Refuse,
				RefuseMessage: faults.RefuseMessage,
				LoseReply:     faults.LoseReply,
				Hang:          faults.Hang,
				Down:          server.Stop,
				Up:            server.Start,
			}
		},
	}
}

func read(server *membroker.Server, topic string) []brokertest.Message {
	var out []brokertest.Message
	for _, m := range server.Messages(topic) {
		out = append(out, brokertest.Message{Token: m.Token, Payload: m.Payload, Headers: m.Headers})
	}
	return out
}
