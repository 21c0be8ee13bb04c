package rabbitmq_test

import (
	"context"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, harness(t, func(*rabbitmq.Config) {}))
}

// One message on the way at a time, in one call at a time.
func TestConformanceNarrow(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, harness(t, func(c *rabbitmq.Config) { c.Window, c.Channels = 1, 1 }))
}

func harness(t *testing.T, change func(*rabbitmq.Config)) brokertest.Harness {
	startServer(t) // to skip all at once
	return brokertest.Harness{
		Oversize: 256<<10 + 1,
		Token: func(r *core.Record) string {
			route, _ := shards.Route(ordering.Input{AggregateType: r.AggregateType, AggregateID: r.AggregateID})
			return route.Token
		},
		Start: func(t brokertest.T) brokertest.Server {
			test := t.(*testing.T) //nolint:errcheck // the kit's own
			s := startServer(test)
			p := startProxy(test, s.host(test))
			config := s.config(test)
			config.Addresses = []string{p.address}
			change(&config)
			return brokertest.Server{
				Open:          func() (core.Broker, error) { return rabbitmq.Open(context.WithoutCancel(t.Context()), config) },
				Topic:         func() string { return s.topic(t) },
				Read:          func(topic string) []brokertest.Message { return s.messages(t, topic) },
				MissingTopic:  func() string { return s.name(t) },
				CreateTopic:   func(topic string) { s.declare(t, topic) },
				Refuse:        func(n int) { p.set(func(p *proxy) { p.refuse = n }) },
				RefuseMessage: func(k int) { p.set(func(p *proxy) { p.pick = k }) },
				LoseReply:     func(n int) { p.set(func(p *proxy) { p.lose = n }) },
				Cut:           p.cut,
				Hang:          p.hang,
				Down:          p.down,
				Up:            func() { _ = p.up() },
			}
		},
	}
}
