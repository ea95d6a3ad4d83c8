package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"

	"github.com/vtop-log/vtop"
)

// Batch is one record batch of format 2, whole, aliasing the bytes it was cut from. The accessors read the header
// only, so that they also serve a Batch of just HeaderSize bytes. They panic on fewer; Parse never returns such.
// They believe the bytes: what came from a client, a peer or a disk goes through Check first.
type Batch []byte

// ErrTruncated says that the bytes end within a batch. It is a vtop.ErrCorruptBatch.
var ErrTruncated = fmt.Errorf("%w: bytes end within the batch", vtop.ErrCorruptBatch)

// castagnoli is the table that makes hash/crc32 use the processor's CRC32C instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PeekSize returns the size in bytes of the batch whose first LengthEnd bytes or more are b. It returns
// ErrTruncated if there are fewer and vtop.ErrCorruptBatch for a length below LengthEnd's own.
func PeekSize(b []byte) (int, error) {
	if len(b) < LengthEnd {
		return 0, fmt.Errorf("%w: %d bytes, want at least %d to know its length", ErrTruncated, len(b), LengthEnd)
	}
	length := int32(binary.BigEndian.Uint32(b[offLength:]))
	if length <= offMagic-LengthEnd {
		return 0, fmt.Errorf("%w: length field %d", vtop.ErrCorruptBatch, length)
	}
	return LengthEnd + int(length), nil
}

// Parse cuts the first batch off b. It checks that the batch is whole, of format 2 and not larger than maxBytes
// (no limit if that is 0), and nothing else: see Check. The errors wrap ErrTruncated, vtop.ErrCorruptBatch,
// vtop.ErrBatchTooLarge or vtop.ErrUnsupportedBatch. It allocates nothing but errors.
func Parse(b []byte, maxBytes int) (first Batch, rest []byte, err error) {
	size, err := PeekSize(b)
	if err != nil {
		return nil, b, err
	}
	if maxBytes > 0 && size > maxBytes {
		return nil, b, fmt.Errorf("%w: %d bytes, at most %d are taken", vtop.ErrBatchTooLarge, size, maxBytes)
	}
	if len(b) > offMagic && b[offMagic] != Magic {
		return nil, b, fmt.Errorf("%w: magic %d, want %d", vtop.ErrUnsupportedBatch, b[offMagic], Magic)
	}
	if size < HeaderSize {
		return nil, b, fmt.Errorf("%w: %d bytes, a header alone has %d", vtop.ErrCorruptBatch, size, HeaderSize)
	}
	if size > len(b) {
		return nil, b, fmt.Errorf("%w: %d bytes of %d", ErrTruncated, len(b), size)
	}
	return Batch(b[:size:size]), b[size:], nil
}

// Next cuts the first batch off b, as Parse without a limit; io.EOF if b is empty.
func Next(b []byte) (first Batch, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, io.EOF
	}
	return Parse(b, 0)
}

// All walks the batches of a buffer. It ends with the buffer or with the first error of Parse, which it yields.
func All(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			first, rest, err := Next(b)
			if err == io.EOF || !yield(first, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

// BaseOffset is the offset of the first record.
func (b Batch) BaseOffset() vtop.Offset {
	return vtop.Offset(binary.BigEndian.Uint64(b[offBase:]))
}

// LastOffset is the offset of the last record. The next batch of the log has this plus one as its base.
func (b Batch) LastOffset() vtop.Offset {
	return b.BaseOffset() + vtop.Offset(b.LastOffsetDelta())
}

// Size is the size in bytes that the header tells; for a whole batch, len(b).
func (b Batch) Size() int {
	return LengthEnd + int(int32(binary.BigEndian.Uint32(b[offLength:])))
}

// Epoch is the leader epoch under which the batch was appended.
func (b Batch) Epoch() vtop.Epoch {
	return vtop.Epoch(binary.BigEndian.Uint32(b[offEpoch:]))
}

// Magic is the format number.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the checksum that the header tells. See Check.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the flag bits as they stand.
func (b Batch) Attributes() uint16 { return binary.BigEndian.Uint16(b[offAttributes:]) }

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & maskCodec) }

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&maskTransactional != 0 }

// IsControl reports whether the batch holds markers and not records of a client.
func (b Batch) IsControl() bool { return b.Attributes()&maskControl != 0 }

// LastOffsetDelta is the offset of the last record less that of the first.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[offLastDelta:])) }

// HasAppendTime reports whether the time of all records is that of their append: MaxTimestamp.
func (b Batch) HasAppendTime() bool { return b.Attributes()&maskLogAppendTime != 0 }

// SetAppendTime gives all records one time, in milliseconds since 1970, in place of the producer's, which stay in the records
// and are not read any more. The CRC is made anew over the whole batch; it must have passed Check.
func (b Batch) SetAppendTime(ms int64) {
	binary.BigEndian.PutUint16(b[offAttributes:], b.Attributes()|maskLogAppendTime)
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ms))
	binary.BigEndian.PutUint32(b[offCRC:], crc32.Checksum(b[offAttributes:], castagnoli))
}

// BaseTimestamp is the time of the first record in milliseconds, as the producer told it.
func (b Batch) BaseTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offBaseTimestamp:])) }

// MaxTimestamp is the latest time of a record in milliseconds, as the producer told it, or that of all: see HasAppendTime.
func (b Batch) MaxTimestamp() int64 { return int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])) }

// ProducerID is the id of the idempotent producer, or NoProducer.
func (b Batch) ProducerID() int64 { return int64(binary.BigEndian.Uint64(b[offProducerID:])) }

// ProducerEpoch is the epoch of the producer id.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[offProducerEpoch:])) }

// BaseSequence is the producer's sequence number of the first record.
func (b Batch) BaseSequence() int32 { return int32(binary.BigEndian.Uint32(b[offBaseSequence:])) }

// LastSequence is the producer's sequence number of the last record. The numbers wrap: see AddSequence.
func (b Batch) LastSequence() int32 { return AddSequence(b.BaseSequence(), b.LastOffsetDelta()) }

// Count is the number of records that the header tells.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[offCount:])) }

// Stamp writes the base offset and the leader epoch, neither of which the CRC covers.
func (b Batch) Stamp(base vtop.Offset, epoch vtop.Epoch) {
	binary.BigEndian.PutUint64(b[offBase:], uint64(base))
	binary.BigEndian.PutUint32(b[offEpoch:], uint32(epoch))
}

// AddSequence returns the sequence number n records after sequence, both from 0 to 2^31-1. After 2^31-1 comes 0.
func AddSequence(sequence, n int32) int32 {
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}
