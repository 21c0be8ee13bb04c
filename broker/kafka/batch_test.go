package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/go-outbox/outbox/core"
)

// The client's own decoder reads what we encode.
func TestBatchIsReadByTheClient(t *testing.T) {
	t.Parallel()
	messages := []core.Message{
		{EventID: "e1", AggregateType: "order", AggregateID: "a", EventType: "x", Payload: []byte("one")},
		{EventID: "e2", AggregateType: "order", AggregateID: "b", EventType: "x"},
		{EventID: "e3", AggregateType: "order", EventType: "x", Payload: []byte{}},
		{EventID: "e4", AggregateType: "order", AggregateID: "d", EventType: "x", Headers: map[string]string{}},
	}
	for i := range 100 { // so many that their count takes two bytes
		messages[3].Headers["h"+strings.Repeat("x", i)] = "v"
	}
	now := time.UnixMilli(1_700_000_000_123)
	for _, compression := range []Compression{
		CompressionNone, CompressionSnappy, CompressionLZ4, CompressionZstd, CompressionGzip,
	} {
		encoder, err := newEncoder(compression)
		if err != nil {
			t.Fatal(err)
		}
		var records []*record
		size := batchOverhead
		for i := range messages {
			r := newRecord(&core.Record{ID: int64(i), Message: messages[i]}, messages[i].AggregateID)
			size += recordSize(i, len(r.body))
			records = append(records, r)
		}
		data := encoder.encode(records, size, now)
		stamp(data, identity{producer: 7, epoch: 3, sequence: 11})
		if compression == CompressionNone && len(data) != size {
			t.Errorf("%d bytes, reckoned with %d", len(data), size)
		}
		checkHeader(t, data, now)
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"},
			&kmsg.FetchResponseTopicPartition{RecordBatches: data, HighWatermark: 4, LastStableOffset: 4},
			kgo.DefaultDecompressor(), nil)
		if got.Err != nil || len(got.Records) != len(messages) {
			t.Fatalf("%s: %d records, %v", compression, len(got.Records), got.Err)
		}
		for i, r := range got.Records {
			m := messages[i]
			if !bytes.Equal(r.Value, m.Payload) || (r.Value == nil) != (m.Payload == nil) {
				t.Errorf("%s: record %d: value %q, want %q", compression, i, r.Value, m.Payload)
			}
			if string(r.Key) != m.AggregateID || (r.Key == nil) != (m.AggregateID == "") {
				t.Errorf("%s: record %d: key %q, want %q", compression, i, r.Key, m.AggregateID)
			}
			if want := 6 + len(m.Headers); len(r.Headers) != want || !r.Timestamp.Equal(now) || r.Offset != int64(i) {
				t.Errorf("%s: record %d: %d headers, time %v, offset %d", compression, i, len(r.Headers), r.Timestamp, r.Offset)
			}
		}
	}
}

func checkHeader(t *testing.T, data []byte, now time.Time) {
	t.Helper()
	var b kmsg.RecordBatch
	if err := b.ReadFrom(data); err != nil {
		t.Fatal(err)
	}
	switch {
	case b.CRC != int32(crc32.Checksum(data[offsetAttributes:], crc32.MakeTable(crc32.Castagnoli))):
		t.Error("the checksum is wrong")
	case b.ProducerID != 7 || b.ProducerEpoch != 3 || b.FirstSequence != 11:
		t.Errorf("stamped as %d/%d/%d", b.ProducerID, b.ProducerEpoch, b.FirstSequence)
	case b.FirstTimestamp != now.UnixMilli() || b.MaxTimestamp != now.UnixMilli():
		t.Errorf("times %d to %d", b.FirstTimestamp, b.MaxTimestamp)
	case int(b.Length) != len(data)-12 || b.Magic != 2 || b.NumRecords != 4 || b.LastOffsetDelta != 3:
		t.Errorf("header %+v", b)
	}
}

func TestVarintSize(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 63, 64, 8191, 8192, maxOffsetDelta, 1 << 20, 1 << 27, math.MaxInt32} {
		if got, want := varintSize(n), len(binary.AppendVarint(nil, int64(n))); got != want {
			t.Errorf("varintSize(%d) = %d, want %d", n, got, want)
		}
	}
}
