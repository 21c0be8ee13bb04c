package kafka_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// A topic that gets more partitions goes on with those it had until the fingerprint is asked for again.
func TestFingerprint_NoKeyMovesBeforeItIsAsked(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 3, nil)
	broker := open(t, c.config())
	fingerprint := func(want string) {
		t.Helper()
		if got, err := broker.Fingerprint(t.Context(), "", topic); err != nil || got != want {
			t.Fatalf("fingerprint %q, %v; want %q", got, err, want)
		}
	}
	var batch []*core.Record
	for i := range 100 {
		batch = append(batch, brokertest.NewRecord(topic, fmt.Sprint("key-", i), int64(i+1)))
	}
	used := func() int32 {
		highest := int32(0)
		for _, r := range c.read(t, topic) {
			highest = max(highest, r.Partition+1)
		}
		return highest
	}
	fingerprint("record-key/v1:murmur2 of 3 partitions")
	deliver(t, broker, batch...)
	if _, err := c.admin.UpdatePartitions(t.Context(), 6, topic); err != nil {
		t.Fatal(err)
	}
	c.fail(1, 0, kerr.NotLeaderForPartition.Code) // makes the broker look for the leaders
	deliver(t, broker, batch...)
	if n := used(); n != 3 {
		t.Errorf("%d partitions are used before anybody was told", n)
	}
	fingerprint("record-key/v1:murmur2 of 6 partitions")
	deliver(t, broker, batch...)
	if n := used(); n != 6 {
		t.Errorf("%d partitions are used after the fingerprint was told", n)
	}
}
