package kafka

import (
	"math/bits"
	"sync"
)

// buffer is a piece of pooled memory. Whoever gets one gives it back once, and touches it no more.
type buffer struct{ b []byte }

// Pooled sizes are the powers of two from 4 KiB to 32 MiB; larger ones are left to the garbage collector.
const (
	minClass = 12
	maxClass = 25
)

// bufferPool keeps buffers by size class. The zero value is ready.
type bufferPool struct {
	classes [maxClass - minClass + 1]sync.Pool
}

// get returns an empty buffer with room for n bytes or more.
func (p *bufferPool) get(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &buffer{make([]byte, 0, n)}
	}
	if b, ok := p.classes[class-minClass].Get().(*buffer); ok {
		b.b = b.b[:0]
		return b
	}
	return &buffer{make([]byte, 0, 1<<class)}
}

// put gives b back. A buffer that has grown by append goes to the class that its capacity fills.
func (p *bufferPool) put(b *buffer) {
	if b == nil {
		return
	}
	class := bits.Len(uint(cap(b.b))) - 1 // rounds down
	if class < minClass || class > maxClass {
		return
	}
	p.classes[class-minClass].Put(b)
}

// grow returns a buffer with room for n bytes that holds what b held; b itself if it has the room.
func (p *bufferPool) grow(b *buffer, n int) *buffer {
	if cap(b.b) >= n {
		return b
	}
	bigger := p.get(n)
	bigger.b = append(bigger.b, b.b...)
	p.put(b)
	return bigger
}
