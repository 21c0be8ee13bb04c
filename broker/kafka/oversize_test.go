package kafka_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/core"
)

// noise is a payload that no codec makes smaller.
func noise(n int) []byte {
	dice, out := rand.New(rand.NewPCG(uint64(n), 1)), make([]byte, n)
	for i := range out {
		out[i] = byte(dice.Uint32())
	}
	return out
}

// wantTooLarge checks that a record is given up for good, for a reason that a person can act on.
func wantTooLarge(t *testing.T, err error, topic string, texts ...string) {
	t.Helper()
	e := publishError(t, core.Result{Err: err})
	if e.Class != core.ClassPermanent || e.Scope != core.ScopeMessage || e.Code != "MESSAGE_TOO_LARGE" {
		t.Errorf("%v of the %v, code %s, want permanent of the message, MESSAGE_TOO_LARGE: %v", e.Class, e.Scope, e.Code, err)
	}
	for _, text := range append(texts, topic) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not name %q: %v", text, err)
		}
	}
}

// A record that is too large fails for good and says so; the one after it arrives.
func TestField_038_Oversize(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, nil)
		broker := open(t, c.config())
		r := brokertest.NewRecord(topic, "a", 1)
		r.Payload = noise(1_000_012 - 61) // with its own header there is no room for key and headers
		_, err := broker.Prepare(r)
		wantTooLarge(t, err, topic, "1000012")

		ok := brokertest.NewRecord(topic, "a", 2)
		ok.Payload = noise(999_000)
		deliver(t, broker, ok)
		wantEvents(t, c.read(t, topic), ok)
	})
}

// The topic allows less than we do: the record that is too large is found, its neighbours go through, once.
func TestField_060_OversizeForTheTopic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, map[string]string{"max.message.bytes": "3000"})
		broker := open(t, c.config())
		ok1, large, ok2 := brokertest.NewRecord(topic, "a", 1), brokertest.NewRecord(topic, "b", 2),
			brokertest.NewRecord(topic, "c", 3)
		large.Payload = noise(4000)
		for range 2 { // the second time with what was learned
			results := publish(t, broker, ok1, large, ok2)
			if results[0].Err != nil || results[2].Err != nil {
				t.Errorf("the neighbours: %v and %v", results[0].Err, results[2].Err)
			}
			if results[1].Outcome != core.OutcomeRejected {
				t.Errorf("the large one: %v", results[1].Outcome)
			}
			wantTooLarge(t, results[1].Err, topic, large.EventID, "max.message.bytes is 3000", "4")
		}
		wantEvents(t, c.read(t, topic), ok1, ok2, ok1, ok2)
	})
}

// Of one key nothing is stored behind what was refused.
func TestNothingOfAKeyPassesWhatWasRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, map[string]string{"max.message.bytes": "3000"})
		broker := open(t, c.config())
		same, other := records(topic, "a", 20), records(topic, "b", 20)
		same[7].Payload = noise(4000)
		var batch []*core.Record
		for i := range same {
			batch = append(batch, same[i], other[i])
		}
		results := publish(t, broker, batch...)
		for i := range same {
			want := core.OutcomeDelivered
			switch {
			case i == 7:
				want = core.OutcomeRejected
			case i > 7:
				want = core.OutcomeSkipped
			}
			if got := results[2*i].Outcome; got != want {
				t.Errorf("record %d of the key: %v, want %v", i, got, want)
			}
			if got := results[2*i+1].Outcome; got != core.OutcomeDelivered {
				t.Errorf("record %d of the other key: %v: %v", i, got, results[2*i+1].Err)
			}
		}
		want := append([]*core.Record{}, batch[:14]...)
		want = append(want, other[7:]...)
		log := c.read(t, topic)
		if len(log) != len(want) {
			t.Errorf("%d records in the topic, want %d", len(log), len(want))
		}
		for i, r := range log[:14] {
			if header(r, core.HeaderEventID) != batch[i].EventID {
				t.Errorf("record %d of the topic is another one", i)
			}
		}
	})
}

// 49 small ones and one of 2 MB for one partition, and Prepare allows it.
func TestField_083_OneOversizeAmongMany(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, nil)
		config := c.config()
		config.MaxMessageBytes = 4 << 20
		broker := open(t, config)
		var batch, small []*core.Record
		for i := range 50 {
			r := brokertest.NewRecord(topic, fmt.Sprint("key-", i), int64(i+1))
			if i == 20 {
				r.Payload = noise(2 << 20)
			} else {
				small = append(small, r)
			}
			batch = append(batch, r)
		}
		for i, r := range publish(t, broker, batch...) {
			switch {
			case i == 20 && r.Outcome == core.OutcomeRejected:
				wantTooLarge(t, r.Err, topic)
			case i == 20 || r.Outcome != core.OutcomeDelivered:
				t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
		wantEvents(t, c.read(t, topic), small...)
	})
}

// Records that fit, in a batch that does not: it is divided, and nothing is given up.
func TestBatchLargerThanTheTopicAllows(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *cluster) {
		topic := c.topic(t, 1, map[string]string{"max.message.bytes": "3000"})
		broker := open(t, c.config())
		batch := records(topic, "a", 60)
		for i, r := range batch {
			r.Payload = noise(500 + i)
		}
		deliver(t, broker, batch...)
		wantEvents(t, c.read(t, topic), batch...)
	})
}

// The same without the right to read the limit: it is found by trying.
func TestBatchLargerThanAnUnknownLimit(t *testing.T) {
	t.Parallel()
	c := startFake(t)
	topic := c.topic(t, 1, map[string]string{"max.message.bytes": "900"})
	c.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: topic, Err: kerr.TopicAuthorizationFailed, Count: -1,
	})
	broker := open(t, c.config())
	batch := records(topic, "a", 40)
	for i, r := range batch {
		r.Payload = noise(500 + i)
	}
	batch[39].Payload = noise(1500)
	results := publish(t, broker, batch...)
	for i, r := range results[:39] {
		if r.Outcome != core.OutcomeDelivered {
			t.Errorf("record %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
	wantTooLarge(t, results[39].Err, topic, "more than the topic's max.message.bytes allows")
	wantEvents(t, c.read(t, topic), batch[:39]...)
}

// A broker that validates records may refuse a batch and name the culprit, or not.
func TestInvalidRecordIsIsolated(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("named=%t", named), func(t *testing.T) {
			t.Parallel()
			c := startFake(t, kfake.NumBrokers(1))
			topic := c.topic(t, 1, nil)
			config := c.config()
			config.Compression = "none" // so that the fake broker can look inside
			broker := open(t, config)
			batch := append(records(topic, "a", 30), records(topic, "b", 2)...)
			batch[11].Payload = []byte("poison")
			refusePoison(c.fake, named)
			results := publish(t, broker, batch...)
			for i, r := range results {
				want := core.OutcomeDelivered
				switch {
				case i == 11:
					want = core.OutcomeRejected
				case i > 11 && i < 30:
					want = core.OutcomeSkipped
				}
				if r.Outcome != want {
					t.Errorf("record %d: %v, want %v: %v", i, r.Outcome, want, r.Err)
				}
			}
			if e := publishError(t, results[11]); e.Class != core.ClassPermanent || e.Code != "INVALID_RECORD" {
				t.Errorf("the culprit: %v, code %s", e.Class, e.Code)
			}
			if e := publishError(t, results[12]); e.Class == core.ClassPermanent {
				t.Errorf("a record behind the culprit: %v", e)
			}
			wantEvents(t, c.read(t, topic), append(batch[:11:11], batch[30:]...)...)
		})
	}
}

// refusePoison makes the broker refuse batches with a record whose payload is "poison".
func refusePoison(fake *kfake.Cluster, named bool) {
	fake.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		produce := as[*kmsg.ProduceRequest](request)
		var batch kmsg.RecordBatch
		p := produce.Topics[0].Partitions[0]
		_ = batch.ReadFrom(p.Records)
		if !bytes.Contains(batch.Records, []byte("poison")) {
			return nil, nil, false
		}
		place := 0
		for rest := batch.Records; ; place++ {
			var r kmsg.Record
			_ = r.ReadFrom(rest)
			if string(r.Value) == "poison" {
				break
			}
			n := len(r.AppendTo(nil))
			rest = rest[n:]
		}
		response := as[*kmsg.ProduceResponse](produce.ResponseKind())
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
		refused := kmsg.NewProduceResponseTopicPartition()
		refused.ErrorCode = kerr.InvalidRecord.Code
		if named {
			record := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			record.RelativeOffset = int32(place)
			refused.ErrorRecords = append(refused.ErrorRecords, record)
		}
		topic.Partitions = append(topic.Partitions, refused)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
}
