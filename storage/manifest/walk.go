package manifest

import (
	"errors"
	"fmt"
	"io"

	"github.com/vtop-log/vtop"
	"github.com/vtop-log/vtop/batch"
)

// maxBatch is the largest batch in bytes that a segment may hold: the upper end of max.message.bytes.
const maxBatch = 64 << 20

// Walked is what Walk found.
type Walked struct {
	// End is the offset after the last good record; the base if there is none.
	End vtop.Offset
	// Size is the number of bytes of good batches from the beginning of the file.
	Size int64
	// Batches is how many there are.
	Batches int64
	// Runs are their epochs.
	Runs []vtop.EpochRun
}

// BadBatch says where the good batches of a file end while there are more bytes, and why. It is a vtop.ErrDamaged.
type BadBatch struct {
	// Pos is the place in the file in bytes, and Offset the record offset that was due there.
	Pos    int64
	Offset vtop.Offset
	Err    error
}

// Error implements error.
func (b *BadBatch) Error() string {
	return fmt.Sprintf("damaged data: byte %d, where offset %d is due: %v", b.Pos, b.Offset, b.Err)
}

// Is makes errors.Is(err, vtop.ErrDamaged) true.
func (b *BadBatch) Is(target error) bool { return target == vtop.ErrDamaged }

// Unwrap returns the cause.
func (b *BadBatch) Unwrap() error { return b.Err }

// Walk reads a segment of size bytes from its beginning and checks each batch: CRC32C and all of batch.Check, that
// the first has offset base and each other follows the last, and that epochs do not fall. It hands good batches to fn
// (which may be nil) and ends with fn's error. At the first bad one it ends with a *BadBatch; Walked tells the good
// part. Errors of reading are returned as they are. A batch is valid until fn returns.
//
// Memory is bounded by a chunk and the largest batch, and every byte is read once.
func Walk(r io.ReaderAt, size int64, base vtop.Offset, fn func(pos int64, b batch.Batch) error) (Walked, error) {
	return walk(&window{r: r, size: size}, base, fn)
}

func walk(w *window, base vtop.Offset, fn func(pos int64, b batch.Batch) error) (Walked, error) {
	found := Walked{End: base}
	for found.Size < w.size {
		b, err := nextBatch(w)
		if err == nil {
			err = found.follows(b)
		}
		if w.failed != nil {
			return found, w.failed
		}
		if err != nil {
			return found, &BadBatch{Pos: found.Size, Offset: found.End, Err: err}
		}
		if fn != nil {
			if err := fn(found.Size, b); err != nil {
				return found, err
			}
		}
		found.take(b)
		w.drop(len(b))
	}
	return found, nil
}

// nextBatch looks at the batch at the front of the window and checks it alone.
func nextBatch(w *window) (batch.Batch, error) {
	size, err := batch.PeekSize(w.peek(batch.LengthEnd))
	if err != nil {
		return nil, err
	}
	if size > maxBatch {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are stored", vtop.ErrBatchTooLarge, size, maxBatch)
	}
	if left := w.left(); int64(size) > left {
		return nil, fmt.Errorf("%w: %d bytes of %d", batch.ErrTruncated, left, size)
	}
	b, _, err := batch.Parse(w.peek(size), 0)
	if err != nil {
		return nil, err
	}
	return b, b.Check()
}

// follows holds a batch to the one before it (I9: continuity of offset and epoch).
func (f *Walked) follows(b batch.Batch) error {
	if b.BaseOffset() != f.End {
		return fmt.Errorf("%w: batch has offset %d", vtop.ErrCorruptBatch, b.BaseOffset())
	}
	last := vtop.NoEpoch
	if n := len(f.Runs); n > 0 {
		last = f.Runs[n-1].Epoch
	}
	if b.Epoch() <= vtop.NoEpoch || b.Epoch() < last {
		return fmt.Errorf("%w: batch has epoch %d after epoch %d", vtop.ErrCorruptBatch, b.Epoch(), last)
	}
	if b.LastOffset()+1 <= b.BaseOffset() {
		return fmt.Errorf("%w: offsets from %d wrap", vtop.ErrCorruptBatch, b.BaseOffset())
	}
	return nil
}

func (f *Walked) take(b batch.Batch) {
	if n := len(f.Runs); n == 0 || f.Runs[n-1].Epoch != b.Epoch() {
		f.Runs = append(f.Runs, vtop.EpochRun{Epoch: b.Epoch(), Start: b.BaseOffset()})
	}
	f.End = b.LastOffset() + 1
	f.Size += int64(len(b))
	f.Batches++
}

// window reads a file once, forward, in whole chunks, and shows a part of it.
type window struct {
	r    io.ReaderAt
	size int64
	// chunk, if set, gets every chunk in order.
	chunk func([]byte)

	read   int64 // bytes read from the file
	store  []byte
	shown  []byte // the tail of store that was not dropped
	failed error  // the first error of reading
}

// left is the number of bytes from the front of the window to the end of the file.
func (w *window) left() int64 { return w.size - w.read + int64(len(w.shown)) }

// peek shows the next n bytes, or as many as there are.
func (w *window) peek(n int) []byte {
	for len(w.shown) < n && w.read < w.size && w.failed == nil {
		w.fill()
	}
	return w.shown[:min(n, len(w.shown))]
}

// drop takes n bytes that were shown off the front.
func (w *window) drop(n int) { w.shown = w.shown[n:] }

// fill reads one chunk more.
func (w *window) fill() {
	n := int(min(ChunkSize, w.size-w.read))
	have := len(w.shown)
	if cap(w.store) < have+n {
		w.store = make([]byte, have+n, 2*have+ChunkSize+ChunkSize/4)
	}
	w.store = w.store[:have+n]
	copy(w.store, w.shown) // to the front; copy minds the overlap
	if err := readFull(w.r, w.store[have:], w.read); err != nil {
		w.shown = w.store[:have]
		w.failed = fmt.Errorf("read %d bytes at %d: %w", n, w.read, err)
		return
	}
	if w.chunk != nil {
		w.chunk(w.store[have:])
	}
	w.read += int64(n)
	w.shown = w.store
}

// readFull fills p. A file that ends before is an error.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
