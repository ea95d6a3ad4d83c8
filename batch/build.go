package batch

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/vtop-log/vtop"
)

// Spec is what Build makes a batch from.
type Spec struct {
	// Base and Epoch are what a leader would stamp.
	Base  vtop.Offset
	Epoch vtop.Epoch
	Codec Codec
	// Producer is nil for a producer that is not idempotent.
	Producer *Producer
	// Records of the batch. Their offsets are not looked at: they follow Base. The first timestamp is the base one.
	Records []Record
}

// Producer is the mark of an idempotent producer on a batch.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32
}

// Build makes a whole batch that passes Check, if there is a record. It is for tests and tools. It panics on a
// codec that does not exist.
func Build(spec Spec) Batch {
	b := make(Batch, HeaderSize)
	var baseTime, maxTime int64
	var body []byte
	for i, r := range spec.Records {
		if i == 0 {
			baseTime, maxTime = r.Timestamp, r.Timestamp
		}
		maxTime = max(maxTime, r.Timestamp)
		body = appendRecord(body, r, r.Timestamp-baseTime, int64(i))
	}
	producer := Producer{ID: NoProducer, Epoch: -1, Sequence: -1}
	if spec.Producer != nil {
		producer = *spec.Producer
	}
	b.Stamp(spec.Base, spec.Epoch)
	b[offMagic] = Magic
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(spec.Codec))
	binary.BigEndian.PutUint32(b[offLastDelta:], uint32(len(spec.Records)-1))
	binary.BigEndian.PutUint64(b[offBaseTimestamp:], uint64(baseTime))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(maxTime))
	binary.BigEndian.PutUint64(b[offProducerID:], uint64(producer.ID))
	binary.BigEndian.PutUint16(b[offProducerEpoch:], uint16(producer.Epoch))
	binary.BigEndian.PutUint32(b[offBaseSequence:], uint32(producer.Sequence))
	binary.BigEndian.PutUint32(b[offCount:], uint32(len(spec.Records)))
	b = append(b, compress(spec.Codec, body)...)
	b.Reseal()
	return b
}

// Reseal writes the length and the CRC32C that fit the bytes. It is for tests and tools that edit a batch.
func (b Batch) Reseal() {
	binary.BigEndian.PutUint32(b[offLength:], uint32(len(b)-LengthEnd))
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
}

func appendRecord(out []byte, r Record, timeDelta, offsetDelta int64) []byte {
	fields := []byte{0}
	fields = binary.AppendVarint(fields, timeDelta)
	fields = binary.AppendVarint(fields, offsetDelta)
	fields = appendBytes(fields, r.Key)
	fields = appendBytes(fields, r.Value)
	fields = binary.AppendVarint(fields, int64(len(r.Headers)))
	for _, h := range r.Headers {
		fields = binary.AppendVarint(fields, int64(len(h.Key)))
		fields = append(fields, h.Key...)
		fields = appendBytes(fields, h.Value)
	}
	return append(binary.AppendVarint(out, int64(len(fields))), fields...)
}

func appendBytes(out, value []byte) []byte {
	if value == nil {
		return binary.AppendVarint(out, -1)
	}
	return append(binary.AppendVarint(out, int64(len(value))), value...)
}
