package kafka

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/go-outbox/outbox/ordering"
)

// Other clients of a topic have to find the keys where we put them.
func TestField_079_JavaPartitions(t *testing.T) {
	t.Parallel()
	p := newPartitioner(ordering.RecordKey{})
	for _, c := range []struct {
		key        string
		partitions int
		want       int
	}{
		{"wu", 10, 0},            // IBM/sarama#3537
		{"100:48069", 12, 9},     // tulios/kafkajs#357
		{"", 1 << 30, 275646681}, // murmur2 of no bytes
	} {
		if got := p.hash([]byte(c.key), c.partitions); got != c.want {
			t.Errorf("key %q of %d partitions: %d, want %d", c.key, c.partitions, got, c.want)
		}
	}
	// The values that Kafka's own test of murmur2 asserts (UtilsTest.testMurmur2).
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// The client's own partitioners are the second opinion.
func TestPartitionersAgreeWithTheClients(t *testing.T) {
	t.Parallel()
	fnv1a := func(key []byte) uint32 {
		h := fnv.New32a()
		_, _ = h.Write(key)
		return h.Sum32()
	}
	for hash, theirs := range map[ordering.HashName]kgo.Partitioner{
		ordering.Murmur2: kgo.StickyKeyPartitioner(nil),
		ordering.FNV1a:   kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv1a)),
		ordering.CRC32:   kgo.StickyKeyPartitioner(kgo.SaramaHasher(crc32.ChecksumIEEE)),
	} {
		ours, want := newPartitioner(ordering.RecordKey{Hash: hash}), theirs.ForTopic("t")
		if got, want := ours.hash([]byte("é"), 12), want.Partition(&kgo.Record{Key: []byte("é")}, 12); got != want {
			t.Errorf("%s: key é: %d, want %d", hash, got, want)
		}
		for i := range 2000 {
			key := fmt.Appendf(nil, "größe-%d-of-something-é", i*i)[:i%24] // of all lengths, some cut within a letter
			n := 1 + i%37
			if got, want := ours.hash(key, n), want.Partition(&kgo.Record{Key: key}, n); got != want {
				t.Fatalf("%s: key %q of %d partitions: %d, want %d", hash, key, n, got, want)
			}
		}
	}
}

func TestPinnedPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ partitions, pin, agreed, want int }{
		{6, 0, 0, 6}, {6, 3, 0, 3}, {2, 3, 0, 2}, {6, 0, 4, 4}, {6, 3, 4, 3},
	} {
		if got := spread(c.partitions, c.pin, c.agreed); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
