package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(compute(f, makeSegment(0, 10), 0).Encode())
	f.Add(compute(f, makeSegment(9, 10, 20, 30, 40), 9).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		for range 2 {
			m, err := Decode(data)
			if err == nil && !bytes.Equal(m.Encode(), data) {
				t.Fatal("one manifest has two encodings")
			}
			if err != nil && !errors.Is(err, vtop.ErrDamaged) {
				t.Fatal(err)
			}
			// Again with CRC and root mended, to get at what is behind them.
			if data = bytes.Clone(data); len(data) < headerSize+trailerSize {
				return
			}
			body := data[:len(data)-trailerSize]
			root := rootOf(body)
			copy(data[len(body):], root[:])
			binary.BigEndian.PutUint32(data[len(data)-4:], crc32.Checksum(data[:len(data)-4], castagnoli))
		}
	})
}

// FuzzWalk: any bytes are walked or refused, and what was taken is a log.
func FuzzWalk(f *testing.F) {
	f.Add(makeSegment(0, 10, 20), int64(0))
	f.Add(makeSegment(8, 10, 300), int64(8))
	f.Add(append(makeSegment(8, 10), make([]byte, 100)...), int64(8))
	f.Fuzz(func(t *testing.T, data []byte, base int64) {
		end := vtop.Offset(base)
		found, err := Walk(bytes.NewReader(data), int64(len(data)), end, func(pos int64, b batch.Batch) error {
			if b.BaseOffset() != end || b.Check() != nil {
				t.Fatalf("batch at %d has offset %d, want %d", pos, b.BaseOffset(), end)
			}
			end = b.LastOffset() + 1
			return nil
		})
		if err != nil && !errors.Is(err, vtop.ErrDamaged) || found.End != end || err == nil && found.Size != int64(len(data)) {
			t.Fatalf("%+v: %v", found, err)
		}
	})
}
