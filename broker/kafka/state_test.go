package kafka

import (
	"bytes"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestIdentityCounts(t *testing.T) {
	t.Parallel()
	id := identity{producer: 1, sequence: math.MaxInt32 - 1}
	id.stored(1)
	if id.sequence != math.MaxInt32 {
		t.Errorf("sequence %d, want %d", id.sequence, math.MaxInt32)
	}
	id.stored(3)
	if id.sequence != 2 { // MaxInt32, 0, 1 were used
		t.Errorf("sequence %d after the wrap, want 2", id.sequence)
	}
	unnamed := nobody()
	if unnamed.stored(3); unnamed != nobody() {
		t.Error("without idempotence there is nothing to count")
	}
}

func TestFence(t *testing.T) {
	t.Parallel()
	p := newProducers(nil)
	p.newest = identity{producer: 1}
	fenced := p.fence(identity{producer: 1, sequence: 2})
	if fenced != (identity{producer: 1, epoch: 1}) || p.next(identity{producer: 1, sequence: 9}) != fenced {
		t.Errorf("fenced: %+v", fenced)
	}
	if other := (identity{producer: 2, sequence: 9}); p.next(other) != other {
		t.Error("another producer id takes over the epoch")
	}
	if id := p.fence(identity{producer: 1, epoch: math.MaxInt16}); id.producer >= 0 {
		t.Error("no new producer id after the last epoch")
	}
	if p.fence(nobody()) != nobody() {
		t.Error("nobody is fenced")
	}
	if id, err := p.renew(t.Context(), identity{producer: 7}); err != nil || id != fenced {
		t.Errorf("another producer id than the refused one is there, got %+v: %v", id, err)
	}
}

// The repeat of a batch is the same to the byte, also when another partition has begun a new epoch.
func TestRepeatIsTheSame(t *testing.T) {
	t.Parallel()
	p := newProducers(nil)
	p.newest = identity{producer: 1}
	c := &call{Broker: &Broker{config: Config{}.WithDefaults(), producers: p}}
	s := &share{partition: newPartition(0), data: make([]byte, batchOverhead)}
	s.partition.identity = p.newest
	identify := func() []byte {
		if err := c.identify(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(s.data)
	}
	first := identify()
	p.fence(identity{producer: 1})
	if !bytes.Equal(first, identify()) {
		t.Error("the repeat differs")
	}
	s.stamped = false // the next batch
	if bytes.Equal(first, identify()) || s.partition.identity.epoch != 1 {
		t.Error("the next batch does not take over the new epoch")
	}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	config := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.WithDefaults()
	ts := newTopics(nil, config)
	answer := func(id byte, leaders ...int32) *kmsg.MetadataResponseTopic {
		a := kmsg.NewMetadataResponseTopic()
		a.TopicID[0] = id
		for i, leader := range leaders {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader = int32(len(leaders)-1-i), leader // brokers answer in any order
			a.Partitions = append(a.Partitions, p)
		}
		return &a
	}
	orders := ts.named("orders")
	first := ts.merge(orders, nil, answer(1, 12, 11, 10))
	for i, p := range first.partitions {
		if p.index != int32(i) || p.leader.Load() != int32(10+i) {
			t.Errorf("partition %d: index %d, leader %d", i, p.index, p.leader.Load())
		}
	}
	moved := ts.merge(orders, first, answer(1, 22, 21, 20))
	if !slices.Equal(moved.partitions, first.partitions) || first.partitions[0].leader.Load() != 20 {
		t.Error("the same topic has other partitions, or the leader has not moved")
	}
	if log.Len() > 0 {
		t.Errorf("a warning for nothing: %s", log.String())
	}
	grown := ts.merge(orders, moved, answer(1, 1, 1, 1, 1))
	if len(grown.partitions) != 4 || grown.partitions[2] != first.partitions[2] {
		t.Error("a topic that grew does not keep its partitions")
	}
	if !strings.Contains(log.String(), "partitions=4 partitions_before=3") {
		t.Errorf("no warning: %q", log.String())
	}
	log.Reset()
	anew := ts.merge(orders, grown, answer(2, 1, 1, 1, 1))
	if anew.partitions[0] == first.partitions[0] || log.Len() > 0 {
		t.Error("a topic that was created again has the old partitions")
	}
}
