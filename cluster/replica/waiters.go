package replica

import (
	"time"

	"github.com/vtop-log/vtop"
)

// waiter is one admitted batch whose answer waits until everything up to and with its last record is safe.
type waiter struct {
	base, last vtop.Offset
	since      time.Time
	expires    time.Time // zero: never
	done       func(vtop.AppendResult)
}

// waitList holds waiters of one leadership, and so of one epoch, ordered by last offset. It is guarded by the
// leadership's mu; the answers are given outside it.
type waitList struct {
	items []waiter
	head  int
}

func (w *waitList) len() int { return len(w.items) - w.head }

// add puts in one waiter. Batches are admitted nearly in order, so the place is found from the end.
func (w *waitList) add(n waiter) {
	i := len(w.items)
	w.items = append(w.items, n)
	for i > w.head && w.items[i-1].last > n.last {
		w.items[i] = w.items[i-1]
		i--
	}
	w.items[i] = n
}

// below takes out the waiters whose last record lies below end and appends them to out.
func (w *waitList) below(end vtop.Offset, out []waiter) []waiter {
	for w.head < len(w.items) && w.items[w.head].last < end {
		out = append(out, w.items[w.head])
		w.items[w.head] = waiter{}
		w.head++
	}
	w.compact()
	return out
}

// expired takes out the waiters whose time has passed.
func (w *waitList) expired(now time.Time, out []waiter) []waiter {
	kept := w.items[w.head:w.head]
	for _, n := range w.items[w.head:] {
		if !n.expires.IsZero() && now.After(n.expires) {
			out = append(out, n)
			continue
		}
		kept = append(kept, n)
	}
	clear(w.items[w.head+len(kept):])
	w.items = w.items[:w.head+len(kept)]
	w.compact()
	return out
}

// all takes out everything.
func (w *waitList) all(out []waiter) []waiter {
	out = append(out, w.items[w.head:]...)
	*w = waitList{}
	return out
}

// compact keeps the slice from creeping through memory.
func (w *waitList) compact() {
	switch {
	case w.head == len(w.items):
		w.items, w.head = w.items[:0], 0
	case w.head > 1024 && w.head > len(w.items)/2:
		n := copy(w.items, w.items[w.head:])
		clear(w.items[n:])
		w.items, w.head = w.items[:n], 0
	}
}
