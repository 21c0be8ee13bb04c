package kafka_test

import (
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, harness(func(t *testing.T) *cluster { return startFake(t) }))
}

// The same against a real Kafka. All cases share the one port at which a proxy can stand before it.
func TestConformanceReal(t *testing.T) { //nolint:paralleltest // one proxy port
	realKafka(t)
	h := harness(func(t *testing.T) *cluster { return startReal(t) })
	h.Serial = true
	brokertest.Run(t, h)
}

func harness(start func(*testing.T) *cluster) brokertest.Harness {
	return brokertest.Harness{
		Start: func(t brokertest.T) brokertest.Server {
			test := as[*testing.T](t)
			return start(test).server(test)
		},
		TellsNilFromEmpty: true,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Oversize:          kafka.DefaultMaxMessageBytes,
	}
}
