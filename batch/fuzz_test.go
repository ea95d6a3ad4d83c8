package batch

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/vtop-log/vtop"
)

// known reports whether an error is one that callers have an answer for.
func known(err error) bool {
	return errors.Is(err, vtop.ErrCorruptBatch) || errors.Is(err, vtop.ErrBatchTooLarge) || errors.Is(err, vtop.ErrUnsupportedBatch)
}

func seeds(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	for _, codec := range codecs {
		b := idempotent(5, codec)
		f.Add([]byte(b))
		f.Add(append(bytes.Clone(b), b...))
		f.Add([]byte(b[:len(b)-3]))
	}
	f.Add([]byte(withBody(CodecSnappy, 1, []byte(xerialMagic+"\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x02\x01\x00"))))
}

// FuzzParse: whatever the bytes, batches come off the front whole, in bounds and in order, and errors are known ones.
func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		rest := data
		for {
			b, after, err := Next(rest)
			if err == io.EOF {
				return
			}
			if err != nil {
				if !known(err) || b != nil || len(after) != len(rest) {
					t.Fatalf("%d bytes: %v", len(after), err)
				}
				return
			}
			if b.Size() != len(b) || len(b) < HeaderSize || len(b)+len(after) != len(rest) {
				t.Fatalf("batch of %d bytes tells %d, %d of %d are left", len(b), b.Size(), len(after), len(rest))
			}
			if err := b.Check(); err != nil && !known(err) {
				t.Fatal(err)
			}
			rest = after
		}
	})
}

// FuzzRecords: the records of any batch that passes Check are read or refused, within the limit. The CRC is mended, so
// that the fuzzer gets past it.
func FuzzRecords(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		b, _, err := Parse(bytes.Clone(data), 0)
		if err != nil {
			return
		}
		b.Reseal()
		if err := b.Check(); err != nil {
			return
		}
		const limit = 1 << 16
		total, count := 0, int32(0)
		err = b.Records(limit, func(r Record) error {
			total += len(r.Key) + len(r.Value)
			count++
			return nil
		})
		if err != nil && !known(err) {
			t.Fatal(err)
		}
		if total > max(limit, len(b)) || err == nil && count != b.Count() {
			t.Fatalf("%d bytes in %d of %d records: %v", total, count, b.Count(), err)
		}
	})
}

func BenchmarkParseCheckStamp(b *testing.B) {
	for _, size := range []struct {
		name    string
		records int
		value   int
	}{{"1x100B", 1, 100}, {"1x1KiB", 1, 1 << 10}, {"64x1KiB", 64, 1 << 10}, {"1024x1KiB", 1024, 1 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			records := make([]Record, size.records)
			for i := range records {
				records[i].Value = make([]byte, size.value)
			}
			buf := []byte(Build(Spec{Records: records}))
			b.SetBytes(int64(len(buf)))
			b.ReportAllocs()
			for b.Loop() {
				first, _, err := Parse(buf, 2<<20)
				if err != nil || first.Check() != nil {
					b.Fatal(err)
				}
				first.Stamp(7, 1)
			}
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			batch := idempotent(500, codec)
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if err := batch.Records(1<<20, func(Record) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
