package rabbitmq_test

import (
	"maps"
	"testing"

	watermillamqp "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// Watermill's own marshaler reads what we publish: the event id is the message's UUID, the other headers are its
// metadata.
func TestWatermillReadsTheMessages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	b := open(t, s.config(t))
	for _, payload := range [][]byte{nil, {}, []byte("null"), {0, 1, 0xFE, 0xFF}} {
		r := brokertest.NewRecord(topic, "a", 1)
		r.Payload, r.Replay = payload, 2
		r.Headers["content-type"] = "application/json"
		deliver(t, b, r)
		d := s.get(t, logOf(topic))
		m, err := watermillamqp.DefaultMarshaler{}.Unmarshal(d)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for name, value := range r.WireHeaders() {
			want[name] = value
		}
		if m.UUID != r.EventID || string(m.Payload) != string(r.Payload) || !maps.Equal(m.Metadata, want) {
			t.Errorf("read as %s %q %v, want %s %q %v", m.UUID, m.Payload, m.Metadata, r.EventID, r.Payload, want)
		}
		if d.MessageId != r.EventID || d.Type != r.EventType || d.DeliveryMode != amqp.Persistent ||
			d.ContentType != "application/json" || !d.Timestamp.Equal(r.CreatedAt) {
			t.Errorf("properties: %s %s %d %s %v", d.MessageId, d.Type, d.DeliveryMode, d.ContentType, d.Timestamp)
		}
	}
}

// An event that was given up and is sent again has the headers that it had.
func TestField_149_HeadersOfARequeuedEvent(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	topic := s.topic(t)
	b := open(t, s.config(t))
	r := brokertest.NewRecord(topic, "a", 1)
	r.Headers["traceparent"] = "00-1"
	deliver(t, b, r)
	again := *r
	again.Attempts, again.Replay = 10, 1
	deliver(t, b, &again)
	before, after := s.get(t, logOf(topic)), s.get(t, logOf(topic))
	if after.Headers[core.HeaderReplay] != "1" {
		t.Errorf("header %s is %v", core.HeaderReplay, after.Headers[core.HeaderReplay])
	}
	delete(after.Headers, core.HeaderReplay)
	if !maps.Equal(before.Headers, after.Headers) || before.RoutingKey != after.RoutingKey {
		t.Errorf("sent again as %v, was %v", after.Headers, before.Headers)
	}
}

// get takes a message from a queue.
func (s *server) get(t *testing.T, queue string) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	s.with(t, func(ch *amqp.Channel) (err error) {
		d, _, err = ch.Get(queue, true)
		return err
	})
	return d
}
