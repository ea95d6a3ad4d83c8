package repair

import "context"

// buffers bounds the memory of all transfers: so many chunks, made when they are first needed.
type buffers struct{ free chan []byte }

func newBuffers(n int) *buffers {
	b := &buffers{free: make(chan []byte, n)}
	for range n {
		b.free <- nil
	}
	return b
}

// get waits for a buffer of chunkSize bytes.
func (b *buffers) get(ctx context.Context) ([]byte, error) {
	select {
	case buf := <-b.free:
		if buf == nil {
			buf = make([]byte, chunkSize)
		}
		return buf, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// put gives one back. The memory is kept for the next chunk.
func (b *buffers) put(buf []byte) { b.free <- buf }

// drop lets the memory of all buffers go that nobody uses.
func (b *buffers) drop() {
	for range cap(b.free) {
		select {
		case <-b.free:
			b.free <- nil
		default:
			return
		}
	}
}
