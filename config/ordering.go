package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-outbox/outbox/ordering"
)

// Ordering names a strategy of package ordering in a file: "ordering: {strategy: record_key}".
type Ordering string

// The strategies. Their settings are keys beside "strategy": hash and partitions, count and generation.
const (
	// OrderingRecordKey is [ordering.RecordKey].
	OrderingRecordKey Ordering = "record_key"
	// OrderingShards is [ordering.Shards].
	OrderingShards Ordering = "shards"
	// OrderingMessageGroup is [ordering.MessageGroup].
	OrderingMessageGroup Ordering = "message_group"
	// OrderingNone is [ordering.None].
	OrderingNone Ordering = "none"
)

// strategy returns the zero value of the strategy and what a broker needs to keep it.
func (o Ordering) strategy() (value ordering.Strategy, needs string) {
	switch o {
	case OrderingRecordKey:
		return ordering.RecordKey{}, "partitions that a record key chooses, as Kafka has them"
	case OrderingShards:
		return ordering.Shards{}, "queues bound by shard, as RabbitMQ has them"
	case OrderingMessageGroup:
		return ordering.MessageGroup{}, "message groups, as FIFO queues of SQS have them"
	case OrderingNone:
		return ordering.None{}, "nothing"
	default:
		return nil, ""
	}
}

// orderingOf names a strategy; one of the user's own has no name here.
func orderingOf(strategy ordering.Strategy) Ordering {
	for _, o := range allOrderings() {
		if value, _ := o.strategy(); reflect.TypeOf(value) == reflect.TypeOf(strategy) {
			return o
		}
	}
	return ""
}

func allOrderings() []Ordering {
	return []Ordering{OrderingRecordKey, OrderingShards, OrderingMessageGroup, OrderingNone}
}

const strategyKey = "strategy"

// orderingShape has the settings of all strategies that a broker can keep.
func orderingShape(orderings []Ordering) *shape {
	s := record(field{key: strategyKey, shape: stringShape()})
	s.orderings = orderings
	for _, o := range orderings {
		if value, _ := o.strategy(); value != nil {
			s.fields = append(s.fields, shapeOf(reflect.TypeOf(value), nil).fields...)
		}
	}
	return s
}

// ordering sets a strategy from its block.
func (d *decoder) ordering(n *node, s *shape, path string, into reflect.Value) {
	named := n.get(strategyKey)
	if named == nil || named.kind != scalarNode {
		d.faults.add(n.from, join(path, strategyKey), "is missing; use %s", either(s.orderings))
		return
	}
	if named.unread {
		return
	}
	strategy := Ordering(named.text)
	value, needs := strategy.strategy()
	switch {
	case value == nil:
		d.faults.add(named.from, join(path, strategyKey), "%q is unknown; use %s", named.raw, either(s.orderings))
		return
	case !slices.Contains(s.orderings, strategy):
		d.faults.add(named.from, join(path, strategyKey), "this broker cannot keep the order by %s, which needs %s; use %s",
			strategy, needs, either(s.orderings))
		return
	}
	settings := shapeOf(reflect.TypeOf(value), nil)
	chosen := reflect.New(settings.typ).Elem()
	for _, e := range n.entries {
		below := join(path, e.key)
		f, known := settings.field(e.key)
		_, elsewhere := s.field(e.key)
		switch {
		case known:
			d.decode(e.value, f.shape, below, chosen.FieldByIndex(f.index))
		case !elsewhere:
			d.unknown(e, s, path)
		case e.key != strategyKey:
			d.faults.add(e.at, below, "has no meaning with the strategy %s", strategy)
		}
	}
	into.Set(chosen)
}

// either lists names as "a, b or c".
func either[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
