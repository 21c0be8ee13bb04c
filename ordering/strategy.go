package ordering

import "fmt"

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
