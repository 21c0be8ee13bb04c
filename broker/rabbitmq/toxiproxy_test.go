package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
)

// startLine makes a line to the server that can be made worse.
func startLine(t *testing.T, s *server) *toxiproxy.Proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics have loggers of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "rabbitmq", "127.0.0.1:0", s.host(t))
	if err := p.Start(); err != nil {
		t.Fatalf("start toxiproxy: %v", err)
	}
	t.Cleanup(p.Stop)
	return p
}

func poison(t *testing.T, p *toxiproxy.Proxy, toxic string) {
	t.Helper()
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatalf("%s: %v", toxic, err)
	}
}

// The kit over a line that is slow, delivers in pieces, and is cut.
func TestConformanceOverASlowLine(t *testing.T) {
	t.Parallel()
	h := harness(t, func(*rabbitmq.Config) {})
	h.Timeout = time.Second // a connection takes several trips
	h.Start = func(t brokertest.T) brokertest.Server {
		test := t.(*testing.T) //nolint:errcheck // the kit's own
		s := startServer(test)
		line := startLine(test, s)
		poison(test, line, `{"type":"latency","attributes":{"latency":3,"jitter":3}}`)
		poison(test, line, `{"type":"slicer","stream":"upstream",
			"attributes":{"average_size":20000,"size_variation":19000,"delay":10}}`)
		config := s.config(test)
		config.Addresses = []string{line.Listen}
		up := func() {
			if err := line.Start(); err != nil {
				t.Errorf("start toxiproxy again: %v", err)
			}
		}
		// Not in the goroutine that asks for it: the kit would take the proxy's goroutines for the broker's.
		cuts, done := make(chan struct{}), make(chan struct{})
		go func() {
			for range cuts {
				line.Stop()
				up()
				done <- struct{}{}
			}
		}()
		t.Cleanup(func() { close(cuts) })
		return brokertest.Server{
			Open:         func() (core.Broker, error) { return rabbitmq.Open(context.WithoutCancel(t.Context()), config) },
			Topic:        func() string { return s.topic(t) },
			Read:         func(topic string) []brokertest.Message { return s.messages(t, topic) },
			MissingTopic: func() string { return s.name(t) },
			CreateTopic:  func(topic string) { s.declare(t, topic) },
			Cut: func() {
				cuts <- struct{}{}
				<-done
			},
			Down: line.Stop,
			Up:   up,
		}
	}
	brokertest.Run(t, h)
}

// A line that is slower than a call may take: it ends in time with an unknown outcome, and once the line is well again
// the same records arrive, in order.
func TestLineTooSlow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	line := startLine(t, s)
	config := s.config(t)
	config.Addresses, config.ConfirmTimeout = []string{line.Listen}, 300*time.Millisecond
	b := open(t, config)
	records := spread(topic, 20)
	deliver(t, b, records[:5]...)
	poison(t, line, `{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":3000}}`)
	for _, r := range publish(t, b, records[5:]...) {
		wantError(t, r, core.OutcomeUnknown, core.ClassUnavailable, core.ScopeDestination, "TIMEOUT")
	}
	if err := line.Toxics.RemoveToxic(t.Context(), "slow"); err != nil {
		t.Fatal(err)
	}
	for _, r := range records[5:] {
		dispatch(t, b, []*core.Record{r})
	}
	s.wantFirsts(t, topic, records)
}

// The line is cut again and again while records of one key flow.
func TestLineIsCut(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	line := startLine(t, s)
	config := s.config(t)
	config.Addresses = []string{line.Listen}
	b := open(t, config)
	records := make([]*core.Record, 1000)
	for i := range records {
		records[i] = brokertest.NewRecord(topic, "a", int64(i+1))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		dispatch(t, b, records)
	}()
	for cuts := 0; ; cuts++ {
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-pause.C:
		case <-done:
			pause.Stop()
			t.Logf("%d cuts", cuts)
			s.wantFirsts(t, topic, records)
			return
		}
		line.Stop()
		if err := line.Start(); err != nil {
			t.Error(err)
		}
	}
}

// dispatch publishes records one after the other, each until it is delivered, as a dispatcher does those of one key.
func dispatch(t *testing.T, b core.Broker, records []*core.Record) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for i, r := range records {
		p, err := b.Prepare(r)
		for err == nil && b.PublishBatch(ctx, []core.Prepared{p})[0].Outcome != core.OutcomeDelivered {
			err = ctx.Err()
		}
		if err != nil {
			t.Errorf("record %d of %d: %v", i, len(records), err)
			return
		}
	}
}

// wantFirsts checks that the first occurrences of all records are in the log, in order.
func (s *server) wantFirsts(t *testing.T, topic string, records []*core.Record) {
	t.Helper()
	seen := map[string]bool{}
	next := 0
	for _, m := range s.messages(t, topic) {
		id := m.Headers[core.HeaderEventID]
		if seen[id] {
			continue
		}
		seen[id] = true
		if next == len(records) || id != records[next].EventID {
			t.Fatalf("the new event after %d others is not number %d", next, next)
		}
		next++
	}
	if next != len(records) {
		t.Errorf("%d of %d events are in the log", next, len(records))
	}
}

// A caller's connection on a network that swallows everything: calls end with their contexts all the same.
func TestNewOnAHangingNetwork(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	f := startFake(t, &fake{publish: func(*fakeConn, fakeMessage) { <-over }}) // reads nothing more
	conn, err := amqp.Dial("amqp://" + f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // closed already
	b, err := rabbitmq.New(conn, f.config())
	if err != nil {
		t.Fatal(err)
	}
	records := spread("orders", 100)
	for _, r := range records {
		r.Payload = []byte(strings.Repeat("x", 1<<20)) // more than socket buffers take
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	results := b.PublishBatch(ctx, prepare(t, b, records...))
	if o := fmt.Sprint(results[0].Outcome, results[99].Outcome); o != "unknown skipped" {
		t.Errorf("outcomes of the first and the last: %s", o)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}
