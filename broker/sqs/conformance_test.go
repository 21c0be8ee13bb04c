package sqs_test

import (
	"fmt"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, brokertest.Harness{
		Start:             startConformance(".fifo", ordering.MessageGroup{}),
		TellsNilFromEmpty: true,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Oversize:          sqs.MaxMessageBytes,
	})
}

// The same with standard queues. What the fake has stored is in the order of arrival, so that we see what we sent.
func TestConformanceStandard(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, brokertest.Harness{
		Start:             startConformance("", ordering.None{}),
		TellsNilFromEmpty: true,
		Token:             func(*core.Record) string { return "" },
		Oversize:          sqs.MaxMessageBytes,
	})
}

func startConformance(suffix string, strategy ordering.Strategy) func(brokertest.T) brokertest.Server {
	return func(t brokertest.T) brokertest.Server {
		test := t.(*testing.T) //nolint:errcheck // as brokertest.Run promises
		fake := startFake(test, sqsfake.Config{})
		config := configOf(fake.URL())
		config.Strategy = strategy
		topics := 0
		return brokertest.Server{
			Open: func() (core.Broker, error) { return sqs.Open(test.Context(), config) },
			Topic: func() string {
				topics++
				topic := fmt.Sprint("topic-", topics)
				createQueue(test, fake, topic+suffix, nil)
				return topic
			},
			Read: func(topic string) []brokertest.Message {
				var out []brokertest.Message
				for _, m := range fake.Messages(topic + suffix) {
					d := decode(test, m)
					out = append(out, brokertest.Message{Token: d.GroupID, Payload: d.Payload, Headers: d.Headers})
				}
				return out
			},
			MissingTopic:  func() string { return "missing" },
			CreateTopic:   func(topic string) { createQueue(test, fake, topic+suffix, nil) },
			Refuse:        func(n int) { fake.Refuse(n, sqsfake.Unavailable()) },
			RefuseMessage: func(k int) { fake.RefuseEntry(k, sqsfake.InternalError()) },
			LoseReply:     fake.LoseReplies,
			Cut:           fake.Cut,
			Hang:          fake.Hang,
			Down:          fake.Stop,
			Up: func() {
				if err := fake.Restart(); err != nil {
					test.Error(err)
				}
			},
		}
	}
}
