package batch

import "math"

// The bytes of a record batch of format 2. All integers are big endian.
//
//	offset size field
//	     0    8 base offset            stamped by the leader; outside the CRC
//	     8    4 length                 bytes after this field
//	    12    4 leader epoch           stamped by the leader; outside the CRC
//	    16    1 magic                  2
//	    17    4 CRC32C                 Castagnoli, of all bytes from 21 to the end
//	    21    2 attributes             see the masks below
//	    23    4 last offset delta      record count - 1
//	    27    8 base timestamp         milliseconds
//	    35    8 max timestamp          milliseconds
//	    43    8 producer id            -1 if the producer is not idempotent
//	    51    2 producer epoch
//	    53    4 base sequence
//	    57    4 record count
//	    61    - records                compressed as a whole if the codec is not 0
const (
	offBase          = 0
	offLength        = 8
	offEpoch         = 12
	offMagic         = 16
	offCRC           = 17
	offAttributes    = 21
	offLastDelta     = 23
	offBaseTimestamp = 27
	offMaxTimestamp  = 35
	offProducerID    = 43
	offProducerEpoch = 51
	offBaseSequence  = 53
	offCount         = 57
)

const (
	// HeaderSize is the size in bytes of a batch without its records, hence of the smallest batch.
	HeaderSize = 61
	// LengthEnd is the size in bytes of the prefix that tells how long a batch is: see PeekSize.
	LengthEnd = 12
	// MaxSize is the largest size in bytes that the length field can tell.
	MaxSize = math.MaxInt32 + LengthEnd
	// Magic is the one format taken.
	Magic = 2
	// minRecordSize is the size in bytes of a record with no key, no value and no header: seven one-byte varints.
	minRecordSize = 7
)

// Attribute bits.
const (
	maskCodec         = 0x07
	maskLogAppendTime = 0x08
	maskTransactional = 0x10
	maskControl       = 0x20
)

// Codec says how the records of a batch are compressed.
type Codec uint8

// The codecs of Kafka.
const (
	CodecNone Codec = iota
	CodecGzip
	CodecSnappy
	CodecLZ4
	CodecZstd
)

// String gives the name that Kafka's compression.type has for the codec.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return "unknown"
}

// NoProducer is the producer id of a batch that no idempotent producer made.
const NoProducer = -1
