package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/kafka"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/ordering"
)

// The broker has stored the records, but its answer is lost: the repeat within the call is recognised.
func TestField_064_LostReplyIsNoDuplicate(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 3, nil)
	broker := open(t, c.config())
	batch := records(topic, "a", 5)
	c.fail(0, 1, 0)
	deliver(t, broker, batch...)
	wantEvents(t, c.read(t, topic), batch...)
}

// The same, but the answer never comes: the outcome is unknown, and the repeat carries the same event id.
func TestField_064_UnknownOutcomeIsRepeatedWithTheSameID(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 3, nil)
	config := c.config()
	config.Retries = -1
	broker := open(t, config)
	batch := records(topic, "a", 2)
	c.fail(0, 1, 0)
	for i, r := range publish(t, broker, batch...) {
		if r.Outcome != core.OutcomeUnknown {
			t.Errorf("record %d: %v, want unknown: %v", i, r.Outcome, r.Err)
		}
	}
	deliver(t, broker, batch...)
	wantEvents(t, c.read(t, topic), batch[0], batch[1], batch[0], batch[1])
}

// A lost answer makes the outcome unknown for good: a later refusal says nothing about the first try.
func TestRefusalAfterALostReply(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 1, nil)
	broker := open(t, c.config())
	deliver(t, broker, records(topic, "warm", 1)...)
	var first kmsg.Request // of the goroutine of the fake cluster, which asks more than once about a request
	c.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 20,
		When: func(request kmsg.Request) bool {
			if first == nil {
				first = request
			}
			return request != first
		},
	})
	c.fail(0, 1, 0)
	r := brokertest.NewRecord(topic, "a", 1)
	if got := publish(t, broker, r)[0]; got.Outcome != core.OutcomeUnknown {
		t.Errorf("%v, want unknown, as it is stored: %v", got.Outcome, got.Err)
	}
	if n := len(c.read(t, topic)); n != 2 {
		t.Errorf("%d records in the topic, want 2", n)
	}
}

// One request in flight for a partition: what is repeated is not overtaken.
func TestField_072_NothingOvertakesARepeat(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*cluster){
		"moved leader": func(c *cluster) { c.fail(1, 0, kerr.NotLeaderForPartition.Code) },
		"cut":          func(c *cluster) { c.fail(0, 1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startFake(t)
			topic := c.topic(t, 1, nil)
			broker := open(t, c.config())
			deliver(t, broker, brokertest.NewRecord(topic, "warm", 1))
			a, b := brokertest.NewRecord(topic, "a", 2), brokertest.NewRecord(topic, "b", 3)
			first, second := prepare(t, broker, a), prepare(t, broker, b)
			fail(c)
			var calls sync.WaitGroup
			outcomes := make([]core.Result, 2)
			calls.Go(func() { outcomes[0] = broker.PublishBatch(t.Context(), first)[0] })
			calls.Go(func() { outcomes[1] = broker.PublishBatch(t.Context(), second)[0] })
			calls.Wait()
			for i, r := range outcomes {
				if r.Err != nil {
					t.Errorf("call %d: %v: %v", i, r.Outcome, r.Err)
				}
			}
			if n := len(c.read(t, topic)); n != 3 {
				t.Errorf("%d records in the topic, want 3", n)
			}
		})
	}
}

// Calls of different keys share partitions and are cancelled, refused and cut at any moment. No key may have a gap.
func TestKeysHaveNoGapWhileCallsShareAPartition(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 2, nil)
	broker := open(t, c.config())
	const workers, rounds, perCall = 6, 40, 8
	keys := make([][]*core.Record, workers)
	var calls sync.WaitGroup
	for w := range workers {
		keys[w] = records(topic, fmt.Sprint("key-", w), rounds*perCall)
		calls.Go(func() {
			rest := prepare(t, broker, keys[w]...)
			for try := 0; len(rest) > 0; try++ {
				ctx, cancel := context.WithCancel(t.Context())
				if try%4 == 1 {
					time.AfterFunc(time.Duration(try*37%500)*time.Microsecond, cancel)
				}
				switch try % 7 {
				case 3:
					c.fail(1, 0, kerr.NotLeaderForPartition.Code)
				case 5:
					c.fail(0, 1, 0)
				}
				for i, r := range broker.PublishBatch(ctx, rest[:min(perCall, len(rest))]) {
					if r.Outcome != core.OutcomeDelivered {
						rest = rest[i:]
						break
					}
					if i == min(perCall, len(rest))-1 {
						rest = rest[i+1:]
					}
				}
				cancel()
			}
		})
	}
	calls.Wait()
	next := map[string]int{}
	for _, r := range c.read(t, topic) {
		var w, id int
		_, _ = fmt.Sscanf(string(r.Key), "key-%d", &w)
		_, _ = fmt.Sscan(header(r, core.HeaderOutboxID), &id)
		if id > next[string(r.Key)]+1 {
			t.Fatalf("%s: record %d is stored behind %d", r.Key, id, next[string(r.Key)])
		}
		next[string(r.Key)] = max(next[string(r.Key)], id)
	}
	for w := range workers {
		if got := next[fmt.Sprint("key-", w)]; got != rounds*perCall {
			t.Errorf("key-%d: %d of %d records", w, got, rounds*perCall)
		}
	}
}

// A topic gets more partitions while the broker runs.
func TestField_081_MorePartitions(t *testing.T) {
	t.Parallel()
	for _, pin := range []int{0, 3} {
		t.Run(fmt.Sprintf("pin=%d", pin), func(t *testing.T) {
			t.Parallel()
			c := startFake(t)
			topic := c.topic(t, 3, nil)
			var log buffer
			config := c.config()
			config.Strategy = ordering.RecordKey{Partitions: pin}
			config.Logger = slog.New(slog.NewTextHandler(&log, nil))
			broker := open(t, config)
			var batch []*core.Record
			for i := range 200 {
				batch = append(batch, brokertest.NewRecord(topic, fmt.Sprint("key-", i), int64(i+1)))
			}
			deliver(t, broker, batch...)
			if _, err := c.admin.UpdatePartitions(t.Context(), 6, topic); err != nil {
				t.Fatal(err)
			}
			c.fail(1, 0, kerr.NotLeaderForPartition.Code) // makes the broker look for the leaders
			deliver(t, broker, batch...)
			deliver(t, broker, batch...)

			partitions := map[string]map[int32]bool{}
			for _, r := range c.read(t, topic) {
				if partitions[string(r.Key)] == nil {
					partitions[string(r.Key)] = map[int32]bool{}
				}
				partitions[string(r.Key)][r.Partition] = true
			}
			moved := 0
			for _, of := range partitions {
				if len(of) > 1 {
					moved++
				}
			}
			warnings := strings.Count(log.String(), "number of partitions has changed")
			if pin > 0 && (moved > 0 || warnings > 0) {
				t.Errorf("pinned: %d keys moved, %d warnings", moved, warnings)
			}
			if pin == 0 && (moved == 0 || warnings != 1) {
				t.Errorf("not pinned: %d keys moved, %d warnings, want one:\n%s", moved, warnings, log.String())
			}
			if pin == 0 && !strings.Contains(log.String(), "partitions=6 partitions_before=3") {
				t.Errorf("the warning does not tell the numbers: %s", log.String())
			}
		})
	}
}

// One broker swallows what it gets. The call ends in time, topics on other brokers go on, and Close ends.
func TestField_088_BlackHole(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	dead, alive := c.topic(t, 1, nil), c.topic(t, 1, nil)
	for topic, node := range map[string]int32{dead: 0, alive: 1} {
		if err := c.fake.MoveTopicPartition(topic, 0, node); err != nil {
			t.Fatal(err)
		}
	}
	config := c.config()
	config.DeliveryTimeout = 200 * time.Millisecond
	broker := open(t, config)
	deliver(t, broker, brokertest.NewRecord(dead, "a", 1))
	deliver(t, broker, brokertest.NewRecord(alive, "a", 2))

	caught, release := c.hang(c.proxies, c.proxies[0])
	defer release()
	stuck := make(chan core.Result, 1)
	batch := prepare(t, broker, brokertest.NewRecord(dead, "a", 3))
	go func() { stuck <- broker.PublishBatch(context.WithoutCancel(t.Context()), batch)[0] }()
	<-caught
	deliver(t, broker, brokertest.NewRecord(alive, "a", 4))
	r := <-stuck
	if e := publishError(t, r); r.Outcome != core.OutcomeUnknown || e.Class != core.ClassUnavailable ||
		e.Scope != core.ScopeDestination || !strings.Contains(r.Err.Error(), dead) {
		t.Errorf("%v, %v of the %v: %v", r.Outcome, e.Class, e.Scope, r.Err)
	}
	go func() { stuck <- broker.PublishBatch(context.WithoutCancel(t.Context()), batch)[0] }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := broker.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if r := <-stuck; r.Outcome == core.OutcomeDelivered {
		t.Error("delivered into the black hole")
	}
}

// The leader does not accept the producer any more, for none of its epochs. Another producer id works, and no record is
// charged for it.
func TestField_089_ProducerIsRenewed(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.UnknownProducerID} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			c := startFake(t)
			topic := c.topic(t, 1, nil)
			broker := open(t, c.config())
			before, after := records(topic, "a", 3), records(topic, "a", 3)
			var old atomic.Int64
			c.fake.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true,
				When: func(request kmsg.Request) bool { old.Store(producerOf(request)); return true },
			})
			deliver(t, broker, before...)
			refused := old.Load()
			fault := c.fake.Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: 20,
				When: func(request kmsg.Request) bool { return producerOf(request) == refused },
			})
			deliver(t, broker, after...)
			if fault.Hits() == 0 {
				t.Error("the broker was not refused")
			}
			wantEvents(t, c.read(t, topic), append(before, after...)...)
		})
	}
}

func producerOf(request kmsg.Request) int64 {
	var batch kmsg.RecordBatch
	if err := batch.ReadFrom(as[*kmsg.ProduceRequest](request).Topics[0].Partitions[0].Records); err != nil {
		return -1
	}
	return batch.ProducerID
}

// A producer that is refused for ever is trouble of the broker, not of a message.
func TestField_089_NoAttemptIsSpent(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 1, nil)
	broker := open(t, c.config())
	c.fail(1000, 0, kerr.OutOfOrderSequenceNumber.Code)
	r := publish(t, broker, brokertest.NewRecord(topic, "a", 1))[0]
	if e := publishError(t, r); e.Scope != core.ScopeBroker || r.Outcome != core.OutcomeRejected {
		t.Errorf("%v, %v of the %v: %v", r.Outcome, e.Class, e.Scope, r.Err)
	}
}

// A missing topic is named, costs no other topic anything, and works as soon as it is there.
func TestField_119_MissingTopic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		missing, there := newTopicName(), c.topic(t, 1, nil)
		broker := open(t, c.config())
		r := brokertest.NewRecord(missing, "a", 1)
		e := publishError(t, publish(t, broker, r)[0])
		if e.Class != core.ClassMisconfigured || e.Scope != core.ScopeDestination || e.Code != "UNKNOWN_TOPIC_OR_PARTITION" {
			t.Errorf("%v of the %v, code %s", e.Class, e.Scope, e.Code)
		}
		if !strings.Contains(e.Error(), missing) {
			t.Errorf("the error does not name %s: %v", missing, e)
		}
		deliver(t, broker, brokertest.NewRecord(there, "a", 2))
		c.create(t, missing, 1, nil)
		deliver(t, broker, r)
		wantEvents(t, c.read(t, missing), r)
	})
}

func TestAutoCreatedTopic(t *testing.T) {
	t.Parallel()
	c := startFake(t, kfake.AllowAutoTopicCreation())
	topic := newTopicName()
	r := publish(t, open(t, c.config()), brokertest.NewRecord(topic, "a", 1))[0]
	if r.Outcome == core.OutcomeDelivered {
		t.Error("a topic was created though AllowAutoTopicCreation is not set")
	}
	config := c.config()
	config.AllowAutoTopicCreation = true
	deliver(t, open(t, config), brokertest.NewRecord(topic, "a", 1))
}

// A topic that was deleted and created again has another id, and nothing of what is known of the old one holds.
func TestRecreatedTopic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 2, nil)
		broker := open(t, c.config())
		deliver(t, broker, records(topic, "a", 3)...)
		if _, err := c.admin.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		for {
			topics, err := c.admin.ListTopics(t.Context(), topic)
			if err == nil && !topics.Has(topic) {
				break
			}
			if t.Context().Err() != nil {
				t.Fatal("the topic is not deleted")
			}
		}
		c.create(t, topic, 2, nil)
		again := records(topic, "a", 3)
		e := publishError(t, publish(t, broker, again...)[0])
		if e.Code != "TOPIC_RECREATED" || e.Class != core.ClassTransient || e.Scope != core.ScopeDestination {
			t.Errorf("%v of the %v: %v", e.Class, e.Scope, e)
		}
		deliver(t, broker, again...)
		wantEvents(t, c.read(t, topic), again...)
	})
}

// Without a producer id, and with acks of one or none, records arrive as well.
func TestOtherAcks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		for _, change := range []func(*kafka.Config){
			func(config *kafka.Config) { config.DisableIdempotence = true },
			func(config *kafka.Config) { config.Acks, config.UnsafeAcks = kafka.AcksLeader, true },
			func(config *kafka.Config) { config.Acks, config.UnsafeAcks = kafka.AcksNone, true },
		} {
			topic := c.topic(t, 2, nil)
			config := c.config()
			change(&config)
			broker := open(t, config)
			deliver(t, broker, records(topic, "a", 10)...)
			deliver(t, broker, records(topic, "b", 10)...)
			if config.Acks == kafka.AcksNone {
				continue // nobody knows when they are there
			}
			if n := len(c.read(t, topic)); n != 20 {
				t.Errorf("%d records in the topic, want 20", n)
			}
		}
	})
}

// A call ends while one partition waits to be tried again and another has a batch still to be sent.
func TestContextEndsBetweenBatches(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 2, nil)
	config := c.config()
	config.MaxMessageBytes, config.RetryBackoff = 2000, time.Minute
	broker := open(t, config)
	var batch []*core.Record
	for i := range 40 {
		batch = append(batch, brokertest.NewRecord(topic, fmt.Sprint("key-", i%4), int64(i+1)))
	}
	deliver(t, broker, batch...)
	fault := c.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	prepared := prepare(t, broker, batch...)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // in the minute before the second try
	defer cancel()
	seen := map[core.Outcome]int{}
	for i, r := range broker.PublishBatch(ctx, prepared) {
		seen[r.Outcome]++
		if (r.Err == nil) != (r.Outcome == core.OutcomeDelivered) {
			t.Errorf("record %d: %v with the error %v", i, r.Outcome, r.Err)
		}
	}
	if seen[core.OutcomeUnknown] > 0 || seen[core.OutcomeDelivered] == 0 || seen[core.OutcomeSkipped] == 0 ||
		seen[core.OutcomeRejected] == 0 {
		t.Errorf("outcomes %v: want some delivered, rejected and skipped, none unknown", seen)
	}
	fault.Remove()
	deliver(t, broker, batch...)
}
