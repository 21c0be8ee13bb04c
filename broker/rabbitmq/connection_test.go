package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// Nothing of a lost connection is stored after a new one was made: the server holds a lock until it is done with it.
func TestConnectionsTakeTurns(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	p := startProxy(t, s.host(t))
	config := s.config(t)
	config.Addresses = []string{p.address}
	b := open(t, config)
	deliver(t, b, spread(topic, 1)...)
	release := p.keepUpstream()
	defer release()
	p.cut() // the server does not notice
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := b.Check(ctx); err == nil { // it may be the one that finds the connection lost
		t.Error("Check finds nothing wrong")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := b.PublishBatch(ctx, prepare(t, b, spread(topic, 1)...))[0]
	wantError(t, r, core.OutcomeSkipped, core.ClassUnavailable, core.ScopeBroker, "RESOURCE_LOCKED")
	config.DisableLock = true
	deliver(t, open(t, config), spread(topic, 1)...)
	release()
	deliver(t, b, spread(topic, 1)...)
}

// A broker on a caller's connection leaves it as it was, without channels.
func TestNew(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	conn, err := amqp.Dial(s.url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := rabbitmq.New(conn, rabbitmq.Config{Strategy: shards})
	if err != nil {
		t.Fatal(err)
	}
	records := spread(topic, 100)
	deliver(t, b, records...)
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if conn.IsClosed() {
		t.Fatal("Close has closed the caller's connection")
	}
	s.wantLog(t, topic, records...)
	lost, err := rabbitmq.New(conn, rabbitmq.Config{Strategy: shards})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, publish(t, lost, records[0])[0],
		core.OutcomeRejected, core.ClassUnavailable, core.ScopeBroker, "CONNECTION_LOST")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := rabbitmq.New(nil, rabbitmq.Config{}); err == nil {
		t.Error("New takes a nil connection")
	}
	if _, err := rabbitmq.New(&amqp.Connection{}, rabbitmq.Config{Window: -1}); !hasFault(err, "Window") {
		t.Errorf("New with a negative window: %v", err)
	}
}
