package vfs

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// Match chooses calls.
type Match func(Op) bool

// On chooses the calls of one kind whose base name fits a pattern of path/filepath.Match. It panics on a pattern
// that is not one.
func On(kind OpKind, pattern string) Match {
	if _, err := filepath.Match(pattern, ""); err != nil {
		panic("vfs: pattern " + pattern + ": " + err.Error())
	}
	return func(op Op) bool {
		ok, _ := filepath.Match(pattern, filepath.Base(op.Name))
		return ok && op.Kind == kind
	}
}

// At chooses the changing call number n.
func At(n uint64) Match { return func(op Op) bool { return op.N == n && n > 0 } }

// Fail answers err to every call that m chooses.
func Fail(m Match, err error) Hook {
	return func(op Op) error {
		if m(op) {
			return err
		}
		return nil
	}
}

// FailOnce answers err to the first call that m chooses and to no other.
func FailOnce(m Match, err error) Hook {
	var done atomic.Bool
	return func(op Op) error {
		if m(op) && done.CompareAndSwap(false, true) {
			return err
		}
		return nil
	}
}

// Chain asks each hook in turn until one answers an error.
func Chain(all ...Hook) Hook {
	return func(op Op) error {
		for _, h := range all {
			if err := h(op); err != nil {
				return err
			}
		}
		return nil
	}
}

// Gate holds calls back, as a disk that hangs. The zero Gate is not usable: see NewGate.
type Gate struct {
	match   Match
	arrived chan Op
	open    chan struct{}
	once    sync.Once
}

// NewGate returns a closed gate for the calls that m chooses.
func NewGate(m Match) *Gate {
	return &Gate{match: m, arrived: make(chan Op, 64), open: make(chan struct{})}
}

// Hook waits for Open in every call that the gate is for.
func (g *Gate) Hook(op Op) error {
	if !g.match(op) {
		return nil
	}
	select {
	case g.arrived <- op:
	default: // nobody counts more than the channel holds
	}
	<-g.open
	return nil
}

// Arrived tells the calls that reached the gate, in order.
func (g *Gate) Arrived() <-chan Op { return g.arrived }

// Open lets through all calls that wait, and all later ones. It may be called more than once.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Recorder keeps the changing calls in the order in which they were asked about.
type Recorder struct {
	mu  sync.Mutex
	ops []Op
}

// Hook records and lets pass.
func (r *Recorder) Hook(op Op) error {
	if op.Kind.Changes() {
		r.mu.Lock()
		r.ops = append(r.ops, op)
		r.mu.Unlock()
	}
	return nil
}

// Take returns what was recorded since the last Take.
func (r *Recorder) Take() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops := r.ops
	r.ops = nil
	return ops
}

// Budget answers ENOSPC to writes once a number of bytes was written, the last of them cut short. It counts what is
// written, whether it lengthens a file or not, and knows nothing of removals: Add gives room again. For a disk
// that counts what it holds, see CrashFS.SetCapacity.
type Budget struct {
	mu   sync.Mutex
	left int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Add gives so many bytes more, or less.
func (b *Budget) Add(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += bytes
}

// Hook takes the bytes of each write from the budget.
func (b *Budget) Hook(op Op) error {
	if op.Kind != OpWrite {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(op.Len) <= b.left {
		b.left -= int64(op.Len)
		return nil
	}
	n := int(max(b.left, 0))
	b.left -= int64(n)
	return &ShortWrite{N: n, Err: syscall.ENOSPC}
}
