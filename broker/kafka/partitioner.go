package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"

	"github.com/go-outbox/outbox/ordering"
)

// partitioner picks the partition of a record key, as other clients of the same topic do.
type partitioner struct {
	hash func(key []byte, partitions int) int
	pin  int // partitions to spread keys over; 0 means all
}

func newPartitioner(strategy ordering.Strategy) partitioner {
	recordKey, _ := strategy.(ordering.RecordKey)
	p := partitioner{pin: recordKey.Partitions}
	switch recordKey.Hash {
	case ordering.FNV1a:
		p.hash = saramaPartition
	case ordering.CRC32:
		p.hash = librdkafkaPartition
	default:
		p.hash = javaPartition
	}
	return p
}

// spread is how many partitions of a topic are used: all, but no more than one of the limits that is not 0.
func spread(partitions int, limits ...int) int {
	for _, limit := range limits {
		if limit > 0 {
			partitions = min(partitions, limit)
		}
	}
	return partitions
}

// javaPartition is the default of the Java client: murmur2 without its sign.
func javaPartition(key []byte, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// saramaPartition is the default of sarama: FNV-1a as a signed number, negated if negative after the division.
func saramaPartition(key []byte, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write(key)
	p := int32(h.Sum32()) % int32(partitions) //nolint:gosec // the sign is part of the rule; partitions are few
	return int(max(p, -p))
}

// librdkafkaPartition is "consistent_random", the default of librdkafka.
func librdkafkaPartition(key []byte, partitions int) int {
	return int(crc32.ChecksumIEEE(key) % uint32(partitions)) //nolint:gosec // partitions are few
}

// murmur2 is the 32-bit MurmurHash2 with the seed of the Java client.
func murmur2(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data)) //nolint:gosec // a record key is short
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		h = h*m ^ (k^k>>r)*m
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
