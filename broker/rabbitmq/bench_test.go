package rabbitmq_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/rabbitmq"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// benchRecords returns records of about 420 bytes of JSON, each of a key of its own.
func benchRecords(topic string, n int) []*core.Record {
	records := make([]*core.Record, n)
	for i := range records {
		r := brokertest.NewRecord(topic, fmt.Sprintf("order-%d", i), int64(i+1))
		r.Payload = fmt.Appendf(nil, `{"id":"%s","total":%d,"lines":[`, r.EventID, i*37)
		for n := 0; len(r.Payload) < 400; n++ {
			r.Payload = fmt.Appendf(r.Payload, `{"sku":"%d","n":%d},`, (i*7919+n*104729)%1000000, n)
		}
		r.Payload = append(r.Payload, `{"sku":"0","n":0}]}`...)
		records[i] = r
	}
	return records
}

func BenchmarkPrepare(b *testing.B) {
	broker := open(b, rabbitmq.Config{Addresses: []string{"127.0.0.1:1"}})
	r := benchRecords("orders", 1)[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := broker.Prepare(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublishBatch publishes batches of 500 records of 420 bytes to 4 quorum queues, in turns with a plain
// pipelined publisher on the same client library, which does nothing but publish prepared messages and wait for the
// confirms. Reported are messages per second of both, and the ratio.
func BenchmarkPublishBatch(b *testing.B) {
	for _, inFlight := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) { benchmarkPublish(b, inFlight) })
	}
}

func benchmarkPublish(b *testing.B, inFlight int) {
	const size = 500
	s := startServer(b)
	config := s.config(b)
	config.Channels = inFlight
	config.Groups = map[string][]rabbitmq.Group{rabbitmq.EveryTopic: {{Name: group, Queues: 4}}}
	topic := s.name(b)
	broker := open(b, config)
	if err := broker.Declare(b.Context(), topic); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.deleteQueues(b, topic, 1, 4) })
	records := benchRecords(topic, size)
	ours := func(int) error {
		batch := make([]core.Prepared, size)
		for i, r := range records {
			p, err := broker.Prepare(r)
			if err != nil {
				return err
			}
			batch[i] = p
		}
		for _, r := range broker.PublishBatch(b.Context(), batch) {
			if r.Outcome != core.OutcomeDelivered {
				return r.Err
			}
		}
		return nil
	}
	raw := newRawPublisher(b, s, topic, records, inFlight)
	var took, rawTook time.Duration
	run := func(publish func(int) error) time.Duration {
		start := time.Now()
		var workers sync.WaitGroup
		for w := range inFlight {
			workers.Go(func() {
				if err := publish(w); err != nil {
					b.Error(err)
				}
			})
		}
		workers.Wait()
		return time.Since(start)
	}
	run(ours) // connects
	run(raw.publish)
	b.ResetTimer()
	for range b.N {
		took += run(ours)
		rawTook += run(raw.publish)
		b.StopTimer()
		s.purge(b, topic, 1, 4)
		b.StartTimer()
	}
	n := float64(b.N * size * inFlight)
	b.ReportMetric(n/took.Seconds(), "msg/s")
	b.ReportMetric(n/rawTook.Seconds(), "raw-msg/s")
	b.ReportMetric(rawTook.Seconds()/took.Seconds(), "ratio")
}

// rawPublisher publishes the same messages as plainly as it goes.
type rawPublisher struct {
	exchange string
	tokens   []string
	messages []amqp.Publishing
	channels []*amqp.Channel
}

func newRawPublisher(b *testing.B, s *server, topic string, records []*core.Record, channels int) *rawPublisher {
	conn, err := amqp.Dial(s.url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	p := &rawPublisher{exchange: topic}
	for range channels {
		ch, err := conn.Channel()
		if err == nil {
			err = ch.Confirm(false)
		}
		if err != nil {
			b.Fatal(err)
		}
		p.channels = append(p.channels, ch)
	}
	for _, r := range records {
		route, err := shards.Route(ordering.Input{AggregateType: r.AggregateType, AggregateID: r.AggregateID})
		if err != nil {
			b.Fatal(err)
		}
		headers := amqp.Table{}
		for name, value := range r.WireHeaders() {
			headers[name] = value
		}
		p.tokens = append(p.tokens, route.Token)
		p.messages = append(p.messages, amqp.Publishing{
			Headers: headers, DeliveryMode: amqp.Persistent, MessageId: r.EventID, Body: r.Payload,
		})
	}
	return p
}

func (p *rawPublisher) publish(worker int) error {
	confirms := make([]*amqp.DeferredConfirmation, len(p.messages))
	for i, m := range p.messages {
		confirm, err := p.channels[worker].PublishWithDeferredConfirm(p.exchange, p.tokens[i], true, false, m)
		if err != nil {
			return err
		}
		confirms[i] = confirm
	}
	for _, confirm := range confirms {
		if !confirm.Wait() {
			return errors.New("refused")
		}
	}
	return nil
}
