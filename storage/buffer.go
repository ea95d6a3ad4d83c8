package storage

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/vtop-log/vtop"
)

// chunk is a piece of the write buffer: whole batches that go to one place of one segment. The appender adds at
// the end under the log's mu; once the flusher has taken it, it does not change. Readers hold it by a count, so
// that it is not reused under them.
type chunk struct {
	seg *segment
	// pos is the position of data in the segment's file; base the offset of its first batch.
	pos  int64
	base vtop.Offset
	// end is the offset after the last batch.
	end  vtop.Offset
	data []byte
	// taken is true once the flusher has it.
	taken bool
	users atomic.Int32
	class int
}

// Chunks come in powers of two from 4 KiB to 1 MiB; a batch that is larger has one of its own size.
const (
	minChunkShift = 12
	maxChunkShift = 20
	unpooled      = -1
)

// chunkPool lends chunks. Its bounds are those of the write buffers.
type chunkPool struct {
	classes [maxChunkShift - minChunkShift + 1]sync.Pool
}

// get returns an empty chunk with room for n bytes at least, with one user.
func (p *chunkPool) get(n int) *chunk {
	class := max(bits.Len(uint(n-1)), minChunkShift) - minChunkShift
	var c *chunk
	if class >= len(p.classes) {
		c = &chunk{data: make([]byte, 0, n), class: unpooled}
	} else if c, _ = p.classes[class].Get().(*chunk); c == nil {
		c = &chunk{data: make([]byte, 0, 1<<(class+minChunkShift)), class: class}
	}
	c.users.Store(1)
	return c
}

// release gives up one use; the last one returns the chunk.
func (p *chunkPool) release(c *chunk) {
	if c.users.Add(-1) > 0 || c.class == unpooled {
		return
	}
	class := c.class
	*c = chunk{data: c.data[:0], class: class}
	p.classes[class].Put(c)
}

// roomLocked returns a chunk of the tail with room for n bytes. A new one is larger than the last, so that few
// serve a busy log and an idle one holds little.
func (l *Log) roomLocked(n int) *chunk {
	size := n
	if len(l.chunks) > 0 {
		c := l.chunks[len(l.chunks)-1]
		if !c.taken && c.seg == l.tailLocked() && cap(c.data)-len(c.data) >= n {
			return c
		}
		size = max(n, min(4*cap(c.data), 1<<maxChunkShift))
	}
	c := l.store.chunks.get(size)
	c.seg = l.tailLocked()
	c.pos, c.base, c.end = c.seg.size, l.end, l.end
	l.chunks = append(l.chunks, c)
	return c
}

// dropChunksLocked takes the first n chunks, which are durable or given up, out of the buffer.
func (l *Log) dropChunksLocked(n int) {
	var bytes int64
	for i, c := range l.chunks[:n] {
		bytes += int64(len(c.data))
		l.chunks[i] = nil
		l.store.chunks.release(c)
	}
	rest := copy(l.chunks, l.chunks[n:])
	clear(l.chunks[rest:])
	l.chunks = l.chunks[:rest]
	l.buffered -= bytes
	l.store.buffered.Add(-bytes)
}
