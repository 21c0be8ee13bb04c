package ordering

import (
	"crypto/md5" //nolint:gosec // a stable spread that SQL can compute too; nothing secret depends on it
	"encoding/binary"
)

// Key is the unit of order: the events of one key reach the broker in the order in which they were committed. Events
// of different keys have no order.
type Key struct {
	// Topic is the topic as stored with the event; empty when the topic comes from configuration.
	Topic string
	// AggregateType names the kind of aggregate, for example "order".
	AggregateType string
	// AggregateID names the aggregate within its type.
	AggregateID string
}

// String returns the key for logs and error texts, for example "orders order/ord_1".
func (k Key) String() string {
	if k.Topic == "" {
		return k.AggregateType + "/" + k.AggregateID
	}
	return k.Topic + " " + k.AggregateType + "/" + k.AggregateID
}

// Hash spreads aggregates evenly and never changes: the first 15 hexadecimal digits (60 bits, so that it is positive
// in every database) of the MD5 of the aggregate type, a slash and the aggregate id.
//
// The same number in SQL:
//
//	PostgreSQL  ('x0' || substr(md5(aggregate_type || '/' || aggregate_id), 1, 15))::bit(64)::bigint
//	MySQL       conv(substr(md5(concat(aggregate_type, '/', aggregate_id)), 1, 15), 16, 10)
func Hash(aggregateType, aggregateID string) uint64 {
	var stack [128]byte
	text := append(stack[:0], aggregateType...)
	text = append(text, '/')
	text = append(text, aggregateID...)
	sum := md5.Sum(text) //nolint:gosec // see the import
	return binary.BigEndian.Uint64(sum[:8]) >> 4
}

// Lane is the lane of an aggregate in a store of so many lanes: [Hash] modulo lanes. It panics when lanes is not
// positive.
func Lane(aggregateType, aggregateID string, lanes int) int {
	return int(Hash(aggregateType, aggregateID) % uint64(lanes)) //nolint:gosec // lanes is a small positive number
}
