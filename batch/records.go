package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/vtop-log/vtop"
)

// Record is one record of a batch.
type Record struct {
	Offset vtop.Offset
	// Timestamp in milliseconds, as the producer told it, or the batch's: see HasAppendTime.
	Timestamp int64
	// Key and Value are nil where the record has none, which is not the same as empty.
	Key, Value []byte
	Headers    []Header
}

// Header is a name and a value beside a record. The value is nil where there is none.
type Header struct {
	Key   string
	Value []byte
}

// Records hands each record of the batch to fn, in order, and ends with the first error of fn, which it returns.
// It decompresses, and gives up with vtop.ErrBatchTooLarge if the records then exceed limit bytes; a batch that is
// not compressed is not limited. Records that do not fit the header or their own lengths are vtop.ErrCorruptBatch;
// fn has seen those before them. The batch must have passed Check.
//
// What fn gets aliases the batch or a buffer and is valid until fn returns. It is not for the path of a produced
// record: it allocates in the measure of the decompressed bytes.
func (b Batch) Records(limit int, fn func(Record) error) error {
	body := []byte(b[HeaderSize:])
	if codec := b.Codec(); codec != CodecNone {
		var err error
		if body, err = decompress(codec, body, limit); err != nil {
			return err
		}
	}
	base, baseTime, appended := b.BaseOffset(), b.BaseTimestamp(), b.HasAppendTime()
	var headers []Header
	for i := range b.Count() {
		r := reader{rest: body}
		length := r.varint()
		record := reader{rest: r.bytes(length)}
		body = r.rest
		if r.bad || length < 0 {
			return fmt.Errorf("%w: record %d of %d: length %d, %d bytes are left",
				vtop.ErrCorruptBatch, i, b.Count(), length, len(r.rest))
		}
		rec, delta := record.record(headers[:0])
		if record.bad || len(record.rest) != 0 || delta != int64(i) {
			return fmt.Errorf("%w: record %d of %d: offset delta %d, %d of %d bytes unread",
				vtop.ErrCorruptBatch, i, b.Count(), delta, len(record.rest), length)
		}
		headers = rec.Headers
		rec.Offset = base + vtop.Offset(delta)
		if rec.Timestamp += baseTime; appended {
			rec.Timestamp = b.MaxTimestamp()
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes after the last of %d records", vtop.ErrCorruptBatch, len(body), b.Count())
	}
	return nil
}

// reader takes values off the front of rest; bad says that one was not there.
type reader struct {
	rest []byte
	bad  bool
}

// varint reads a zigzag varint of at most 64 bits.
func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes takes n bytes; nil for a negative n, which stands for no value.
func (r *reader) bytes(n int64) []byte {
	if n < 0 {
		return nil
	}
	if n > int64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

// record reads the fields after the length. Headers go into the slice given.
//
//	attributes int8 (unused) | timestamp delta | offset delta | key length, key | value length, value |
//	header count, and for each: key length, key, value length, value
//
// All but the first are zigzag varints or bytes.
func (r *reader) record(headers []Header) (rec Record, offsetDelta int64) {
	r.bytes(1)
	rec.Timestamp = r.varint()
	offsetDelta = r.varint()
	rec.Key = r.bytes(r.varint())
	rec.Value = r.bytes(r.varint())
	count := r.varint()
	if count < 0 || count > int64(len(r.rest))/2 { // a header has at least two lengths
		r.bad = true
		return rec, offsetDelta
	}
	for range count {
		n := r.varint()
		if n < 0 {
			r.bad = true
		}
		headers = append(headers, Header{Key: string(r.bytes(n)), Value: r.bytes(r.varint())})
		if r.bad {
			break
		}
	}
	rec.Headers = headers
	return rec, offsetDelta
}
