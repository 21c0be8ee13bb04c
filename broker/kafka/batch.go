package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// batchOverhead is the header of a record batch (format 2), which counts for max.message.bytes.
	batchOverhead = 61
	// maxOffsetDelta is the largest place in a batch that sizes are reckoned with: 3 bytes as a varint.
	maxOffsetDelta = 1 << 19

	minMaxMessageBytes = 1 << 10
	maxMaxMessageBytes = 1 << 30
)

// The fields of a batch header by their offsets. What comes before offsetCRC is not covered by the checksum.
const (
	offsetLength     = 8
	offsetEpoch      = 12
	offsetMagic      = 16
	offsetCRC        = 17
	offsetAttributes = 21
	offsetLastDelta  = 23
	offsetFirstTime  = 27
	offsetMaxTime    = 35
	offsetProducerID = 43
	offsetProdEpoch  = 51
	offsetSequence   = 53
	offsetCount      = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// codec returns the client's name for a codec.
func codec(c Compression) (codec kgo.CompressionCodec, known bool) {
	switch c {
	case CompressionNone:
		return kgo.NoCompression(), true
	case CompressionSnappy:
		return kgo.SnappyCompression(), true
	case CompressionLZ4:
		return kgo.Lz4Compression(), true
	case CompressionZstd:
		return kgo.ZstdCompression(), true
	case CompressionGzip:
		return kgo.GzipCompression(), true
	default:
		return codec, false
	}
}

// recordSize is what a record takes in a batch at a place.
func recordSize(offsetDelta, body int) int {
	n := 1 + 1 + varintSize(offsetDelta) + body // attributes, timestamp delta, offset delta
	return varintSize(n) + n
}

// varintSize is the size of a number that is not negative as a zigzag varint.
func varintSize(n int) int {
	size := 1
	for n >= 1<<6 {
		n >>= 7
		size++
	}
	return size
}

// appendRecord writes a record at its place in a batch. Its attributes are unused, and its timestamp is that of the
// batch.
func appendRecord(dst []byte, offsetDelta int, body []byte) []byte {
	dst = binary.AppendVarint(dst, int64(1+1+varintSize(offsetDelta)+len(body)))
	dst = append(dst, 0, 0)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	return append(dst, body...)
}

// encoder makes record batches. Safe for concurrent use.
type encoder struct {
	compressor kgo.Compressor // nil for none
	buffers    sync.Pool      // of *buffers
}

type buffers struct {
	plain  []byte
	packed bytes.Buffer
}

func newEncoder(compression Compression) (*encoder, error) {
	codec, _ := codec(compression)
	compressor, err := kgo.DefaultCompressor(codec)
	return &encoder{compressor: compressor, buffers: sync.Pool{New: func() any { return new(buffers) }}}, err
}

// encode makes a batch of the records, which take so many bytes with its header. The producer's identity is left to
// stamp.
func (e *encoder) encode(records []*record, size int, now time.Time) []byte {
	if e.compressor == nil {
		data := appendRecords(make([]byte, batchOverhead, size), records)
		writeHeader(data, len(records), kgo.CodecNone, now)
		return data
	}
	bufs := e.buffers.Get().(*buffers) //nolint:errcheck // the pool holds nothing else
	defer e.buffers.Put(bufs)
	bufs.plain = appendRecords(bufs.plain[:0], records)
	bufs.packed.Reset()
	packed, codec := e.compressor.Compress(&bufs.packed, bufs.plain)
	if codec == kgo.CodecError || len(packed) >= len(bufs.plain) {
		packed, codec = bufs.plain, kgo.CodecNone // it would spend the consumers' time for nothing
	}
	data := append(make([]byte, batchOverhead, batchOverhead+len(packed)), packed...)
	writeHeader(data, len(records), codec, now)
	return data
}

func appendRecords(dst []byte, records []*record) []byte {
	for i, r := range records {
		dst = appendRecord(dst, i, r.body)
	}
	return dst
}

// writeHeader fills in the header of a batch, as far as it does not depend on who sends it.
func writeHeader(data []byte, records int, codec kgo.CompressionCodecType, now time.Time) {
	be := binary.BigEndian
	millis := uint64(now.UnixMilli())
	be.PutUint32(data[offsetLength:], uint32(len(data)-offsetEpoch)) //nolint:gosec // at most 1 GiB
	be.PutUint32(data[offsetEpoch:], math.MaxUint32)                 // -1: the leader writes its own
	data[offsetMagic] = 2                                            // the format with headers
	be.PutUint16(data[offsetAttributes:], uint16(codec))             //nolint:gosec // 0 to 4
	be.PutUint32(data[offsetLastDelta:], uint32(records-1))          //nolint:gosec // bounded by the size
	be.PutUint64(data[offsetFirstTime:], millis)
	be.PutUint64(data[offsetMaxTime:], millis)
	be.PutUint32(data[offsetCount:], uint32(records)) //nolint:gosec // bounded by the size
}

// stamp writes who sends the batch and its first sequence number, and the checksum.
func stamp(data []byte, id identity) {
	be := binary.BigEndian
	be.PutUint64(data[offsetProducerID:], uint64(id.producer)) //nolint:gosec // -1 means none, in two's complement
	be.PutUint16(data[offsetProdEpoch:], uint16(id.epoch))     //nolint:gosec // see above
	be.PutUint32(data[offsetSequence:], uint32(id.sequence))   //nolint:gosec // see above
	be.PutUint32(data[offsetCRC:], crc32.Checksum(data[offsetAttributes:], castagnoli))
}
