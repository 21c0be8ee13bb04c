package brokertest

import (
	"time"

	"github.com/go-outbox/outbox/core"
)

// Harness says how one kind of broker is tested.
type Harness struct {
	// Start makes a server, or a corner of one, for one case. It registers its cleanup with t. Required.
	Start func(t T) Server
	// TellsNilFromEmpty declares that a nil payload is read back as nil and an empty one as empty. Without it both
	// have to come back as the same. Either way it is checked.
	TellsNilFromEmpty bool
	// Token is what keeps a record's key together at the broker, as Read shows it. Nil checks only that messages of
	// one key have the same token.
	Token func(*core.Record) string
	// Oversize is the payload size in bytes from which on Prepare must refuse a record; half of it must be accepted.
	// 0 means that the broker has no limit.
	Oversize int
	// Serial runs the cases one after the other: for faults that hit a whole server.
	Serial bool
	// Timeout is the time given to calls that cannot succeed: long enough for a request to reach the server. 0 means
	// 300 ms.
	Timeout time.Duration
	// Soon is the time within which a call must return once its context has ended. 0 means 1 s.
	Soon time.Duration
	// Patience bounds the wait for what must happen, such as a reconnect; right brokers do not use it up. 0 means 10 s.
	Patience time.Duration
}

// Server is the server side of one case: topics, an independent reader and faults. The kit calls these functions from
// one goroutine, except Cut, which it also calls while a call is in progress. What is nil is not available, and the
// cases that need it are skipped.
type Server struct {
	// Open returns a new broker for this server; the kit closes it. A case may open more than one. Required.
	Open func() (core.Broker, error)
	// Topic returns the name of a new, empty topic that is ready to be published to. Required.
	Topic func() string
	// Read returns everything that was stored for a topic until now, repeats included, read by another client than the
	// broker under test; messages with the same token are in the order in which they were stored. It is called more
	// than once for a topic and always starts from the beginning: where reading consumes, remember what was read.
	// Required.
	Read func(topic string) []Message

	// MissingTopic returns the name of a topic that does not exist at the server. Nil where any name exists.
	MissingTopic func() string
	// CreateTopic makes a topic that MissingTopic returned.
	CreateTopic func(topic string)

	// Refuse makes the server refuse the next n publish requests with an error that passes; 0 ends it.
	Refuse func(n int)
	// RefuseMessage makes the server refuse one single message with an error that passes: the one at index k of the
	// next publish request, while it takes those around it as it would in a real failure. Less than 0 ends it. Nil where
	// a server answers for whole requests only.
	RefuseMessage func(k int)
	// LoseReply makes the server carry out the next n publish requests but lose their answer, for example by cutting
	// the connection instead; 0 ends it.
	LoseReply func(n int)
	// Cut cuts the connections of the brokers now. They can connect again at once.
	Cut func()
	// Hang swallows what brokers send from now on, as a network that drops every packet does. Caught is closed (or
	// gets a value) once something was swallowed. Release ends it: what was swallowed now reaches the server, except
	// what came over a connection that the broker has closed since. Release can be called twice.
	Hang func() (caught <-chan struct{}, release func())
	// Down makes the server unreachable, Up makes it reachable again with all that was stored.
	Down, Up func()
}

// Message is what the independent reader sees of one message.
type Message struct {
	// Token is what keeps the messages of a key together: record key, group id, routing key.
	Token string
	// Payload is the body, byte for byte as it was enqueued: a reader undoes an encoding that the adapter documents.
	Payload []byte
	// Headers are all headers; those that the protocol adds do no harm.
	Headers map[string]string
}

// eventID is the id of the event, as consumers recognise repeats.
func (m Message) eventID() string { return m.Headers[core.HeaderEventID] }

func (h Harness) withDefaults() Harness {
	h.Timeout = orElse(h.Timeout, 300*time.Millisecond)
	h.Soon = orElse(h.Soon, time.Second)
	h.Patience = orElse(h.Patience, 10*time.Second)
	return h
}

func orElse(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}
