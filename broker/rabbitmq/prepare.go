package rabbitmq

import (
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// headerUUID is where Watermill's AMQP marshaler keeps a message's UUID; its other headers are the metadata.
const headerUUID = "_watermill_message_uuid"

// headerContentType is the user's header that becomes the property as well.
const headerContentType = "content-type"

// publication is a message as it goes to the server.
type publication struct {
	exchange, token string
	message         amqp.Publishing
	headerFrame     int // bytes of the frame with all properties and headers
}

// publicationOf returns what Prepare made.
func publicationOf(p *core.Prepared) *publication {
	return p.Native.(*publication) //nolint:errcheck // another broker's message would be a fault of the caller
}

// Prepare encodes the record: the exchange is the strategy's destination, the routing key its token, the body the
// payload. Headers are those of [core.Record.WireHeaders] and Watermill's UUID; message id, type, timestamp and content
// type are those of the event.
//
// It refuses what would close a channel or a connection, or would be cut: exchange names that RabbitMQ does not allow,
// names and properties of more than 255 bytes, headers that RabbitMQ reads itself (CC, BCC, x-death), headers that do
// not fit into one frame, payloads larger than Config.MaxMessageBytes.
func (b *Broker) Prepare(r *core.Record) (core.Prepared, error) {
	route, err := b.strategies.of(r.Topic).Route(ordering.Input{
		Topic: r.Topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID, EventID: r.EventID,
	})
	if err != nil {
		return core.Prepared{}, refuse("NO_ROUTE", "event %q: %w", r.EventID, err)
	}
	if reason := badExchangeName(route.Destination); reason != "" {
		return core.Prepared{}, refuse("INVALID_TOPIC", "event %q: the exchange name %q %s",
			r.EventID, route.Destination, reason)
	}
	p := newPublication(r, route, b.config.Transient)
	if reason := badProperties(p); reason != "" {
		return core.Prepared{}, refuse("INVALID_PROPERTY", "event %q for topic %q: %s", r.EventID, r.Topic, reason)
	}
	if size := len(r.Payload); size > b.config.MaxMessageBytes {
		return core.Prepared{}, refuse("MESSAGE_TOO_LARGE", "event %q for topic %q has a payload of %d bytes, "+
			"the limit MaxMessageBytes is %d", r.EventID, r.Topic, size, b.config.MaxMessageBytes)
	}
	if limit := int(b.frameMax.Load()); p.headerFrame > limit {
		return core.Prepared{}, headersTooLarge(p, limit)
	}
	return core.Prepared{
		Record: r, Destination: route.Destination, Bytes: p.headerFrame + len(r.Payload), Native: p,
	}, nil
}

// refuse is the error for what can never be published.
func refuse(code, format string, args ...any) error {
	return &core.PublishError{
		Class: core.ClassPermanent, Scope: core.ScopeMessage, Code: code,
		Err: fmt.Errorf("rabbitmq: "+format, args...),
	}
}

func headersTooLarge(p *publication, limit int) error {
	return refuse("HEADERS_TOO_LARGE", "event %q for topic %q has headers of %d bytes, which must fit into one frame of "+
		"%d (frame_max)", p.message.MessageId, p.exchange, p.headerFrame, limit)
}

func newPublication(r *core.Record, route ordering.Route, transient bool) *publication {
	headers := make(amqp.Table, len(r.Headers)+7)
	headers[headerUUID] = r.EventID
	for name, value := range r.WireHeaders() {
		headers[name] = value
	}
	mode := amqp.Persistent
	if transient {
		mode = amqp.Transient
	}
	p := &publication{exchange: route.Destination, token: route.Token, message: amqp.Publishing{
		Headers: headers, ContentType: r.Headers[headerContentType], DeliveryMode: mode,
		MessageId: r.EventID, Type: r.EventType, Timestamp: r.CreatedAt, Body: r.Payload,
	}}
	p.headerFrame = headerFrameBytes(p)
	return p
}

// headerFrameBytes is the size of the frame with the properties, as AMQP writes it, or a few bytes more.
func headerFrameBytes(p *publication) int {
	const (
		frame      = 8              // type, channel, size, end
		fixed      = 2 + 2 + 8 + 2  // class, weight, body size, flags
		properties = 4 + 1 + 8 + 12 // size of the table, delivery mode, timestamp, lengths of the texts
		perHeader  = 1 + 1 + 4      // length of the name, kind of the value, length of the value
	)
	size := frame + fixed + properties + len(p.message.ContentType) + len(p.message.MessageId) + len(p.message.Type)
	for name, value := range p.message.Headers {
		text, _ := value.(string)
		size += perHeader + len(name) + len(text)
	}
	return size
}

// badProperties says what AMQP or RabbitMQ have against names and properties, or returns "". The user id and the
// expiration, by which a message can close a channel too, are never set.
func badProperties(p *publication) string {
	for _, text := range []struct{ what, value string }{
		{"the routing key", p.token},
		{"the event id", p.message.MessageId},
		{"the event type", p.message.Type},
		{"the header content-type", p.message.ContentType},
	} {
		if len(text.value) > maxShortString {
			return fmt.Sprintf("%s has %d bytes, the limit is %d", text.what, len(text.value), maxShortString)
		}
	}
	for name := range p.message.Headers {
		switch {
		case name == "" || len(name) > maxShortString:
			return fmt.Sprintf("the name of header %.40q has %d bytes, it must have 1 to %d", name, len(name), maxShortString)
		// RabbitMQ sends copies where CC and BCC say and closes the channel when they are texts; x-death is its own
		// list of what happened to a dead letter.
		case name == "CC", name == "BCC", strings.EqualFold(name, "x-death"):
			return fmt.Sprintf("the header name %q is read by RabbitMQ: use another", name)
		}
	}
	return ""
}
