package fsm

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// moments are the places in the log at which somebody wants to see the state. Nodes cut the log into batches each in its
// own way, and publish at the end of a batch: a state at one and the same index is had from all of them only if it is
// taken in the middle of a batch, too.
type moments struct {
	// lowest is that of the wanted indexes; noMoment if there is none. The apply goroutine looks at it before each command.
	lowest atomic.Uint64

	mu     sync.Mutex
	wanted []*moment
}

const noMoment = math.MaxUint64

type moment struct {
	index uint64
	state chan *State // has room for one
}

// StateAt returns the state after the entry at index and before the next command; a later one if that moment has passed, or
// was jumped over by a snapshot; and the cause of ctx if neither comes before. Compare the Index of what is returned, not
// index: an entry of Raft's own changes no state. It may be called concurrently and holds up nothing: what it returns is
// shared with the states that follow, like every State.
func (m *Machine) StateAt(ctx context.Context, index uint64) (*State, error) {
	want := &moment{index: index, state: make(chan *State, 1)}
	m.moments.add(want)
	defer m.moments.remove(want)
	// Looked at after it is wanted, so that no command passes by unseen between the two.
	if s := m.State(); s.index >= index {
		return s, nil
	}
	select {
	case s := <-want.state:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (w *moments) add(one *moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = append(w.wanted, one)
	w.setLowestLocked()
}

func (w *moments) remove(one *moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = slices.DeleteFunc(w.wanted, func(x *moment) bool { return x == one })
	w.setLowestLocked()
}

func (w *moments) setLowestLocked() {
	lowest := uint64(noMoment)
	for _, one := range w.wanted {
		lowest = min(lowest, one.index)
	}
	w.lowest.Store(lowest)
}

// before is called when the command at next is about to be applied to s. The state to go on from is another one if s was
// given away: it is never written again.
func (w *moments) before(next uint64, s *State) *State {
	if next <= w.lowest.Load() {
		return s
	}
	w.give(s, func(one *moment) bool { return one.index < next })
	return s.fork()
}

// published is called when s is the newest state.
func (w *moments) published(s *State) {
	if s.index >= w.lowest.Load() {
		w.give(s, func(one *moment) bool { return one.index <= s.index })
	}
}

func (w *moments) give(s *State, due func(*moment) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = slices.DeleteFunc(w.wanted, func(one *moment) bool {
		if !due(one) {
			return false
		}
		one.state <- s
		return true
	})
	w.setLowestLocked()
}
