package fsm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// Every invariant holds after every command, and every step keeps what must be kept.
func TestState_InvariantsHoldUnderRandomCommands(t *testing.T) {
	taken := map[Op]int{}
	rapid.Check(t, func(t *rapid.T) {
		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		s, h := NewState(), newHistory()
		for range rapid.IntRange(20, 120).Draw(t, "commands") {
			walk(t.Fatalf, &s, h, randomCommand(s, choose), taken)
		}
	})
}

// The same with a plain source: longer walks, cheaper choices, and every command taken at least once.
func TestState_InvariantsHoldOnLongWalks(t *testing.T) {
	taken := map[Op]int{}
	walks, steps := 60, 600
	if testing.Short() {
		walks = 10
	}
	for seed := range walks {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		s, h := NewState(), newHistory()
		for i := range steps {
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s", seed, i, fmt.Sprintf(format, args...))
			}
			walk(fail, &s, h, randomCommand(s, rng.IntN), taken)
		}
	}
	for _, row := range commands {
		if taken[row.op] == 0 && row.op != OpSetFeatureLevel {
			t.Errorf("%s was never taken: the walk does not reach it", row.name)
		}
	}
}

func walk(fail func(string, ...any), s **State, h *history, cmd Command, taken map[Op]int) {
	next, outs := (*s).Apply((*s).Index()+1, cmd)
	if err := next.Check(); err != nil {
		fail("after %+v: %v", cmd, err)
	}
	if err := h.step(*s, next, outs[0]); err != nil {
		fail("after %+v: %v", cmd, err)
	}
	if outs[0].Refusal == nil && (len(outs[0].Items) == 0 || outs[0].Items[0].Refusal == nil) {
		taken[cmd.Op()]++
	}
	*s = next
}

// randomLog is a log of encoded commands, and the state that they lead to.
func randomLog(t *testing.T, seed uint64, n int) (log [][]byte, end *State) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	s := NewState()
	for len(log) < n {
		cmd := randomCommand(s, rng.IntN)
		b, err := Encode(cmd)
		if err != nil {
			continue
		}
		log = append(log, b)
		s, _ = s.Apply(uint64(len(log)), cmd)
	}
	return log, s
}

// The same log gives the same state, however it is cut into batches, on however many processors, and with a
// snapshot and a restore in between.
func TestState_Deterministic(t *testing.T) {
	for seed := range uint64(8) {
		log, end := randomLog(t, seed, 400)
		want := end.Hash()
		rng := rand.New(rand.NewPCG(seed, 3))
		for _, procs := range []int{1, 4} {
			before := runtime.GOMAXPROCS(procs)
			m := New(Options{})
			for at := 0; at < len(log); {
				n := min(1+rng.IntN(40), len(log)-at)
				applyRaw(m, at, log[at:at+n])
				at += n
				if rng.IntN(4) == 0 {
					m = restarted(t, m)
				}
			}
			runtime.GOMAXPROCS(before)
			if m.State().Hash() != want {
				t.Fatalf("seed %d: another state hash with other batches", seed)
			}
			if err := m.State().Check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
