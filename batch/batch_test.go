package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/vtop-log/vtop"
)

var codecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

// sample returns n records with all shapes of keys, values and headers.
func sample(n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Timestamp: 1_700_000_000_000 + int64(i%7) - 3,
			Key:       []byte(fmt.Sprintf("key-%d", i)),
			Value:     bytes.Repeat([]byte{byte(i)}, i%300),
		}
		switch i % 4 {
		case 1:
			records[i].Key = nil
		case 2:
			records[i].Value = nil
		case 3:
			records[i].Headers = []Header{{"a", []byte("b")}, {"", nil}, {"c", []byte{}}}
		}
	}
	return records
}

func idempotent(n int, codec Codec) Batch {
	return Build(Spec{
		Base: 40, Epoch: 3, Codec: codec, Records: sample(n), Producer: &Producer{ID: 9, Epoch: 1, Sequence: 70},
	})
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBatch_Accessors(t *testing.T) {
	b := idempotent(5, CodecLZ4)
	ok(t, b.Check())
	got := fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.Size() == len(b), b.Epoch(), b.Magic(), b.Codec(), b.Attributes(),
		b.IsTransactional(), b.IsControl(), b.LastOffsetDelta(), b.BaseTimestamp(), b.MaxTimestamp(),
		b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), b.Count())
	want := "40 44 true 3 2 lz4 3 false false 4 1699999999997 1700000000001 9 1 70 74 5"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	b.Stamp(1<<40, 77)
	if b.BaseOffset() != 1<<40 || b.LastOffset() != 1<<40+4 || b.Epoch() != 77 {
		t.Errorf("stamped %d, %d, epoch %d", b.BaseOffset(), b.LastOffset(), b.Epoch())
	}
	ok(t, b.Check()) // neither is under the CRC
}

func TestAddSequence_WrapsLikeKafka(t *testing.T) {
	for _, c := range []struct{ sequence, n, want int32 }{
		{0, 0, 0}, {0, 1, 1}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 1, math.MaxInt32},
		{math.MaxInt32 - 1, 4, 2}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		if got := AddSequence(c.sequence, c.n); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.sequence, c.n, got, c.want)
		}
	}
}

func TestParse_Refusals(t *testing.T) {
	whole := idempotent(3, CodecNone)
	edit := func(fn func(b Batch)) []byte {
		b := bytes.Clone(whole)
		fn(b)
		return b
	}
	length := func(n int32) []byte {
		return edit(func(b Batch) { binary.BigEndian.PutUint32(b[offLength:], uint32(n)) })
	}
	for _, c := range []struct {
		name string
		b    []byte
		max  int
		want error
	}{
		{"nothing", nil, 0, ErrTruncated},
		{"cut in the length field", whole[:11], 0, ErrTruncated},
		{"cut in the header", whole[:40], 0, ErrTruncated},
		{"cut in the records", whole[:len(whole)-1], 0, ErrTruncated},
		{"zeros, as of a tail zeroed ahead", make([]byte, 4096), 0, vtop.ErrCorruptBatch},
		{"negative length", length(-1), 0, vtop.ErrCorruptBatch},
		{"length below a header", length(HeaderSize - LengthEnd - 1), 0, vtop.ErrCorruptBatch},
		{"length of two gigabytes", length(math.MaxInt32), 0, ErrTruncated},
		{"length of two gigabytes with a limit", length(math.MaxInt32), 1 << 20, vtop.ErrBatchTooLarge},
		{"one byte above the limit", whole, len(whole) - 1, vtop.ErrBatchTooLarge},
		{"format 1", edit(func(b Batch) { b[offMagic] = 1 }), 0, vtop.ErrUnsupportedBatch},
		{"format 1, shorter than a header of format 2", edit(func(b Batch) {
			b[offMagic] = 1
			binary.BigEndian.PutUint32(b[offLength:], 22)
		}), 0, vtop.ErrUnsupportedBatch},
		{"format 3", edit(func(b Batch) { b[offMagic] = 3 }), 0, vtop.ErrUnsupportedBatch},
	} {
		if b, rest, err := Parse(c.b, c.max); !errors.Is(err, c.want) || b != nil || len(rest) != len(c.b) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	// Case: what follows is left, and cannot be reached by appending to the batch.
	b, rest, err := Parse(append(bytes.Clone(whole), "rest"...), len(whole))
	if err != nil || !bytes.Equal(b, whole) || string(rest) != "rest" || cap(b) != len(b) {
		t.Errorf("got %d bytes, rest %q, %v", len(b), rest, err)
	}
}

func TestCheck_Refusals(t *testing.T) {
	put32 := func(off int, v int32) func(Batch) {
		return func(b Batch) { binary.BigEndian.PutUint32(b[off:], uint32(v)) }
	}
	attributes := func(v uint16) func(Batch) {
		return func(b Batch) { binary.BigEndian.PutUint16(b[offAttributes:], v) }
	}
	for _, c := range []struct {
		name string
		edit func(Batch)
		want error
	}{
		{"unchanged", func(Batch) {}, nil},
		{"no record", func(b Batch) { put32(offCount, 0)(b); put32(offLastDelta, -1)(b) }, vtop.ErrCorruptBatch},
		{"more offsets than records", put32(offLastDelta, 3), vtop.ErrCorruptBatch},
		{"fewer offsets than records", put32(offLastDelta, 1), vtop.ErrCorruptBatch},
		{"delta and count that wrap", func(b Batch) { put32(offCount, math.MinInt32)(b); put32(offLastDelta, math.MaxInt32)(b) }, vtop.ErrCorruptBatch},
		{"more records than the bytes can hold", func(b Batch) { put32(offCount, 1000)(b); put32(offLastDelta, 999)(b) }, vtop.ErrCorruptBatch},
		{"control", attributes(maskControl), vtop.ErrUnsupportedBatch},
		{"transactional", attributes(maskTransactional), vtop.ErrUnsupportedBatch},
		{"log append time", attributes(maskLogAppendTime), nil},
		{"codec 5", attributes(5), vtop.ErrUnsupportedBatch},
		{"codec 4", attributes(4), nil}, // whether the bytes are zstd is for the consumer to find
		{"sequence -1 of an idempotent producer", put32(offBaseSequence, -1), vtop.ErrCorruptBatch},
		{"producer epoch -1", func(b Batch) { b[offProducerEpoch] = 0xff }, vtop.ErrCorruptBatch},
		{"producer id -2", func(b Batch) { copy(b[offProducerID:], "\xff\xff\xff\xff\xff\xff\xff\xfe") }, vtop.ErrCorruptBatch},
		{"format 1", func(b Batch) { b[offMagic] = 1 }, vtop.ErrUnsupportedBatch},
	} {
		b := idempotent(3, CodecNone)
		c.edit(b)
		b.Reseal()
		if err := b.Check(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	b := idempotent(3, CodecNone)
	if err := b[:len(b)-1].Check(); !errors.Is(err, vtop.ErrCorruptBatch) {
		t.Errorf("cut: %v", err)
	}
	if err := b[:10].Check(); !errors.Is(err, ErrTruncated) {
		t.Errorf("cut in the header: %v", err)
	}
	if err := append(Batch(bytes.Clone(b)), 0).Check(); !errors.Is(err, vtop.ErrCorruptBatch) {
		t.Errorf("a byte too many: %v", err)
	}
	compressed := idempotent(3, CodecGzip)[:HeaderSize]
	compressed.Reseal()
	if err := compressed.Check(); !errors.Is(err, vtop.ErrCorruptBatch) {
		t.Errorf("compressed nothing: %v", err)
	}
}

// I9: no flipped bit passes, but in the two fields that a leader stamps, which continuity of the log guards.
func TestCheck_EveryFlippedBit(t *testing.T) {
	b := idempotent(4, CodecSnappy)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			err := b.Check()
			stamped := i < offLength || i >= offEpoch && i < offMagic
			if (err == nil) != stamped {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestAll_WalksABuffer(t *testing.T) {
	var buf []byte
	for i := range 3 {
		b := idempotent(i+1, CodecNone)
		b.Stamp(vtop.Offset(100*i), 1)
		buf = append(buf, b...)
	}
	walk := func(buf []byte) (bases string, last error) {
		for b, err := range All(buf) {
			if err != nil {
				last = err
				continue
			}
			bases += fmt.Sprint(b.BaseOffset(), " ")
		}
		return bases, last
	}
	if bases, err := walk(buf); bases != "0 100 200 " || err != nil {
		t.Errorf("got %q, %v", bases, err)
	}
	if bases, err := walk(buf[:len(buf)-1]); bases != "0 100 " || !errors.Is(err, ErrTruncated) {
		t.Errorf("cut: got %q, %v", bases, err)
	}
	if _, _, err := Next(nil); err != io.EOF {
		t.Errorf("empty: %v", err)
	}
	for range All(buf) {
		break // must not panic
	}
}

func TestBatch_NothingIsAllocated(t *testing.T) {
	b := idempotent(100, CodecNone)
	if n := testing.AllocsPerRun(100, func() {
		first, _, err := Parse(b, 1<<20)
		if err != nil || first.Check() != nil {
			t.Fatal(err)
		}
		first.Stamp(1, 2)
	}); n != 0 {
		t.Errorf("%v allocations for one batch", n)
	}
}

// Another implementation of the format reads what Build writes, and the other way round.
func TestBatch_MeetsAnotherImplementation(t *testing.T) {
	for _, codec := range codecs {
		b := idempotent(50, codec)
		var other kmsg.RecordBatch
		ok(t, other.ReadFrom(b))
		if other.FirstOffset != 40 || other.PartitionLeaderEpoch != 3 || other.Magic != 2 || uint32(other.CRC) != b.CRC() ||
			other.LastOffsetDelta != 49 || other.ProducerID != 9 || other.ProducerEpoch != 1 || other.FirstSequence != 70 ||
			other.NumRecords != 50 || other.Attributes != int16(codec) || other.MaxTimestamp != b.MaxTimestamp() ||
			other.FirstTimestamp != b.BaseTimestamp() {
			t.Errorf("%s: kmsg reads %+v", codec, other)
		}
		body, err := kgo.DefaultDecompressor().Decompress(other.Records, kgo.CompressionCodecType(codec))
		ok(t, err)
		for i, want := range sample(50) {
			var r kmsg.Record
			ok(t, r.ReadFrom(body))
			body = body[recordSize(body):]
			if !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || len(r.Headers) != len(want.Headers) {
				t.Errorf("%s: record %d: %+v", codec, i, r)
			}
		}
		again, _, err := Parse(other.AppendTo(nil), 0)
		ok(t, err)
		ok(t, again.Check())
	}
}

func recordSize(b []byte) int {
	n, width := binary.Varint(b)
	return width + int(n)
}

func TestRecords_RoundTrip(t *testing.T) {
	want := sample(60)
	for _, codec := range codecs {
		b := idempotent(60, codec)
		i := 0
		ok(t, b.Records(1<<20, func(r Record) error {
			w := want[i]
			w.Offset = vtop.Offset(40 + i)
			if fmt.Sprintf("%#v", r) != fmt.Sprintf("%#v", w) && len(w.Headers) > 0 || r.Offset != w.Offset || r.Timestamp != w.Timestamp ||
				(r.Key == nil) != (w.Key == nil) || (r.Value == nil) != (w.Value == nil) || !bytes.Equal(r.Value, w.Value) {
				t.Errorf("%s: record %d: %#v, want %#v", codec, i, r, w)
			}
			i++
			return nil
		}))
		if i != 60 {
			t.Errorf("%s: %d records", codec, i)
		}
		stop := errors.New("stop")
		if err := b.Records(1<<20, func(Record) error { return stop }); err != stop {
			t.Errorf("%s: %v", codec, err)
		}
	}
}

// withBody replaces the records of a batch by bytes that claim to be of a codec.
func withBody(codec Codec, count int32, body []byte) Batch {
	b := append(idempotent(1, CodecNone)[:HeaderSize:HeaderSize], body...)
	b[offAttributes+1] = byte(codec)
	binary.BigEndian.PutUint32(b[offCount:], uint32(count))
	binary.BigEndian.PutUint32(b[offLastDelta:], uint32(count-1))
	b.Reseal()
	return b
}

func TestRecords_XerialSnappy(t *testing.T) {
	plain := []byte(idempotent(60, CodecNone)[HeaderSize:])
	framed := []byte(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01")
	for at := 0; at < len(plain); at += 1000 {
		block := compress(CodecSnappy, plain[at:min(at+1000, len(plain))])
		framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(block))), block...)
	}
	count := 0
	ok(t, withBody(CodecSnappy, 60, framed).Records(1<<20, func(Record) error { count++; return nil }))
	if count != 60 {
		t.Errorf("%d records", count)
	}
	for _, cut := range []int{len(framed) - 1, xerialHeader + 2} {
		err := withBody(CodecSnappy, 60, framed[:cut]).Records(1<<20, func(Record) error { return nil })
		if !errors.Is(err, vtop.ErrCorruptBatch) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// I13: a small batch that decompresses to much is stopped at the limit.
func TestRecords_OutputIsBounded(t *testing.T) {
	bomb := Spec{Records: []Record{{Value: make([]byte, 8<<20)}}}
	for _, codec := range codecs[1:] {
		bomb.Codec = codec
		b := Build(bomb)
		ok(t, b.Check())
		if err := b.Records(1<<20, func(Record) error { return nil }); !errors.Is(err, vtop.ErrBatchTooLarge) {
			t.Errorf("%s of %d bytes: got %v", codec, len(b), err)
		}
		ok(t, b.Records(9<<20, func(Record) error { return nil }))
	}
}

func TestRecords_Refusals(t *testing.T) {
	good := []byte(idempotent(3, CodecNone)[HeaderSize:])
	huge := binary.AppendVarint(nil, math.MaxInt64)
	record := func(fields ...byte) []byte {
		return append(binary.AppendVarint(nil, int64(len(fields))), fields...)
	}
	for _, c := range []struct {
		name  string
		codec Codec
		body  []byte
		count int32
	}{
		{"a record too few", 0, good, 4},
		{"bytes after the last", 0, good, 2},
		{"length beyond the bytes", 0, append(huge, good...), 1},
		{"negative length", 0, []byte{1, 0, 0, 0, 0, 0, 0, 0}, 1},
		{"key beyond the record", 0, record(0, 0, 0, 100, 0, 0, 0), 1},
		{"a million headers", 0, record(append([]byte{0, 0, 0, 1, 1}, binary.AppendVarint(nil, 1e6)...)...), 1},
		{"minus one header", 0, record(0, 0, 0, 1, 1, 1, 0), 1},
		{"a header without a name", 0, record(0, 0, 0, 1, 1, 2, 1, 1), 1},
		{"offset delta that skips", 0, record(0, 0, 2, 1, 1, 0, 0), 1},
		{"varint of eleven bytes", 0, bytes.Repeat([]byte{0xff}, 11), 1},
		{"not gzip", CodecGzip, good, 3},
		{"not snappy", CodecSnappy, good, 3},
		{"snappy that claims much", CodecSnappy, append(binary.AppendUvarint(nil, 900_000), 0, 0), 3},
		{"not lz4", CodecLZ4, good, 3},
		{"not zstd", CodecZstd, good, 3},
	} {
		err := withBody(c.codec, c.count, c.body).Records(1<<20, func(Record) error { return nil })
		if !errors.Is(err, vtop.ErrCorruptBatch) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

func TestCodec_Names(t *testing.T) {
	if s := strings.Trim(fmt.Sprint(codecs, Codec(7)), "[]"); s != "none gzip snappy lz4 zstd] unknown" {
		t.Error(s)
	}
}

func TestSetAppendTime(t *testing.T) {
	for _, codec := range []Codec{CodecNone, CodecZstd} {
		b := Build(Spec{Codec: codec, Producer: &Producer{ID: 7, Epoch: 1, Sequence: 3}, Records: []Record{{Timestamp: 500, Value: []byte("a")}, {Timestamp: 100, Value: []byte("b")}}})
		before := len(b)
		b.SetAppendTime(9000)
		if err := b.Check(); err != nil || len(b) != before || !b.HasAppendTime() || b.MaxTimestamp() != 9000 || b.Codec() != codec || b.ProducerID() != 7 {
			t.Fatalf("%s: %v: %+v", codec, err, b)
		}
		var got []string
		err := b.Records(1<<20, func(r Record) error {
			got = append(got, fmt.Sprintf("%d %s", r.Timestamp, r.Value))
			return nil
		})
		if err != nil || len(got) != 2 || got[0] != "9000 a" || got[1] != "9000 b" {
			t.Errorf("%s: %v %v", codec, got, err)
		}
	}
}
