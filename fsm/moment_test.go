package fsm

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// M4: nodes that were told the same log in other batches can be compared at any entry; and giving a state away in the
// middle of a batch changes nothing of what the batch leads to.
func TestMachine_StateAt(t *testing.T) {
	log, end := randomLog(t, 5, 300)
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			m, asked := New(Options{}), 0
			for at := 0; at < len(log); {
				n := min(1+rng.IntN(90), len(log)-at)
				for range 3 {
					index, asking := uint64(at+1+rng.IntN(n)), m
					asked++
					go func() {
						s, err := asking.StateAt(t.Context(), index)
						if err != nil || s.Index() != index || s.Hash() != stateAfter(t, log[:index]).Hash() {
							t.Errorf("state at %d: %v, index %d", index, err, s.Index())
						}
					}()
				}
				synctest.Wait() // all three wait for a command of the next batch
				applyRaw(m, at, log[at:at+n])
				at += n
			}
			synctest.Wait()
			if m.State().Hash() != end.Hash() {
				t.Errorf("seed %d: %d states were given away, and the end is another", seed, asked)
			}
			if m.moments.lowest.Load() != noMoment {
				t.Errorf("seed %d: a moment is still wanted", seed)
			}
		})
	}
}

func stateAfter(t *testing.T, log [][]byte) *State {
	t.Helper()
	m := New(Options{})
	applyRaw(m, 0, log)
	return m.State()
}

// What is not reached, what has passed, and entries that are no commands.
func TestMachine_StateAtOtherTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := randomLog(t, 6, 10)
		m := New(Options{})
		applyRaw(m, 0, log[:4])
		if s, err := m.StateAt(t.Context(), 2); err != nil || s != m.State() {
			t.Errorf("an entry that has passed: state at %d, %v", s.Index(), err)
		}
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if s, err := m.StateAt(ctx, 5); s != nil || !errors.Is(err, why) {
			t.Errorf("an entry that does not come: %v, %v", s, err)
		}
		want := m.State()
		got := make(chan *State, 1)
		go func() { s, _ := m.StateAt(t.Context(), 6); got <- s }()
		synctest.Wait()
		m.ApplyBatch([]*raft.Log{{Index: 5, Type: raft.LogConfiguration}, {Index: 6, Type: raft.LogNoop}, {Index: 7, Data: log[4]}})
		if s := <-got; s != want && s.Hash() != want.Hash() || s.Index() != 4 {
			t.Errorf("an entry of Raft's own: state at %d", s.Index())
		}
		go func() { s, _ := m.StateAt(t.Context(), 9); got <- s }()
		synctest.Wait()
		m.Replace(stateAfter(t, log)) // a snapshot jumps over it
		if s := <-got; s.Index() != 10 {
			t.Errorf("jumped over by a snapshot: state at %d", s.Index())
		}
	})
}
