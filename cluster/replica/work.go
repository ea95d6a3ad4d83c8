package replica

import (
	"sync"

	"github.com/vtop-log/vtop"
)

// work is a set of ranges that want attention. A range is handed to one worker at a time; one that is added while a
// worker has it comes again afterwards, so no change is lost and nothing is queued twice. It holds at most one
// entry per range of the node (I13).
type work struct {
	mu      sync.Mutex
	ready   *sync.Cond
	queue   []vtop.Range
	waiting map[vtop.Range]bool // in queue, or to come again when its worker is done
	taken   map[vtop.Range]bool
	closed  bool
}

func newWork() *work {
	w := &work{waiting: make(map[vtop.Range]bool), taken: make(map[vtop.Range]bool)}
	w.ready = sync.NewCond(&w.mu)
	return w
}

// add asks for attention to the ranges. It never blocks.
func (w *work) add(ranges ...vtop.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranges {
		if w.waiting[r] || w.closed {
			continue
		}
		w.waiting[r] = true
		if !w.taken[r] {
			w.queue = append(w.queue, r)
			w.ready.Signal()
		}
	}
}

// take waits for a range; ok is false once the set is closed.
func (w *work) take() (r vtop.Range, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.ready.Wait()
	}
	if w.closed {
		return vtop.Range{}, false
	}
	r = w.queue[0]
	w.queue = w.queue[1:]
	delete(w.waiting, r)
	w.taken[r] = true
	return r, true
}

// takeAll waits for work and returns all of it; the ranges need no done.
func (w *work) takeAll() (ranges []vtop.Range, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.ready.Wait()
	}
	if w.closed {
		return nil, false
	}
	ranges, w.queue = w.queue, nil
	for _, r := range ranges {
		delete(w.waiting, r)
	}
	return ranges, true
}

// done gives back what take handed out.
func (w *work) done(r vtop.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.taken, r)
	if w.waiting[r] && !w.closed {
		w.queue = append(w.queue, r)
		w.ready.Signal()
	}
}

func (w *work) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.ready.Broadcast()
}
