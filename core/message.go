package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a [Message], in bytes. They hold for every store and broker; a broker may have tighter ones of its own,
// which it reports for the message concerned ([Broker].Prepare).
const (
	// MaxEventIDBytes bounds Message.EventID.
	MaxEventIDBytes = 128
	// MaxTopicBytes bounds Message.Topic: Kafka's limit, the tightest of the brokers.
	MaxTopicBytes = 249
	// MaxTypeBytes bounds Message.AggregateType and Message.EventType.
	MaxTypeBytes = 255
	// MaxAggregateIDBytes bounds Message.AggregateID.
	MaxAggregateIDBytes = 1024
)

// Message is an event as a user enqueues it.
type Message struct {
	// EventID identifies the event for ever: repeats at the broker carry the same id, and enqueuing an id a second
	// time is a no-op while its row exists. Empty means a new UUIDv7 ([NewEventID]). At most MaxEventIDBytes.
	EventID string
	// Topic is where the event goes. Empty means that the dispatcher's Config.Route decides, by default the
	// aggregate type. At most MaxTopicBytes.
	Topic string
	// AggregateType names the kind of thing the event is about, for example "order". Required, at most MaxTypeBytes.
	AggregateType string
	// AggregateID names the thing itself, for example "ord_1". Events of one aggregate keep their order. Required, at
	// most MaxAggregateIDBytes.
	AggregateID string
	// EventType says what happened, for example "order.created"; it travels as a header. Required, at most
	// MaxTypeBytes.
	EventType string
	// Payload is the body. Nil and empty are different: nil becomes a tombstone on Kafka. A table that holds JSON
	// takes nil or valid JSON only. The store copies it before Enqueue returns.
	Payload []byte
	// Headers travel with the message: schema_version, traceparent, tenant and the like. Names are not empty, names
	// and values are valid UTF-8 without NUL; the names that [Record.WireHeaders] writes are reserved.
	Headers map[string]string
}

// Enqueuer writes messages into the outbox inside one transaction of the caller. Stores return one for a transaction,
// for example sqlite's store.In(tx). It is as safe for concurrent use as the transaction is: usually not.
type Enqueuer interface {
	// Enqueue writes the messages in this order and returns their event ids, one for each. All faults of all messages
	// are reported at once (an *[InvalidMessageError] for each, joined) before anything is sent to the database, so
	// that the transaction stays usable. A message whose EventID is already there is not written again; when the one
	// that is there has another key or event type, the error is an *[EventConflictError]. Nothing is dispatched
	// before the transaction commits, and nothing ever if it rolls back.
	Enqueue(ctx context.Context, messages ...Message) (eventIDs []string, err error)
}

// Validate reports everything wrong with the message: an *[InvalidMessageError] for each fault, joined, or nil.
func (m *Message) Validate() error {
	var faults []error
	bad := func(field, reason string) {
		faults = append(faults, &InvalidMessageError{EventID: printable(m.EventID), Field: field, Reason: reason})
	}
	text := func(field, value string, limit int, required bool) {
		switch {
		case value == "" && required:
			bad(field, "is required")
		case len(value) > limit:
			bad(field, fmt.Sprintf("has %d bytes, the limit is %d", len(value), limit))
		default:
			if reason := notText(value); reason != "" {
				bad(field, reason)
			}
		}
	}
	text("EventID", m.EventID, MaxEventIDBytes, false)
	text("Topic", m.Topic, MaxTopicBytes, false)
	text("AggregateType", m.AggregateType, MaxTypeBytes, true)
	text("AggregateID", m.AggregateID, MaxAggregateIDBytes, true)
	text("EventType", m.EventType, MaxTypeBytes, true)
	for name, value := range m.Headers {
		field := fmt.Sprintf("Headers[%q]", printable(name))
		switch {
		case name == "":
			bad(field, "has an empty name")
		case IsReservedHeader(name):
			bad(field, "is a name that the outbox writes itself")
		}
		if reason := notText(name); reason != "" {
			bad(field, "name "+reason)
		}
		if reason := notText(value); reason != "" {
			bad(field, "value "+reason)
		}
	}
	return errors.Join(faults...)
}

// ValidateAll validates messages before a store writes them and fills in the missing event ids. It returns a copy of
// the slice and every fault of every message, joined, each naming the index of its message. Stores call it first in
// Enqueue; extra, when not nil, adds the store's own rule for one message (for example: the payload is JSON).
func ValidateAll(messages []Message, extra func(*Message) error) ([]Message, error) {
	valid := make([]Message, len(messages))
	var faults []error
	for i := range messages {
		valid[i] = messages[i]
		m := &valid[i]
		if m.EventID == "" {
			m.EventID = NewEventID()
		}
		err := m.Validate()
		if extra != nil {
			err = errors.Join(err, extra(m))
		}
		if err != nil {
			faults = append(faults, indexFaults(i, err)...)
		}
	}
	return valid, errors.Join(faults...)
}

// indexFaults writes the message's index into each fault of it.
func indexFaults(index int, err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, indexFaults(index, e)...)
		}
		return all
	}
	var fault *InvalidMessageError
	if errors.As(err, &fault) {
		fault.Index = index
	}
	return []error{err}
}

// notText says why a string cannot be a name or a header value, or returns "".
func notText(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL character"
	}
	return ""
}
