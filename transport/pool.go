package transport

import (
	"io"
	"sync"
	"sync/atomic"
)

// Buffers come in sizes of a power of four. A buffer that was never given back is garbage like any other.
const (
	minBuffer  = 4 << 10
	bufferStep = 4
	bufferSize = 8 // 4 KiB … 64 MiB
)

// firstRead is the most that is set aside for a frame before any of it has arrived; after that the buffer
// grows to at most bufferStep times what did.
const firstRead = 256 << 10

type buffer struct {
	bytes []byte
	class int
	// life changes when the buffer is given back, so that a second Release of one frame does nothing.
	life atomic.Uint32
}

// buffers is the process' stock of read buffers; sync.Pool needs no owner.
var buffers [bufferSize]sync.Pool

func classOf(n int) int {
	class, size := 0, minBuffer
	for size < n {
		class, size = class+1, size*bufferStep
	}
	return class
}

func getBuffer(n int) *buffer {
	class := classOf(n)
	if b, ok := buffers[class].Get().(*buffer); ok {
		return b
	}
	size := minBuffer
	for range class {
		size *= bufferStep
	}
	return &buffer{bytes: make([]byte, size), class: class}
}

func (b *buffer) put() {
	b.life.Add(1)
	buffers[b.class].Put(b)
}

// readBody reads n bytes, n at most MaxFrame, into a pooled buffer.
func readBody(r io.Reader, n int) (*buffer, error) {
	b := getBuffer(min(n, firstRead))
	for have := 0; ; {
		want := min(n, len(b.bytes))
		if _, err := io.ReadFull(r, b.bytes[have:want]); err != nil {
			b.put()
			return nil, err
		}
		if have = want; have == n {
			return b, nil
		}
		bigger := getBuffer(min(n, have*bufferStep))
		copy(bigger.bytes, b.bytes[:have])
		b.put()
		b = bigger
	}
}
