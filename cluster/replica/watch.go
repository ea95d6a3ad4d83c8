package replica

import (
	"sync"
	"sync/atomic"

	"github.com/vtop-log/vtop"
)

// watches wakes those who wait for a range to move: fetches that found nothing, and WaitLeading.
type watches struct {
	any atomic.Int64 // how many are registered: the hot path looks here before it takes the lock
	mu  sync.Mutex
	of  map[vtop.Range]map[chan<- struct{}]int
}

func newWatches() *watches {
	return &watches{of: make(map[vtop.Range]map[chan<- struct{}]int)}
}

// add has wake signalled, without blocking, whenever one of the ranges moves. stop ends it; it may be called twice.
func (w *watches) add(ranges []vtop.Range, wake chan<- struct{}) (stop func()) {
	ranges = append([]vtop.Range(nil), ranges...)
	w.mu.Lock()
	for _, r := range ranges {
		if w.of[r] == nil {
			w.of[r] = make(map[chan<- struct{}]int, 1)
		}
		w.of[r][wake]++
	}
	w.any.Add(int64(len(ranges)))
	w.mu.Unlock()
	var once sync.Once
	return func() { once.Do(func() { w.remove(ranges, wake) }) }
}

func (w *watches) remove(ranges []vtop.Range, wake chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range ranges {
		chans := w.of[r]
		if chans[wake]--; chans[wake] <= 0 {
			delete(chans, wake)
		}
		if len(chans) == 0 {
			delete(w.of, r)
		}
	}
	w.any.Add(-int64(len(ranges)))
}

// moved wakes the watchers of r.
func (w *watches) moved(r vtop.Range) {
	if w.any.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.of[r] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}
