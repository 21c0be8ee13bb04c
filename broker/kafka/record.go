package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// headerUUID is where Watermill's Kafka marshaler keeps a message's UUID; its other headers are the metadata.
const headerUUID = "_watermill_message_uuid"

// record is a record in Kafka's format, except for what depends on its place in a batch: length and offset.
//
// A record carries no timestamp of its own: the batch has the time of publishing. The time at which the row was
// written would make retention and time indexes act on the past (a backlog of a week would be deleted at once), and
// brokers can refuse it as INVALID_TIMESTAMP.
type record struct {
	body     []byte // key, value and headers as Kafka writes them
	key      []byte // the part of body that is the key
	hasKey   bool
	wireSize int // bytes in a batch, at most
}

// recordOf returns what Prepare made.
func recordOf(p *core.Prepared) *record {
	return p.Native.(*record) //nolint:errcheck // another broker's message would be a fault of the caller
}

// Prepare encodes the record: the key is the strategy's token, the value the payload (nil stays nil, a tombstone), and
// the headers are those of [core.Record.WireHeaders] and Watermill's UUID. What it refuses: topic names that Kafka does
// not allow, and records larger than Config.MaxMessageBytes.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	route, err := b.config.Strategy.Route(ordering.Input{
		Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventID: r.EventID,
	})
	if err != nil {
		return core.Prepared{}, refuse("NO_ROUTE", "event %q: %w", r.EventID, err)
	}
	if reason := badTopicName(route.Destination); reason != "" {
		return core.Prepared{}, refuse("INVALID_TOPIC", "event %q: the topic name %q %s",
			r.EventID, route.Destination, reason)
	}
	native := newRecord(r, route.Token)
	if size := batchOverhead + native.wireSize; size > b.config.MaxMessageBytes {
		return core.Prepared{}, refuse("MESSAGE_TOO_LARGE",
			"event %q for topic %q has %d bytes with its headers, the limit MaxMessageBytes is %d",
			r.EventID, route.Destination, size, b.config.MaxMessageBytes)
	}
	return core.Prepared{Record: r, Destination: route.Destination, Bytes: native.wireSize, Native: native}, nil
}

// refuse is the error for what can never be published.
func refuse(code, format string, args ...any) error {
	return &core.PublishError{
		Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: code,
		Err: fmt.Errorf("kafka: "+format, args...),
	}
}

// newRecord encodes into one buffer.
func newRecord(r *core.Record, token string) *record {
	const (
		perHeader = 2 * binary.MaxVarintLen16
		ownNames  = 160 // the names of our own headers and the outbox id
	)
	body := make([]byte, 0, len(token)+r.Size()+len(r.EventID)+ownNames+(8+len(r.Headers))*perHeader)

	rec := &record{}
	if token == "" { // no key rather than an empty one: all empty keys would share a partition
		body = binary.AppendVarint(body, -1)
	} else {
		body = binary.AppendVarint(body, int64(len(token)))
		start := len(body)
		body = append(body, token...)
		rec.key, rec.hasKey = body[start:len(body):len(body)], true
	}
	if r.Payload == nil {
		body = binary.AppendVarint(body, -1)
	} else {
		body = binary.AppendVarint(body, int64(len(r.Payload)))
		body = append(body, r.Payload...)
	}
	// The count stands before the headers but is known after them; it nearly always takes the one byte kept for it.
	countAt := len(body)
	body = append(body, 0)
	body = appendHeader(body, headerUUID, r.EventID)
	count := int64(1)
	for name, value := range r.WireHeaders() {
		body = appendHeader(body, name, value)
		count++
	}
	var space [binary.MaxVarintLen64]byte
	encoded := binary.AppendVarint(space[:0], count)
	rec.body = slices.Replace(body, countAt, countAt+1, encoded...)
	rec.wireSize = recordSize(maxOffsetDelta, len(rec.body))
	return rec
}

func appendHeader(body []byte, name, value string) []byte {
	body = binary.AppendVarint(body, int64(len(name)))
	body = append(body, name...)
	body = binary.AppendVarint(body, int64(len(value)))
	return append(body, value...)
}

// badTopicName says what Kafka has against a topic name, or returns "".
func badTopicName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > core.MaxTopicBytes:
		return fmt.Sprintf("has %d bytes, the limit is %d", len(name), core.MaxTopicBytes)
	case name == "." || name == "..":
		return "is not allowed"
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return "may only have letters, digits, '.', '_' and '-'"
		}
	}
	return ""
}
