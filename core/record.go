package core

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// Record is a stored message as a [Store] hands it out. The dispatcher owns it from then on; Store and Broker keep no
// reference once a call that got it has returned, except where a Broker documents it.
type Record struct {
	Message
	// ID is the position in the table: unique, positive, and growing in the order in which the events of one key were
	// committed. Never reused for another event while the first one's row exists.
	ID int64
	// Lane is the lane of the aggregate.
	Lane int
	// CreatedAt is when the row was written, by the store's clock.
	CreatedAt time.Time
	// Attempts is how many failed attempts were charged so far.
	Attempts int
	// FirstFailedAt is when the first of them failed; zero when none did.
	FirstFailedAt time.Time
	// Delay is how long after the fetch the next attempt is due, by the store's clock; zero or less means now,
	// [Forever] that the record is blocked.
	Delay time.Duration
	// Replay counts how often a person sent the event again; brokers that de-duplicate salt their id with it.
	Replay int
	// Origin is the store's own mark for the server incarnation the record was read from, echoed in [Store].Settle.
	// The dispatcher never looks at it.
	Origin uint64

	storedTopic string
	routed      bool
}

// Key returns the record's unit of order: the topic as stored, the aggregate's type and id.
func (r *Record) Key() ordering.Key {
	topic := r.Topic
	if r.routed {
		topic = r.storedTopic
	}
	return ordering.Key{Topic: topic, AggregateType: r.AggregateType, AggregateID: r.AggregateID}
}

// route sets the topic that configuration chose, and keeps the stored one for Key.
func (r *Record) route(topic string) {
	r.storedTopic, r.routed = r.Topic, true
	r.Topic = topic
}

// Size is about how many bytes the record takes on the way: payload, headers and names. Byte budgets count it.
func (r *Record) Size() int {
	n := len(r.Payload) + len(r.EventID) + len(r.Topic) + len(r.AggregateType) + len(r.AggregateID) + len(r.EventType)
	for name, value := range r.Headers {
		n += len(name) + len(value)
	}
	return n
}

// The headers that the outbox writes beside the user's own ([Record.WireHeaders]).
const (
	// HeaderEventID carries Message.EventID, by which consumers recognise repeats.
	HeaderEventID = "event_id"
	// HeaderOutboxID carries Record.ID in decimal: within one key it grows in commit order.
	HeaderOutboxID = "outbox_id"
	// HeaderEventType carries Message.EventType.
	HeaderEventType = "event_type"
	// HeaderAggregateType carries Message.AggregateType.
	HeaderAggregateType = "aggregate_type"
	// HeaderAggregateID carries Message.AggregateID.
	HeaderAggregateID = "aggregate_id"
	// HeaderReplay carries Record.Replay in decimal; absent when the event was never sent again by a person.
	HeaderReplay = "outbox_replay"
)

// IsReservedHeader reports whether a header name is written by the outbox itself or by Watermill (names that begin
// with "_watermill_"), so that a user's header of that name would be ambiguous.
func IsReservedHeader(name string) bool {
	switch name {
	case HeaderEventID, HeaderOutboxID, HeaderEventType, HeaderAggregateType, HeaderAggregateID, HeaderReplay:
		return true
	}
	return strings.HasPrefix(name, "_watermill_")
}

// WireHeaders yields the headers of the message as it goes to a broker, in a fixed order: first those of the outbox,
// then the user's by name. Broker adapters write these and their own protocol's.
func (r *Record) WireHeaders() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if !yield(HeaderEventID, r.EventID) ||
			!yield(HeaderOutboxID, strconv.FormatInt(r.ID, 10)) ||
			!yield(HeaderEventType, r.EventType) ||
			!yield(HeaderAggregateType, r.AggregateType) ||
			!yield(HeaderAggregateID, r.AggregateID) {
			return
		}
		if r.Replay > 0 && !yield(HeaderReplay, strconv.Itoa(r.Replay)) {
			return
		}
		if len(r.Headers) == 1 {
			for name, value := range r.Headers {
				yield(name, value)
			}
			return
		}
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			if !yield(name, r.Headers[name]) {
				return
			}
		}
	}
}
