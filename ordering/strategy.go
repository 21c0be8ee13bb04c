package ordering

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Route is where a [Strategy] sends one message at the broker.
type Route struct {
	// Destination is the physical address: a topic, an exchange, a queue URL. It depends on the topic alone, so that
	// a destination in trouble is the trouble of one topic.
	Destination string
	// Token is what keeps the messages of one key in order there: a record key, a shard routing key, a message group.
	// Empty means that the broker gives no order.
	Token string
}

// Input is all that a Strategy may look at.
type Input struct {
	// Topic is the topic the message goes to, never empty.
	Topic string
	// AggregateType and AggregateID name the aggregate.
	AggregateType, AggregateID string
	// EventID is the id of the event, the same in every attempt.
	EventID string
}

// Strategy maps a topic and a key to a [Route]. Implementations are deterministic, do no I/O and are safe for
// concurrent use. Each broker adapter has its own default.
type Strategy interface {
	// Route returns where the message goes. An error is permanent for that message: it is parked with the reason.
	Route(Input) (Route, error)
	// Fingerprint names the mapping from keys to tokens, with everything that changes it (hash, number of shards).
	// Two dispatchers with different fingerprints must not publish the same topic at the same time.
	Fingerprint() string
}

// HashName names the function by which a Kafka producer picks the partition of a record key.
type HashName string

// The partition hashes. A topic must keep the hash it was started with: another one moves keys to other partitions.
const (
	// Murmur2 is the default of the Java client and of franz-go; keys are co-partitioned with Kafka Streams and ksqlDB.
	Murmur2 HashName = "murmur2"
	// FNV1a is the default of the Go client sarama, and so of Watermill.
	FNV1a HashName = "fnv1a"
	// CRC32 is "consistent_random", the default of librdkafka.
	CRC32 HashName = "crc32"
)

// RecordKey orders by partition key: the token is the aggregate id, which a Kafka producer hashes to a partition.
// The zero value is ready to use.
type RecordKey struct {
	// Hash picks the partition; empty means [Murmur2].
	Hash HashName
	// Partitions pins the number of partitions that keys are spread over, so that adding partitions to a topic moves
	// no key. 0 means all the partitions that the topic has.
	Partitions int
}

// Route sends the message to its topic under its aggregate id.
func (RecordKey) Route(in Input) (Route, error) {
	return Route{Destination: in.Topic, Token: in.AggregateID}, nil
}

// Fingerprint is for example "record-key/v1:murmur2" or, pinned, "record-key/v1:murmur2:p12".
func (s RecordKey) Fingerprint() string {
	hash := s.Hash
	if hash == "" {
		hash = Murmur2
	}
	if s.Partitions == 0 {
		return "record-key/v1:" + string(hash)
	}
	return fmt.Sprintf("record-key/v1:%s:p%d", hash, s.Partitions)
}

// Validate reports an unknown hash or a negative number of partitions.
func (s RecordKey) Validate() error {
	switch s.Hash {
	case "", Murmur2, FNV1a, CRC32:
	default:
		return fmt.Errorf("hash: unknown %q; use %s, %s or %s", s.Hash, Murmur2, FNV1a, CRC32)
	}
	if s.Partitions < 0 {
		return fmt.Errorf("partitions: %d is negative; 0 means all partitions of the topic", s.Partitions)
	}
	return nil
}

// None asks the broker for no order: messages are spread as the broker likes.
type None struct{}

// Route sends the message to its topic without a token.
func (None) Route(in Input) (Route, error) { return Route{Destination: in.Topic}, nil }

// Fingerprint is "none/v1".
func (None) Fingerprint() string { return "none/v1" }

// Defaults and limits of [Shards].
const (
	// DefaultShards is how many virtual shards a topic has: enough to spread over many queues later, few enough to
	// list their bindings.
	DefaultShards = 256
	// MaxShards bounds Shards.Count.
	MaxShards = 65536
)

// Shards orders by shard, for brokers whose unit of order is a queue: the token is the generation and the virtual
// shard of the aggregate, for example "1.42". A consumer group binds the virtual shards to as many queues as it likes.
// The zero value is ready to use.
type Shards struct {
	// Count is the number of virtual shards; 0 means [DefaultShards]. Fixed within one generation.
	Count int
	// Generation is raised by one whenever Count changes, so that the shards of the old count and of the new one are
	// told apart; 0 means 1.
	Generation int
}

// WithDefaults returns a copy with defaults in place of zero fields.
func (s Shards) WithDefaults() Shards {
	if s.Count == 0 {
		s.Count = DefaultShards
	}
	if s.Generation == 0 {
		s.Generation = 1
	}
	return s
}

// Route sends the message to its topic under its generation and virtual shard.
func (s Shards) Route(in Input) (Route, error) {
	s = s.WithDefaults()
	return Route{Destination: in.Topic, Token: s.Token(Lane(in.AggregateType, in.AggregateID, s.Count))}, nil
}

// Token is the token of a virtual shard, from 0 to Count-1.
func (s Shards) Token(shard int) string {
	return strconv.Itoa(s.WithDefaults().Generation) + "." + strconv.Itoa(shard)
}

// Fingerprint is for example "shards/v1:256:g1".
func (s Shards) Fingerprint() string {
	s = s.WithDefaults()
	return fmt.Sprintf("shards/v1:%d:g%d", s.Count, s.Generation)
}

// Validate reports a count or a generation out of range.
func (s Shards) Validate() error {
	if s.Count < 0 || s.Count > MaxShards {
		return fmt.Errorf("count: %d is not between 1 and %d", s.Count, MaxShards)
	}
	if s.Generation < 0 {
		return fmt.Errorf("generation: %d is negative", s.Generation)
	}
	return nil
}

// maxGroupBytes is SQS's limit of a message group id.
const maxGroupBytes = 128

// MessageGroup orders by message group, as SQS FIFO queues do: the token is the aggregate id where that is a legal
// group id (1 to 128 visible ASCII characters), and otherwise "h." and the hexadecimal SHA-256 of it. An id that
// begins with "h." is hashed too, so that no two aggregates get the same group.
type MessageGroup struct{}

// Route sends the message to its topic under its group.
func (MessageGroup) Route(in Input) (Route, error) {
	return Route{Destination: in.Topic, Token: group(in.AggregateID)}, nil
}

// Fingerprint is "message-group/v1".
func (MessageGroup) Fingerprint() string { return "message-group/v1" }

func group(id string) string {
	legal := id != "" && len(id) <= maxGroupBytes && !strings.HasPrefix(id, "h.")
	for i := 0; legal && i < len(id); i++ {
		legal = id[i] > ' ' && id[i] <= '~'
	}
	if legal {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "h." + hex.EncodeToString(sum[:])
}
