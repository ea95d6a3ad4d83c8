package batch

import (
	"fmt"
	"hash/crc32"

	"github.com/vtop-log/vtop"
)

// Check looks at all that a whole batch can be held to without decompressing it: its length, format, CRC32C,
// record count, attributes and producer fields. It is the gate for batches of clients and peers, and for bytes
// read back from disk. It returns an error that wraps vtop.ErrCorruptBatch or vtop.ErrUnsupportedBatch and tells
// the values found and wanted. It allocates nothing but errors.
func (b Batch) Check() error {
	if len(b) < HeaderSize {
		return fmt.Errorf("%w: %d bytes, a header alone has %d", ErrTruncated, len(b), HeaderSize)
	}
	if b.Size() != len(b) {
		return fmt.Errorf("%w: length field tells %d bytes, have %d", vtop.ErrCorruptBatch, b.Size(), len(b))
	}
	if b.Magic() != Magic {
		return fmt.Errorf("%w: magic %d, want %d", vtop.ErrUnsupportedBatch, b.Magic(), Magic)
	}
	if sum := crc32.Checksum(b[offAttributes:], castagnoli); sum != b.CRC() {
		return fmt.Errorf("%w: CRC32C of the bytes is %08x, header tells %08x", vtop.ErrCorruptBatch, sum, b.CRC())
	}
	if err := b.checkCount(); err != nil {
		return err
	}
	if err := b.checkAttributes(); err != nil {
		return err
	}
	return b.checkProducer()
}

// checkCount holds the count to the offsets it takes up, and to the bytes there are: a consumer believes it.
func (b Batch) checkCount() error {
	count, delta := int64(b.Count()), int64(b.LastOffsetDelta())
	if count <= 0 || count != delta+1 {
		return fmt.Errorf("%w: %d records, last offset delta %d", vtop.ErrCorruptBatch, count, delta)
	}
	body := int64(len(b) - HeaderSize)
	if b.Codec() == CodecNone && count*minRecordSize > body || body == 0 {
		return fmt.Errorf("%w: %d records cannot be in %d bytes", vtop.ErrCorruptBatch, count, body)
	}
	return nil
}

func (b Batch) checkAttributes() error {
	switch attributes := b.Attributes(); {
	case attributes&maskControl != 0:
		return fmt.Errorf("%w: control batch (attributes %#04x)", vtop.ErrUnsupportedBatch, attributes)
	case attributes&maskTransactional != 0:
		return fmt.Errorf("%w: transactional batch (attributes %#04x)", vtop.ErrUnsupportedBatch, attributes)
	case b.Codec() > CodecZstd:
		return fmt.Errorf("%w: codec %d, known are 0 to %d", vtop.ErrUnsupportedBatch, b.Codec(), CodecZstd)
	}
	return nil
}

// checkProducer: an idempotent batch has an id, an epoch and a sequence number, all from 0 up.
func (b Batch) checkProducer() error {
	id, epoch, sequence := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
	if id == NoProducer || id >= 0 && epoch >= 0 && sequence >= 0 {
		return nil
	}
	return fmt.Errorf("%w: producer id %d epoch %d base sequence %d", vtop.ErrCorruptBatch, id, epoch, sequence)
}
