package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// startLink makes a link to the real Kafka that can be made worse.
func startLink(t *testing.T) *toxiproxy.Proxy {
	t.Helper()
	_, listen, upstream := realKafka(t)
	zerolog.SetGlobalLevel(zerolog.Disabled) // the toxics have loggers of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "kafka", listen, upstream)
	if err := p.Start(); err != nil {
		t.Fatalf("start toxiproxy at %s: %v", listen, err)
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

// A slow and narrow link, in pieces: everything arrives, once and in order.
func TestSlowLink(t *testing.T) { //nolint:paralleltest // one proxy port
	link := startLink(t)
	c := realCluster(t)
	topic := c.topic(t, 3, nil)
	config := c.config()
	config.Brokers = []string{link.Listen}
	broker := open(t, config)
	batch := records(topic, "a", 400)
	deliver(t, broker, batch[:100]...)
	poison(t, link, `{"type":"latency","attributes":{"latency":30,"jitter":20}}`)
	poison(t, link, `{"type":"bandwidth","stream":"upstream","attributes":{"rate":500}}`)
	poison(t, link, `{"type":"slicer","stream":"upstream","attributes":{"average_size":700,"size_variation":300,"delay":100}}`)
	for i := 100; i < 400; i += 100 {
		deliver(t, broker, batch[i:i+100]...)
	}
	wantEvents(t, c.read(t, topic), batch...)
}

// A link that is slower than the request may take: calls end in time with an unknown outcome, and once the link is well
// again the same records arrive in order, behind what had arrived already.
func TestLinkTooSlow(t *testing.T) { //nolint:paralleltest // one proxy port
	link := startLink(t)
	c := realCluster(t)
	topic := c.topic(t, 3, nil)
	config := c.config()
	config.Brokers, config.DeliveryTimeout = []string{link.Listen}, 300*time.Millisecond
	broker := open(t, config)
	batch := records(topic, "a", 20)
	deliver(t, broker, batch[:5]...)
	poison(t, link, `{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":5000}}`)
	for i, r := range publish(t, broker, batch[5:]...) {
		if e := publishError(t, r); r.Outcome != core.OutcomeUnknown || e.Scope != core.ScopeDestination {
			t.Errorf("record %d: %v, %v of the %v: %v", i, r.Outcome, e.Class, e.Scope, r.Err)
		}
	}
	if err := link.Toxics.RemoveToxic(t.Context(), "slow"); err != nil {
		t.Fatal(err)
	}
	link.Stop()
	if err := link.Start(); err != nil {
		t.Fatal(err)
	}
	dispatch(t, broker, batch[5:], func() {})
	wantFirsts(t, c.read(t, topic), batch)
}

// The link is cut again and again while records flow.
func TestLinkIsCut(t *testing.T) { //nolint:paralleltest // one proxy port
	link := startLink(t)
	c := realCluster(t)
	topic := c.topic(t, 3, nil)
	config := c.config()
	config.Brokers = []string{link.Listen}
	broker := open(t, config)
	batch := records(topic, "a", 4000)
	cut, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for range cut { // in the middle of a call or between two
			link.Stop()
			if err := link.Start(); err != nil {
				t.Error(err)
			}
		}
	}()
	calls := 0
	dispatch(t, broker, batch, func() {
		if calls++; calls%5 == 0 {
			cut <- struct{}{}
		}
	})
	close(cut)
	<-done
	t.Logf("%d cuts in %d calls", calls/5, calls)
	wantFirsts(t, c.read(t, topic), batch)
}

// dispatch publishes records of one key as a dispatcher does: again from the first that was not delivered. It calls
// before ahead of each call.
func dispatch(t *testing.T, broker core.Broker, records []*core.Record, before func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rest := prepare(t, broker, records...)
	for len(rest) > 0 && ctx.Err() == nil {
		before()
		delivered := 0
		for _, r := range broker.PublishBatch(ctx, rest[:min(20, len(rest))]) {
			if r.Outcome != core.OutcomeDelivered {
				break
			}
			delivered++
		}
		rest = rest[delivered:]
	}
	if len(rest) > 0 {
		t.Errorf("%d records were not delivered in time", len(rest))
	}
}

// wantFirsts checks that the first occurrences of all records are in order.
func wantFirsts(t *testing.T, log []*kgo.Record, records []*core.Record) {
	t.Helper()
	seen := map[string]bool{}
	next := 0
	for _, r := range log {
		id := header(r, core.HeaderEventID)
		if seen[id] {
			continue
		}
		seen[id] = true
		if next == len(records) || id != records[next].EventID {
			t.Fatalf("the new event at offset %d is not number %d", r.Offset, next)
		}
		next++
	}
	if next != len(records) {
		t.Errorf("%d of %d events are in the topic", next, len(records))
	}
}

// A real broker answers what it is asked.
func TestCheckReal(t *testing.T) {
	t.Parallel()
	c := realCluster(t)
	broker := open(t, c.config())
	if err := broker.Check(t.Context()); err != nil {
		t.Error(err)
	}
	deliver(t, broker, brokertest.NewRecord(c.topic(t, 1, nil), "a", 1))
}
