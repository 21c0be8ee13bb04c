package kafka_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	watermillkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// payloads are bodies that have been confused with each other before.
func payloads() map[string][]byte {
	return map[string][]byte{
		"nil": nil, "no bytes": {}, "null": []byte("null"), "object": []byte("{}"), "quotes": []byte(`""`),
		"space": []byte(" "), "binary": {0, 1, 0xfe, 0xff},
	}
}

// A null value is a tombstone, an empty one is a message.
func TestField_134_NilAndEmptyPayloads(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 3, nil)
		broker := open(t, c.config())
		for name, payload := range payloads() {
			r := brokertest.NewRecord(topic, name, 1)
			r.Payload = payload
			deliver(t, broker, r)
		}
		log := c.read(t, topic)
		if len(log) != len(payloads()) {
			t.Fatalf("%d records in the topic, want %d", len(log), len(payloads()))
		}
		for _, r := range log {
			want := payloads()[string(r.Key)]
			if !bytes.Equal(r.Value, want) || (r.Value == nil) != (want == nil) {
				t.Errorf("%s: read as %#v, want %#v", r.Key, r.Value, want)
			}
		}
	})
}

// Field case 145 (values of any Go type in a header table) cannot happen: headers are texts, which this line checks.
var _ map[string]string = core.Message{}.Headers

func TestField_144_HeaderValues(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, nil)
		r := brokertest.NewRecord(topic, "a", 1)
		r.Headers = map[string]string{
			"empty": "", "space": " ", "long": strings.Repeat("x", 5000), "newline": "a\nb\r\n", "größe": "📦",
		}
		deliver(t, open(t, c.config()), r)
		for name, want := range r.Headers {
			if got := header(c.read(t, topic)[0], name); got != want {
				t.Errorf("header %s is %q, want %q", name, got, want)
			}
		}
	})
}

// An event that was given up and is sent again has the key, the payload and the headers that it had.
func TestField_149_HeadersOfARequeuedEvent(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 3, nil)
	broker := open(t, c.config())
	r := brokertest.NewRecord(topic, "a", 1)
	for _, name := range []string{"content-type", "traceparent", "tenant", "schema_version", "origin"} {
		r.Headers[name] = name + " of the event"
	}
	deliver(t, broker, r)
	again := *r
	again.Attempts, again.Replay = 10, 1
	deliver(t, broker, &again)
	log := c.read(t, topic)
	before, after := headers(log[0]), headers(log[1])
	if after[core.HeaderReplay] != "1" {
		t.Errorf("header %s is %q, want 1", core.HeaderReplay, after[core.HeaderReplay])
	}
	delete(after, core.HeaderReplay)
	if !maps.Equal(before, after) || !bytes.Equal(log[0].Key, log[1].Key) || !bytes.Equal(log[0].Value, log[1].Value) {
		t.Errorf("sent again as %v %s, was %v %s", after, log[1].Key, before, log[0].Key)
	}
}

func headers(r *kgo.Record) map[string]string {
	out := map[string]string{}
	for _, h := range r.Headers {
		out[h.Key] = string(h.Value)
	}
	return out
}

// Watermill's own subscriber, on another client library, reads what we publish: the event id is the message's UUID, the
// other headers are its metadata.
func TestWatermillReadsTheMessages(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 3, nil)
		broker := open(t, c.config())
		want := map[string]*core.Record{}
		for name, payload := range payloads() {
			r := brokertest.NewRecord(topic, name, 1)
			r.Payload = payload
			want[r.EventID] = r
			deliver(t, broker, r)
		}
		config := watermillkafka.DefaultSaramaSubscriberConfig()
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		subscriber, err := watermillkafka.NewSubscriber(watermillkafka.SubscriberConfig{
			Brokers: c.config().Brokers, Unmarshaler: watermillkafka.DefaultMarshaler{}, OverwriteSaramaConfig: config,
		}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = subscriber.Close() }()
		messages, err := subscriber.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for range len(want) {
			m := <-messages
			if m == nil {
				t.Fatal("the subscription ended")
			}
			wantMessage(t, m, want[m.UUID])
			m.Ack()
			delete(want, m.UUID)
		}
		if len(want) > 0 {
			t.Errorf("%d messages did not arrive", len(want))
		}
	})
}

func wantMessage(t *testing.T, m *message.Message, r *core.Record) {
	t.Helper()
	if r == nil {
		t.Errorf("a message with the unknown UUID %q", m.UUID)
		return
	}
	if !bytes.Equal(m.Payload, r.Payload) {
		t.Errorf("payload %q, want %q", m.Payload, r.Payload)
	}
	metadata := map[string]string{}
	for name, value := range r.WireHeaders() {
		metadata[name] = value
	}
	if !maps.Equal(m.Metadata, metadata) {
		t.Errorf("metadata %v, want %v", m.Metadata, metadata)
	}
}
