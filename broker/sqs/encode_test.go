package sqs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/sqs"
	"github.com/go-outbox/outbox/broker/sqs/sqsfake"
	"github.com/go-outbox/outbox/core"
)

func TestReplayIDsAreNoEventIDs(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	records := oneKey("k", 4)
	records[0].EventID, records[0].Replay = "e", 1
	records[1].EventID = "e.r1"
	records[2].EventID = "ein Wert mit Ä"
	records[3].EventID = strings.Repeat("x", 128)
	records[3].Replay = 1
	deliver(t, broker, records...)
	if n := len(fake.Messages("orders.fifo")); n != 4 {
		t.Errorf("%d of 4 different messages are stored", n)
	}
}

func TestField_044_DeduplicationIDIsTheEventID(t *testing.T) {
	t.Parallel()
	broker := open(t, configOf("http://127.0.0.1:1"))
	for _, key := range []string{"A", "B"} {
		r := oneKey(key, 1)[0]
		r.EventID = "inv-7"
		entry := sqs.EntryOf(prepare(t, broker, r)[0])
		if *entry.MessageDeduplicationId != "inv-7" || *entry.MessageGroupId != key {
			t.Errorf("key %s: de-duplication id %q in group %q", key, *entry.MessageDeduplicationId, *entry.MessageGroupId)
		}
	}
}

func TestField_061_BytesAboveASCII(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	r := oneKey("k", 1)[0]
	r.Payload = nil
	for b := 0x80; b <= 0xFF; b++ {
		r.Payload = append(r.Payload, byte(b))
	}
	deliver(t, broker, r)
	stored := fake.Messages("orders.fifo")
	if len(stored) != 1 {
		t.Fatalf("%d messages are stored, want 1", len(stored))
	}
	if got := decode(t, stored[0]).Payload; !slices.Equal(got, r.Payload) {
		t.Errorf("the payload is %x, want %x", got, r.Payload)
	}
	if stored[0].Attributes[sqs.AttributeEncoding].StringValue != "base64" {
		t.Errorf("the encoding is not flagged: %v", stored[0].Attributes)
	}
}

func TestField_141_BodiesOfAnyBytes(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	bodies := []struct {
		payload string
		encoded bool
	}{
		{"\x07", true},
		{"\x00", true},
		{"\uFFFE", true},
		{"\xFF", true},
		{"\xed\xa0\x80", true},
		{"😀", false},
		{"\t\r\n", false},
		{"\u007f\u0085\ufffd", false},
		{" ", false},
		{"base64", false},
		{"nil", false},
	}
	for i, body := range bodies {
		r := brokertest.NewRecord("orders", fmt.Sprint("k-", i), int64(i+1))
		r.Payload = []byte(body.payload)
		deliver(t, broker, r)
		m := fake.Messages("orders.fifo")[i]
		if got := string(decode(t, m).Payload); got != body.payload {
			t.Errorf("the payload %q came as %q", body.payload, got)
		}
		if _, encoded := m.Attributes[sqs.AttributeEncoding]; encoded != body.encoded {
			t.Errorf("the payload %q: encoded is %t, want %t", body.payload, encoded, body.encoded)
		}
	}
}

func TestField_142_GroupIDsAreLegalAndDistinct(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	long := strings.Repeat("x", 999)
	ids := []string{"", strings.Repeat("y", 129), long + "1", long + "2", "заказ 1", "a/b?c", "a/b?c\n", "ord_1"}
	groups := map[string]string{}
	for round := range 2 {
		for i, id := range ids {
			r := brokertest.NewRecord("orders", id, int64(i+1))
			deliver(t, broker, r)
			stored := fake.Messages("orders.fifo")
			m := stored[len(stored)-1]
			if got := decode(t, m).Headers[core.HeaderAggregateID]; got != id {
				t.Errorf("aggregate id %q came as %q", id, got)
			}
			if round == 1 && groups[id] != m.GroupID {
				t.Errorf("aggregate %q has group %q and group %q", id, groups[id], m.GroupID)
			}
			groups[id] = m.GroupID
		}
	}
	if distinct := slices.Compact(slices.Sorted(maps.Values(groups))); len(distinct) != len(ids) {
		t.Errorf("%d aggregates have %d groups", len(ids), len(distinct))
	}
}

func TestField_143_ManyHeaders(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	for i, n := range []int{0, 1, 2, 5, 8, 15} {
		for _, payload := range []string{"text", "\x00"} {
			r := brokertest.NewRecord("orders", fmt.Sprint("k-", i), int64(i+1))
			r.Payload, r.Headers = []byte(payload), map[string]string{}
			for h := range n {
				r.Headers[fmt.Sprint("header-", h)] = fmt.Sprint("value ", h)
			}
			deliver(t, broker, r)
			stored := fake.Messages("orders.fifo")
			m := stored[len(stored)-1]
			if got, want := decode(t, m).Headers, maps.Collect(r.WireHeaders()); !maps.Equal(got, want) {
				t.Errorf("%d headers: came as %q, want %q", n, got, want)
			}
			if len(m.Attributes) > 7 {
				t.Errorf("%d headers: %d attributes leave no room for tracing", n, len(m.Attributes))
			}
		}
	}
}

func TestField_144_OddHeaderValues(t *testing.T) {
	t.Parallel()
	fake := startFake(t, sqsfake.Config{})
	broker := openFake(t, fake)
	for i, headers := range []map[string]string{
		{"empty": ""},
		{"space": " "},
		{"long": strings.Repeat("v", 5000)},
		{"lines": "a\nb\r\n", "bell": "\x07", "odd": "\uFFFE\uFFFF", "html": "<&>\u2028"},
		{"AWS.name": "a", "amazon.name": "b", ".dot": "c", "dot.": "d", "a..b": "e", "größe": "f", "": "g"},
		{sqs.AttributeHeaders: "x", sqs.AttributeEncoding: "base64"},
	} {
		r := brokertest.NewRecord("orders", fmt.Sprint("k-", i), int64(i+1))
		r.Headers = headers
		deliver(t, broker, r)
		got, want := decode(t, fake.Messages("orders.fifo")[i]).Headers, maps.Collect(r.WireHeaders())
		if !maps.Equal(got, want) {
			t.Errorf("headers %q came as %q", want, got)
		}
	}
}

func TestField_154_QueueNamesAreDistinct(t *testing.T) {
	t.Parallel()
	broker := open(t, configOf("http://127.0.0.1:1"))
	fake := startFake(t, sqsfake.Config{})
	seen := map[string]string{}
	for _, topic := range []string{
		"orders.v1", "orders_v1", "orders-v1", strings.Repeat("x", 249), strings.Repeat("x", 248) + "y",
		strings.Repeat("x", 75), strings.Repeat("x", 76), "größe", "Größe",
	} {
		queue := prepare(t, broker, brokertest.NewRecord(topic, "k", 1))[0].Destination
		if other, ok := seen[queue]; ok {
			t.Errorf("topics %q and %q have the same queue %q", topic, other, queue)
		}
		seen[queue] = topic
		createQueue(t, fake, queue, nil)
	}
	if seen["orders_v1.fifo"] != "orders_v1" {
		t.Errorf("a topic that is a legal name has another: %q", seen)
	}
	if q := prepare(t, broker, brokertest.NewRecord("orders.fifo", "k", 1))[0].Destination; q != "orders.fifo" {
		t.Errorf("the topic orders.fifo has the queue %q", q)
	}
}
