package sqsfake

import (
	"crypto/md5" //nolint:gosec // what the protocol demands; nothing secret depends on it
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"
)

// Attribute is a message attribute.
type Attribute struct {
	DataType    string
	StringValue string `json:",omitempty"`
	BinaryValue []byte `json:",omitempty"`
}

func (a Attribute) binary() bool { return strings.HasPrefix(a.DataType, "Binary") }

func (a Attribute) value() string {
	if a.binary() {
		return string(a.BinaryValue)
	}
	return a.StringValue
}

// Entry is one message as it is sent.
type Entry struct {
	ID              string               `json:"Id"`
	Body            string               `json:"MessageBody"`
	Attributes      map[string]Attribute `json:"MessageAttributes"`
	GroupID         string               `json:"MessageGroupId"`
	DeduplicationID string               `json:"MessageDeduplicationId"`
	DelaySeconds    int
}

// size is what counts against limits: the body, and names, types and values of the attributes.
func (e *Entry) size() int {
	n := len(e.Body)
	for name, a := range e.Attributes {
		n += len(name) + len(a.DataType) + len(a.value())
	}
	return n
}

// Message is a message as it is stored.
type Message struct {
	// ID is the message id that the server gave.
	ID string
	// Body is the body as it was sent.
	Body string
	// Attributes are the message attributes.
	Attributes map[string]Attribute
	// GroupID and DeduplicationID are empty in standard queues.
	GroupID, DeduplicationID string
	// SequenceNumber grows with each message of a FIFO queue.
	SequenceNumber string
	// SentAt is when it arrived.
	SentAt time.Time
}

// stored is a message that waits or is in flight.
type stored struct {
	Message
	visibleAt time.Time
	receives  int
	firstSeen time.Time
	handle    string
	deleted   bool
}

// inFlight says whether a consumer has it.
func (m *stored) inFlight(now time.Time) bool { return m.receives > 0 && m.visibleAt.After(now) }

func checksum(s string) string {
	sum := md5.Sum([]byte(s)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// attributesChecksum is the MD5 of attributes as SQS defines it: by name, each part with its length.
func attributesChecksum(attributes map[string]Attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var b []byte
	add := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s))) //nolint:gosec // bounded by the size of a request
		b = append(b, s...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		add(name)
		add(a.DataType)
		kind := byte(1)
		if a.binary() {
			kind = 2
		}
		b = append(b, kind)
		add(a.value())
	}
	return checksum(string(b))
}
