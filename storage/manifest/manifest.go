package manifest

import (
	"fmt"
	"io"

	"github.com/zeebo/blake3"

	"github.com/vtop-log/vtop"
)

// hasher gives the hashes of chunks, one after the other.
type hasher struct{ h *blake3.Hasher }

func newHasher() hasher { return hasher{blake3.NewDeriveKey(chunkContext)} }

func (h hasher) sum(chunk []byte) (sum Hash) {
	h.h.Reset()
	h.h.Write(chunk)
	h.h.Sum(sum[:0])
	return sum
}

// Compute reads a segment of size bytes whose first record has offset base, checks every batch as Walk does, and
// returns its manifest. producers is the producer state at the end of the segment; it is kept, not copied. The
// segment must not be empty, and must have no slack: every byte belongs to a batch.
//
// Damage is a *BadBatch or wraps vtop.ErrDamaged; errors of reading are returned as they are. Memory is bounded by
// a chunk and the largest batch.
func Compute(r io.ReaderAt, size int64, base vtop.Offset, producers []byte) (*Manifest, error) {
	if size > MaxSegmentSize {
		return nil, fmt.Errorf("segment at %d has %d bytes, want at most %d", base, size, int64(MaxSegmentSize))
	}
	h := newHasher()
	m := &Manifest{Base: base, Size: size, Producers: producers}
	w := &window{r: r, size: size, chunk: func(chunk []byte) { m.Chunks = append(m.Chunks, h.sum(chunk)) }}
	found, err := walk(w, base, nil)
	if err != nil {
		return nil, fmt.Errorf("segment at %d: %w", base, err)
	}
	m.End, m.Runs = found.End, found.Runs
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: segment at %d: %w", vtop.ErrDamaged, base, err)
	}
	m.Root = rootOf(m.appendBody(nil))
	return m, nil
}

// ChunkRange returns the place of chunk i in the segment, in bytes. i is from 0 to len(Chunks)-1.
func (m *Manifest) ChunkRange(i int) (pos int64, length int) {
	pos = int64(i) * ChunkSize
	return pos, int(min(ChunkSize, m.Size-pos))
}

// VerifyChunk compares the bytes of chunk i with its hash. Errors wrap vtop.ErrDamaged.
func (m *Manifest) VerifyChunk(i int, data []byte) error { return m.verifyChunk(newHasher(), i, data) }

func (m *Manifest) verifyChunk(h hasher, i int, data []byte) error {
	if i < 0 || i >= len(m.Chunks) {
		return fmt.Errorf("%w: chunk %d of %d", vtop.ErrDamaged, i, len(m.Chunks))
	}
	pos, length := m.ChunkRange(i)
	if len(data) != length {
		return fmt.Errorf("%w: chunk %d has %d bytes, want %d", vtop.ErrDamaged, i, len(data), length)
	}
	if sum := h.sum(data); sum != m.Chunks[i] {
		return fmt.Errorf("%w: chunk %d (bytes %d to %d) hashes to %x, manifest tells %x",
			vtop.ErrDamaged, i, pos, pos+int64(length), sum, m.Chunks[i])
	}
	return nil
}

// Verify compares a whole segment of size bytes with the manifest and returns one error for each bad chunk, each
// wrapping vtop.ErrDamaged, and one for a size that differs; none if it is whole. A chunk that the disk does not
// give is bad like any other. It holds one chunk in memory.
func (m *Manifest) Verify(r io.ReaderAt, size int64) (bad []error) {
	if size != m.Size {
		bad = append(bad, fmt.Errorf("%w: segment has %d bytes, manifest tells %d", vtop.ErrDamaged, size, m.Size))
	}
	h := newHasher()
	buf := make([]byte, min(ChunkSize, m.Size))
	for i := range m.Chunks {
		pos, length := m.ChunkRange(i)
		if pos >= size {
			return append(bad, fmt.Errorf("%w: chunks %d to %d are missing", vtop.ErrDamaged, i, len(m.Chunks)-1))
		}
		if err := readFull(r, buf[:length], pos); err != nil {
			bad = append(bad, fmt.Errorf("%w: chunk %d (bytes %d to %d): %w", vtop.ErrDamaged, i, pos, pos+int64(length), err))
			continue
		}
		if err := m.verifyChunk(h, i, buf[:length]); err != nil {
			bad = append(bad, err)
		}
	}
	return bad
}
