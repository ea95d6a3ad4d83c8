package kafka

import (
	"sync"
	"time"
)

// queue holds the requests of one connection that wait for their answer, in their order. The reader pushes, the writer
// looks and pops. It does not bound itself: the connection's slots do.
type queue struct {
	mu     sync.Mutex
	items  []*frame
	closed bool
}

// push adds a request and says whether it is the only one.
func (q *queue) push(f *frame) (alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, f)
	return len(q.items) == 1
}

// head returns the oldest request, nil if there is none; closed says that none will come any more.
func (q *queue) head() (f *frame, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return nil, q.closed
	}
	return q.items[0], q.closed
}

// pop takes the oldest request off; nil if there is none.
func (q *queue) pop() *frame {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return nil
	}
	f := q.items[0]
	n := copy(q.items, q.items[1:]) // at most Config.MaxInFlight pointers
	q.items[n] = nil
	q.items = q.items[:n]
	return f
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// enqueue hands a request to the writer. A Produce that still waits for acknowledgements does not wake it: the last
// acknowledgement will, or the deadline. That saves one of two wake-ups for each request of a synchronous producer.
func (c *conn) enqueue(f *frame) {
	p := f.produce
	alone := c.queue.push(f)
	switch {
	case p == nil && alone:
		c.signal()
	case p != nil:
		if alone {
			c.deadline.Reset(time.Until(p.deadline))
		}
		p.drop() // the admission's own: from here on the call is the writer's
	}
}

// signal wakes the writer. It never blocks, and may be called by anyone at any time.
func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ready says whether the writer has something to do about a request.
func (f *frame) ready() bool {
	return f.produce == nil || f.produce.pending.Load() == 0 || !time.Now().Before(f.produce.deadline)
}
